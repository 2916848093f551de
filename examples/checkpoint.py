"""A task that is longer than every window: it saves checkpoints, and continues from them.

    python examples/checkpoint.py

You need no broker: `Grid.local` starts one, and two workers, and stops them at the end of the ``with`` block. These
workers stay, so no window closes here. On a lab PC, the same function stops shortly before the window closes. It
continues from its checkpoint in the next window that has time for it, on any PC.
"""

import random
from dataclasses import dataclass

from deskgrid import Grid, checkpoint

STEPS = 50_000


@dataclass
class Walk:
    """A random walk so far: all that the next piece needs."""

    step: int = 0
    place: int = 0
    farthest: int = 0


def farthest(seed: int) -> int:
    """How far a random walk gets from where it began. It runs on a worker."""
    walk = checkpoint.load(Walk())
    while walk.step < STEPS:
        walk.place += random.Random(seed * STEPS + walk.step).choice((-1, 1))
        walk.farthest = max(walk.farthest, abs(walk.place))
        walk.step += 1
        checkpoint.save(walk, progress=walk.step / STEPS)
    return walk.farthest


def main() -> None:
    with Grid.local(workers=2) as grid:
        bag = grid.bag(farthest, range(4), runtime=36_000, name="walks", checkpoint=True)
        print(f"the farthest of {len(bag)} walks got {max(bag.results())} steps away")


if __name__ == "__main__":
    main()
