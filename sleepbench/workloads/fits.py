"""PCs whose windows are drawn from the distributions in fits.toml, which describe real systems, with a day and a week.

Rule 1: the windows of a PC are a function of the fit, the seed and the PC's number; no other PC, and nothing that is
read of them or how often, changes them. They never end.
Rule 2: without a day cycle (amplitude 0) lengths are exactly those of the fit: windows and gaps in turn, independent.

The day cycle is a model of ours, no measurement: the fits have none, but desktops follow their people (the paper's own
example is workstations that are free in nights and at weekends). A length that was drawn is spent at a pace that
depends on the hour. In office hours (Monday to Friday, 9 to 17) a window is spent at pace 1 + a and a gap at 1 − a,
where a is the amplitude: windows end sooner and gaps last longer, so fewer PCs are there. At all other times the pace
differs the other way, by so much less that its mean over a week is 1: the mean lengths remain about those of the fit.
With a below 0 more PCs are there in office hours.

A run begins on a Monday at 0:00, in the middle of the life of each PC: windows are drawn from long before.
"""

import math
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from deskgrid.scheduler.simulation.simulator import SimulatedPC, Span
from deskgrid.sleepbench.workloads.source import Lab, WorkloadError

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
WORKING_DAYS = 5
OFFICE_OPENS_S, OFFICE_CLOSES_S = 9 * HOUR_S, 17 * HOUR_S
OFFICE_S = WORKING_DAYS * (OFFICE_CLOSES_S - OFFICE_OPENS_S)
# What makes the mean pace of a week 1: the amplitude of the other hours as a share of that of office hours.
OTHER_SHARE = OFFICE_S / (WEEK_S - OFFICE_S)

# The distributions are steep at 0: a gamma of shape 0.3 draws microseconds. No trace was measured finer than this.
LENGTH_LEAST_S = 1.0
# The mean cycles of window and gap that are drawn before a run begins: a PC's state by then tells nothing of the first.
CYCLES_BEFORE = 10
# Of the four it keeps the measured mean lengths (as fitted by maximum likelihood it does), hence the measured
# availability, and unlike the exponential also tells short windows from long ones.
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
    """A system's windows and gaps. ``day_cycle``: the amplitude, above -1 and below 1; 0: none."""

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
        """The share of time a PC is there, without a day cycle."""
        return self.up.mean() / (self.up.mean() + self.down.mean())


def find_fit(name: str, day_cycle: float | None = None) -> Fit:
    """The fit called "system" or "system:distribution", with its own day cycle or this; raises `WorkloadError`."""
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
    """The systems."""
    return tuple(_table())


def fitted_lab(fit: Fit, pcs: int, slots: int = 1, seed: int = 0) -> Lab:
    """So many PCs, all alike, each on its own."""
    found = tuple(SimulatedPC(f"pc{number}", partial(spans, fit, seed, number), slots) for number in range(1, pcs + 1))
    cycle = f", day cycle {fit.day_cycle:+g}" if fit.day_cycle else ""
    return Lab(f"{pcs:,} PCs as {fit.what} ({fit.name}{cycle})", found)


def spans(fit: Fit, seed: int, number: int) -> Iterator[Span]:
    """The windows of PC ``number``, without end; each is announced as it will be."""
    chance = random.Random(f"{seed} {number}")
    cycle_s = (fit.up.mean() + fit.down.mean()) * HOUR_S
    now = -WEEK_S * math.ceil(CYCLES_BEFORE * cycle_s / WEEK_S)
    while True:
        closes = spent(now, _length_s(fit.up, chance), fit.day_cycle)
        if closes > 0.0:
            yield Span(max(now, 0.0), closes, closes)
        now = spent(closes, _length_s(fit.down, chance), -fit.day_cycle)


def spent(now: float, length: float, amplitude: float) -> float:
    """When ``length`` seconds are spent that begin at ``now``, at pace 1 + ``amplitude`` in office hours."""
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
    """The pace at ``now``, and until when it certainly holds."""
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
