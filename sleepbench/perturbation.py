"""Predictions that are wrong: the f-model of inaccurate estimates, for runtimes and, alike, for announced uptimes.

With an inaccuracy factor F an estimate is too long or too short, each with probability 1/2: the true value times a
number drawn uniformly from 1 to F, or from 1/F to 1 (Eq. 7 and 8 of the paper on TLA, "two-level allocation", Section
5.1; the model itself is older). F = 1 is no error. Under F the mean estimate is (F + 1)/4 + (1 + 1/F)/4 times the
truth, so a large F is mostly overestimation, as it is with people.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from deskgrid.scheduler.simulation.simulator import SimulatedPC, Span, Timetable

# What is left of a window and not announced again, of its length.
NEGLIGIBLE = 0.01


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
    """A timetable whose windows are announced as longer or shorter than they are, always the same with ``seed``.

    A PC that is still there when it was to be gone announces what is left anew, as wrongly.
    """

    timetable: Timetable
    factor: float
    seed: str

    def __call__(self) -> Iterator[Span]:
        chance = Random(self.seed)
        for span in self.timetable():
            announced, *again = self._closings(span, chance)
            yield replace(span, announced=announced, again=tuple(again))

    def _closings(self, span: Span, chance: Random) -> Iterator[float]:
        """What is announced at the opening, and whenever that has come, until next to nothing is left."""
        now, lasts = span.opens, span.closes - span.opens
        while now == span.opens or span.closes - now > NEGLIGIBLE * lasts:
            closing = now + (span.closes - now) * error(self.factor, chance)
            # One that the clock cannot tell from its beginning would be no announcement.
            if closing > now:
                yield closing
            now = closing


def wrongly_announced(pc: SimulatedPC, factor: float, seed: int) -> SimulatedPC:
    """The same PC, on which the plan is no longer to be relied."""
    return replace(pc, timetable=WronglyAnnounced(pc.timetable, factor, f"uptimes {seed} {pc.name}"))
