"""The interface to whoever makes forecasts. Pure."""

from typing import Protocol

from deskgrid.broker.model.ticket import Json, Ticket
from deskgrid.scheduler.forecast.picture import Picture


class Forecaster(Protocol):
    """Makes one forecast after the other."""

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """Ask when bags end. The broker's loop is woken when that is known."""

    def ask(self, picture: Picture, what: str, args: Json, owner: str) -> Ticket:
        """Ask another question of `deskgrid.broker.forecasts.tasks`, for ``owner``. Who has used least comes first."""
