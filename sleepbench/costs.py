"""The overhead of a grid, measured in a live run; the simulator takes it as its `Conditions`. Pure.

Rule 1: times are seconds since the bag was submitted, on the run's own clock.
Rule 2: an idle slot without work costs nothing. So the time before a task starts counts only if more tasks had yet to
start their final attempt than there are PCs: then at least one of them waited.
Rule 3: windows count from their planned opening. If somebody notices the opening late, that is part of the cost.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import fmean
from typing import NamedTuple

# Closings up to this much after the start are ignored: a closing is computed from the clock readings of two processes.
SAME_S = 1e-3


class Nap(NamedTuple):
    """A task that succeeded. ``asked``: the seconds that it was told to sleep."""

    pc: str
    asked: float
    started: float
    ended: float


class Opened(NamedTuple):
    """A window. ``planned``: its planned opening; ``known``: when the broker knew; ``closes``: its planned closing."""

    pc: str
    planned: float
    known: float
    closes: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The mean and the maximum of ``count`` measurements of one kind. Seconds."""

    mean: float
    most: float
    count: int


@dataclass(frozen=True, slots=True)
class Costs:
    """The measurements of one run.

    ``oversleep``: how much longer tasks took than they were told to. ``gap``: from the end of a task to the start of
    the next one in the same window. ``opening``: from the planned opening of a window to the start of its first task.
    ``late``: the part of ``opening`` until the broker knew that the window was open. ``submission_s``: until the very
    first task started. ``first_closings``: for each PC that does not stay, when its first window in the run closes.
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
    """A window with the tasks that succeeded in it, in order. A killed task would come after all of them."""

    window: Opened
    naps: Sequence[Nap]

    def waited(self, waits: Callable[[float], bool]) -> bool:
        """Whether its first task was due as soon as the window opened."""
        return bool(self.naps) and waits(self.window.planned)

    def gaps(self, waits: Callable[[float], bool]) -> Iterator[float]:
        """The gaps between its tasks, if the next task was due."""
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
