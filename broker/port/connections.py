"""Who is connected, over which file descriptor and by which key; and which connections are to be cut. Pure.

ZeroMQ tells of every connection that is accepted and of every one that ends. One that has not said anything yet is a
stranger's, whatever becomes of its handshake; with its first message it is a peer's.

Rule 1: strangers cannot keep peers out. They are few, have little time, and make room for newer ones, for an honest
one is through with its handshake in milliseconds.
Rule 2: no key takes all there is.
Rule 3: of a connection that was cut off nothing more is read, and of one that ended by itself what it said before.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from deskgrid.broker.port.receive_budget import CHATTER, SMALL, ReceiveBudget

# Connections in all: several times the PCs of a university. Each costs a file descriptor, and some kilobytes.
CONNECTIONS_LIMIT = 5_000
# Of these, by one key: half, so that whoever holds another one still gets in. All PCs may have the same.
SHARE = 2
# And by the key of a submitter, who needs one for each program. What arrives over so many between two looks at what
# waits (`deskgrid.broker.port.receive_budget`) is bounded; where nobody can look (not on Linux) this alone bounds it.
PROGRAMS_LIMIT = 256
# Connections that have not said anything yet. After a power cut a thousand PCs may come at once; all are let in within
# seconds, for they try again.
STRANGERS_LIMIT = 250
# How long a connection may say nothing: far longer than a handshake over a bad line. Seconds.
FIRST_WORD_S = 30.0
# New connections from one address in a second: a handshake is about a millisecond of work for the broker, so that one
# machine can take a fifth of a core. A machine with many workers tries again.
HANDSHAKES_PER_S = 200
# A peer whose key was revoked is told so, and cut off after so long, in which nothing of it is read any more. Seconds.
LAST_WORD_S = 0.2


@dataclass(slots=True)
class Connection:
    """``read``: bytes of it that were read. ``since``: when it was last seen that something was, or nothing waited.

    ``handshakes``: how many had succeeded, of all connections, when it was accepted; its own comes later.
    """

    fd: int
    address: str
    began: float
    since: float
    key: bytes = b""
    read: int = 0
    read_before: int = 0
    dismissed: bool = False
    handshakes: int = 0

    def backlog(self, received: int, now: float) -> ReceiveBudget | None:
        """What of ``received`` bytes waits, as seen now; None: nothing to speak of."""
        size = received - self.read - int((now - self.began) * CHATTER)
        if size < SMALL or self.read != self.read_before:
            self.since, self.read_before = now, self.read
        return None if size < SMALL else ReceiveBudget(self.fd, self.key, self.address, self.since, size)


class Connections:
    """``cut(fd)`` ends a connection, of which `ended` is told in time. ``now`` is the broker's clock."""

    def __init__(self, cut: Callable[[int], None], limit: int = CONNECTIONS_LIMIT) -> None:
        self._cut = cut
        self._limit = limit
        self._strangers: OrderedDict[int, Connection] = OrderedDict()
        self._peers: dict[bytes, Connection] = {}
        self._on: dict[int, bytes] = {}
        self._by_key: Counter[bytes] = Counter()
        self._condemned: OrderedDict[int, float] = OrderedDict()
        # Peers that ended by themselves, of which something may wait to be read.
        self._leaving: set[bytes] = set()
        # Peers whose connections ended before anything of them was read, and had their numbers given to others.
        self._too_late: set[bytes] = set()
        # Handshakes from each address in the current second.
        self._second = 0
        self._begun: Counter[str] = Counter()
        self.turned_away = 0

    def __len__(self) -> int:
        return len(self._strangers) + len(self._peers)

    def __contains__(self, peer: bytes) -> bool:
        return peer in self._peers

    def accepted(self, fd: int, address: str, now: float, handshakes: int = 0) -> None:
        """There is a new connection; ``handshakes``: how many have succeeded by now, of all."""
        self._strangers[fd] = Connection(fd, address, now, now, handshakes=handshakes)
        if self._too_often(address, now) or len(self) > self._limit:
            self._turn_away(fd)
        elif len(self._strangers) > STRANGERS_LIMIT:
            self._turn_away(next(iter(self._strangers)))

    def _too_often(self, address: str, now: float) -> bool:
        if int(now) != self._second:
            self._second = int(now)
            self._begun.clear()
        self._begun[address] += 1
        return self._begun[address] > HANDSHAKES_PER_S

    def _turn_away(self, fd: int) -> None:
        del self._strangers[fd]
        self.turned_away += 1
        self._cut(fd)

    def heard(self, peer: bytes, fd: int, key: bytes, most: int | None = None, handshake: int = 1) -> bool:
        """A peer said something for the first time; False when nothing of it is to be read.

        That is so when it was cut off, or is one more than ``most`` by its key (None: the share of any), which cuts it;
        and when its connection ended before anything of it was read, and another one has its number by now, as one has
        that was accepted after its ``handshake``, the so-manieth of all.
        """
        if peer in self._leaving:
            return True
        if peer in self._too_late:
            return False
        stranger = self._strangers.get(fd)
        if stranger is not None and handshake <= stranger.handshakes:
            self._too_late.add(peer)
            return False
        connection = self._strangers.pop(fd, None)
        if connection is None and (earlier := self._on.get(fd)) is not None:
            connection = self._drop(earlier)  # it ended before it was heard, and its number was given again
        if connection is None:
            return False
        if self._by_key[key] >= self._most(most):
            self.turned_away += 1
            self._cut(fd)
            return False
        self._peers[peer] = Connection(fd, connection.address, connection.began, connection.since, key)
        self._on[fd] = peer
        self._by_key[key] += 1
        return True

    def _most(self, most: int | None) -> int:
        share = max(1, self._limit // SHARE)
        return share if most is None else min(share, most)

    def read(self, peer: bytes, size: int) -> bool:
        """So many bytes of a peer's connection were read; False when it was dismissed."""
        if (connection := self._peers.get(peer)) is None:
            return True
        connection.read += size
        return not connection.dismissed

    def key_of(self, peer: bytes) -> bytes:
        """The key of a peer that is connected; empty for others, and without encryption."""
        connection = self._peers.get(peer)
        return b"" if connection is None else connection.key

    def dismiss(self, peer: bytes, now: float) -> None:
        """Hear nothing more of a peer, and cut it off in a moment, in which it can read why."""
        if (connection := self._peers.get(peer)) is not None:
            connection.dismissed = True
            self._condemned.setdefault(connection.fd, now + LAST_WORD_S)

    def all_read(self) -> None:
        """Nothing waits to be read."""
        self._leaving.clear()
        self._too_late.clear()

    def ended(self, fd: int) -> bytes | None:
        """A connection is no more; whose it was, if that was known."""
        self._strangers.pop(fd, None)
        self._condemned.pop(fd, None)
        peer = self._on.get(fd)
        if peer is not None:
            self._drop(peer)
            self._leaving.add(peer)
        return peer

    def _drop(self, peer: bytes) -> Connection:
        connection = self._peers.pop(peer)
        del self._on[connection.fd]
        self._by_key[connection.key] -= 1
        self._by_key += Counter()  # without those at zero
        return connection

    def backlogs(self, received: Callable[[int], int], now: float) -> list[ReceiveBudget]:
        """What waits to be read of each connection, of which ``received(fd)`` bytes have arrived."""
        connections = [*self._strangers.values(), *self._peers.values()]
        found = [connection.backlog(received(connection.fd), now) for connection in connections]
        return [backlog for backlog in found if backlog is not None]

    def flooded(self, fd: int) -> bytes | None:
        """Cut off a connection of which too much waits; whose it was, if that was known."""
        peer = self._on.get(fd)
        if peer is None:
            self._turn_away(fd)
        else:
            self.turned_away += 1
            self.cut_off(peer)
        return peer

    def condemn(self, known: Callable[[bytes], bool], now: float) -> None:
        """Keys were revoked: cut off those whose key is not ``known`` any more."""
        for connection in self._peers.values():
            if not known(connection.key):
                self._condemned.setdefault(connection.fd, now + LAST_WORD_S)

    def cut_off(self, peer: bytes) -> None:
        """End a peer's connection now, and read nothing more of it."""
        if peer in self._peers:
            fd = self._drop(peer).fd
            self._condemned.pop(fd, None)
            self._cut(fd)

    def expire(self, now: float) -> None:
        """Cut those whose time is up."""
        while self._strangers and next(iter(self._strangers.values())).began + FIRST_WORD_S <= now:
            self._turn_away(next(iter(self._strangers)))
        while self._condemned and next(iter(self._condemned.values())) <= now:
            self._cut(self._condemned.popitem(last=False)[0])
