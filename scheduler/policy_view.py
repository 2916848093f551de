"""What policies read (`deskgrid.scheduler.policies.base.View`), and nothing else of the scheduler."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.policies.base import OpenSlot, Requirement, UpcomingWindows
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.merged import LongestOfAll, OneAfterAnother, RegularQueues
from deskgrid.scheduler.queues.waiting import ReadableQueue, RegularQueue
from deskgrid.scheduler.state.prediction_error import PredictionError
from deskgrid.scheduler.state.slots import Slot

# The same numbers added in another order give another sum. So a task's fit is tested three times, each time less
# strictly by this much: in the search for a task, in the search for its slot, and when it is sent.
ROUNDING_S = 1e-6
# For bags without experience.
_UNKNOWN = PredictionError()


class PolicyView:
    """The read-only view of ``grid`` that a policy gets for one pass. It is up to date throughout the pass."""

    __slots__ = ("_all", "_grid", "_slots", "changes", "now", "prediction_error", "priority", "regular")

    def __init__(self, grid: GridState, categories: Sequence[Category], all_categories: Sequence[Category]) -> None:
        """``categories``: those whose turn it is, of ``all_categories``."""
        self._grid = grid
        self._slots = grid.slots
        # None of these is replaced while a pass goes on.
        self.now = grid.now
        self.changes = grid.changes
        self.prediction_error: PredictionError = grid.prediction_error
        self._all = all_categories
        self.priority: ReadableQueue
        self.regular: RegularQueue
        if len(categories) == 1:
            self.priority, self.regular = categories[0].priority, categories[0].regular
        else:
            self._merge(categories)

    def _merge(self, categories: Sequence[Category]) -> None:
        places, known = {category: place for place, category in enumerate(categories)}, self._grid.tasks.known
        merged = LongestOfAll if self._grid.categories.order == "longest-first" else OneAfterAnother

        def place_of(task: int) -> int:
            return places[known(task).bag.category]

        self.priority = merged([category.priority for category in categories], place_of)
        self.regular = RegularQueues([category.regular for category in categories], place_of)

    def prediction_error_with(self, task: int) -> PredictionError:
        """How well the tasks of this task's bag have been predicted, if each had a prediction of its own."""
        return self._grid.tasks.known(task).bag.prediction_error or _UNKNOWN

    def waiting(self, limit: int) -> list[float] | None:
        """The runtimes of all waiting tasks, ascending; None when there are more than ``limit``."""
        if sum(map(len, self._all)) > limit:
            return None
        queues = [queue for category in self._all for queue in (category.priority, category.regular)]
        return sorted(chain.from_iterable([queue.ascending(limit) for queue in queues]))

    # --- slots with room ---------------------------------------------------------------------------------------------

    def tightest(self, runtime: float, requirement: Requirement) -> int | None:
        """Paper, phase 2: the slot with the smallest tl strictly greater than what ``runtime`` needs."""
        if not self.slots_with_room():
            return None
        needs = requirement.needs(runtime) + ROUNDING_S
        found = [index.tightest(needs, self.now) for index in self._slots.indexes()]
        fits = [row for row in found if row is not None]
        return min(fits)[2] if fits else None

    def tightest_empty(self, runtime: float, requirement: Requirement) -> tuple[int, float] | None:
        """Paper, phase 1: a slot with an empty queue on which ``runtime`` fits, and the limit on runtimes there."""
        slots = self._slots
        if not slots.with_room or self._grid.budget <= 0:
            return None
        needs = requirement.needs(runtime) + 2 * ROUNDING_S
        for index in (slots.idle, slots.spare):
            row = index.tightest(needs, self.now)
            if row is not None:
                # Even if large numbers make rounding swallow the difference, ``runtime`` is below the limit.
                return row[2], max(_limit(row[0], requirement), math.nextafter(runtime, math.inf))
        return None

    def longest_fit(self, requirement: Requirement) -> float:
        """The limit on runtimes that fit anywhere."""
        if not self.slots_with_room():
            return -math.inf
        return _limit(max(index.widest(self.now) for index in self._slots.indexes()), requirement)

    def slots_with_room(self) -> int:
        """How many slots have room; 0 when a bounded pass has used up its budget."""
        return self._slots.with_room if self._grid.budget > 0 else 0

    def slot_with_room(self, place: int) -> int:
        """The slot at ``place`` of ``slots_with_room()``."""
        for index in self._slots.indexes():
            if place < len(index):
                return index.at(place)
            place -= len(index)
        raise IndexError(place)

    # --- windows -----------------------------------------------------------------------------------------------------

    def open_slot(self, slot: int) -> OpenSlot:
        """The slot of that number."""
        return self._open_slot(self._slots.slots[slot])

    def _open_slot(self, slot: Slot) -> OpenSlot:
        worker, now = slot.worker, self.now
        due = slot.started + slot.sent[0].runtime if slot.sent else now
        return OpenSlot(
            worker.name, slot.position, (due if due > now else now) + slot.ahead_s + slot.queued_s, worker.ends_at
        )

    def open_slots(self) -> Iterator[OpenSlot]:
        """Every slot of every worker that is up and not in quarantine, except slots that owe an answer."""
        grid, slots = self._grid, self._slots.slots.values()
        shut = grid.quarantine.workers
        if not (shut or grid.deadlines.debts):
            return map(self._open_slot, slots)
        return map(self._open_slot, [slot for slot in slots if slot.owes is None and slot.worker.name not in shut])

    def upcoming(self) -> Iterator[UpcomingWindows]:
        """Every worker's windows to come, announced or by habit."""
        for worker in self._slots.workers.values():
            yield UpcomingWindows(worker.name, len(worker.slots), worker.expected(self.now))
        for name, away in self._grid.away.items():
            yield UpcomingWindows(name, away.slots, away.expected(self.now))


def _limit(left: float, requirement: Requirement) -> float:
    """The limit on runtimes that fit into ``left`` seconds: `Requirement.needs` inverted, less rounding."""
    margin, stretch, ample = requirement
    left -= margin + 2 * ROUNDING_S
    return left if left > ample else left / stretch
