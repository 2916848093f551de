"""How well runtimes are predicted, from the attempts that have ended lately."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import inf

# Attempts that are remembered: enough for a quantile of 0.95, few enough to forget a bag that was predicted badly.
REMEMBERED = 200
# So many new ones are sorted in one by one: more are sooner sorted with all the others.
FEW = 8
# Below so many, nothing is concluded.
ENOUGH = 20
# What was stopped after it had outlived its prediction is next predicted to take this many times what it had used ...
OUTLIVED = 2.0
# ... but not more than this part of the longest window, as long as it may still fit there.
NEARLY = 0.9


def outlived(elapsed: float, longest_window: float) -> float:
    """The next prediction for what was stopped, unfinished, after more seconds than predicted."""
    nearly = NEARLY * longest_window
    return min(OUTLIVED * elapsed, nearly) if elapsed < nearly else OUTLIVED * elapsed


def ratios(predicted: Sequence[float], actual: Sequence[float]) -> list[float]:
    """Actual to predicted runtimes. Tasks that were predicted to take no time, or took none, are left out."""
    found: list[float] = []
    for planned, seconds in zip(predicted, actual, strict=True):
        if planned > 0.0 and 0.0 < (ratio := seconds / planned) < inf:
            found.append(ratio)
    return found


class PredictionError:
    """Ratios of the actual to the predicted runtime, of the last attempts with a prediction.

    An attempt that was killed after it had outlived its prediction counts with what it had used: it would have needed
    more.
    """

    def __init__(self) -> None:
        # In the order in which they came: those that are in ``_sorted``, and behind them those that are not yet.
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, told: Sequence[float]) -> None:
        """Attempts ended, in this order. Their ratios are sorted when somebody asks, and of most bags nobody does."""
        self._recent.extend(told)
        if len(self._recent) > 2 * REMEMBERED:
            self._sort_anew()

    def _sort_anew(self) -> None:
        while len(self._recent) > REMEMBERED:
            self._recent.popleft()
        self._sorted = sorted(self._recent)

    def quantile(self, fraction: float) -> float:
        """The ratio that ``fraction`` (0 to 1) of the attempts stay within; 1.0 as long as too few are known."""
        if fresh := len(self._recent) - len(self._sorted):
            self._catch_up(fresh)
        known = self._sorted
        return known[min(len(known) - 1, int(fraction * len(known)))] if len(known) >= ENOUGH else 1.0

    def _catch_up(self, fresh: int) -> None:
        """Sort in what has come since somebody asked."""
        if fresh > FEW:
            self._sort_anew()
            return
        for back in range(1, fresh + 1):
            insort(self._sorted, self._recent[-back])
        while len(self._recent) > REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
