"""The forward run: a picture of the grid is played to its end, many times, with what is uncertain drawn each time.

This is the simulation of Cisne (SDPN, Algorithm 1), with uncertainty.

Rule: the same chance gives the same runs, so that two pictures can be compared.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle
from random import Random
from statistics import NormalDist

from deskgrid.scheduler.forecast.gang_plan import GangPlan
from deskgrid.scheduler.forecast.gangs import GangRun
from deskgrid.scheduler.forecast.picture import Picture, widened
from deskgrid.scheduler.forecast.plan import RunPlan, Uncertainty
from deskgrid.scheduler.forecast.singles import ForecastRun
from deskgrid.scheduler.need import SINGLE

__all__ = ["CERTAIN", "RUNS", "USUAL", "Uncertainty", "by_bag", "forecast", "played"]

# How often a picture is played.
RUNS = 100

USUAL = Uncertainty()
CERTAIN = Uncertainty(0.0, 0.0, False)

_NORMAL = NormalDist()


def forecast(
    picture: Picture, chance: Random, runs: int = RUNS, uncertainty: Uncertainty = USUAL
) -> dict[int, list[float]]:
    """By number of bag: when it ends, in seconds, in each run. Infinity: never, as far as windows are known."""
    return by_bag(picture, list(played(picture, chance, runs, uncertainty)))


def by_bag(picture: Picture, found: Sequence[Sequence[float]]) -> dict[int, list[float]]:
    """The ends that `played` found, by number of bag."""
    return {bag.number: [ends[place] for ends in found] for place, bag in enumerate(picture.bags)}


def played(picture: Picture, chance: Random, runs: int, uncertainty: Uncertainty = USUAL) -> Iterator[list[float]]:
    """Yield, for each run, when each bag ends."""
    together = any(bag.need != SINGLE for bag in picture.bags)
    make = GangPlan if together else RunPlan
    plans = [make(each, chance, uncertainty) for each in (picture, widened(picture)) if each is not None]
    strata = [_NORMAL.inv_cdf((run + 0.5) / runs) for run in range(runs)]
    chance.shuffle(strata)
    # If the longest tasks may not have been seen yet, every other run has them.
    for plan, stratum in zip(cycle(plans), strata, strict=False):
        own = Random(chance.random())
        run = GangRun(plan, own, stratum) if isinstance(plan, GangPlan) else ForecastRun(plan, own, stratum)
        yield run.ends()
