"""An interval from the ends of many runs, corrected by how earlier intervals held.

A score says where the truth was: 1 at the end of the interval, 2 if it was twice as far from the median, as ratios of
remaining times. The quantile of the last scores is the factor that would have been right for them (normalised conformal
prediction). Each side of the interval has scores of its own, and so have each stage of a bag and each owner.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from math import ceil, exp, inf, log
from statistics import median
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
# No factor is smaller or larger than this: so no side of an interval is lost, or useless.
LEAST, LARGEST = 0.25, 8.0
# What others' bags say counts if so many owners have enough of them.
OTHERS = 3
# Names of scores that are remembered: each owner has one for each stage.
NAMES = 2_000


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
    low, middle, high = (ordered[min(int(part * len(ordered)), len(ordered) - 1)] for part in (TAIL, 0.5, 1.0 - TAIL))
    return Estimate(middle, low, high)


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
    low, middle, high = (max(seconds, SHORTEST_S) for seconds in (told.low, told.median, told.high))
    return max(log(middle / low), NARROWEST), max(log(high / middle), NARROWEST) if high < inf else inf


class Correction:
    """The last scores of each owner's bags, and what follows from them.

    Nobody's bags change the intervals of another owner, unless this one has too few of its own: then the median of
    others' factors counts, if there are some. ``fresh``: names of scores that have changed since somebody emptied this.
    """

    def __init__(self) -> None:
        # By the stage and the owner, as `_name` puts them; those that were used last are at the end.
        self._scores: dict[str, deque[Score]] = {}
        self._others: dict[int, tuple[float, float] | None] = {}
        self.fresh: dict[str, None] = {}

    @property
    def names(self) -> Collection[str]:
        """The names of all scores."""
        return self._scores.keys()

    def learn(self, owner: str, each: Score) -> None:
        """Take a score of a bag of ``owner`` that has ended."""
        name = _name(each.stage, owner)
        self._add(name, [each])
        self.fresh[name] = None

    def _add(self, name: str, scores: Iterable[Score]) -> None:
        its = self._scores.pop(name, None)
        if len(self._scores) >= NAMES:
            del self._scores[next(iter(self._scores))]
        self._scores[name] = deque(its or (), REMEMBERED)
        self._scores[name].extend(scores)
        self._others.clear()

    def kept(self, name: str) -> list[float]:
        """The scores of a name, to be kept for `restore`."""
        return [side for each in self._scores.get(name, ()) for side in (each.below, each.above)]

    def restore(self, name: str, sides: Sequence[float]) -> None:
        """Go on with what `kept` returned in an earlier life; other names are ignored."""
        stage, _, owner = name.partition(" ")
        if owner and stage in map(str, range(len(STAGES) + 1)):
            self._add(name, [Score(int(stage), *pair) for pair in zip(sides[::2], sides[1::2], strict=False)])

    def corrected(self, owner: str, stage: int, told: Estimate) -> Estimate:
        """The estimate of a bag of ``owner`` as earlier ones of this stage should have been."""
        if told.median == inf:
            return told
        scores = self._scores.get(_name(stage, owner), ())
        factors = _factors(scores) if len(scores) >= ENOUGH else self._of_others(stage)
        if factors is None:
            return told
        below, above = _sides(told)
        middle = max(told.median, SHORTEST_S)
        low = middle * exp(-below * factors[0])
        high = middle * exp(above * factors[1]) if above < inf else inf
        return Estimate(told.median, min(low, told.median), max(high, told.median))

    def _of_others(self, stage: int) -> tuple[float, float] | None:
        """The median of the factors of those who have enough scores; None: too few have."""
        if stage not in self._others:
            start = _name(stage, "")
            known = [
                _factors(scores)
                for name, scores in self._scores.items()
                if name.startswith(start) and len(scores) >= ENOUGH
            ]
            found = (median([each[0] for each in known]), median([each[1] for each in known])) if known else None
            self._others[stage] = found if len(known) >= OTHERS else None
        return self._others[stage]


def _name(stage: int, owner: str) -> str:
    return f"{stage} {owner}"


def _factors(scores: Collection[Score]) -> tuple[float, float]:
    """The factors that would have been right for these scores, of the side below the median and of that above."""
    return _factor([each.below for each in scores]), _factor([each.above for each in scores])


def _factor(scores: list[float]) -> float:
    """The quantile of scores that makes one side of an interval right."""
    place = min(ceil((len(scores) + 1) * (1.0 - TAIL)), len(scores)) - 1
    return min(max(sorted(scores)[place], LEAST), LARGEST)
