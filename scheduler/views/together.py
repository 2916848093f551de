"""How many ranks of a parallel task could be together at one site, for as long as it takes, and when: for explanations.

What PCs do now is left out: it ends, and the windows of the PCs are what a task can wait for.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.model import Window
from deskgrid.scheduler.parallel.need import Need
from deskgrid.scheduler.state.slots import Worker

# The windows of each PC that are looked at: a week has not many more, and the first that is long enough is told.
WINDOWS = 16


class Together(NamedTuple):
    """So many ranks can be together in ``starts_in_s`` seconds. ``site``: its name, or that of its only PC."""

    ranks: int
    site: str
    starts_in_s: float


def best_together(grid: GridState, need: Need, runtime: float, now: float) -> Together | None:
    """The first time at which enough ranks for ``need`` are together for ``runtime`` seconds at speed 1.

    If there is none, the first time at which the most are; None if no PC has a place for one.
    """
    margin = grid.policy.requirement.margin
    seconds = need.seconds(runtime, need.least)
    changes: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for worker, windows in _known(grid, now):
        ranks = _room(worker, need)
        lasts = seconds / worker.measured + margin
        for opens, closes in islice(windows, WINDOWS) if ranks else ():
            if closes - max(opens, now) > lasts:
                site = worker.site, "" if worker.traits.reachable else worker.name
                changes[site] += [(max(opens, now), ranks), (closes - lasts, -ranks)]
    found = [_best(need.least, name or site, sorted(its), now) for (site, name), its in sorted(changes.items())]
    # Enough, as soon as possible; otherwise the most.
    return min(found, key=lambda each: (-min(each.ranks, need.least), each.starts_in_s), default=None)


def _best(enough: int, site: str, changes: list[tuple[float, int]], now: float) -> Together:
    """The first time when ``enough`` can begin, else the most; ``changes``: of how many can, ascending."""
    best, together = Together(0, site, 0.0), 0
    for at, its in groupby(changes, itemgetter(0)):
        together += sum([ranks for _, ranks in its])
        if together > best.ranks:
            best = Together(together, site, at - now)
        if best.ranks >= enough:
            break
    return best


def _known(grid: GridState, now: float) -> Iterator[tuple[Worker, Iterable[Window]]]:
    """Every PC that has been up, with its windows, open and to come, as they really are."""
    for worker in grid.slots.workers.values():
        coming = grid.hours.really(worker.name, worker.expected(now))
        yield worker, [Window(now, worker.ends_at), *(window for window in coming if window.opens > now)]
    for name, away in grid.away.items():
        if away.was is not None:
            yield away.was, grid.hours.really(name, away.expected(now))


def _room(worker: Worker, need: Need) -> int:
    """How many ranks a PC has room for, if nothing runs there."""
    traits, room = worker.traits, len(worker.slots) // need.slots
    if not need.labels <= traits.labels:
        return 0
    return min(room, int(traits.memory // need.memory)) if need.memory and traits.memory < math.inf else room
