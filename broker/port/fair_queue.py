"""Messages that were read and not handled yet: credentials take turns. Pure.

Rule 1: one message of each credential is handled, then the next of each. Nobody waits for a thousand messages of
somebody else. A credential whose message took long passes some turns.
Rule 2: messages of one credential are handled in the order in which they were read.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.port.receive_budget import CREDENTIAL_LIMIT

# Messages of one credential that may wait here. Two hundred programs of one person, each with a dozen open requests,
# have fewer. Whoever has more sends without waiting for answers.
MESSAGES_LIMIT = 4_000
# What a message may take of a turn: nearly all take a twentieth of this. A credential passes a turn for each multiple
# of it that its message takes, up to `OWED_MOST_S`. Seconds.
TURN_S = 0.002
OWED_MOST_S = 1.0


class Arrival(NamedTuple):
    """A message as it was read; ``chunks`` are the frames behind it."""

    peer: bytes
    who: Credential
    data: bytes
    chunks: Sequence[memoryview] = ()

    @property
    def size(self) -> int:
        """Bytes of the message."""
        return len(self.data) + sum(map(len, self.chunks))


class FairQueue:
    """Everything that waits, by the name of its credential."""

    def __init__(self) -> None:
        # The credential whose turn is next comes first.
        self._queues: OrderedDict[str, deque[Arrival]] = OrderedDict()
        self._bytes: Counter[str] = Counter()
        self._by_peer: Counter[bytes] = Counter()
        # Seconds that a credential has taken beyond its turns.
        self._owed: dict[str, float] = {}
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, peer: bytes) -> bool:
        """Whether a message of ``peer`` waits."""
        return peer in self._by_peer

    def put(self, arrival: Arrival) -> bool:
        """Keep a message until its turn comes; False, and it is not kept, when its credential has too many waiting."""
        name, size = arrival.who.name, arrival.size
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = deque()
        elif len(queue) >= MESSAGES_LIMIT or self._bytes[name] + size > CREDENTIAL_LIMIT:
            return False
        queue.append(arrival)
        self._by_peer[arrival.peer] += 1
        self._count(name, size)
        return True

    def next_is_ready(self, waits: Callable[[Arrival], bool]) -> bool:
        """Whether `take` would return a message."""
        return any(not waits(queue[0]) for queue in self._queues.values())

    def take(self, waits: Callable[[Arrival], bool]) -> Arrival | None:
        """The next message; None when there is none, or when the first message of each credential ``waits``."""
        for name, queue in list(self._queues.items()) if self._owed else self._queues.items():
            if waits(queue[0]):
                continue
            self._queues.move_to_end(name)
            if not self._owes(name):
                return self._taken(name, queue)
        return None

    def took(self, name: str, seconds: float) -> None:
        """A message of this credential took so long; if that is more than a turn, others go first for as long."""
        if seconds > TURN_S:
            self._owed[name] = min(self._owed.get(name, 0.0) + seconds, OWED_MOST_S)

    def _owes(self, name: str) -> bool:
        """Whether a credential passes this turn. It owes less each time, and nothing when nobody else waits."""
        if name not in self._owed:
            return False
        self._owed[name] -= TURN_S
        if self._owed[name] <= 0.0 or len(self._queues) == 1:
            del self._owed[name]
            return False
        return True

    def drop(self, name: str) -> None:
        """Drop all messages of a credential."""
        while (queue := self._queues.get(name)) is not None:
            self._taken(name, queue)

    def _taken(self, name: str, queue: deque[Arrival]) -> Arrival:
        arrival = queue.popleft()
        self._count(name, -arrival.size)
        if not queue:
            del self._queues[name], self._bytes[name]
        self._by_peer[arrival.peer] -= 1
        if not self._by_peer[arrival.peer]:
            del self._by_peer[arrival.peer]
        return arrival

    def _count(self, name: str, size: int) -> None:
        self._bytes[name] += size
        self.size += size
