"""The interface to the process that makes forecasts, and one that makes them inline. Pure."""

from dataclasses import dataclass, field
from typing import Protocol

from deskgrid.broker.forecasts.ticket import Json, Ticket
from deskgrid.scheduler.forecast.picture import Picture


class Forecaster(Protocol):
    """Makes one forecast after the other."""

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """Ask when bags end. The broker's loop is woken when that is known."""

    def ask(self, picture: Picture, what: str, args: Json, owner: str) -> Ticket:
        """Ask another question of `deskgrid.broker.forecasts.tasks`, for ``owner``. Who has used least comes first."""


@dataclass(slots=True)
class InlineForecaster:
    """Makes forecasts at once, where it is asked: for tests, and grids on a virtual network."""

    made: list[Picture] = field(default_factory=list)

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """See `Forecaster`."""
        return self.ask(picture, "ends", {"seed": seed, "runs": runs}, "")

    def ask(self, picture: Picture, what: str, args: Json, owner: str) -> Ticket:
        """See `Forecaster`."""
        from deskgrid.broker.forecasts.tasks import TASKS  # here, because a broker does not need it

        self.made.append(picture)
        ticket = Ticket(True)
        ticket.take(what, TASKS[what](picture, args))
        return ticket
