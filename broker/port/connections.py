"""Who is connected, over which file descriptor and with which key; and which connections to cut. Pure.

ZeroMQ reports every connection that is accepted, and every one that ends. A connection is a stranger until its first
message, whatever becomes of its handshake; then it is a peer.

Rule 1: strangers cannot keep peers out. Their number and their time are limited, and old strangers make room for new
ones: an honest stranger needs only milliseconds for its handshake.
Rule 2: no single key can take all connections.
Rule 3: nothing more is read from a connection that was cut off. If a connection ended by itself, everything that it
sent is read.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.port.receive_budget import CHATTER, SMALL, ReceiveBudget

# Connections in all: several times the PCs of a university. Each costs a file descriptor and some kilobytes.
CONNECTIONS_LIMIT = 5_000
# One key may have half of these, so that holders of other keys still get in. Without encryption all peers count as
# holders of one key.
SHARE = 2
# Connections with a key that is not the key of one PC. A submitter has one for each program; a PC uses the lab's key
# only to enrol. This limits how much can arrive between two checks of the unread bytes
# (`deskgrid.broker.port.receive_budget`). Outside Linux there is no such check, and this is the only limit.
PROGRAMS_LIMIT = 256
# Connections with the key of one PC: one for each of its workers, and a few whose end nobody has noticed yet.
PC_LIMIT = 32
# Connections that have not sent a message yet. After a power cut a thousand PCs may connect at once; those that are
# turned away try again, and all are connected within seconds.
STRANGERS_LIMIT = 250
# How long a new connection may stay silent: far longer than a handshake over a bad line takes. Seconds.
FIRST_WORD_S = 30.0
# New connections from one address in a second. A handshake costs the broker about a millisecond, so one machine can
# take a fifth of a core. A machine with many workers tries again.
HANDSHAKES_PER_S = 200
# A peer whose key was revoked is told so, and cut off after this long: enough for the words to leave a busy machine.
# Nothing more is read from it. Seconds.
LAST_WORD_S = 1.0


@dataclass(slots=True)
class Connection:
    """``read``: bytes read from it. ``since``: when we last saw that some had been read, or that nothing waited.

    ``handshakes``: how many handshakes of all connections had succeeded when it was accepted; its own succeeds later.
    ``user``: how ZeroMQ names this handshake with each of its messages. ``who``: whose key it has; None if it was
    revoked.
    """

    fd: int
    address: str
    began: float
    since: float
    handshakes: int = 0
    key: bytes = b""
    user: str = ""
    who: Credential | None = None
    read: int = 0
    read_before: int = 0
    dismissed: bool = False

    @property
    def is_program(self) -> bool:
        """Whether its key is known, and is not the key of one PC; always False without encryption."""
        return bool(self.key) and self.who is not None and self.who.role != "worker"

    def backlog(self, received: int, now: float) -> ReceiveBudget | None:
        """The unread part of the ``received`` bytes; None if that is next to nothing."""
        size = received - self.read - int((now - self.began) * CHATTER)
        if size < SMALL or self.read != self.read_before:
            self.since, self.read_before = now, self.read
        return None if size < SMALL else ReceiveBudget(self.fd, self.key, self.address, self.since, size)


class Connections:
    """``cut(fd)`` ends a connection; `ended` is called later. ``now`` is the broker's clock."""

    def __init__(self, cut: Callable[[int], None], limit: int = CONNECTIONS_LIMIT) -> None:
        self._cut = cut
        self._limit = limit
        self._strangers: OrderedDict[int, Connection] = OrderedDict()
        self._peers: dict[bytes, Connection] = {}
        self._on: dict[int, bytes] = {}
        self._by_key: Counter[bytes] = Counter()
        self._condemned: OrderedDict[int, float] = OrderedDict()
        # Connections that ended by themselves, by peer; some of their messages may be unread.
        self._leaving: dict[bytes, Connection] = {}
        # Peers whose connections ended before we read anything from them, and whose descriptors were reused.
        self._too_late: set[bytes] = set()
        # Handshakes from each address in the current second.
        self._second = 0
        self._begun: Counter[str] = Counter()
        self.turned_away = 0

    def __len__(self) -> int:
        return len(self._strangers) + len(self._peers)

    def __contains__(self, peer: bytes) -> bool:
        return peer in self._peers

    def of(self, peer: bytes) -> Connection | None:
        """The connection of a peer that is here."""
        return self._peers.get(peer)

    def find(self, peer: bytes, user: str) -> Connection | None:
        """The connection that a message came on, if anything was read from it before.

        A peer may take the name of one that has left. So the name of the handshake has to be the same, too.
        """
        for connection in (self._peers.get(peer), self._leaving.get(peer)):
            if connection is not None and connection.user == user:
                return connection
        return None

    def accepted(self, fd: int, address: str, now: float, handshakes: int = 0) -> None:
        """A new connection; ``handshakes``: how many have succeeded so far, of all connections."""
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

    def heard(
        self,
        peer: bytes,
        fd: int,
        key: bytes,
        most: int | None = None,
        handshake: int = 1,
        *,
        user: str = "",
        who: Credential | None = None,
    ) -> Connection | None:
        """Note the first message of a peer, and return its connection; None if it must not be read.

        There are three such cases. The peer was cut off. Or its key has ``most`` connections already (None: the share
        of any key), and the peer is cut off now. Or its connection has ended, and a newer one has its descriptor: the
        newer one was accepted after this ``handshake`` of the peer (its number among all handshakes).
        """
        if (left := self._leaving.get(peer)) is not None and left.user == user:
            return left
        if peer in self._too_late:
            return None
        earlier = self._on.get(fd)
        connection = self._strangers.get(fd) or (self._peers[earlier] if earlier is not None else None)
        if connection is None:
            return None
        if handshake <= connection.handshakes:
            self._too_late.add(peer)
            return None
        self._strangers.pop(fd, None)
        if earlier is not None:
            self._drop(earlier)  # its end was not reported yet, and its descriptor was reused
        if self._by_key[key] >= self._most(most):
            self.turned_away += 1
            self._cut(fd)
            return None
        self._peers[peer] = found = replace(
            connection, key=key, user=user, who=who, read=0, read_before=0, dismissed=False
        )
        self._on[fd] = peer
        self._by_key[key] += 1
        return found

    def _most(self, most: int | None) -> int:
        share = max(1, self._limit // SHARE)
        return share if most is None else min(share, most)

    def dismiss(self, peer: bytes, now: float) -> None:
        """Read nothing more from a peer, and cut it off in a moment, so that it can read why."""
        if (connection := self._peers.get(peer)) is not None:
            connection.dismissed = True
            self._condemned.setdefault(connection.fd, now + LAST_WORD_S)

    def all_read(self) -> None:
        """Nothing waits to be read."""
        self._leaving.clear()
        self._too_late.clear()

    def ended(self, fd: int) -> bytes | None:
        """A connection has ended; return its peer, if it had one."""
        self._strangers.pop(fd, None)
        self._condemned.pop(fd, None)
        peer = self._on.get(fd)
        if peer is not None:
            self._leaving[peer] = self._drop(peer)
        return peer

    def _drop(self, peer: bytes) -> Connection:
        connection = self._peers.pop(peer)
        del self._on[connection.fd]
        self._by_key[connection.key] -= 1
        self._by_key += Counter()  # drops the keys at zero
        return connection

    def backlogs(self, received: Callable[[int], int], now: float) -> list[ReceiveBudget]:
        """The unread bytes of each connection; ``received(fd)``: bytes that have arrived on it."""
        connections = [*self._strangers.values(), *self._peers.values()]
        found = [connection.backlog(received(connection.fd), now) for connection in connections]
        return [backlog for backlog in found if backlog is not None]

    def flooded(self, fd: int) -> bytes | None:
        """Cut off a connection with too many unread bytes; return its peer, if it had one."""
        peer = self._on.get(fd)
        if peer is None:
            self._turn_away(fd)
        else:
            self.turned_away += 1
            self.cut_off(peer)
        return peer

    def look_up(self, who: Callable[[bytes], Credential | None], now: float) -> None:
        """Keys have changed: look up whose each one is, and cut off the peers whose key is nobody's any more."""
        for connection in (*self._peers.values(), *self._leaving.values()):
            connection.who = who(connection.key)
        for connection in self._peers.values():
            if connection.who is None:
                self._condemned.setdefault(connection.fd, now + LAST_WORD_S)

    def cut_off(self, peer: bytes) -> None:
        """End a peer's connection now, and read nothing more from it."""
        if peer in self._peers:
            fd = self._drop(peer).fd
            self._condemned.pop(fd, None)
            self._cut(fd)

    def expire(self, now: float) -> None:
        """Cut the connections whose time is up."""
        while self._strangers and next(iter(self._strangers.values())).began + FIRST_WORD_S <= now:
            self._turn_away(next(iter(self._strangers)))
        while self._condemned and next(iter(self._condemned.values())) <= now:
            self._cut(self._condemned.popitem(last=False)[0])
