"""Carries out questions and orders in slices; credentials take turns. Pure.

Rule 1: a slice is bounded by counting units, not by a clock. A unit is about a microsecond.
Rule 2: questions and orders of one credential are carried out one after the other, in the order in which they came.
Rule 3: a question is dropped when nobody waits for the answer any more; an order goes on.
Rule 4: a question that waits for something outside the loop, such as a forecast, is parked until the next turn. Until
then, later ones of its credential go on.
"""

import json
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from deskgrid import wire
from deskgrid.broker.auth.roles import CredentialError
from deskgrid.broker.model.state import BrokerState
from deskgrid.scheduler.model import SchedulerError

# A slice yields how many units it took; an answer is JSON, or text that is JSON already.
Slices = Generator[int, None, Mapping[str, Any] | str]

# Units in one turn of the broker's loop: about ten milliseconds, in which no message is handled.
TURN_UNITS = 10_000
# Making and sending this many characters of an answer costs one unit.
CHARACTERS_A_UNIT = 100
# The least cost of a slice.
SLICE_UNITS = 30
# What a slice yields to be parked until the next turn.
PARKED = -1
# Waiting questions and orders of one credential, and of all; and for one credential, characters of their arguments.
WAITING_LIMIT = 4_000
WAITING_LIMIT_ALL = 20_000
WAITING_CHARACTERS = 16 * 2**20
# A failure is logged at most once in this time. Seconds.
NOTED_S = 1.0

# What whoever asks for more than is taken may do: one wording for every such limit.
LATER = "retry later"
WHEN_ANSWERED = "retry when some have been answered"

Made = TypeVar("Made")


def pending(what: str, then: str = WHEN_ANSWERED) -> str:
    """Say that no more of these is taken now. ``what``: how many there are, and of what; ``then``: what to do."""
    return f"{what} are pending already: {then}"


class AskError(Exception):
    """The question cannot be answered, or the order cannot be carried out; one line that says why."""


@dataclass(slots=True)
class Operation:
    """``peer`` and ``request``: who waits for the answer; None for nobody. ``size``: characters of its arguments."""

    owner: str
    slices: Slices
    order: bool
    peer: bytes | None = None
    request: int = 0
    size: int = 0
    begun: bool = False


class Operations:
    """The waiting operations, by credential."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._by_owner: OrderedDict[str, deque[Operation]] = OrderedDict()
        self._parked: dict[str, list[Operation]] = {}
        self._waiting = 0
        self._characters: dict[str, int] = {}
        # The operations that each peer waits for: a repeated question is not added again.
        self._asked: dict[bytes, dict[int, Operation]] = {}
        self._noted_at = -NOTED_S
        # The order that made the broker fail, if one did: the turn is undone, and the sessions start again.
        self.failed: Operation | None = None
        # Whether a peer reads its answers.
        self.reads: Callable[[bytes], bool] = lambda peer: True

    @property
    def waiting(self) -> bool:
        """Whether there is something to do."""
        return bool(self._by_owner)

    def refusal(self, owner: str, size: int) -> str:
        """Why a credential may not ask anything more now; empty when it may."""
        mine = len(self._by_owner.get(owner, ())) + len(self._parked.get(owner, ()))
        if mine >= WAITING_LIMIT or self._characters.get(owner, 0) + size > WAITING_CHARACTERS:
            return pending(f"{mine} questions and orders of {owner}")
        if self._waiting >= WAITING_LIMIT_ALL:
            return pending(f"{self._waiting} questions and orders", LATER)
        return ""

    def knows(self, peer: bytes, request: int) -> bool:
        """Whether this question is waiting already."""
        return request in self._asked.get(peer, ())

    def add(self, operation: Operation) -> None:
        """Add an operation, which waits for its turn."""
        self._by_owner.setdefault(operation.owner, deque()).append(operation)
        self._waiting += 1
        self._characters[operation.owner] = self._characters.get(operation.owner, 0) + operation.size
        if operation.peer is not None:
            self._asked.setdefault(operation.peer, {})[operation.request] = operation

    def gone(self, peer: bytes) -> None:
        """A connection has ended: nobody waits for its answers."""
        for operation in self._asked.pop(peer, {}).values():
            operation.peer = None

    def work(self, now: float) -> None:
        """Do the work of a turn: one slice for each credential, again and again."""
        left, parked, self._parked = TURN_UNITS, self._parked, {}
        for owner, operations in parked.items():
            self._by_owner.setdefault(owner, deque()).extend(operations)
        while left > 0 and self._by_owner:
            owner, mine = next(iter(self._by_owner.items()))
            left -= SLICE_UNITS + self._slice(mine[0], now)
            if not mine:
                del self._by_owner[owner]
            else:
                self._by_owner.move_to_end(owner)

    def _slice(self, operation: Operation, now: float) -> int:
        """Carry out one slice, and return how many units it took."""
        if not operation.order and (operation.peer is None or not (operation.begun or self.reads(operation.peer))):
            # Nobody waits for the answer, or the peer does not read its answers; it may ask again when it has read
            # some.
            operation.slices.close()
            self._end(operation, None)
            return 0
        operation.begun = True
        try:
            units = next(operation.slices)
            if units == PARKED:
                self._by_owner[operation.owner].popleft()
                self._parked.setdefault(operation.owner, []).append(operation)
            return max(0, units)
        except StopIteration as end:
            self._end(operation, answer := _answer(operation.request, end.value))
            # A text, like the status, is made once for many peers, and costs next to nothing here.
            return 0 if isinstance(end.value, str) else wire.weight(answer) // CHARACTERS_A_UNIT
        except (AskError, SchedulerError, CredentialError) as error:
            self._end(operation, wire.Failed(operation.request, str(error)))
        except Exception as error:
            if operation.order:
                self.failed = operation
                raise
            self._note(operation.owner, error, now)
            self._end(operation, wire.Failed(operation.request, "the broker could not answer this; its log says why"))
        return 0

    def _end(self, operation: Operation, answer: wire.Message | None) -> None:
        mine = self._by_owner[operation.owner]
        mine.popleft()
        self._waiting -= 1
        self._characters[operation.owner] -= operation.size
        if not mine and operation.owner not in self._parked:
            del self._characters[operation.owner]
        if operation.peer is not None:
            open_ones = self._asked[operation.peer]
            del open_ones[operation.request]
            if not open_ones:
                del self._asked[operation.peer]
            if answer is not None:
                self._state.send(operation.peer, answer)

    def _note(self, owner: str, error: Exception, now: float) -> None:
        if now >= self._noted_at + NOTED_S:
            self._noted_at = now
            self._state.note("question-failed", by=owner, error="".join(traceback.format_exception(error)))


def _answer(request: int, answer: dict[str, Any] | str) -> wire.Message:
    body = answer if isinstance(answer, str) else json.dumps(answer)
    if wire.is_longer(body, wire.ANSWER_BYTES):
        return wire.Failed(request, f"the answer has more than {wire.ANSWER_BYTES:,} bytes")
    return wire.Answer(request, body)


# A result that costs no more than this (one turn) is made again for everybody who asks, so that nobody sees an old one.
CHEAP_UNITS = 10_000


class SharedResult(Generic[Made]):
    """A result made in slices, once for all who ask in the meantime. A costly one is kept for ``kept_s`` seconds."""

    def __init__(self, make: Callable[[float], Generator[int, None, Made]], kept_s: float) -> None:
        self._make = make
        self._kept_s = kept_s
        self._made: list[Made] = []
        self._making: Generator[int, None, Made] | None = None
        self._begun = 0.0
        self._units = 0

    def get(self, now: float) -> Generator[int, None, Made]:
        """Get the result. Everybody who waits for it goes on making it in their own turns."""
        if self._made and self._making is None and self._units > CHEAP_UNITS and now < self._begun + self._kept_s:
            return self._made[0]
        if self._making is None:
            self._making, self._begun, self._units = self._make(now), now, 0
        making = self._making
        while self._making is making:
            try:
                units = next(making)
            except StopIteration as end:
                self._made, self._making = [end.value], None
            except Exception:
                self._making = None
                raise
            else:
                self._units += max(0, units)
                yield units
        return self._made[0]
