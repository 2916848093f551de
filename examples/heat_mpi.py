"""Solve the heat equation with MPI: each of four ranks has a strip of a plate, and neighbours exchange their edges.

    python examples/heat_mpi.py

You need no broker: `Grid.local` starts one, and two workers of two slots each, and stops them at the end of the
``with`` block. On a real grid, use ``Grid()``, and start the workers with --mpi. They need an MPI library, mpi4py and
numpy, for example: pip install mpich mpi4py numpy
"""

import numpy as np

from deskgrid import Grid

ROWS, COLUMNS = 120, 80
STEPS = 400
# The fraction of the difference to its neighbours that a point takes over in one step; above 0.25 it is unstable.
RATE = 0.2


def plate() -> np.ndarray:
    """A cold plate whose upper edge is hot."""
    heat = np.zeros((ROWS, COLUMNS))
    heat[0] = 100.0
    return heat


def step(heat: np.ndarray) -> None:
    """Advance all points except the edges by one step."""
    inner = heat[1:-1, 1:-1]
    around = heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]
    heat[1:-1, 1:-1] = inner + RATE * (around - 4.0 * inner)


def serial(steps: int) -> np.ndarray:
    """The plate after ``steps`` steps, computed on this machine."""
    heat = plate()
    for _ in range(steps):
        step(heat)
    return heat


def parallel(steps: int) -> np.ndarray:
    """The rows of this rank after ``steps`` steps. It runs on a worker, as one rank of an MPI program."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    edges = np.linspace(0, ROWS, world.size + 1).astype(int)
    # The rows of this rank, with one of each neighbour.
    first, last = max(edges[world.rank] - 1, 0), min(edges[world.rank + 1] + 1, ROWS)
    heat = plate()[first:last]
    above = world.rank - 1 if world.rank > 0 else MPI.PROC_NULL
    below = world.rank + 1 if world.rank + 1 < world.size else MPI.PROC_NULL
    for _ in range(steps):
        step(heat)
        world.Sendrecv(np.ascontiguousarray(heat[1]), dest=above, recvbuf=heat[-1], source=below)
        world.Sendrecv(np.ascontiguousarray(heat[-2]), dest=below, recvbuf=heat[0], source=above)
    return heat[edges[world.rank] - first : edges[world.rank + 1] - first]


def main() -> None:
    with Grid.local(workers=2, slots=2, mpi=True) as grid:
        strips = grid.bag(parallel, [STEPS], gang=4, mpi=True, runtime=5, name="heat").results()[0]
    heat = np.vstack(strips)
    difference = float(np.abs(heat - serial(STEPS)).max())
    print(f"{len(strips)} ranks; the middle of the plate has {heat[ROWS // 4, COLUMNS // 2]:.3f} degrees")
    print(f"the largest difference from the serial result is {difference:g}")
    if difference > 1e-9:
        raise SystemExit("that is too much")


if __name__ == "__main__":
    main()
