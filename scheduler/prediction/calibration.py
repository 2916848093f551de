"""Corrections of predicted quantiles, so that they hold for as many tasks as they say.

The quantiles of few runs are too narrow, and new bags differ from earlier ones. Each quantile therefore has a factor,
which follows how often tasks took longer: by how many tasks of the bag had ended when the prediction was made, and by
whether its function was known. (Gibbs and Candes, 2021: adaptive conformal inference.)
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import exp

# The fractions of tasks that do not take longer than the predicted quantiles.
LEVELS = (0.05, 0.5, 0.9, 0.95)
# A new stage begins when this many tasks of the bag have ended.
STAGES = (1, 4, 16)
# A task moves the logarithm of a factor by at most this much. In some hundred tasks, factors find their places.
STEP = 0.01
# No logarithm of a factor is further from 0: a factor of 4.5. So nobody can move a quantile out of reach.
FURTHEST = 1.5


def stage_of(ended: int, known: bool) -> int:
    """The stage of a bag with so many ``ended`` tasks. ``known``: there was evidence of its own kind before."""
    return bisect_right(STAGES, ended) + (len(STAGES) + 1) * known


class Calibration:
    """A factor for each stage and level."""

    def __init__(self) -> None:
        self._logs = [[0.0] * len(LEVELS) for _ in range(2 * (len(STAGES) + 1))]
        self._factors = [[1.0] * len(LEVELS) for _ in self._logs]

    def corrected(self, stage: int, quantiles: Sequence[float], most: float) -> list[float]:
        """The quantiles, ascending, with the factors of a stage; none is above ``most``."""
        found: list[float] = []
        least = 0.0
        for factor, quantile in zip(self._factors[stage], quantiles, strict=True):
            least = max(least, min(factor * quantile, most))
            found.append(least)
        return found

    def learn(self, stage: int, predicted: Sequence[float], seconds: float) -> None:
        """A task that was predicted at this stage took ``seconds``."""
        logs = self._logs[stage]
        for place, level in enumerate(LEVELS):
            moved = logs[place] + STEP * (level - (seconds <= predicted[place]))
            logs[place] = min(max(moved, -FURTHEST), FURTHEST)
        self._factors[stage] = [exp(each) for each in logs]

    def logs(self) -> list[float]:
        """All logarithms of factors, stage by stage, for `restore`."""
        return [each for stage in self._logs for each in stage]

    def restore(self, logs: Sequence[float]) -> None:
        """Go on with what `logs` returned; anything else is ignored."""
        width = len(LEVELS)
        if len(logs) == width * len(self._logs):
            self._logs = [list(logs[start : start + width]) for start in range(0, len(logs), width)]
            self._factors = [[exp(min(max(each, -FURTHEST), FURTHEST)) for each in stage] for stage in self._logs]
