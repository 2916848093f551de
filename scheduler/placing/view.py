"""What policies read (`deskgrid.scheduler.policies.base.View`), and nothing else of the scheduler."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from statistics import fmean

from deskgrid.scheduler.fitting import ROUNDING, Requirement
from deskgrid.scheduler.model import UpcomingWindows, Windows
from deskgrid.scheduler.policies.base import OpenSlot
from deskgrid.scheduler.policies.planning.turn import Turn
from deskgrid.scheduler.prediction.prediction_error import PredictionError
from deskgrid.scheduler.prediction.ratios import Shown
from deskgrid.scheduler.prediction.spread import RatioSpread, longest, narrow, runtimes
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.merged import LongestOfAll, OneAfterAnother, RegularQueues
from deskgrid.scheduler.queues.waiting import ReadableQueue, RegularQueue
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.grid import SchedulerState

# How many slots are searched for running tasks of a bag.
RUNNING = 64
_NONE: dict[int, Shown] = {}


class PolicyView:
    """The read-only view of ``grid`` that a policy gets for one pass. It is up to date throughout the pass."""

    __slots__ = (
        "_all",
        "_grid",
        "_slots",
        "_spreads",
        "changes",
        "now",
        "prediction_error",
        "priority",
        "regular",
        "turn",
    )

    def __init__(
        self,
        grid: SchedulerState,
        categories: Sequence[Category],
        all_categories: Sequence[Category],
        turn: Turn | None = None,
    ) -> None:
        """``categories``: those whose turn it is, of ``all_categories``."""
        self.turn = turn
        self._grid = grid
        self._slots = grid.slots
        # By bag. No task ends while a pass goes on.
        self._spreads: dict[int, RatioSpread] = {}
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

    def spread(self, task: int) -> RatioSpread:
        """What the predictions of this task's bag are worth."""
        return self._spread(self._grid.tasks.known(task).bag)

    def _spread(self, bag: ScheduledBag) -> RatioSpread:
        spread = self._spreads.get(bag.number)
        if spread is None:
            spread = self._spreads[bag.number] = bag.spread(partial(self._running, bag))
        return spread

    def certain(self, task: int) -> bool:
        """Whether predictions of this task's bag can be taken at their word, but for a common factor."""
        bag = self._grid.tasks.known(task).bag
        return bag.alike or narrow(self._spread(bag))

    def _running(self, bag: ScheduledBag) -> list[Shown]:
        """What running tasks of a bag have shown: not of all, if there are many slots."""
        found: list[Shown] = []
        for slot in islice(self._slots.slots.values(), RUNNING):
            if slot.sent and (batch := self._grid.tasks.known(task := slot.sent[0].task)).bag is bag:
                predicted, shown = batch.evidence(task)
                found.append((max(shown, self._grid.ran_s(slot, self.now) * slot.speed), predicted))
        return found

    def runtimes(self, task: int) -> list[float]:
        """How long a task may take, by all that is known, in seconds: ascending values of equal weight."""
        batch = self._grid.tasks.known(task)
        predicted, shown = batch.evidence(task)
        return runtimes(predicted, self._spread(batch.bag), shown)

    def longest(self, task: int) -> float:
        """A bound that `runtimes` do not exceed, found without making them."""
        batch = self._grid.tasks.known(task)
        predicted, shown = batch.evidence(task)
        return longest(predicted, self._spread(batch.bag), shown)

    def runtime(self, task: int) -> float:
        """The predicted runtime of a task."""
        return self._grid.tasks.runtime(task)

    def tried(self, task: int) -> dict[int, Shown]:
        """The tasks of this task's bag that were killed and have not ended since, the latest last."""
        bag = self._grid.tasks.known(task).bag
        return _NONE if bag.ratios is None else bag.ratios.shown

    def expected_free(self, slot: int) -> float:
        """When a slot is free, as its running task is expected to take."""
        at = self._slots.slots[slot]
        if not at.sent:
            return self.now
        if at.gang is not None:
            return max(self.now, at.due)
        batch = self._grid.tasks.known(task := at.sent[0].task)
        predicted, shown = batch.evidence(task)
        likely = runtimes(predicted, self._spread(batch.bag), max(shown, self._grid.ran_s(at, self.now) * at.speed))
        in_time = (at.worker.ends_at - at.started) * at.speed
        if 2 * sum([seconds < in_time for seconds in likely]) < len(likely):
            return at.worker.ends_at
        return max(self.now, at.started + fmean(likely) / at.speed)

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
        needs = requirement.needs(runtime) + ROUNDING
        found = [index.tightest(needs, self.now) for index in self._slots.indexes]
        fits = [row for row in found if row is not None]
        return min(fits)[2] if fits else None

    def tightest_empty(self, runtime: float, requirement: Requirement) -> tuple[int, float] | None:
        """Paper, phase 1: a slot with an empty queue on which ``runtime`` fits, and the limit on runtimes there."""
        slots = self._slots
        if not slots.with_room or self._grid.budget <= 0:
            return None
        needs = requirement.needs(runtime) + 2 * ROUNDING
        for index in (slots.idle, slots.spare):
            row = index.tightest(needs, self.now)
            if row is not None:
                limit = requirement.limit(row[0])
                # Even if large numbers make rounding swallow the difference, ``runtime`` is below the limit.
                return row[2], limit if limit > runtime else math.nextafter(runtime, math.inf)
        return None

    def longest_fit(self, requirement: Requirement) -> float:
        """The limit on runtimes that fit anywhere."""
        if not self.slots_with_room():
            return -math.inf
        return requirement.limit(max(index.widest(self.now) for index in self._slots.indexes))

    def slots_with_room(self) -> int:
        """How many slots have room; 0 when a bounded pass has used up its budget."""
        return self._slots.with_room if self._grid.budget > 0 else 0

    def slot_with_room(self, place: int) -> int:
        """The slot at ``place`` of ``slots_with_room()``."""
        for index in self._slots.indexes:
            if place < len(index):
                return index.at(place)
            place -= len(index)
        raise IndexError(place)

    # --- windows -----------------------------------------------------------------------------------------------------

    def idle_s(self, slot: int) -> float | None:
        """The seconds that a slot has left, counted as those of a PC of speed 1; None if it has work."""
        at = self._slots.slots[slot]
        busy = at.ahead_s or at.queued_s or (at.sent and at.due > self.now)
        return None if busy else (at.closes - self.now) * at.speed

    def kept(self, slot: int) -> bool:
        """Whether a slot closes early because it is kept for a gang."""
        at = self._slots.slots[slot]
        return slot in self._grid.gangs.kept and at.closes < at.worker.ends_at

    def open_slot(self, slot: int) -> OpenSlot:
        """The slot of that number."""
        at = self._slots.slots[slot]
        speed, now = at.speed, self.now
        due = at.started + at.sent[0].runtime / speed if at.sent else now
        free = (due if due > now else now) + at.ahead_s / speed + at.queued_s / speed
        return OpenSlot(at.worker.name, at.position, free, at.closes, slot, speed)

    def open_slots(self) -> Iterator[OpenSlot]:
        """Every slot of every worker that is up and gets work, except slots that owe an answer."""
        for number, slot in self._slots.slots.items():
            if slot.owes is None and not self._grid.shut(slot.worker):
                yield self.open_slot(number)

    def upcoming(self) -> Iterator[UpcomingWindows]:
        """Every worker's windows to come, announced or by habit."""
        for worker in self._slots.workers.values():
            windows = self._really(worker.name, worker.expected(self.now))
            yield UpcomingWindows(worker.name, len(worker.slots), windows, worker.speed)
        for name, away in self._grid.away.items():
            yield UpcomingWindows(name, away.slots, self._really(name, away.expected(self.now)), away.speed)

    def _really(self, name: str, windows: Windows) -> Windows:
        """Windows as this worker keeps them."""
        return self._grid.hours.really(name, windows)
