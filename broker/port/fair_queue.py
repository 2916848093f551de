"""Messages that were read and are not handled yet: credentials take turns. Pure.

Rule 1: of every credential one message is handled, then of each the next: a thousand messages of one are not handled
before one of another. Whose message took long passes turns for it.
Rule 2: what one credential says is handled in the order in which it was read.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.port.receive_budget import CREDENTIAL_LIMIT

# Messages of one credential that may wait here. Two hundred programs of one person, each with a dozen requests open,
# are below that; whoever has more sends without waiting for answers.
MESSAGES_LIMIT = 4_000
# What a message may take of a turn, seconds: nearly all take a twentieth of it. For each of these that one takes more,
# its credential passes a turn; for no more than so many seconds.
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
        """Its bytes."""
        return len(self.data) + sum(map(len, self.chunks))


class FairQueue:
    """Everything that waits, by the name of its credential."""

    def __init__(self) -> None:
        # Whoever is next comes first.
        self._queues: OrderedDict[str, deque[Arrival]] = OrderedDict()
        self._bytes: Counter[str] = Counter()
        self._by_peer: Counter[bytes] = Counter()
        # Seconds by which a credential has taken more than its turns.
        self._owed: dict[str, float] = {}
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, peer: bytes) -> bool:
        """Whether something that ``peer`` said waits."""
        return peer in self._by_peer

    def put(self, arrival: Arrival) -> bool:
        """Keep a message until its turn comes; False when its credential has too much waiting: then it is not kept."""
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
        """Whether `take` would give one."""
        return any(not waits(queue[0]) for queue in self._queues.values())

    def take(self, waits: Callable[[Arrival], bool]) -> Arrival | None:
        """The next message; None when there is none, or when of each credential the first one still ``waits``."""
        for name, queue in list(self._queues.items()) if self._owed else self._queues.items():
            if waits(queue[0]):
                continue
            self._queues.move_to_end(name)
            if not self._owes(name):
                return self._taken(name, queue)
        return None

    def took(self, name: str, seconds: float) -> None:
        """A message of this credential took so long; if that was long, it lets others go before it as long."""
        if seconds > TURN_S:
            self._owed[name] = min(self._owed.get(name, 0.0) + seconds, OWED_MOST_S)

    def _owes(self, name: str) -> bool:
        """Whether a credential passes its turn, unless nobody else has one; each time it does, it owes less."""
        if name not in self._owed:
            return False
        self._owed[name] -= TURN_S
        if self._owed[name] <= 0.0 or len(self._queues) == 1:
            del self._owed[name]
            return False
        return True

    def drop(self, name: str) -> None:
        """Forget everything that a credential said."""
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
