"""A parameter sweep: how many people an epidemic reaches, for several infection rates and sizes of towns.

    python examples/sweep.py

It runs on the grid of $DESKGRID_JOIN, or, if that is not set, on a private grid of this machine. Tasks differ in
length, and you can predict how: a city takes ten times as long as a town. ``runtime`` passes these predictions to the
grid, so that a task of six minutes does not start on a PC that leaves in five.
"""

import os
import random
from itertools import product
from typing import NamedTuple

from deskgrid import Grid

SPREADS = (0.8, 1.2, 1.6, 2.0, 2.4)
PEOPLE = (20_000, 50_000, 200_000)


class Epidemic(NamedTuple):
    """One case. ``spread``: how many others each person infects at first; ``people``: how many live in the place."""

    spread: float
    people: int


def infected(case: Epidemic) -> float:
    """The fraction of people that have been ill at the end. It runs on a worker."""
    chance = random.Random(case.people)
    healthy, ill = case.people - 10, 10
    while ill:
        risk = 1.0 - (1.0 - case.spread / case.people) ** ill
        ill = sum(chance.random() < risk for _ in range(healthy))
        healthy -= ill
    return 1.0 - healthy / case.people


def predicted(case: Epidemic) -> float:
    """The approximate seconds of a case: some twenty rounds, with 0.1 µs for each person in each round."""
    return 20 * case.people * 1e-7


def grid_to_use() -> Grid:
    """The grid of $DESKGRID_JOIN if that is set, else a private one."""
    return Grid() if "DESKGRID_JOIN" in os.environ else Grid.local(workers=2)


def main() -> None:
    cases = [Epidemic(spread, people) for people, spread in product(PEOPLE, SPREADS)]
    with grid_to_use() as grid:
        bag = grid.bag(infected, cases, runtime=predicted, name="sweep")
        shares = {}
        for case, share in bag.as_completed():
            shares[case] = share
            print(f"{len(shares):2} of {len(cases)}: spread {case.spread} among {case.people:,} people")
    print("\nShare that was ill, by spread\n  people", *(f"{spread:6}" for spread in SPREADS))
    for people in PEOPLE:
        print(f"{people:8,}", *(f"{shares[Epidemic(spread, people)]:6.0%}" for spread in SPREADS))


if __name__ == "__main__":
    main()
