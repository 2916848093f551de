"""Messages that wait for slow peers. Pure: the caller hands messages to connections.

Rule 1: nobody waits for a slow peer. Its messages wait here, in order, while messages for other peers go out.
Rule 2: the waiting bytes are limited for one peer, for all peers of one credential, and in all. The sessions stop
making messages long before these limits are reached.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import Enum

from deskgrid.wire import PAYLOAD_LIMIT, Payload

# A message as it waits: its body and its large payloads, which are read into memory when it is handed over.
Parts = Sequence[Payload]

# Bytes that may wait for one peer; a peer with more is cut off. A PC with sixteen slots may get sixteen of the largest
# arguments at once.
WAITING_LIMIT = 16 * PAYLOAD_LIMIT
# Bytes that may wait for all programs of one submitter or admin.
PROGRAMS_WAITING_LIMIT = 4 * PAYLOAD_LIMIT
# Bytes that may wait in all. If there are more, the credential with the most of them is cut off.
ALL_WAITING_LIMIT = 64 * PAYLOAD_LIMIT
# The memory that a waiting message takes besides its own bytes. Without this, a queue of small messages would count for
# next to nothing.
MESSAGE_BYTES = 300


class SendResult(Enum):
    """What became of a message."""

    SENT = 1
    WOULD_BLOCK = 2  # the peer has enough for now
    GONE = 3  # the peer is gone


def size_of(parts: Parts) -> int:
    """The bytes of a message."""
    return sum(map(len, parts))


class OutstandingBytes:
    """Bytes that peers have not taken: for each peer, for all peers that share a key, and in all."""

    def __init__(self) -> None:
        self.total = 0
        self.of_key: Counter[bytes] = Counter()
        self._of_peer: Counter[bytes] = Counter()
        self._keys: dict[bytes, bytes] = {}

    def add(self, peer: bytes, key: bytes, size: int) -> None:
        """``size`` bytes more wait for a peer; less, if it is negative."""
        self.total += size
        self.of_key[key] += size
        self._of_peer[peer] += size
        self._keys[peer] = key
        if not self._of_peer[peer]:
            del self._of_peer[peer], self._keys[peer]
        if not self.of_key[key]:
            del self.of_key[key]

    def of_peer(self, peer: bytes) -> int:
        """The bytes that wait for a peer."""
        return self._of_peer.get(peer, 0)

    def key_of(self, peer: bytes) -> bytes:
        """The key of a peer for which something waits."""
        return self._keys.get(peer, b"")

    def peers_of(self, key: bytes) -> list[bytes]:
        """The peers of a key for which something waits."""
        return [peer for peer, its in self._keys.items() if its == key]


class SendQueue:
    """``hand_over(peer, parts)`` gives a message to a peer's connection, or says why not."""

    def __init__(self, hand_over: Callable[[bytes, Parts], SendResult], outstanding: OutstandingBytes) -> None:
        """``outstanding``: counts the bytes that wait here."""
        self._hand_over = hand_over
        self._outstanding = outstanding
        self._waiting: dict[bytes, deque[Parts]] = {}
        self._bytes: Counter[bytes] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, peer: bytes, parts: Parts, key: bytes = b"", most: int = WAITING_LIMIT) -> bool:
        """Send ``parts`` now or later; False when the peer is gone or has to be cut off, and nothing waits for it.

        A peer is to be cut off if more than `WAITING_LIMIT` would wait for it, or more than ``most`` for its ``key``.
        """
        if peer not in self._waiting:
            handed = self._hand_over(peer, parts)
            if handed is not SendResult.WOULD_BLOCK:
                return handed is SendResult.SENT
        size = size_of(parts) + MESSAGE_BYTES
        if self._outstanding.of_peer(peer) + size > WAITING_LIMIT or self._outstanding.of_key[key] + size > most:
            self.drop(peer)
            return False
        self._waiting.setdefault(peer, deque()).append(parts)
        self._count(peer, key, size)
        return True

    def _count(self, peer: bytes, key: bytes, size: int) -> None:
        self._bytes[peer] += size
        self._outstanding.add(peer, key, size)

    def flush(self) -> list[bytes]:
        """Hand over the messages that peers take now, and return the peers that turned out to be gone."""
        return [peer for peer in list(self._waiting) if self._flush(peer) is SendResult.GONE]

    def _flush(self, peer: bytes) -> SendResult:
        messages, handed = self._waiting[peer], SendResult.SENT
        while messages and handed is SendResult.SENT:
            handed = self._hand_over(peer, messages[0])
            if handed is SendResult.SENT:
                self._count(peer, self._outstanding.key_of(peer), -size_of(messages.popleft()) - MESSAGE_BYTES)
        if handed is not SendResult.WOULD_BLOCK:
            self.drop(peer)
        return handed

    def drop(self, peer: bytes) -> None:
        """Drop the messages that wait for ``peer``."""
        self._waiting.pop(peer, None)
        if size := self._bytes.pop(peer, 0):
            self._outstanding.add(peer, self._outstanding.key_of(peer), -size)

    def too_many(self) -> list[bytes]:
        """The peers to cut off because too many bytes wait in all: those of the credential with the most bytes."""
        if self._outstanding.total <= ALL_WAITING_LIMIT:
            return []
        ((key, _),) = self._outstanding.of_key.most_common(1)
        return self._outstanding.peers_of(key)
