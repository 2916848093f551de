"""When something is due although nothing happens: one heap for all that is waited for. And how long to wait.

What changes with every task has heaps of its own: looks at slots (`Looks`), and ends of running tasks (`SlotTable`).
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Any, Literal, NamedTuple

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.slots import Slot

# Timers that go off in one pass, at most: tasks whose pauses are over take some ten milliseconds. The rest remain due.
AT_A_TIME = 5_000
# Entries of timers that were dropped or set anew are removed when they outnumber the others by more than this.
_STALE = 1024
# The heap is rebuilt when it has this many entries for each slot: all but one of them are out of date.
ENTRIES = 4


class Timer(IntEnum):
    """What is due, and of what."""

    PAUSE = 0  # a task is tried again; of the task
    CLOSING = 1  # a window is expected to close; of (worker, when)
    WIDENING = 2  # a new worker gets more slots; of the worker
    AVOIDED = 3  # a worker gets some work again; after that, its failure is forgotten; of (worker, kind of work)
    REST = 4  # a worker gets gangs again; of the worker
    QUARANTINE = 5  # a worker is tried, if it is up; of the worker


class Timers:
    """``at``: when each is due that is set, by what it is and of what."""

    def __init__(self) -> None:
        self.at: dict[Timer, dict[Any, float]] = {timer: {} for timer in Timer}
        # The soonest first; of several at once, the one that was set first. Some entries are of timers that are not set
        # any more.
        self._heap: list[tuple[float, int, Timer, Any]] = []
        self._made = 0

    @property
    def next(self) -> float:
        """When the next one is due; infinity if none is set."""
        while self._heap and not self._is_set(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def set(self, timer: Timer, of: Hashable, at: float) -> None:
        """Go off at the time ``at``, and at no other that was set before."""
        self.at[timer][of] = at
        self._made += 1
        heappush(self._heap, (at, self._made, timer, of))
        if len(self._heap) > 2 * sum(map(len, self.at.values())) + _STALE:
            self._heap = [entry for entry in self._heap if self._is_set(entry)]
            heapify(self._heap)

    def drop(self, timer: Timer, of: Hashable) -> None:
        """Do not go off."""
        self.at[timer].pop(of, None)

    def due(self, now: float) -> Iterator[tuple[Timer, Any, float]]:
        """Take those that are due, at most `AT_A_TIME` of them: what each is, of what, and when it was due."""
        for _ in range(AT_A_TIME):
            if self.next > now:
                return
            at, _, timer, of = heappop(self._heap)
            del self.at[timer][of]
            yield timer, of, at

    def _is_set(self, entry: tuple[float, int, Timer, Any]) -> bool:
        at, _, timer, of = entry
        return self.at[timer].get(of) == at

    def check(self) -> None:
        """Raise `InvariantBroken` unless all that are set will go off."""
        entries = {(timer, of, at) for at, _, timer, of in self._heap}
        kept = {(timer, of, at) for timer, times in self.at.items() for of, at in times.items()}
        agree("timers that will not go off", kept - entries, set())


class Looks:
    """When to look at slots: no pass looks at all of them. The time of a look may be too early; then there is another.

    ``field``: the attribute of a slot that holds the time of its next look, in seconds; infinity if there is none.

    ``entries``: these times, and the numbers of the slots.
    """

    def __init__(self, field: Literal["look_at", "copy_look_at"]) -> None:
        self._field = field
        self.entries: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def next(self) -> float:
        """When a pass has to look at a slot; infinity if at none."""
        return self.entries[0][0] if self.entries else math.inf

    def add(self, slot: Slot, at: float) -> None:
        """Look at ``slot`` at the time ``at``, unless an earlier look is scheduled."""
        if at < getattr(slot, self._field):
            setattr(slot, self._field, at)
            heappush(self.entries, (at, slot.number))

    def due(self, slots: Mapping[int, Slot], most: int, now: float) -> Iterator[Slot]:
        """Take the slots whose look is due off the heap, and yield them; after ``most`` entries it stops."""
        if len(self.entries) > ENTRIES * (len(slots) + most):
            times = ((getattr(slot, self._field), number) for number, slot in slots.items())
            self.entries = [entry for entry in times if entry[0] < math.inf]
            heapify(self.entries)
        for _ in range(most):
            if self.next > now:
                return
            at, number = heappop(self.entries)
            slot = slots.get(number)
            if slot is not None and getattr(slot, self._field) == at:
                setattr(slot, self._field, math.inf)
                yield slot


class Backoff(NamedTuple):
    """Waits after failures: ``first_s`` seconds, then each time ``factor`` times as long, but at most ``limit_s``."""

    first_s: float
    limit_s: float
    factor: float = 2.0

    def after(self, lasted: float) -> float:
        """The wait after one that ``lasted`` so many seconds; 0.0: the first."""
        return min(lasted * self.factor, self.limit_s) if lasted else self.first_s

    def nth(self, failures: int) -> float:
        """The wait after so many failures, at least one."""
        return min(self.first_s * self.factor ** min(failures - 1, 60), self.limit_s)  # a million would overflow
