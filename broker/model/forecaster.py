"""The interface to whoever makes forecasts, and a forecast that was asked for. Pure."""

from dataclasses import dataclass
from typing import Any, Protocol

from deskgrid.scheduler.forecast.picture import Picture

Json = dict[str, Any]

# What is said if even a few runs are too much.
LATE = "it takes too long: ask about fewer changes at once, or smaller ones"
# By number of bag: when it ends, in seconds from the picture on, in each run.
Ends = dict[int, list[float]]


@dataclass(slots=True, eq=False)
class Ticket:
    """A forecast that was asked for. Until it is done, and if it failed, it has no answer; then ``failure`` says why.

    ``ends``: the answer of a forecast of ends; ``answer``: that of another question. ``cost_s``: what it took, in
    seconds of processor time.
    """

    done: bool = False
    ends: Ends | None = None
    failure: str = ""
    cost_s: float = 0.0
    answer: Any = None

    def take(self, what: str, answer: Any) -> None:
        """Take the answer to a question of `deskgrid.broker.forecasts.tasks`."""
        if what == "ends" and answer is not None:
            self.ends = {int(bag): ends for bag, ends in answer.items()}
        else:
            self.answer = answer


class Forecaster(Protocol):
    """Makes one forecast after the other."""

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """Ask when bags end. The broker's loop is woken when that is known."""

    def ask(self, picture: Picture, what: str, args: Json, owner: str) -> Ticket:
        """Ask another question of `deskgrid.broker.forecasts.tasks`, for ``owner``. Who has used least comes first."""
