"""Estimate pi with two million darts, on a private grid of this machine.

    python examples/pi.py

You need no broker: `Grid.local` starts one, and two workers, and stops them at the end of the ``with`` block.
"""

import random

from deskgrid import Grid

THROWERS = 20
DARTS = 100_000


def hits(seed: int) -> int:
    """How many darts of one thrower land in the circle. It runs on a worker."""
    throws = random.Random(seed)
    return sum(throws.random() ** 2 + throws.random() ** 2 < 1.0 for _ in range(DARTS))


def main() -> None:
    with Grid.local(workers=2) as grid:
        bag = grid.bag(hits, range(THROWERS), runtime=0.05, name="pi")
        landed = sum(bag.results())
    print(f"pi is about {4 * landed / (THROWERS * DARTS):.4f}, according to {THROWERS * DARTS:,} darts")


if __name__ == "__main__":
    main()
