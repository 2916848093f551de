"""How well runtimes are predicted, from the attempts that have ended lately."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import inf

# Attempts that are remembered: enough for a quantile of 0.95, few enough to forget a bag that was predicted badly.
REMEMBERED = 200
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


class Accuracy:
    """Ratios of the actual to the predicted runtime, of the last attempts with a prediction.

    An attempt that was killed after it had outlived its prediction counts with what it had used: it would have needed
    more.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, predicted: float, actual: float) -> None:
        """An attempt ended. One that was predicted to take no time, or took none, says nothing of ratios."""
        ratio = actual / predicted if predicted > 0.0 else 0.0
        if not 0.0 < ratio < inf:
            return
        if len(self._recent) == REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(ratio)
        insort(self._sorted, ratio)

    def add_all(self, predicted: Sequence[float], actual: Sequence[float]) -> None:
        """These attempts ended, in this order: the same as each by itself, sooner."""
        ratios = [seconds / planned for planned, seconds in zip(predicted, actual, strict=True) if planned > 0.0]
        self._recent.extend(ratio for ratio in ratios if 0.0 < ratio < inf)
        while len(self._recent) > REMEMBERED:
            self._recent.popleft()
        self._sorted = sorted(self._recent)

    def quantile(self, fraction: float) -> float:
        """The ratio that ``fraction`` (0 to 1) of the attempts stay within; 1.0 as long as too few are known."""
        if len(self._sorted) < ENOUGH:
            return 1.0
        return self._sorted[min(len(self._sorted) - 1, int(fraction * len(self._sorted)))]
