"""The central inequality: a task fits if more is left of a window than it requires, ``rest > needs(runtime)``.

It is used in three forms: `fits` answers it; `Requirement.needs` is the bound on the rest, for a search among slots;
`Requirement.limit` is the bound on the runtime, for a search among tasks. It is strict: a task that takes exactly what
is left does not begin. What is left and what a task takes are seconds of the same speed.
"""

from math import inf
from typing import NamedTuple

# What differs by no more only seems to differ: sums and quotients of decimal numbers are rounded (0.1 + 0.2 > 0.3). Of
# seconds, and of the power of PCs. Where parallel tasks are placed, such times are one instant.
ROUNDING = 1e-6


class Requirement(NamedTuple):
    """What a slot must have left for a task: more than ``stretch`` times its runtime, and ``margin`` s to start up.

    If more than ``ample`` seconds are left, no stretch is required: no better slot will come.
    """

    margin: float = 0.0
    stretch: float = 1.0
    ample: float = inf

    def needs(self, runtime: float) -> float:
        """The seconds that a slot's remaining time must exceed for a task to fit."""
        margin, stretch, ample = self
        stretched = runtime * stretch
        return (stretched if stretched <= ample else max(runtime, ample)) + margin

    def limit(self, rest: float) -> float:
        """The limit on runtimes that fit into ``rest`` seconds: `needs` inverted.

        The same numbers added in another order give another sum. So what a search among tasks finds fits with two
        roundings to spare, and what a search among slots finds with one.
        """
        margin, stretch, ample = self
        rest -= margin + 2 * ROUNDING
        return rest if rest > ample else rest / stretch


# Nothing but the runtime; or a runtime that already includes what else is required.
NO_MORE = Requirement()


def fits(runtime: float, rest: float, requirement: Requirement = NO_MORE, spare: float = 0.0) -> bool:
    """Whether a task of ``runtime`` seconds fits into ``rest`` seconds, with ``spare`` seconds left over."""
    # Forecasts ask this most, and of runtimes that include what is required: one call less.
    return rest > (runtime if requirement is NO_MORE else requirement.needs(runtime)) + spare
