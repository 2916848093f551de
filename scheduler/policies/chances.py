"""Placing tasks of which nobody knows how long they take, only what is likely.

A slot gets the task with the largest expected value; if all of them should end in its window, that is the longest one.
A task that takes a seconds and ends in time is worth a², because long tasks become ever more difficult to place. One
that is killed after a seconds costs a fifth of a². Towards the end of the work, a task that will soon have a place that
is long enough does not take a chance before.
"""

from collections.abc import Collection, Iterator
from itertools import islice
from math import inf, nextafter
from typing import NamedTuple

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.policies.base import Place, View
from deskgrid.scheduler.policies.reserved import LAST_TASKS, Reserved, reserved
from deskgrid.scheduler.queues.waiting import Entry

# No task is tried that ends in time with less than this probability.
LEAST = 0.1
# A killed task costs this fraction of what a task of the same length would have been worth. With less, tasks are killed
# although a better window would have come soon; with more, too many slots stay idle.
LOSS = 0.2
# Killed tasks that a choice considers, and how many of them it looks past to find one that was never tried.
TRIED, PAST = 64, 4


class Chance(NamedTuple):
    """A task, the probability that it ends in time, and what it is worth to try."""

    entry: Entry
    probability: float
    value: float


def chances(view: View, margin: float, ample: float) -> Iterator[Place]:
    """A task for each idle slot, the tightest first, as long as there is one worth trying.

    ``ample``: a slot with so many seconds left may try anything, because no better one will come.
    """
    places = reserved(view, margin) if len(view.priority) <= LAST_TASKS else None
    placed, least, any_task, chance = set[int](), 0.0, Requirement(margin), Requirement(margin, 0.0)
    while len(view.priority) and (found := view.tightest_empty(least, any_task)) is not None:
        left = view.idle_s(found[0])
        if left is None:
            return  # no slot is idle
        left -= margin
        if view.kept(found[0]):
            entry = _certain(view, left)
        elif places is None:
            entry = choose(view, left, ample)
        else:
            entry = _last(view, places, found[0], left, placed)
        if entry is None:
            least = max(left, nextafter(least, inf))
        else:
            placed.add(entry.task)
            yield Place(entry, found[0], True, chance)


def _certain(view: View, left: float) -> Entry | None:
    """The longest task, if nobody doubts that it ends in time: what waits for the slot waits for no chances."""
    entry = view.priority.next_fit(left)
    if entry is not None:
        entry = view.priority.next_fit(left / max(1.0, view.spread(entry.task).ratios[-1]))
    return entry if entry is not None and view.longest(entry.task) < left else None


def _last(view: View, places: Reserved, slot: int, left: float, placed: Collection[int]) -> Entry | None:
    """The task that has its place here, or else one that would not have its place before this window closes."""
    closes = view.open_slot(slot).closes
    for entry in places.now.get(closes, ()):
        if entry.task not in placed:
            return entry
    now = {entry.task for entries in places.now.values() for entry in entries}
    best: Chance | None = None
    for entry in places.entries:
        if entry.task in now or entry.task in placed or places.starts.get(entry.task, inf) < closes:
            continue
        chance = chance_of(view, entry, left)
        if chance.probability >= LEAST and (best is None or chance.value > best.value):
            best = chance
    return None if best is None else best.entry


def choose(view: View, left: float, ample: float) -> Entry | None:
    """The task for a slot with ``left`` seconds."""
    entry = view.priority.next_fit(inf)
    if entry is None or view.longest(entry.task) < left:
        return entry  # nobody doubts that it ends in time, as of most tasks
    best = chance_of(view, entry, left)
    limits = [left / ratio for ratio in sorted(set(view.spread(entry.task).ratios)) if ratio > 0.0]
    for entry in (*(_untried(view, limit) for limit in limits), *_tried(view)):
        if entry is not None and (chance := chance_of(view, entry, left)).value > best.value:
            best = chance
    return best.entry if best.probability >= LEAST or left >= ample else None


def chance_of(view: View, entry: Entry, left: float) -> Chance:
    """What it is worth to try this task in ``left`` seconds."""
    likely = view.runtimes(entry.task)
    in_time = [seconds for seconds in likely if seconds < left]
    lost = (len(likely) - len(in_time)) * LOSS * left * left
    return Chance(entry, len(in_time) / len(likely), (sum([s * s for s in in_time]) - lost) / len(likely))


def _untried(view: View, limit: float) -> Entry | None:
    """The longest task below ``limit`` that was never killed, or the last one looked at."""
    entry = view.priority.next_fit(limit)
    for _ in range(PAST):
        if entry is None or entry.task not in view.tried(entry.task):
            return entry
        entry = view.priority.next_fit(limit, entry)
    return entry


def _tried(view: View) -> Iterator[Entry]:
    """Tasks of the first bag that wait again, the latest first."""
    first = view.priority.next_fit(inf)
    for task in islice(reversed(view.tried(first.task)), TRIED) if first is not None else ():
        if (entry := _entry_of(view, task)) is not None:
            yield entry


def _entry_of(view: View, task: int) -> Entry | None:
    """The entry of a task, if it waits here; equal runtimes are few."""
    runtime = view.runtime(task)
    entry = view.priority.next_fit(nextafter(runtime, inf))
    for _ in range(PAST):
        if entry is None or entry.runtime != runtime:
            return None
        if entry.task == task:
            return entry
        entry = view.priority.next_fit(inf, entry)
    return None
