"""Plans for whole windows, open and announced: which task goes into which window, so that all tasks end early.

A plan consists of an end and a list of runtimes for each window. For a given end, all windows are cut there, and the
tasks are packed into the rest: bins of different sizes. Plans are made in two ways and judged by their end. One way
packs the shortest windows first, each as exactly as possible. The other simulates "always the longest task that fits"
(the idea of turnaround lookahead, Section 3 of its paper). All times are seconds on the driver's clock.
"""

import heapq
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from deskgrid.scheduler.fitting import NO_MORE, fits
from deskgrid.scheduler.model import WEEK_S, PlannedWindow, UpcomingWindows, Windows
from deskgrid.scheduler.policies.planning.subset_sum import fill
from deskgrid.scheduler.prediction.beyond import beyond

# A slot of a worker: its name, and which one.
SlotKey = tuple[str, int]

# The most intervals that a plan looks at.
INTERVALS = 600
# How many earlier ends one look tries for. The first look tries more, because every free slot gets a task after it. The
# search stops when the last end that failed is this near to the best one, as a fraction of the time that is left.
TRIES = 2
FIRST_TRIES = 4
NEAR = 0.0005
# Each look moves the failed end back by this fraction, towards the lower bound. As tasks are done, an end that failed
# may become possible.
FORGET = 0.1


class Interval(NamedTuple):
    """A window of one slot, or what is left of the open one: tasks start at ``start`` or later, and end by ``end``."""

    start: float
    end: float
    slot: SlotKey


class FilledInterval(NamedTuple):
    """The runtimes planned for an interval, the next one last."""

    interval: Interval
    runtimes: list[float]


class Plan(NamedTuple):
    """``end``: when the last task ends."""

    end: float
    fills: list[FilledInterval]


@dataclass(frozen=True, slots=True)
class KnownWindows:
    """The windows known at ``now``: the rest of each open one, by slot, and the announced ones, by worker.

    ``announced``: as long as a PC of speed 1 would need them; ``reserve``: seconds to keep free in each window.
    """

    now: float
    current: Mapping[SlotKey, Interval]
    announced: Sequence[UpcomingWindows]
    reserve: float

    def intervals(self, least: float) -> Iterator[Interval]:
        """All intervals longer than ``least``, by their start, and those expected beyond the announced windows."""
        free: dict[str, float] = {}
        for (worker, _), current in self.current.items():
            free[worker] = max(free.get(worker, self.now), current.end + self.reserve)
        rest = sorted([each for each in self.current.values() if fits(least, each.end - each.start)])
        coming = [self._intervals_of(each, free.get(each.worker, self.now), least) for each in self.announced]
        return heapq.merge(rest, *coming)

    def _intervals_of(self, coming: UpcomingWindows, free: float, least: float) -> Iterator[Interval]:
        """Those of all slots of a worker: they have the same windows, so each is looked at once."""
        windows = coming.windows
        for window, later in chain(((window, 0.0) for window in windows), self._beyond(windows, least)):
            start, end = max(window.opens + later, free), window.closes + later - self.reserve
            free = max(free, window.closes + later)
            if fits(least, end - start):
                for slot in range(coming.slots):
                    yield Interval(start, end, (coming.worker, slot))

    def _beyond(self, windows: Windows, least: float) -> Iterator[tuple[PlannedWindow, float]]:
        """The windows beyond the announced ones, if one of those that come again is long enough."""
        period_s = windows.period_s
        lasts = windows.longest_s if period_s == WEEK_S else min(windows[-1].lasts, period_s)
        if fits(least, lasts - self.reserve):
            yield from beyond(windows, period_s)


class Planner:
    """The best plan so far, and the search for a better one."""

    def __init__(self) -> None:
        self.best: Plan | None = None
        self._failed = 0.0  # the latest end that was tried without success
        self._force = False  # which way of packing is next

    def look(self, known: KnownWindows, runtimes: Sequence[float]) -> int:
        """Update the plan, or make one for the ascending ``runtimes``, and try to improve it.

        Without runtimes there is no plan. Returns how many intervals were looked at, to estimate the cost.
        """
        before, self.best = self.best, None
        intervals: list[Interval] = []
        if not runtimes:
            return 0
        if before is not None:
            intervals = _intervals_until(before.end, known.intervals(runtimes[0]))
            self.best = renewed(before, intervals, runtimes)
        if first := self.best is None:
            intervals, self.best = longest_first(known.intervals(runtimes[0]), runtimes)
            self._failed, self._force = known.now, False
        if self.best is not None:
            self.best = self._bettered(self.best, intervals, runtimes, known.now, first=first)
        return len(intervals)

    def _bettered(
        self, best: Plan, intervals: Sequence[Interval], runtimes: Sequence[float], now: float, *, first: bool
    ) -> Plan:
        """Try for earlier ends: the first time with the way of packing that succeeds more often, later with both."""
        bound = soonest(intervals, sum(runtimes))
        self._failed = max(bound, self._failed - FORGET * (self._failed - bound))
        for _ in range(FIRST_TRIES if first else TRIES):
            if best.end - self._failed <= NEAR * (best.end - now):
                break
            end = (self._failed + best.end) / 2
            found = packed(intervals, runtimes, end, force=self._force)
            if found is not None:
                best = found
                continue
            if self._force or first:
                self._failed = end
            self._force = not (self._force or first)
        return best


def _intervals_until(end: float, coming: Iterator[Interval]) -> list[Interval]:
    """The intervals that begin before ``end``."""
    intervals: list[Interval] = []
    for interval in coming:
        if interval.start >= end or len(intervals) == INTERVALS:
            break
        intervals.append(interval)
    return intervals


def longest_first(coming: Iterator[Interval], runtimes: Sequence[float]) -> tuple[list[Interval], Plan | None]:
    """Plan the longest task that fits for each free slot. Also returns the intervals that begin before the end.

    The plan is None if the intervals do not suffice.
    """
    intervals: list[Interval] = []
    fills: list[list[float]] = []
    free: list[tuple[float, int]] = []
    left = list(runtimes)
    end = 0.0
    upcoming = next(coming, None)
    while left:
        while upcoming is not None and not (free and free[0][0] < upcoming.start):
            if len(intervals) == INTERVALS:
                return intervals, None
            heapq.heappush(free, (upcoming.start, len(intervals)))
            intervals.append(upcoming)
            fills.append([])
            upcoming = next(coming, None)
        if not free:
            return intervals, None
        start, number = free[0]
        fitting = bisect_left(left, NO_MORE.limit(intervals[number].end - start))
        if not fitting:
            heapq.heappop(free)
            continue
        runtime = left.pop(fitting - 1)
        fills[number].append(runtime)
        end = max(end, start + runtime)
        heapq.heapreplace(free, (start + runtime, number))
    plan = Plan(
        end, [FilledInterval(interval, runs[::-1]) for interval, runs in zip(intervals, fills, strict=True) if runs]
    )
    if upcoming is not None:
        intervals += _intervals_until(end, chain([upcoming], coming))
    return intervals, plan


def packed(intervals: Sequence[Interval], runtimes: Sequence[float], end: float, *, force: bool) -> Plan | None:
    """Pack all of the ascending ``runtimes`` into the intervals, cut at ``end``; None if they do not all fit this way.

    The shortest interval comes first, and each is filled as far as possible. With ``force``, each gets the longest task
    that it can hold.
    """
    sizes = sorted(
        (min(interval.end, end) - interval.start, number)
        for number, interval in enumerate(intervals)
        if interval.start < end
    )
    left = list(runtimes)
    spare = sum(size for size, _ in sizes) - sum(runtimes)
    fills = []
    for size, number in sizes:
        if spare < 0.0 or not left:
            break
        taken = fill(left, size, force=force)
        spare -= size - sum(taken)
        if taken:
            fills.append(FilledInterval(intervals[number], taken[::-1]))
    return None if left else Plan(end, fills)


def soonest(intervals: Sequence[Interval], work_s: float) -> float:
    """When ``work_s`` seconds of work would be done if tasks could be cut: no plan in these intervals ends earlier."""
    steps = sorted([(interval.start, 1) for interval in intervals] + [(interval.end, -1) for interval in intervals])
    return min(done_at(steps, work_s), steps[-1][0])


def renewed(plan: Plan, intervals: Sequence[Interval], runtimes: Sequence[float]) -> Plan | None:
    """Adapt ``plan`` to the current intervals; None if it does not fit them, or lacks some of the tasks."""
    here: dict[SlotKey, list[Interval]] = {}
    for interval in intervals:
        here.setdefault(interval.slot, []).append(interval)
    left = Counter(runtimes)
    fills: dict[Interval, list[float]] = {}
    end = 0.0
    for planned in plan.fills:
        runs = []
        for runtime in planned.runtimes:
            if left[runtime] > 0:
                left[runtime] -= 1
                runs.append(runtime)
        if not runs:
            continue
        before = planned.interval
        found = next((interval for interval in here.get(before.slot, ()) if interval.end > before.start), None)
        if found is None:
            return None
        # If a window is gone, the next one gets the tasks that were planned for both.
        fills[found] = runs + fills.get(found, [])
        work_s = sum(fills[found])
        if not fits(work_s, found.end - found.start):
            return None
        end = max(end, found.start + work_s)
    return (
        None if any(left.values()) else Plan(end, [FilledInterval(interval, runs) for interval, runs in fills.items()])
    )


def done_at(steps: Iterable[tuple[float, int]], work_s: float) -> float:
    """When ``work_s`` slot seconds have passed; infinite when they never do.

    So much work is not done earlier by any schedule, not even if tasks could be cut into any pieces.

    ``steps``: (time, change in the number of slots), in order of time; there may be infinitely many.
    """
    done, slots, at = 0.0, 0, 0.0
    for time, change in steps:
        if slots:
            if done + slots * (time - at) >= work_s:
                break
            done += slots * (time - at)
        at, slots = time, slots + change
    return at + (work_s - done) / slots if slots else math.inf
