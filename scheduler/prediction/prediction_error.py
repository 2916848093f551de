"""How well runtimes are predicted, from the attempts that have ended lately."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from math import inf

# Attempts that are remembered: enough for a quantile of 0.95, few enough to forget a bag that was predicted badly.
REMEMBERED = 200
# Up to this many new ratios are inserted one by one. If there are more, it is quicker to sort all ratios again.
FEW = 8
# With fewer ratios than this, no conclusion is drawn.
ENOUGH = 20
# A task that was stopped after its predicted runtime gets a new prediction: this many times the time it had used ...
OUTLIVED = 2.0
# ... but at most this fraction of the longest window, as long as the task may still fit there.
NEARLY = 0.9


def outlived(elapsed: float, longest_window: float) -> float:
    """The next prediction for a task that was stopped, unfinished, after more seconds than predicted."""
    nearly = NEARLY * longest_window
    return min(OUTLIVED * elapsed, nearly) if elapsed < nearly else OUTLIVED * elapsed


def ratios(predicted: Sequence[float], actual: Sequence[float]) -> list[float]:
    """Actual to predicted runtimes. Tasks that were predicted to take no time, or took none, are left out."""
    found: list[float] = []
    for place, planned in enumerate(predicted):
        if planned > 0.0 and 0.0 < (ratio := actual[place] / planned) < inf:
            found.append(ratio)
    return found


class PredictionError:
    """Ratios of the actual to the predicted runtime, of the last attempts with a prediction.

    An attempt that was killed after its predicted runtime counts with the time that it had used, although it would have
    needed more.
    """

    def __init__(self) -> None:
        # In order of arrival: first the ratios that are in ``_sorted``, then those that are not sorted in yet.
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, told: Sequence[float]) -> None:
        """Add the ratios of attempts that ended, in order. They are sorted on demand: for most bags there is none."""
        self._recent.extend(told)
        if len(self._recent) > 2 * REMEMBERED:
            self._sort_anew()

    def _sort_anew(self) -> None:
        while len(self._recent) > REMEMBERED:
            self._recent.popleft()
        self._sorted = sorted(self._recent)

    def quantile(self, fraction: float) -> float:
        """The ratio that ``fraction`` (0 to 1) of the attempts do not exceed; 1.0 as long as too few are known."""
        known = self.known()
        return known[min(len(known) - 1, int(fraction * len(known)))] if len(known) >= ENOUGH else 1.0

    def known(self) -> list[float]:
        """The remembered ratios, ascending; not to be changed."""
        fresh = len(self._recent) - len(self._sorted)
        if fresh > FEW:
            self._sort_anew()
        else:
            for back in range(1, fresh + 1):
                insort(self._sorted, self._recent[-back])
            while len(self._recent) > REMEMBERED:
                del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        return self._sorted
