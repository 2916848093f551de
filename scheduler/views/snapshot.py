"""Immutable pictures of the scheduler's parts, for the status screen, ``status --json``, metrics and tests alike.

All times are seconds from the moment of the snapshot. Infinite ones are None, because JSON has no infinity.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.model import Window
from deskgrid.scheduler.prediction.hours import Habit, usual
from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.state.bags import Bag
from deskgrid.scheduler.state.gangs import Gang
from deskgrid.scheduler.state.slots import Slot, Worker
from deskgrid.scheduler.views.forecast import Capacity, Span, spans_of_away, spans_of_worker
from deskgrid.scheduler.views.windows import longest_window

# Rows that are looked at in one piece: a few milliseconds.
PIECE = 2_500

RowT = TypeVar("RowT")


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


class RankView(NamedTuple):
    """Where one rank of a gang is that has not ended with all others on its PC."""

    number: int
    worker: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GangView:
    """A gang that has slots. ``runtime_s``: predicted on its PCs. ``elapsed_s``: since it began, or was started.

    ``began``: whether it runs; else it is being prepared, or, after a restart, some of its ``ranks`` are missing.
    """

    task: int
    attempt: int
    bag: int
    ranks: tuple[RankView, ...]
    slots: int
    runtime_s: float
    elapsed_s: float
    began: bool


@dataclass(frozen=True, slots=True)
class BagView:
    """One bag. ``eta_s``: when it should be done if the predictions and plans hold; None when that cannot be seen.

    ``running``: tasks that run; tasks that were sent ahead and wait on their slots do not count. ``copies``: how many
    of them also have a copy that runs. ``at_once_s``: what its longest task needs of a slot at once.
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
    eta_s: float | None
    copies: int = 0


@dataclass(frozen=True, slots=True)
class QueuesView:
    """How many tasks wait in each queue, and the longest predicted runtime in bags that have not ended."""

    regular: int
    priority: int
    longest_s: float


class Outlook:
    """The outlook of all bags at one moment: how many tasks of each run, and when it should be done.

    Bags are served in the order they came, so each waits for the work of those before it. The outlook is made in pieces
    (`pieces`), and the grid may go on between them. After that, `view` costs next to nothing.
    """

    def __init__(self, grid: GridState, now: float) -> None:
        self.made = now
        # How many slots are busy, and how many there are.
        self.busy = self.slots = 0
        self._grid = grid
        # By bag: its running tasks, the seconds that they have run, and the longest time that one of them still takes.
        self._running: Counter[int] = Counter()
        self._copies: Counter[int] = Counter()
        self._elapsed: defaultdict[int, float] = defaultdict(float)
        self._rest: defaultdict[int, float] = defaultdict(float)
        self._capacity = Capacity()
        # The longest window that is open or announced, in seconds of speed 1; 0.0 if there is none.
        self.longest_window_s = longest_window(grid, now)
        # Seconds of work before each bag that has not ended, by number; and before a bag that comes now.
        self._ahead: dict[int, float] = {}
        self._work = 0.0

    def pieces(self) -> Iterator[int]:
        """Make the outlook. After each piece, yields how many rows it has looked at."""
        spans: list[Span] = []
        yield from self._looks(spans)
        yield from self._capacity.build(spans)
        for some in _in_pieces(list(self._grid.tasks.bags.values())):
            for bag in some:
                if bag.settled < bag.total and not bag.barred:
                    self._ahead[bag.number] = self._work
                    # A bag that can never end as things are does not delay later bags: their tasks are placed first.
                    self._work += self._left(bag) if self._capacity.holds(self._longest(bag)[0]) else 0.0
            yield len(some)

    def _looks(self, spans: list[Span]) -> Iterator[int]:
        """Look at the workers, and add their windows to ``spans``."""
        rows = 0
        for worker in list(self._grid.slots.workers.values()):
            spans += spans_of_worker(worker, self.made)
            for slot in worker.slots:
                if slot.sent:
                    self.busy += 1
                    self._look_at(slot)
                elif slot.copy is not None:
                    self._copies[self._grid.tasks.known(slot.copy.attempt.task).bag.number] += 1
            self.slots += len(worker.slots)
            rows += 1 + len(worker.slots) + len(worker.windows)
            if rows >= PIECE:
                yield rows
                rows = 0
        for some in _in_pieces(list(self._grid.away.values())):
            spans += (span for away in some for span in spans_of_away(away, self.made))
            yield sum([1 + len(away.windows) for away in some])
        yield rows

    def _look_at(self, slot: Slot) -> None:
        """Count the task that runs on a slot. Tasks of its bag take longer or shorter than predicted by its pace."""
        if slot.gang is not None and slot is not slot.gang.slots[0]:
            return  # it counts once
        bag, elapsed = self._grid.tasks.known(slot.sent[0].attempt.task).bag, self.made - slot.started
        takes = slot.sent[0].runtime / slot.speed * bag.pace
        self._running[bag.number] += 1
        self._elapsed[bag.number] += min(elapsed, takes)
        self._rest[bag.number] = max(self._rest[bag.number], takes - elapsed)

    def _left(self, bag: Bag) -> float:
        """Seconds of work left of a bag, by its predictions and its pace."""
        if bag.category.parallel:
            need = bag.need
            left_s = need.seconds(bag.left_s * bag.pace, need.least) - self._elapsed[bag.number]
            return max(0.0, left_s) * need.least * need.slots
        return max(0.0, bag.left_s * bag.pace - self._elapsed[bag.number])

    def _longest(self, bag: Bag) -> tuple[float, float]:
        """The window that the longest task left needs, and how long it takes."""
        if self._running[bag.number] >= bag.total - bag.settled:
            return bag.needs_s(self._rest[bag.number]), self._rest[bag.number]
        margin = self._grid.policy.requirement.margin
        # `bag.longest` may have ended, but no task exceeds the work left.
        longest = bag.need.seconds(min(bag.longest, bag.left_s), bag.need.least)
        return bag.needs_s(longest) + margin, longest * bag.pace + margin

    def view(self, number: int, now: float) -> BagView:
        """The bag of that number, as it is ``now``."""
        bag = self._grid.tasks.bags[number]
        eta: float | None = 0.0
        if bag.barred and bag.settled < bag.total:
            eta = None  # nobody knows when it goes on
        elif bag.settled < bag.total:
            work = self._ahead.get(bag.number, self._work) + self._left(bag)
            eta = self._capacity.time_to_do(work, *self._longest(bag))
            eta = None if eta is None else max(0.0, eta - (now - self.made))
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
            eta_s=eta,
            copies=min(self._copies[bag.number], bag.total - bag.settled),
        )


def _in_pieces(rows: list[RowT]) -> Iterator[list[RowT]]:
    for start in range(0, len(rows), PIECE):
        yield rows[start : start + PIECE]


def queues_view(grid: GridState) -> QueuesView:
    """The two queues. Gangs keep their places, so they are all in the second."""
    longest = max((bag.longest for bag in grid.tasks.bags.values() if bag.settled < bag.total), default=0.0)
    categories = grid.categories.waiting.values()
    return QueuesView(
        sum([len(category.regular) for category in categories]) + sum(map(len, grid.gangs.queues.values())),
        sum([len(category.priority) for category in categories]),
        longest,
    )


def _windows(windows: Iterable[Window], now: float, most: int) -> tuple[tuple[float, float], ...]:
    """The first windows that have not closed, as (starts in, lasts); the start of an open one is negative."""
    return tuple([(window.opens - now, window.lasts) for window in windows if window.closes > now][:most])


def worker_view(grid: GridState, name: str, now: float, most_slots: int, most_windows: int) -> WorkerView:
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
        slots=tuple([_slot(slot, now) for slot in worker.slots[:most_slots]]),
        site=worker.site,
        speed=worker.exact,
        load=worker.load,
        processors=worker.traits.processors or len(worker.slots),
        memory=_finite(worker.traits.memory),
        labels=tuple(sorted(worker.traits.labels)),
        reachable=worker.traits.reachable,
        hours=_hours(grid, worker, now),
    )


def _hours(grid: GridState, worker: Worker, now: float) -> HoursView:
    habit = grid.hours.habit(worker.name, worker.opened)
    if worker.ends_at == worker.announced:
        return HoursView(habit)
    lengths = grid.hours.lengths(worker.name, worker.planned_s, worker.opened)
    likely = closings(worker.opened, worker.announced, lengths, now)
    soonest, latest = usual(likely)
    return HoursView(habit, (max(0.0, soonest - now), max(0.0, latest - now)) if latest < math.inf else None)


def gang_views(grid: GridState, now: float, most: int) -> tuple[GangView, ...]:
    """The gangs that have slots, in the order in which they came; ``most`` of them at most."""
    gangs = sorted(grid.gangs.running.values(), key=lambda gang: gang.attempt)
    return tuple([gang_view(gang, now) for gang in gangs[:most]])


def gang_view(gang: Gang, now: float) -> GangView:
    """One gang: one row."""
    rows = zip(gang.numbers, gang.ranks, strict=True) if gang.ranks else ()
    ranks = [RankView(number, place.worker, tuple(place.slots)) for number, place in rows]
    for number, row in sorted(gang.back.items()):
        ranks.append(RankView(number, row[0].worker.name, tuple([slot.position for slot in row])))
    return GangView(
        task=gang.attempt.task,
        attempt=gang.attempt.number,
        bag=gang.bag.number,
        ranks=tuple(ranks),
        slots=len(gang.slots),
        runtime_s=gang.seconds,
        elapsed_s=now - gang.since,
        began=gang.began and gang.running is not None,
    )


def _slot(slot: Slot, now: float) -> SlotView:
    running = None
    if slot.sent:
        running = (slot.sent[0].attempt.task, slot.sent[0].runtime / slot.speed, now - slot.started)
    elif slot.copy is not None:
        running = (slot.copy.attempt.task, slot.copy.runtime, now - slot.copy.at)
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
