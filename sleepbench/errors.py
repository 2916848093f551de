"""Predictions that are wrong: the f-model of inaccurate estimates, for runtimes and, alike, for announced uptimes.

With an inaccuracy factor F an estimate is too long or too short, each with probability 1/2: the true value times a
number drawn uniformly from 1 to F, or from 1/F to 1 (Eq. 7 and 8 of the paper on TLA, "two-level allocation", Section
5.1; the model itself is older). F = 1 is no error. Under F the mean estimate is (F + 1)/4 + (1 + 1/F)/4 times the
truth, so a large F is mostly overestimation, as it is with people.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from scheduler.simulator import SimulatedPC, Span, Timetable


def error(factor: float, chance: Random) -> float:
    """What a true value is multiplied by to get its estimate."""
    if chance.random() < 0.5:
        return chance.uniform(1.0, factor)
    return chance.uniform(1.0 / factor, 1.0)


def predictions(runtimes: Sequence[float], factor: float, chance: Random, most: float) -> list[float]:
    """Estimates of these runtimes, none above ``most`` unless the runtime itself is."""
    return [min(seconds * error(factor, chance), max(most, seconds)) for seconds in runtimes]


@dataclass(frozen=True, slots=True)
class WronglyAnnounced:
    """A timetable whose windows are announced as longer or shorter than they are, always the same with ``seed``."""

    timetable: Timetable
    factor: float
    seed: str

    def __call__(self) -> Iterator[Span]:
        chance = Random(self.seed)
        for span in self.timetable():
            lasts = (span.announced - span.opens) * error(self.factor, chance)
            # A window too short for the clock to tell its two ends apart would be none.
            if span.opens + lasts > span.opens:
                yield replace(span, announced=span.opens + lasts)
            else:
                yield span


def wrongly_announced(pc: SimulatedPC, factor: float, seed: int) -> SimulatedPC:
    """The same PC, on which the plan is no longer to be relied."""
    return replace(pc, timetable=WronglyAnnounced(pc.timetable, factor, f"uptimes {seed} {pc.name}"))
