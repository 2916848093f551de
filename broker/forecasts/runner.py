"""Who makes forecasts: anybody who takes a picture of the grid, and has the ends of its bags some time later. Pure."""

from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from deskgrid.scheduler.forecast.ahead import forecast
from deskgrid.scheduler.forecast.picture import Picture

# By number of bag: when it ends, in seconds from the picture on, in each run.
Ends = dict[int, list[float]]


@dataclass(slots=True, eq=False)
class Ticket:
    """A forecast that was asked for. ``ends``: None until it is done, and if it failed; then ``failure`` says why.

    ``cost_s``: what it took, in seconds of processor time.
    """

    done: bool = False
    ends: Ends | None = None
    failure: str = ""
    cost_s: float = 0.0


class Forecaster(Protocol):
    """Makes one forecast after the other."""

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """Ask for a forecast. The broker's loop is woken when it is done."""


@dataclass(slots=True)
class AtOnce:
    """Makes forecasts at once, where it is asked: for tests, and grids on a virtual network."""

    made: list[Picture] = field(default_factory=list)

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """See `Forecaster`."""
        self.made.append(picture)
        return Ticket(True, forecast(picture, Random(seed), runs))
