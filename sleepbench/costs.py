"""What a grid costs beside the work itself, as a live run shows it: the simulator's `Conditions`, measured. Pure.

Rule 1: seconds since the bag was submitted, on the run's own clock.
Rule 2: a slot that has nothing to do costs nothing. So what passes before a task starts counts only if more tasks were
still to start for good than there are PCs: then at least one of them waited.
Rule 3: windows count from when they were planned to open; that somebody notices it late is part of the cost.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import fmean
from typing import NamedTuple

# The closing of a window is computed from two readings of a clock, one of each process.
SAME_S = 1e-3


class Nap(NamedTuple):
    """A task that ended well. ``asked``: how long it was to take."""

    pc: str
    asked: float
    started: float
    ended: float


class Opened(NamedTuple):
    """A window: ``planned`` to open then, ``known`` to the broker as open from then on, planned to close then."""

    pc: str
    planned: float
    known: float
    closes: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Of ``count`` measurements of one kind: the mean, and the most. Seconds."""

    mean: float
    most: float
    count: int


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured in one run.

    ``oversleep``: by how much tasks took longer than they were to take. ``gap``: from the end of a task to the start of
    the next one in the same window. ``opening``: from when a window was planned to open to the start of its first task.
    ``late``: the part of that until the broker knew that it was open. ``submission_s``: until the first task of all
    started. ``first_closings``: of each PC that does not stay, when the window closes that was the first to be open in
    the run.
    """

    oversleep: Cost
    gap: Cost
    opening: Cost
    late: Cost
    submission_s: float
    first_closings: Mapping[str, float]


def measure(naps: Sequence[Nap], windows: Sequence[Opened]) -> Costs:
    """The costs in a run with these tasks and windows."""
    starts = sorted(nap.started for nap in naps)
    pcs = {window.pc for window in windows}

    def waits(moment: float) -> bool:
        return len(starts) - bisect_right(starts, moment) > len(pcs)

    visits = [visit for pc in pcs for visit in _visits(pc, naps, windows)]
    begun = [visit for visit in visits if visit.window.planned >= 0.0]
    return Costs(
        oversleep=_cost(nap.ended - nap.started - nap.asked for nap in naps),
        gap=_cost(gap for visit in visits for gap in visit.gaps(waits)),
        opening=_cost(visit.naps[0].started - visit.window.planned for visit in begun if visit.waited(waits)),
        late=_cost(visit.window.known - visit.window.planned for visit in begun),
        submission_s=starts[0] if starts else 0.0,
        first_closings=_first_closings(windows),
    )


class _Visit(NamedTuple):
    """A window with the tasks that ended well in it, in order. One that was killed comes after all of them."""

    window: Opened
    naps: Sequence[Nap]

    def waited(self, waits: Callable[[float], bool]) -> bool:
        """Whether its first task was due as soon as it opened."""
        return bool(self.naps) and waits(self.window.planned)

    def gaps(self, waits: Callable[[float], bool]) -> Iterator[float]:
        """Between its tasks, where the next one was due."""
        return (after.started - before.ended for before, after in pairwise(self.naps) if waits(before.ended))


def _visits(pc: str, naps: Sequence[Nap], windows: Sequence[Opened]) -> Iterator[_Visit]:
    """Each window of a PC, with its tasks."""
    own = sorted((nap for nap in naps if nap.pc == pc), key=lambda nap: nap.started)
    starts = [nap.started for nap in own]
    for window in windows:
        if window.pc == pc:
            yield _Visit(window, own[bisect_right(starts, window.planned) : bisect_right(starts, window.closes)])


def _first_closings(windows: Sequence[Opened]) -> dict[str, float]:
    closings: dict[str, float] = {}
    for window in windows:
        if SAME_S < window.closes < inf:
            closings[window.pc] = min(window.closes, closings.get(window.pc, inf))
    return closings


def _cost(found: Iterator[float]) -> Cost:
    measured = list(found)
    return Cost(fmean(measured), max(measured), len(measured)) if measured else Cost(0.0, 0.0, 0)
