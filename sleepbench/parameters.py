"""Parameters of a grid that the paper does not state: an ideal grid's, or those that reproduce the paper's figures."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from deskgrid.scheduler.simulation.simulator import Conditions

# Seconds that a PC is away in simulations of the paper's scenarios, including its start-up.
RESTART_S = 1.2

Options = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Parameters:
    """``overhead_s``, ``opening_s``, ``gap_s``, ``jitter``, ``slow``: as in `Conditions`.

    ``overhead_known``: predictions include the overhead. ``announces``: PCs announce their coming windows. ``copies``:
    tasks may be copied. ``options``: of each policy, by its name; policies that are not listed have their defaults.
    """

    restart_s: float = RESTART_S
    overhead_s: float = 0.0
    overhead_known: bool = True
    opening_s: float = 0.0
    gap_s: float = 0.0
    jitter: float = 0.0
    slow: float = 0.0
    copies: bool = False
    announces: bool = True
    options: Mapping[str, Options] = field(default_factory=dict)

    def conditions(self, seed: int) -> Conditions:
        """The simulator's conditions for the run with this seed."""
        return Conditions(self.overhead_s, self.opening_s, self.announces, self.jitter, seed, self.gap_s, self.slow)


def paper_parameters() -> Parameters:
    """The parameters in ``paper.toml``, which explains each of them."""
    table = tomllib.loads((files(__package__) / "paper.toml").read_text(encoding="utf-8"))
    return Parameters(
        restart_s=table["restart"],
        overhead_s=table["overhead"],
        overhead_known=table["overhead_known"],
        opening_s=table["opening"],
        jitter=table["jitter"],
        options=table["policies"],
    )
