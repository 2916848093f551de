"""PCs whose windows are drawn from the distributions in fits.toml, which describe real systems; with a day cycle.

Rule 1: the windows of a PC depend only on the fit, the seed and the PC's number. Other PCs do not change them, nor does
how often, or how far, they are read. They never end.
Rule 2: without a day cycle (amplitude 0) the lengths are exactly those of the fit. Windows and gaps alternate, and are
independent.

The day cycle is our own model, not a measurement. The fits have none, but people's habits shape the uptime of desktops
(the paper's own example is workstations that are free at night and on weekends). A drawn length passes at a pace that
depends on the hour. In office hours (Monday to Friday, 9 to 17) a window passes at pace 1 + a and a gap at 1 − a, where
a is the amplitude: windows end sooner and gaps last longer, so fewer PCs are there. At all other times the pace differs
in the other direction, by a smaller amount, so that its mean over a week is 1. The mean lengths thus stay close to
those of the fit. With a below 0, more PCs are there in office hours.

A run begins on a Monday at 0:00, when each PC has been running for a long time: windows are drawn from long before.
"""

import math
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from deskgrid.scheduler.simulation.simulator import RealWindow, SimulatedPC
from deskgrid.sleepbench.workloads.source import Lab, WorkloadError

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
WORKING_DAYS = 5
OFFICE_OPENS_S, OFFICE_CLOSES_S = 9 * HOUR_S, 17 * HOUR_S
OFFICE_S = WORKING_DAYS * (OFFICE_CLOSES_S - OFFICE_OPENS_S)
# The amplitude in the other hours, as a fraction of that in office hours. It makes the mean pace of a week 1.
OTHER_SHARE = OFFICE_S / (WEEK_S - OFFICE_S)

# The distributions are steep at 0: a gamma of shape 0.3 draws microseconds. No trace was measured finer than this.
LENGTH_LEAST_S = 1.0
# How many mean cycles of window and gap are drawn before a run begins. The state of a PC at the start of the run then
# no longer depends on its first window.
CYCLES_BEFORE = 10
# Fitted by maximum likelihood, the gamma distribution keeps the measured mean lengths, and so the measured
# availability. Unlike the exponential, it also has both short and long windows.
DEFAULT_DISTRIBUTION = "gamma"


@dataclass(frozen=True, slots=True)
class Length:
    """A distribution of lengths in hours, with its parameters as in fits.toml."""

    distribution: str
    parameters: tuple[float, ...]

    def mean(self) -> float:
        """Hours."""
        return _MEAN[self.distribution](*self.parameters)

    def draw(self, chance: random.Random) -> float:
        """Hours."""
        return _DRAW[self.distribution](chance, *self.parameters)


@dataclass(frozen=True, slots=True)
class Fit:
    """The windows and gaps of a system. ``day_cycle``: the amplitude, above -1 and below 1; 0: none."""

    name: str
    what: str
    up: Length
    down: Length
    day_cycle: float

    def __post_init__(self) -> None:
        if not -1.0 < self.day_cycle < 1.0:
            raise WorkloadError(f"the amplitude of a day cycle is above -1 and below 1, not {self.day_cycle:g}")

    @property
    def availability(self) -> float:
        """The fraction of time that a PC is there, without a day cycle."""
        return self.up.mean() / (self.up.mean() + self.down.mean())


def find_fit(name: str, day_cycle: float | None = None) -> Fit:
    """The fit "system" or "system:distribution", with its own day cycle or the given one; raises `WorkloadError`."""
    system, _, distribution = name.partition(":")
    if system not in _table():
        raise WorkloadError(f"there is no fit {system!r}, only {', '.join(_table())}")
    distribution = distribution or DEFAULT_DISTRIBUTION
    if distribution not in _DRAW:
        raise WorkloadError(f"there is no distribution {distribution!r}, only {', '.join(_DRAW)}")
    row = _table()[system]
    up, down = (Length(distribution, tuple(row[distribution][state])) for state in ("up", "down"))
    return Fit(f"{system}:{distribution}", row["what"], up, down, row["day_cycle"] if day_cycle is None else day_cycle)


def fit_names() -> tuple[str, ...]:
    """The names of the systems."""
    return tuple(_table())


def fitted_lab(fit: Fit, pcs: int, slots: int = 1, seed: int = 0) -> Lab:
    """A lab of PCs with the same distributions, independent of each other."""
    found = tuple(SimulatedPC(f"pc{number}", partial(spans, fit, seed, number), slots) for number in range(1, pcs + 1))
    cycle = f", day cycle {fit.day_cycle:+g}" if fit.day_cycle else ""
    return Lab(f"{pcs:,} PCs as {fit.what} ({fit.name}{cycle})", found)


def spans(fit: Fit, seed: int, number: int) -> Iterator[RealWindow]:
    """The endless windows of PC ``number``; announcements are exact."""
    chance = random.Random(f"{seed} {number}")
    cycle_s = (fit.up.mean() + fit.down.mean()) * HOUR_S
    now = -WEEK_S * math.ceil(CYCLES_BEFORE * cycle_s / WEEK_S)
    while True:
        closes = spent(now, _length_s(fit.up, chance), fit.day_cycle)
        if closes > 0.0:
            yield RealWindow(max(now, 0.0), closes, closes)
        now = spent(closes, _length_s(fit.down, chance), -fit.day_cycle)


def spent(now: float, length: float, amplitude: float) -> float:
    """The time at which ``length`` seconds from ``now`` have passed, at pace 1 + ``amplitude`` in office hours."""
    weeks, left = divmod(length, WEEK_S) if amplitude else (0.0, 0.0)
    now += weeks * WEEK_S if amplitude else length
    while left > 0.0:
        pace, until = _pace(now, amplitude)
        if left <= (until - now) * pace:
            return now + left / pace
        left -= (until - now) * pace
        now = until
    return now


def _pace(now: float, amplitude: float) -> tuple[float, float]:
    """The pace at ``now``, and a time until which it surely does not change."""
    day = now // DAY_S
    opens, closes = day * DAY_S + OFFICE_OPENS_S, day * DAY_S + OFFICE_CLOSES_S
    if day % 7 < WORKING_DAYS and opens <= now < closes:
        return 1.0 + amplitude, closes
    return 1.0 - amplitude * OTHER_SHARE, opens if now < opens else opens + DAY_S


def _length_s(length: Length, chance: random.Random) -> float:
    return max(LENGTH_LEAST_S, length.draw(chance) * HOUR_S)


@cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("fits.toml").read_text(encoding="utf-8"))


_DRAW: Mapping[str, Callable[..., float]] = {
    "exponential": lambda chance, mean: chance.expovariate(1.0 / mean),
    "weibull": lambda chance, shape, scale: chance.weibullvariate(scale, shape),
    "lognormal": lambda chance, mu, sigma: chance.lognormvariate(mu, sigma),
    "gamma": lambda chance, shape, scale: chance.gammavariate(shape, scale),
}

_MEAN: Mapping[str, Callable[..., float]] = {
    "exponential": lambda mean: mean,
    "weibull": lambda shape, scale: scale * math.gamma(1.0 + 1.0 / shape),
    "lognormal": lambda mu, sigma: math.exp(mu + sigma**2 / 2.0),
    "gamma": lambda shape, scale: shape * scale,
}
