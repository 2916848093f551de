"""The heat equation on a plate, by four ranks of an MPI program: each has a strip, and neighbours exchange their edges.

    python examples/heat_mpi.py

No broker has to be running: `Grid.local` starts one and two workers of two slots each, and ends them with the ``with``
block. On a real grid, start the workers with --mpi and use ``Grid()``. You need an MPI library, mpi4py and numpy there,
for example: pip install mpich mpi4py numpy
"""

import numpy as np

from deskgrid import Grid

ROWS, COLUMNS = 120, 80
STEPS = 400
# How much of the difference to its neighbours a point takes on in one step; more than 0.25 is unstable.
RATE = 0.2


def plate() -> np.ndarray:
    """A cold plate whose upper edge is hot."""
    heat = np.zeros((ROWS, COLUMNS))
    heat[0] = 100.0
    return heat


def step(heat: np.ndarray) -> None:
    """Let all points but the edges take on what comes from their neighbours."""
    inner = heat[1:-1, 1:-1]
    around = heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]
    heat[1:-1, 1:-1] = inner + RATE * (around - 4.0 * inner)


def serial(steps: int) -> np.ndarray:
    """The plate after so many steps, computed here."""
    heat = plate()
    for _ in range(steps):
        step(heat)
    return heat


def parallel(steps: int) -> np.ndarray:
    """The rows of this rank after so many steps. It runs on the workers, as one rank of an MPI program."""
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
    print(f"the largest difference to the serial answer is {difference:g}")
    if difference > 1e-9:
        raise SystemExit("that is too much")


if __name__ == "__main__":
    main()
