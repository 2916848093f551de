"""Immutable pictures of the scheduler's parts, for the status screen, ``status --json``, metrics and tests alike.

All times are seconds from the moment of the snapshot. Infinite ones are None, because JSON has no infinity.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from deskgrid.scheduler.model import PlannedWindow
from deskgrid.scheduler.need import MEMORY
from deskgrid.scheduler.prediction.hours import Habit, usual
from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Slot, Worker

# Rows that are looked at in one piece: a few milliseconds.
PIECE = 2_500


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot. ``running`` is (task, predicted runtime, elapsed); ``left_s`` is tl, None when open-ended.

    ``copy``: whether what it runs is a copy, so that it is idle for all other work.
    """

    slot: int
    running: tuple[int, float, float] | None
    ahead: int
    ahead_s: float
    queued: int
    queued_s: float
    left_s: float | None
    copy: bool = False


class HoursView(NamedTuple):
    """How a worker keeps its hours, and what is expected of it for that reason.

    ``habit``: as its own windows say. ``closes``: between what times its present window should close, if that is before
    it says; None: as it says, or it is not up.
    """

    habit: Habit
    closes: tuple[float, float] | None = None


UNKNOWN_HOURS = HoursView(Habit(0))


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker; if it is away it has no slots. ``windows``: (starts in, lasts) of the next ones to come.

    ``slots``: the first of its ``slot_count``, ``busy`` of which run something. ``speed``, ``load``, ``processors``,
    ``labels``, ``reachable``: as in `deskgrid.scheduler.parallel.base.Host`; ``memory``: bytes, None if unknown.
    """

    name: str
    uptime_s: float | None
    windows: tuple[tuple[float, float], ...]
    slot_count: int
    busy: int
    slots: tuple[SlotView, ...]
    site: str = ""
    speed: float = 1.0
    load: float = 0.0
    processors: int = 0
    memory: float | None = None
    labels: tuple[str, ...] = ()
    reachable: bool = True
    hours: HoursView = UNKNOWN_HOURS


@dataclass(frozen=True, slots=True)
class BagView:
    """One bag. ``at_once_s``: what its longest task needs of a slot at once.

    ``running``: tasks that run; tasks that were sent ahead and wait on their slots do not count. ``copies``: how many
    of them also have a copy that runs.
    """

    number: int
    total: int
    done: int
    failed: int
    cancelled: int
    running: int
    left_s: float
    longest_s: float
    at_once_s: float
    copies: int = 0


@dataclass(frozen=True, slots=True)
class QueuesView:
    """How many tasks wait in each queue, and the longest predicted runtime in bags that have not ended."""

    regular: int
    priority: int
    longest_s: float


class Occupancy:
    """What the slots do at one moment: how many are busy, and how many tasks of each bag run.

    It is counted in pieces (`pieces`), and the grid may go on between them. After that, `view` costs next to nothing.
    """

    def __init__(self, grid: SchedulerState) -> None:
        # How many slots are busy, and how many there are.
        self.busy = self.slots = 0
        self._grid = grid
        # By bag.
        self._running: Counter[int] = Counter()
        self._copies: Counter[int] = Counter()

    def pieces(self) -> Iterator[int]:
        """Count. After each piece, yields how many rows it has looked at."""
        rows = 0
        for worker in list(self._grid.slots.workers.values()):
            for slot in worker.slots:
                # A gang counts once.
                if slot.sent and (slot.gang is None or slot is slot.gang.slots[0]):
                    self._running[self._grid.tasks.known(slot.sent[0].task).bag.number] += 1
                elif slot.copy is not None:
                    self._copies[self._grid.tasks.known(slot.copy.task).bag.number] += 1
                self.busy += bool(slot.sent)
            self.slots += len(worker.slots)
            rows += 1 + len(worker.slots)
            if rows >= PIECE:
                yield rows
                rows = 0
        yield rows

    def view(self, number: int) -> BagView:
        """The bag of that number, as it is now."""
        bag = self._grid.tasks.bags[number]
        return BagView(
            number=bag.number,
            total=bag.total,
            done=bag.done,
            failed=bag.failed,
            cancelled=bag.cancelled,
            running=min(self._running[bag.number], bag.total - bag.settled),
            left_s=max(0.0, bag.left_s),
            longest_s=bag.longest,
            at_once_s=bag.needs_s(bag.need.seconds(bag.longest, bag.need.least)),
            copies=min(self._copies[bag.number], bag.total - bag.settled),
        )


def queues_view(grid: SchedulerState) -> QueuesView:
    """The two queues. Gangs keep their places, so they are all in the second."""
    longest = max((bag.longest for bag in grid.tasks.bags.values() if bag.settled < bag.total), default=0.0)
    categories = grid.categories.waiting.values()
    return QueuesView(
        sum([len(category.regular) for category in categories]) + sum(map(len, grid.gangs.queues.values())),
        sum([len(category.priority) for category in categories]),
        longest,
    )


def _windows(windows: Iterable[PlannedWindow], now: float, most: int) -> tuple[tuple[float, float], ...]:
    """The first windows that have not closed, as (starts in, lasts); the start of an open one is negative."""
    return tuple([(window.opens - now, window.lasts) for window in windows if window.closes > now][:most])


def worker_view(grid: SchedulerState, name: str, now: float, most_slots: int, most_windows: int) -> WorkerView:
    """The worker of that name, with the first of its slots and of its coming windows."""
    worker = grid.slots.workers.get(name)
    if worker is None:
        away = grid.away.get(name)
        windows = () if away is None else _windows(away.windows, now, most_windows)
        habit = grid.hours.habit(name, now + windows[0][0] if windows else now)
        return WorkerView(name, 0.0, windows, 0, 0, (), hours=HoursView(habit))
    return WorkerView(
        name=name,
        uptime_s=_finite(worker.uptime(now)),
        windows=_windows([window for window in worker.windows if window.opens > now], now, most_windows),
        slot_count=len(worker.slots),
        busy=sum([bool(slot.sent) for slot in worker.slots]),
        slots=tuple([_slot(grid, slot, now) for slot in worker.slots[:most_slots]]),
        site=worker.site,
        speed=worker.exact,
        load=worker.load,
        processors=worker.traits.processors or len(worker.slots),
        memory=_finite(worker.traits.amounts[MEMORY]),
        labels=tuple(sorted(worker.traits.labels)),
        reachable=worker.traits.reachable,
        hours=_hours(grid, worker, now),
    )


def _hours(grid: SchedulerState, worker: Worker, now: float) -> HoursView:
    habit = grid.hours.habit(worker.name, worker.opened)
    if worker.ends_at == worker.announced:
        return HoursView(habit)
    lengths = grid.hours.lengths(worker.name, worker.planned_s, worker.opened)
    likely = closings(worker.opened, worker.announced, lengths, now)
    soonest, latest = usual(likely)
    return HoursView(habit, (max(0.0, soonest - now), max(0.0, latest - now)) if latest < math.inf else None)


def _slot(grid: SchedulerState, slot: Slot, now: float) -> SlotView:
    running = None
    if slot.sent:
        running = (slot.sent[0].task, slot.sent[0].runtime / slot.speed, grid.ran_s(slot, now))
    elif slot.copy is not None:
        running = (slot.copy.task, slot.copy.runtime, now - slot.copy.at)
    return SlotView(
        slot=slot.position,
        running=running,
        ahead=max(0, len(slot.sent) - 1),
        ahead_s=slot.ahead_s,
        queued=len(slot.queue),
        queued_s=slot.queued_s,
        left_s=_finite(slot.remaining(now)),
        copy=slot.copy is not None,
    )


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds
