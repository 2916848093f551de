"""What waits for peers that take it slowly. Pure: how a message is handed to a connection is the caller's.

Rule 1: nobody waits for a slow peer; its messages wait here, in order, and those of others go out.
Rule 2: what waits for one peer is bounded in bytes. Long before that, the sessions stop making more for it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from broker.protocol import PAYLOAD_LIMIT, Payload

# A message as it waits: what it says, and its large payloads, which are not in memory before it is handed over.
Parts = Sequence[Payload]

# Bytes that may wait for one peer; one for which more would wait is cut off. A PC with sixteen slots may be given
# sixteen of the largest arguments at once.
WAITING_LIMIT = 16 * PAYLOAD_LIMIT


class Handed(Enum):
    """What became of a message that was handed over."""

    TAKEN = 1
    LATER = 2  # the peer has enough for now
    NOBODY = 3  # the peer is gone


def size_of(parts: Parts) -> int:
    """The bytes of a message."""
    return sum(map(len, parts))


class Outgoing:
    """``hand_over(peer, parts)`` gives a message to a peer's connection, or says why not."""

    def __init__(self, hand_over: Callable[[bytes, Parts], Handed]) -> None:
        self._hand_over = hand_over
        self._waiting: dict[bytes, deque[Parts]] = {}
        self._bytes: dict[bytes, int] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def bytes_for(self, peer: bytes) -> int:
        """How much waits for ``peer``."""
        return self._bytes.get(peer, 0)

    def put(self, peer: bytes, parts: Parts) -> bool:
        """Send ``parts`` now or later; False when the peer is gone, or is to be cut off: nothing waits for it then."""
        if peer not in self._waiting:
            handed = self._hand_over(peer, parts)
            if handed is not Handed.LATER:
                return handed is Handed.TAKEN
        size = self.bytes_for(peer) + size_of(parts)
        if size > WAITING_LIMIT:
            self.drop(peer)
            return False
        self._waiting.setdefault(peer, deque()).append(parts)
        self._bytes[peer] = size
        return True

    def flush(self) -> list[bytes]:
        """Hand over what is taken by now; the peers that turned out to be gone."""
        return [peer for peer in list(self._waiting) if self._flush(peer) is Handed.NOBODY]

    def _flush(self, peer: bytes) -> Handed:
        messages, handed = self._waiting[peer], Handed.TAKEN
        while messages and handed is Handed.TAKEN:
            handed = self._hand_over(peer, messages[0])
            if handed is Handed.TAKEN:
                self._bytes[peer] -= size_of(messages.popleft())
        if handed is not Handed.LATER:
            self.drop(peer)
        return handed

    def drop(self, peer: bytes) -> None:
        """Forget what waits for ``peer``."""
        self._waiting.pop(peer, None)
        self._bytes.pop(peer, None)
