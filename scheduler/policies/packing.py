"""Packing: plan whole windows, present and to come, and fill each as exactly as the waiting tasks allow.

All tasks wait longest first. As long as tasks and windows are few enough, there is a plan (`planning.planner`): which
runtimes go into which window, so that the last task ends as early as possible. The policy looks at the plan again when
something unforeseen happens. Each time it tries for an earlier end, and it keeps the best plan until it finds a better
one.

If there is too much to plan, or too little is known of the coming windows, there is no plan. Then a slot gets the
longest task that fits. So does a slot for which the plan has no task: a task that starts now ends no later than it
would have ended as planned.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from math import inf, nextafter
from typing import ClassVar

from deskgrid.scheduler.fitting import Requirement, fits
from deskgrid.scheduler.model import PlannedWindow, UpcomingWindows, Windows
from deskgrid.scheduler.parallel.base import ParallelPolicy
from deskgrid.scheduler.parallel.composed import default_policy
from deskgrid.scheduler.policies.base import OpenSlot, Place, PlannedWork, Postpone, View
from deskgrid.scheduler.policies.chances import chances
from deskgrid.scheduler.policies.placement import slot_for_each_task, task_for_each_slot
from deskgrid.scheduler.policies.planning.planner import (
    INTERVALS,
    FilledInterval,
    Interval,
    KnownWindows,
    Planner,
    SlotKey,
)
from deskgrid.scheduler.policies.planning.turn import choose
from deskgrid.scheduler.policies.reserved import AMPLE
from deskgrid.scheduler.queues.waiting import Entry

# The most tasks that a plan is made for.
TASKS = 3000
# What a look at the plan costs, in seconds for each interval and task of the plan, for each open slot and each worker,
# and for each window to come of a worker, measured generously. For PAUSE times as long, no other look follows. So
# planning takes less than a tenth of the broker's time, whatever happens.
INTERVAL_COST_S = 100e-6
TASK_COST_S = 5e-6
SLOT_COST_S = 10e-6
WINDOW_COST_S = 1e-6
PAUSE = 10.0
# The same factor when there are too many slots for a plan. Then a look only finds the longest window, about once a
# minute if the workers announce a whole week.
LONG_PAUSE = 1000.0
# Two closing times of one window differ by less than this: heartbeats arrive late.
SAME_S = 0.5
# Kept free in each planned window, because sums made in another order differ by rounding.
SLACK_S = 1e-4


class Packing:
    """``margin``: seconds kept free for starting up. ``queue_s``: as for `PGS`.

    ``confidence``: the fraction of attempts that, by experience, have to end within the time that a task gets in a
    window; 0 trusts the predictions. It sets the required stretch. A task that would then fit in no window is accepted
    where nearly all of the longest one is left. Slots that stay idle because of the stretch take chances, unless
    predictions are trusted.
    """

    name: ClassVar[str] = "packing"
    order = "longest-first"
    timed = True
    queue_length = 0

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        if not 0.0 <= confidence <= 1.0:
            raise ValueError("confidence is a fraction from 0 to 1")
        self.margin = margin
        self.queue_s = queue_s
        self.confidence = confidence
        self.requirement = Requirement(margin)
        self.parallel: ParallelPolicy = default_policy(margin)
        self._ample = inf
        self._planner = Planner()
        self._fills: dict[SlotKey, deque[FilledInterval]] = {}  # the plan by slot, the earliest first
        self._seen = -1
        self._next_look = -inf

    @property
    def least(self) -> Requirement:
        """What tasks need on slots without one that is certain enough: they end in time if predictions are right."""
        return Requirement(self.margin)

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        if len(view.regular):
            yield Postpone(None)
        if self.confidence and self._uncertain(view):
            if view.changes != self._seen and view.now >= self._next_look:
                self._look(view, planned=False)
            self.requirement = Requirement(self.margin)
            yield from chances(view, self.margin, self._ample)
            if view.slots_with_room():
                yield from slot_for_each_task(view, self.requirement, self.queue_s)
            return
        if len(view.priority) == 1 and view.longest_fit(self.requirement) == inf:
            self._ample = inf  # nothing to plan: one task, and an open-ended slot that it can have now
        elif view.changes != self._seen and view.now >= self._next_look:
            self._look(view)
        stretch = max(1.0, view.prediction_error.quantile(self.confidence)) if self.confidence else 1.0
        self.requirement = requirement = Requirement(self.margin, stretch, self._ample)
        if self._fills:
            yield from task_for_each_slot(view, requirement, partial(self._planned, view))
        else:
            yield from task_for_each_slot(view, requirement)
        if not view.slots_with_room() or not len(view.priority):
            return
        # Fill queues that may hold some seconds of work: plans do not matter for tasks as short as that.
        yield from slot_for_each_task(view, requirement, self.queue_s)
        if self.confidence and view.slots_with_room():
            yield from task_for_each_slot(view, self.least)

    def _uncertain(self, view: View) -> bool:
        """Whether predictions of the longest task's bag say so little that a plan would not hold."""
        entry = view.priority.next_fit(inf)
        return entry is not None and not view.certain(entry.task)

    # --- one slot ----------------------------------------------------------------------------------------------------

    def _planned(self, view: View, slot: int, limit: float) -> Entry | None:
        """The next task that is planned for the open window of a slot."""
        at = view.open_slot(slot)
        fills = self._fills.get((at.worker, at.slot), _NO_FILLS)
        end = at.closes - self.margin
        while fills and fills[0].interval.end < end - SAME_S:
            fills.popleft()
        if not fills or fills[0].interval.end > end + SAME_S:
            return None
        turn, plan = view.turn, self._planner.best
        if turn is None or plan is None:
            return _next_of(fills[0].runtimes, view, limit)
        start = _start(at.free, at.closes - self._reserve, at.speed)
        entry = choose(plan, fills[0], start, limit, turn)
        if entry is None and (turn.near or turn.others) and fills[0].runtimes:
            self._seen = -1  # something else comes first, so the plan no longer holds
        return entry

    def planned(self) -> Iterator[PlannedWork]:
        """The plan, as far as its tasks are not placed."""
        for fills in self._fills.values():
            for interval, runtimes in fills:
                if runtimes:
                    yield PlannedWork(interval.slot[0], interval.start, sum(runtimes))

    # --- the plan ----------------------------------------------------------------------------------------------------

    def _look(self, view: View, planned: bool = True) -> None:
        """Update the plan. The next look comes after a pause that grows with the cost of this one."""
        self._seen = view.changes
        slots, coming = list(islice(view.open_slots(), INTERVALS + 1)), list(islice(view.upcoming(), INTERVALS + 1))
        longest = self._longest(slots, coming)
        self._ample = AMPLE * longest
        cost_s, pause = _cost_s(slots, coming), PAUSE
        if max(len(slots), len(coming)) > INTERVALS:  # too many for a plan
            slots, coming, runtimes, pause = [], [], [], LONG_PAUSE
        else:
            runtimes = (view.waiting(TASKS) or []) if planned else []
        cost_s += TASK_COST_S * len(runtimes)
        while runtimes and not fits(runtimes[-1], longest):
            runtimes.pop()  # it fits in no known window, so it is not part of a plan
        intervals = self._planner.look(self._known_windows(view.now, slots, coming), runtimes)
        self._next_look = view.now + pause * (INTERVAL_COST_S * intervals + cost_s)
        self._fills = {}
        for fill in sorted(self._planner.best.fills) if self._planner.best is not None else ():
            self._fills.setdefault(fill.interval.slot, deque()).append(fill)

    @property
    def _reserve(self) -> float:
        return self.margin + SLACK_S

    def _known_windows(self, now: float, slots: Sequence[OpenSlot], coming: Sequence[UpcomingWindows]) -> KnownWindows:
        keys = [(at.worker, at.slot) for at in slots]
        ends = [at.closes - self._reserve for at in slots]
        free = [_start(at.free, end, at.speed) for at, end in zip(slots, ends, strict=True)]
        return KnownWindows(
            now=now,
            current={key: Interval(start, end, key) for key, start, end in zip(keys, free, ends, strict=True)},
            announced=[come._replace(windows=_windows_of(come)) for come in coming],
            reserve=self._reserve,
        )

    def _longest(self, slots: Sequence[OpenSlot], coming: Sequence[UpcomingWindows]) -> float:
        """The longest interval there is."""
        reserve = self._reserve
        lasts = max([(windows.longest_s - reserve) * speed for _, _, windows, speed in coming], default=-reserve)
        open_now = max([(at.closes - reserve - at.free) * at.speed for at in slots], default=0.0)
        return max(open_now, lasts)


def _start(start: float, end: float, speed: float) -> float:
    """When a PC of speed 1 would have to start, to do by ``end`` what one of ``speed`` does from ``start`` on."""
    return start if speed == 1.0 or end == inf else end - (end - start) * speed


def _windows_of(come: UpcomingWindows) -> Windows:
    """Windows to come of a worker, as long as a PC of speed 1 would need them."""
    if come.speed == 1.0:
        return come.windows
    return type(come.windows)(
        [PlannedWindow(_start(opens, closes, come.speed), closes) for opens, closes in come.windows]
    )


_NO_FILLS: deque[FilledInterval] = deque()


def _cost_s(slots: Sequence[OpenSlot], coming: Sequence[UpcomingWindows]) -> float:
    """The cost in seconds of reading all known windows, whether anything is planned in them or not."""
    return SLOT_COST_S * (len(slots) + len(coming)) + WINDOW_COST_S * sum([len(each.windows) for each in coming])


def _next_of(runtimes: list[float], view: View, limit: float) -> Entry | None:
    """The next task with one of ``runtimes`` that still waits and fits. Runtimes without such a task are dropped."""
    while runtimes:
        runtime = runtimes.pop()
        entry = view.priority.next_fit(min(limit, nextafter(runtime, inf)))
        if entry is not None and entry.runtime == runtime:
            return entry
    return None
