"""What a plan for everybody's tasks gives to those whose turn it is, without spoiling the plan.

A plan says which tasks go into a window. Their order there does not matter to it.

Rule 1: those whose turn it is get one of their tasks that are planned for this window; whoever has used least comes
first.
Rule 2: if there is none, one of their tasks from another window and a task of this one change places, if both fit.
Rule 3: if this is not possible either, others may go first with a task that is planned for this window: those who are
not too far ahead (`Turn.near`), and anybody with a task that fits few windows (`Turn.rare`).
"""

from bisect import insort
from collections.abc import Sequence
from math import inf, nextafter
from typing import NamedTuple

from deskgrid.scheduler.fitting import NO_MORE, fits
from deskgrid.scheduler.policies.planning.planner import FilledInterval, Plan
from deskgrid.scheduler.queues.waiting import Entry, ReadableQueue

# Of the tasks that are planned for a window, this many are looked at, for each queue.
LOOKED_AT = 24


class Turn(NamedTuple):
    """The priority queues of people with waiting tasks, first those of whoever has used least.

    ``queues``: of those whose turn it is. ``near``: of others who may go first if a plan says so. ``others``: of all
    others. A plan may also put anybody's task first that needs more than ``rare`` seconds.
    """

    queues: Sequence[ReadableQueue]
    near: Sequence[ReadableQueue]
    others: Sequence[ReadableQueue]
    rare: float


def choose(plan: Plan, here: FilledInterval, start: float, limit: float, turn: Turn) -> Entry | None:
    """A task below ``limit`` for the window ``here``, whose rest begins at ``start``; None if rules 1 to 3 yield none.

    The task is no longer in the plan, which holds as before.
    """
    planned = here.runtimes[: -LOOKED_AT - 1 : -1]
    entry = _first_of(turn.queues, planned, limit)
    if entry is None and (turn.near or turn.others):
        for queue in turn.queues:
            if (entry := _exchanged(plan, here, start, limit, queue)) is not None:
                return entry
        rare = [runtime for runtime in planned if runtime > turn.rare]
        entry = _first_of(turn.near, planned, limit) or _first_of(turn.others, rare, limit)
    if entry is not None:
        here.runtimes.remove(entry.runtime)
    return entry


def _first_of(queues: Sequence[ReadableQueue], runtimes: Sequence[float], limit: float) -> Entry | None:
    """The first task that waits in one of ``queues`` with one of ``runtimes``."""
    for queue in queues:
        for runtime in runtimes:
            entry = queue.next_fit(min(limit, nextafter(runtime, inf)))
            if entry is not None and entry.runtime == runtime:
                return entry
    return None


def _exchanged(plan: Plan, here: FilledInterval, start: float, limit: float, queue: ReadableQueue) -> Entry | None:
    """The task of ``queue`` that is most like one that is planned for ``here``, after they have changed places."""
    best: tuple[float, float, Entry, FilledInterval] | None = None
    room = max(0.0, _room(here, start, plan.end))
    for runtime in here.runtimes[: -LOOKED_AT - 1 : -1]:
        entry = queue.next_fit(min(limit, max(runtime + NO_MORE.limit(room), nextafter(runtime, inf))))
        there = None if entry is None else _window_of(entry.runtime, plan, start)
        if entry is None or there is None:
            continue
        longer = runtime - entry.runtime
        both_fit = longer <= 0.0 or fits(longer, _room(there, there.interval.start, plan.end))
        if both_fit and (best is None or abs(longer) < best[0]):
            best = abs(longer), runtime, entry, there
    if best is None:
        return None
    _, runtime, entry, there = best
    here.runtimes.remove(runtime)
    there.runtimes.remove(entry.runtime)
    insort(there.runtimes, runtime)
    return entry


def _window_of(runtime: float, plan: Plan, now: float) -> FilledInterval | None:
    """The window for which a task of ``runtime`` is planned."""
    return next((fill for fill in plan.fills if fill.interval.end > now and runtime in fill.runtimes), None)


def _room(fill: FilledInterval, start: float, end: float) -> float:
    """How many seconds of a window are not planned, from ``start`` on until it closes, or until the plan ends."""
    return min(fill.interval.end, end) - start - sum(fill.runtimes)
