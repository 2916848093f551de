"""The latest runtimes of one bag, function or program, within bounds on what one PC can contribute.

Rule 1: one PC contributes at most a quarter of the runs, as soon as other PCs have some. So a PC that answers at once,
and therefore gets most of the tasks, does not decide what is learned.
Rule 2: a run that is many times as long as every run of all other PCs counts as `SPIKE` times their longest.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

# Runs that are remembered: enough for a quantile of 0.95, and few enough to follow a function that changes.
REMEMBERED = 200
# The most of these runs that one PC may have if others have any.
OF_ONE_PC = REMEMBERED // 4
# A run is forgotten when this many others have come after it, although one PC may have replaced its own runs.
STALE = 4 * REMEMBERED
# How many times the longest run of all other PCs one PC's run may be, once there are `ENOUGH` runs.
SPIKE = 4.0
ENOUGH = 16
# A sample is summed up in this many points, which are its quantiles in the middle of equal parts.
POINTS = 12


class Sample:
    """Runtimes in seconds, or ratios of runtimes.

    ``sorted``: the remembered runs, ascending. ``count``: how many there were in all.
    """

    __slots__ = ("_by_pc", "_recent", "count", "sorted")

    def __init__(self, known: Iterable[float] = ()) -> None:
        """``known``: runs of earlier times, whose PCs nobody knows any more."""
        self._recent: deque[tuple[float, str, int]] = deque()
        self._by_pc: dict[str, int] = {}
        self.sorted: list[float] = []
        self.count = 0
        for run in known:
            self.add(run, "")

    def add(self, run: float, pc: str) -> None:
        """Add a run. ``pc``: where it ran; empty if that is unknown."""
        known, by_pc = self.sorted, self._by_pc
        if len(by_pc) == 1 and pc not in by_pc and len(known) > OF_ONE_PC and "" not in by_pc:
            for _ in range(len(known) - OF_ONE_PC):
                self._forget(0)  # so far, all were of one PC
        if len(known) >= ENOUGH and run > SPIKE * known[-(len(known) // 4)]:
            run = self._believable(run, pc)
        if known and self._recent[0][2] <= self.count - STALE:
            self._forget(0)
        own = self._by_pc.get(pc, 0)
        if own >= OF_ONE_PC and own < len(known):
            self._forget(next(place for place, (_, where, _) in enumerate(self._recent) if where == pc))
        elif len(known) >= REMEMBERED:
            self._forget(0)
        self._recent.append((run, pc, self.count))
        self._by_pc[pc] = self._by_pc.get(pc, 0) + 1
        insort(known, run)
        self.count += 1

    def _believable(self, run: float, pc: str) -> float:
        """A very long run, limited by what all other PCs have shown."""
        others = [seconds for seconds, where, _ in self._recent if where != pc]
        return min(run, SPIKE * max(others)) if others else run

    def _forget(self, place: int) -> None:
        run, pc, _ = self._recent[place]
        del self._recent[place]
        del self.sorted[bisect_left(self.sorted, run)]
        if self._by_pc[pc] == 1:
            del self._by_pc[pc]
        else:
            self._by_pc[pc] -= 1

    def points(self) -> list[float]:
        """The sample, which must not be empty, in a few points of equal weight, ascending."""
        known = self.sorted
        step = len(known) / POINTS
        return [known[int((place + 0.5) * step)] for place in range(POINTS)]

    def runs(self) -> list[float]:
        """The remembered runs, oldest first."""
        return [run for run, _, _ in self._recent]
