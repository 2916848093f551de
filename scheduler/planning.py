"""Plans for whole windows, present and announced: which task goes into which of them, so that all end early.

A plan is an end, and a list of runtimes for each window. For a given end the windows are cut there, and the tasks are
to be packed into what is left: bins of different sizes. Plans are made in two ways and judged by their end: packing,
shortest windows first, each as exactly as possible; and playing "always the longest task that fits" forward (the idea
of turnaround lookahead, Section 3 of its paper). Seconds on the driver's clock.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from deskgrid.scheduler.filling import fill
from deskgrid.scheduler.fluid import done_at
from deskgrid.scheduler.model import Window

# A lane of a worker: its name, and which one.
LaneKey = tuple[str, int]

# Rooms that a plan looks at, at most.
ROOMS = 600
# Ends tried for in one look, and in the first, after which every free slot gets a task; and how near to the best the
# last that failed is near enough (of the time that is left).
TRIES = 2
FIRST_TRIES = 4
NEAR = 0.0005
# By so much a failed end is forgotten with each look: as tasks are done, what could not be packed can.
FORGET = 0.1


class Room(NamedTuple):
    """A window of one lane, or what is left of the open one: tasks start at ``start`` or later, end by ``end``."""

    start: float
    end: float
    lane: LaneKey


class Fill(NamedTuple):
    """What is planned for a room: runtimes, the next one last."""

    room: Room
    runtimes: list[float]


class Plan(NamedTuple):
    """``end``: when the last task ends."""

    end: float
    fills: list[Fill]


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is known of the windows at ``now``: what is left of open ones, and what is announced, by lane.

    ``reserve``: seconds to be kept free in each.
    """

    now: float
    current: Mapping[LaneKey, Room]
    announced: Mapping[LaneKey, Sequence[Window]]
    reserve: float

    def rooms(self, least: float) -> Iterator[Room]:
        """All rooms longer than ``least``, by their start; endless where windows are taken to go on."""
        lanes = {**self.announced, **dict.fromkeys(self.current.keys() - self.announced.keys(), ())}
        return heapq.merge(*(self._rooms_of(lane, windows, least) for lane, windows in lanes.items()))

    def _rooms_of(self, lane: LaneKey, windows: Sequence[Window], least: float) -> Iterator[Room]:
        free = self.now
        if (current := self.current.get(lane)) is not None:
            free = current.end + self.reserve
            if current.end - current.start > least:
                yield current
        for window in windows:
            room = Room(max(window.opens, free), window.closes - self.reserve, lane)
            free = max(free, window.closes)
            if room.end - room.start > least:
                yield room
        yield from self._more_like_the_last(lane, windows, least)

    def _more_like_the_last(self, lane: LaneKey, windows: Sequence[Window], least: float) -> Iterator[Room]:
        """Announcements end after some days, or 64 windows; a plan takes it that the last of them go on."""
        if len(windows) < 2:
            return
        before, last = windows[-2:]
        opens, lasts = last.opens, last.lasts - self.reserve
        while lasts > least and last.opens > before.closes:
            opens += last.opens - before.opens
            yield Room(opens, opens + lasts, lane)


class Planner:
    """The best plan so far, and the search for a better one."""

    def __init__(self) -> None:
        self.best: Plan | None = None
        self._failed = 0.0  # the latest end that was tried for in vain
        self._force = False  # which way of packing is next

    def look(self, prospect: Prospect, runtimes: Sequence[float]) -> int:
        """See what the plan comes to by now, or make one for the ascending ``runtimes``, and try to better it.

        For no runtimes there is none. Returns how many rooms that took, for what it costs.
        """
        before, self.best = self.best, None
        rooms: list[Room] = []
        if not runtimes:
            return 0
        if before is not None:
            rooms = _rooms_until(before.end, prospect.rooms(runtimes[0]))
            self.best = renewed(before, rooms, runtimes)
        if first := self.best is None:
            rooms, self.best = longest_first(prospect.rooms(runtimes[0]), runtimes)
            self._failed, self._force = prospect.now, False
        if self.best is not None:
            self.best = self._bettered(self.best, rooms, runtimes, prospect.now, first=first)
        return len(rooms)

    def _bettered(
        self, best: Plan, rooms: Sequence[Room], runtimes: Sequence[float], now: float, *, first: bool
    ) -> Plan:
        """Try for earlier ends: the first time in the way that succeeds more often, later in both."""
        bound = soonest(rooms, sum(runtimes))
        self._failed = max(bound, self._failed - FORGET * (self._failed - bound))
        for _ in range(FIRST_TRIES if first else TRIES):
            if best.end - self._failed <= NEAR * (best.end - now):
                break
            end = (self._failed + best.end) / 2
            found = packed(rooms, runtimes, end, force=self._force)
            if found is not None:
                best = found
                continue
            if self._force or first:
                self._failed = end
            self._force = not (self._force or first)
        return best


def _rooms_until(end: float, coming: Iterator[Room]) -> list[Room]:
    """The rooms that begin before ``end``."""
    rooms: list[Room] = []
    for room in coming:
        if room.start >= end or len(rooms) == ROOMS:
            break
        rooms.append(room)
    return rooms


def longest_first(coming: Iterator[Room], runtimes: Sequence[float]) -> tuple[list[Room], Plan | None]:
    """What comes of giving each lane that is free the longest task that fits, and the rooms that begin before the end.

    No plan when the rooms do not suffice.
    """
    rooms: list[Room] = []
    fills: list[list[float]] = []
    free: list[tuple[float, int]] = []
    left = list(runtimes)
    end = 0.0
    upcoming = next(coming, None)
    while left:
        while upcoming is not None and not (free and free[0][0] < upcoming.start):
            if len(rooms) == ROOMS:
                return rooms, None
            heapq.heappush(free, (upcoming.start, len(rooms)))
            rooms.append(upcoming)
            fills.append([])
            upcoming = next(coming, None)
        if not free:
            return rooms, None
        start, number = free[0]
        fitting = bisect_left(left, rooms[number].end - start)
        if not fitting:
            heapq.heappop(free)
            continue
        runtime = left.pop(fitting - 1)
        fills[number].append(runtime)
        end = max(end, start + runtime)
        heapq.heapreplace(free, (start + runtime, number))
    plan = Plan(end, [Fill(room, runs[::-1]) for room, runs in zip(rooms, fills, strict=True) if runs])
    if upcoming is not None:
        rooms += _rooms_until(end, chain([upcoming], coming))
    return rooms, plan


def packed(rooms: Sequence[Room], runtimes: Sequence[float], end: float, *, force: bool) -> Plan | None:
    """All of the ascending ``runtimes`` in the rooms, cut at ``end``; None when this way does not get them in.

    The shortest room first, each as full as can be; with ``force`` each has the longest task that it can hold.
    """
    sizes = sorted((min(room.end, end) - room.start, number) for number, room in enumerate(rooms) if room.start < end)
    left = list(runtimes)
    spare = sum(size for size, _ in sizes) - sum(runtimes)
    fills = []
    for size, number in sizes:
        if spare < 0.0 or not left:
            break
        taken = fill(left, size, force=force)
        spare -= size - sum(taken)
        if taken:
            fills.append(Fill(rooms[number], taken[::-1]))
    return None if left else Plan(end, fills)


def soonest(rooms: Sequence[Room], work_s: float) -> float:
    """When ``work_s`` seconds would be done if tasks could be cut: no plan in these rooms ends before that."""
    steps = sorted([(room.start, 1) for room in rooms] + [(room.end, -1) for room in rooms])
    return min(done_at(steps, work_s), steps[-1][0])


def renewed(plan: Plan, rooms: Sequence[Room], runtimes: Sequence[float]) -> Plan | None:
    """An earlier plan in the rooms as they are now; None when it does not fit them, or has not all the tasks."""
    here: dict[LaneKey, list[Room]] = {}
    for room in rooms:
        here.setdefault(room.lane, []).append(room)
    left = Counter(runtimes)
    fills: dict[Room, list[float]] = {}
    end = 0.0
    for planned in plan.fills:
        runs = []
        for runtime in planned.runtimes:
            if left[runtime] > 0:
                left[runtime] -= 1
                runs.append(runtime)
        if not runs:
            continue
        found = next((room for room in here.get(planned.room.lane, ()) if room.end > planned.room.start), None)
        if found is None:
            return None
        # Where a window has gone, the next one gets what was planned for both.
        fills[found] = runs + fills.get(found, [])
        ends = found.start + sum(fills[found])
        if ends >= found.end:
            return None
        end = max(end, ends)
    return None if any(left.values()) else Plan(end, [Fill(room, runs) for room, runs in fills.items()])
