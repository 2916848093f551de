"""Places that are kept for the last tasks: where each is nearly certain to end, and to end soonest."""

from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf
from statistics import fmean
from typing import NamedTuple

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.policies.base import View
from deskgrid.scheduler.queues.waiting import Entry

# The most waiting tasks, and slots times tasks, for which places are reserved.
LAST_TASKS, LAST_PAIRS = 120, 4096
# Windows of each slot that are looked at for that.
AHEAD = 8
# A window with this fraction of the longest one left is long enough for everything.
AMPLE = 0.95
# A place is long enough for a task that ends in time with this probability.
CERTAIN = 0.9

_SlotKey = tuple[str, int]


class Reserved(NamedTuple):
    """``entries``: the tasks. ``now``: those that begin now, by when the window of their slot closes.

    Idle slots whose windows close together are as good as each other. ``starts``: when each task begins at the place
    that is kept for it.
    """

    entries: Sequence[Entry]
    starts: Mapping[int, float]
    now: Mapping[float, Sequence[Entry]]


class _ReservedPlace(NamedTuple):
    ends: float
    starts: float
    slot: _SlotKey


def reserved(view: View, margin: float) -> Reserved | None:
    """Places for all waiting tasks, the longest first; None if there are too many tasks or slots."""
    entries = _waiting(view)
    slots = list(islice(view.open_slots(), LAST_PAIRS + 1))
    if len(entries) > LAST_TASKS or len(slots) * len(entries) > LAST_PAIRS:
        return None
    windows = {key: spans for key, spans in _windows(view, margin).items() if spans}
    longest = max([closes - opens for spans in windows.values() for opens, closes in spans], default=0.0)
    free = {(at.worker, at.slot): view.expected_free(at.number) for at in slots}
    speeds = {each.worker: each.speed for each in view.upcoming()}
    needs = {}
    for entry in entries:
        likely = view.runtimes(entry.task)
        needs[entry.task] = likely[min(len(likely) - 1, int(CERTAIN * len(likely)))], fmean(likely), entry
    starts: dict[int, float] = {}
    closes = {(at.worker, at.slot): at.closes for at in slots}
    first: dict[float, list[Entry]] = {}
    for most, mean, entry in sorted(needs.values(), key=lambda need: (-need[0], -need[1], need[2].task)):
        places = [
            _soonest(key, spans, free.get(key, view.now), min(most / speed, AMPLE * longest), mean / speed)
            for key, spans in windows.items()
            for speed in [speeds[key[0]]]
        ]
        best = min([place for place in places if place is not None], default=None)
        if best is None:
            continue
        starts[entry.task], free[best.slot] = best.starts, best.ends
        if best.starts <= view.now:
            first.setdefault(closes[best.slot], []).append(entry)
    return Reserved(entries, starts, first)


def _waiting(view: View) -> list[Entry]:
    """The waiting tasks, one more than `LAST_TASKS` at most."""
    found: list[Entry] = []
    entry = view.priority.next_fit(inf)
    while entry is not None and len(found) <= LAST_TASKS:
        found.append(entry)
        entry = view.priority.next_fit(inf, entry)
    return found


def _windows(view: View, margin: float) -> dict[_SlotKey, list[tuple[float, float]]]:
    """The open window of each slot, and the first ones to come. A PC that is late may not come at all."""
    found: dict[_SlotKey, list[tuple[float, float]]] = {}
    for at in view.open_slots():
        found[at.worker, at.slot] = [(view.now, at.closes - margin)]
    for worker, slots, windows, _ in view.upcoming():
        for slot in range(slots):
            found.setdefault((worker, slot), []).extend(
                [(window.opens, window.closes - margin) for window in windows[:AHEAD] if window.opens > view.now]
            )
    return found


def _soonest(
    slot: _SlotKey, windows: Sequence[tuple[float, float]], free: float, most: float, mean: float
) -> _ReservedPlace | None:
    """Where a task can begin on a slot so that it has the time that it may need."""
    for opens, closes in windows:
        start = max(opens, free)
        if fits(most, closes - start):
            return _ReservedPlace(start + mean, start, slot)
    return None
