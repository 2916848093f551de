"""The latest runtimes of one bag, function or program, within bounds on what one PC can contribute.

Rule 1: one PC contributes at most a quarter of the runs, as soon as other PCs have some. So a PC that answers at once,
and therefore gets most of the tasks, does not decide what is learned.
Rule 2: a run that is many times as long as every run of all other PCs counts as `SPIKE` times their longest.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence
from math import ceil

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
# What was known before weighs as much as this many runs of the bag.
PRIOR_WEIGHT = 2.0
# The most running tasks that are looked at one by one. If there are more, evenly spread ones stand for all.
RUNNING = 8
# Ranks are sums of fractions; what they may be off by.
_ROUNDING = 1e-9


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


class Mixture:
    """Quantiles of what a bag has shown, mixed with what was known before it began.

    A task that still runs has shown that it takes longer than its elapsed time. It counts as a censored observation:
    its weight is spread over all longer runs (the estimator of Kaplan and Meier, as Efron computes it). Without that,
    the first tasks that end would make a bag look short.

    Given are the runs of a bag, and the points of a prior, which together weigh `PRIOR_WEIGHT` runs; both ascending.

    At least one of them must not be empty. A rank is a weight: of all runs and points up to a value.
    """

    __slots__ = ("_own", "_point_weight", "_points", "_ranks", "_weight")

    def __init__(self, own: Sequence[float], points: Sequence[float]) -> None:
        self._own, self._points = own, points
        self._point_weight = each = PRIOR_WEIGHT / len(points) if points else 0.0
        self._weight = len(own) + each * len(points)
        # The rank below each point.
        self._ranks = [bisect_left(own, point) + each * place for place, point in enumerate(points)]

    def quantiles(self, levels: Sequence[float], running: Sequence[float]) -> list[float]:
        """The values that these fractions of all tasks do not exceed; they are above 0.

        ``running``: the elapsed seconds of tasks that have not ended.
        """
        if not running:
            return [self._at(level * self._weight) for level in levels]
        ranks, masses, factors = self._spread(running)
        found: list[float] = []
        for level in levels:
            mass = level * masses[-1]
            part = min(bisect_right(masses, mass), len(factors)) - 1
            found.append(self._at(ranks[part] + (mass - masses[part]) / factors[part]))
        return found

    def _spread(self, running: Sequence[float]) -> tuple[list[float], list[float], list[float]]:
        """The weights of running tasks, spread over longer runs: ranks where they change, the masses there, factors.

        Between two of these ranks the weight of every run is multiplied by the same factor. The last mass is that of
        everything.
        """
        own, points, each = self._own, self._points, self._point_weight
        elapsed = sorted(running)
        step = max(1.0, len(elapsed) / RUNNING)
        ranks, masses, factors = [0.0], [0.0], [1.0]
        for place in range(min(len(elapsed), RUNNING)):
            seconds = elapsed[int((place + 0.5) * step)]
            rank = bisect_right(own, seconds) + each * bisect_right(points, seconds)
            longer = self._weight - rank
            if longer <= _ROUNDING:
                break  # nothing known takes longer
            masses.append(masses[-1] + (rank - ranks[-1]) * factors[-1])
            ranks.append(rank)
            factors.append(factors[-1] + step / longer)
        masses.append(masses[-1] + (self._weight - ranks[-1]) * factors[-1])
        return ranks, masses, factors

    def _at(self, rank: float) -> float:
        """The smallest value up to which runs and points weigh at least ``rank``."""
        rank -= _ROUNDING
        below = bisect_left(self._ranks, rank)  # points that begin below this rank
        if below and (not self._own or rank <= self._ranks[below - 1] + self._point_weight):
            return self._points[below - 1]
        return self._own[min(ceil(rank - self._point_weight * below), len(self._own)) - 1]
