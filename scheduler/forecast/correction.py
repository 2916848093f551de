"""An interval from the ends of many runs, corrected by how earlier intervals held.

A score says where the truth was: 1 at the end of the interval, 2 if it was twice as far from the median, as ratios of
remaining times. The quantile of the last scores is the factor that would have been right for them (normalised conformal
prediction). Each side of the interval has scores of its own, and so has each stage of a bag.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from math import ceil, exp, inf, log
from typing import NamedTuple

# The fraction of bags that should end after their intervals, and before them; and that within.
TAIL = 0.05
CONFIDENCE = 0.9
# Bags that are remembered, and how many there must be before intervals are corrected.
REMEMBERED, ENOUGH = 100, 15
# A new stage begins when this fraction of a bag's tasks has ended.
STAGES = (0.12, 0.37, 0.62)
# No side of an interval is taken to be narrower than this, as a logarithm, nor a remaining time shorter than a second.
NARROWEST = 0.02
SHORTEST_S = 1.0
# No factor is larger than this: so nobody can make all intervals useless.
LARGEST = 8.0


class Estimate(NamedTuple):
    """When a bag ends, in seconds from now: it ends between ``low`` and ``high`` with a confidence of .9."""

    median: float
    low: float
    high: float


class Score(NamedTuple):
    """Where the truth was, at a stage of a bag: on which side of the median, as a part of the interval's side."""

    stage: int
    below: float
    above: float


def estimate(ends: Sequence[float]) -> Estimate:
    """The estimate by the ends of some runs, as they are."""
    ordered = sorted(ends)
    low, median, high = (ordered[min(int(part * len(ordered)), len(ordered) - 1)] for part in (TAIL, 0.5, 1.0 - TAIL))
    return Estimate(median, low, high)


def stage_of(ended: float) -> int:
    """The stage of a bag of whose tasks this fraction has ended."""
    return bisect_right(STAGES, ended)


def score(stage: int, told: Estimate, seconds: float) -> Score:
    """How an estimate, uncorrected, did: the bag ended after ``seconds``."""
    far = log(max(seconds, SHORTEST_S) / max(told.median, SHORTEST_S))
    below, above = _sides(told)
    return Score(stage, -far / below, far / above)


def _sides(told: Estimate) -> tuple[float, float]:
    """The sides of an interval, as logarithms of ratios."""
    low, median, high = (max(seconds, SHORTEST_S) for seconds in (told.low, told.median, told.high))
    return max(log(median / low), NARROWEST), max(log(high / median), NARROWEST) if high < inf else inf


class Correction:
    """The last scores, and what follows from them."""

    def __init__(self) -> None:
        self._scores = [deque[Score](maxlen=REMEMBERED) for _ in range(len(STAGES) + 1)]

    def learn(self, each: Score) -> None:
        """Take a score of a bag that has ended."""
        self._scores[each.stage].append(each)

    def packed(self) -> Iterator[tuple[str, bytes]]:
        """The scores of each stage, by its name, for `restore`."""
        for stage, scores in enumerate(self._scores):
            yield str(stage), array("d", [side for each in scores for side in (each.below, each.above)]).tobytes()

    def restore(self, name: str, sides: Sequence[float]) -> None:
        """Go on with what `packed` returned, as numbers; anything else is ignored."""
        for stage in range(len(self._scores)):
            if name == str(stage):
                self._scores[stage].extend(Score(stage, *pair) for pair in zip(sides[::2], sides[1::2], strict=False))

    def corrected(self, stage: int, told: Estimate) -> Estimate:
        """The estimate as earlier ones of this stage should have been; as it is while too few are known."""
        scores = self._scores[stage]
        if len(scores) < ENOUGH or told.median == inf:
            return told
        below, above = _sides(told)
        median = max(told.median, SHORTEST_S)
        low = median * exp(-below * _factor([each.below for each in scores]))
        high = median * exp(above * _factor([each.above for each in scores])) if above < inf else inf
        return Estimate(told.median, min(low, told.median), max(high, told.median))


def _factor(scores: list[float]) -> float:
    """The quantile of scores that makes one side of an interval right."""
    place = min(ceil((len(scores) + 1) * (1.0 - TAIL)), len(scores)) - 1
    return min(max(sorted(scores)[place], 0.0), LARGEST)
