"""Quantiles of what a bag has shown, mixed with what was known before it began.

A task that still runs has shown that it takes longer than its elapsed time. It counts as a censored observation: its
weight is spread over all longer runs (the estimator of Kaplan and Meier, as Efron computes it). Without that, the first
tasks that end would make a bag look short.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import ceil

# What was known before weighs as much as this many runs of the bag.
PRIOR_WEIGHT = 2.0
# The most running tasks that are looked at one by one. If there are more, evenly spread ones stand for all.
RUNNING = 8
# Ranks are sums of fractions; what they may be off by.
_ROUNDING = 1e-9


class Mixture:
    """The runs of a bag, and the points of a prior, which together weigh `PRIOR_WEIGHT` runs. Both are ascending.

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
