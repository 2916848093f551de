"""Who is connected, over which file descriptor and by which key; and which connections are to be cut. Pure.

ZeroMQ tells of every connection that is accepted and of every one that ends. One that has not said anything yet is a
stranger's, whatever becomes of its handshake; with its first message it is a peer's.

Rule 1: strangers cannot keep peers out. They are few, have little time, and make room for newer ones, for an honest
one is through with its handshake in milliseconds.
Rule 2: no key takes all there is.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable

# Connections in all: several times the PCs of a university. Each costs a file descriptor, and some kilobytes.
CONNECTIONS_LIMIT = 5_000
# Of these, by one key: half, so that whoever holds another one still gets in.
SHARE = 2
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


class Connections:
    """``cut(fd)`` ends a connection, of which `ended` is told in time. ``now`` is the broker's clock."""

    def __init__(self, cut: Callable[[int], None], limit: int = CONNECTIONS_LIMIT) -> None:
        self._cut = cut
        self._limit = limit
        self._strangers: OrderedDict[int, float] = OrderedDict()
        self._peers: dict[bytes, tuple[int, bytes]] = {}
        self._on: dict[int, bytes] = {}
        self._by_key: Counter[bytes] = Counter()
        self._condemned: OrderedDict[int, float] = OrderedDict()
        # Handshakes from each address in the current second.
        self._second = 0
        self._begun: Counter[str] = Counter()
        self.turned_away = 0

    def __len__(self) -> int:
        return len(self._strangers) + len(self._peers)

    def __contains__(self, peer: bytes) -> bool:
        return peer in self._peers

    def accepted(self, fd: int, address: str, now: float) -> None:
        """There is a new connection."""
        self._strangers[fd] = now
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

    def heard(self, peer: bytes, fd: int, key: bytes) -> bool:
        """A peer said something for the first time; False when it is one too many by its key, and cut off."""
        self._strangers.pop(fd, None)
        if self._by_key[key] >= max(1, self._limit // SHARE):
            self.turned_away += 1
            self._cut(fd)
            return False
        self._peers[peer] = fd, key
        self._on[fd] = peer
        self._by_key[key] += 1
        return True

    def ended(self, fd: int) -> bytes | None:
        """A connection is no more; whose it was, if that was known."""
        self._strangers.pop(fd, None)
        self._condemned.pop(fd, None)
        peer = self._on.pop(fd, None)
        if peer is not None:
            _, key = self._peers.pop(peer)
            self._by_key[key] -= 1
            self._by_key += Counter()  # without those at zero
        return peer

    def condemn(self, known: Callable[[bytes], bool], now: float) -> None:
        """Keys were revoked: cut off those whose key is not ``known`` any more."""
        for fd, key in self._peers.values():
            if not known(key):
                self._condemned.setdefault(fd, now + LAST_WORD_S)

    def cut_off(self, peer: bytes) -> None:
        """End a peer's connection now."""
        if peer in self._peers:
            self._cut(self._peers[peer][0])

    def expire(self, now: float) -> None:
        """Cut those whose time is up."""
        while self._strangers and next(iter(self._strangers.values())) + FIRST_WORD_S <= now:
            self._turn_away(next(iter(self._strangers)))
        while self._condemned and next(iter(self._condemned.values())) <= now:
            self._cut(self._condemned.popitem(last=False)[0])
