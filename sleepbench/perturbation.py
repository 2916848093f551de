"""Wrong predictions: the f-model of inaccurate estimates, for runtimes and for announced uptimes.

With an inaccuracy factor F, an estimate is too long or too short, each with probability 1/2. It is the true value times
a number drawn uniformly from 1 to F, or from 1/F to 1 (Eq. 7 and 8 of the paper on TLA, "two-level allocation", Section
5.1; the model itself is older). F = 1 means no error. The mean estimate is (F + 1)/4 + (1 + 1/F)/4 times the true
value, so a large F is mostly overestimation, like people's estimates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from deskgrid.scheduler.simulation.simulator import RealWindow, SimulatedPC, Timetable

# A PC does not announce the rest of its window again if that is less than this fraction of the window.
NEGLIGIBLE = 0.01


def error(factor: float, chance: Random) -> float:
    """The factor by which a true value is multiplied to get its estimate."""
    if chance.random() < 0.5:
        return chance.uniform(1.0, factor)
    return chance.uniform(1.0 / factor, 1.0)


def predictions(runtimes: Sequence[float], factor: float, chance: Random, most: float) -> list[float]:
    """Estimates of these runtimes. An estimate exceeds ``most`` only if the true runtime does."""
    return [min(seconds * error(factor, chance), max(most, seconds)) for seconds in runtimes]


@dataclass(frozen=True, slots=True)
class WronglyAnnounced:
    """A timetable whose windows are announced as longer or shorter than they are; ``seed`` determines the errors.

    A PC that is still there at its announced closing announces the rest of its window, with the same kind of error.
    """

    timetable: Timetable
    factor: float
    seed: str

    def __call__(self) -> Iterator[RealWindow]:
        chance = Random(self.seed)
        for span in self.timetable():
            announced, *again = self._closings(span, chance)
            yield replace(span, announced=announced, again=tuple(again))

    def _closings(self, span: RealWindow, chance: Random) -> Iterator[float]:
        """The closing announced at the opening, and a new one at each announced closing, until little is left."""
        now, lasts = span.opens, span.closes - span.opens
        while now == span.opens or span.closes - now > NEGLIGIBLE * lasts:
            closing = now + (span.closes - now) * error(self.factor, chance)
            # An announcement that rounds to the present moment would be none.
            if closing > now:
                yield closing
            now = closing


def wrongly_announced(pc: SimulatedPC, factor: float, seed: int) -> SimulatedPC:
    """The same PC, but its announced closings are unreliable."""
    return replace(pc, timetable=WronglyAnnounced(pc.timetable, factor, f"uptimes {seed} {pc.name}"))
