"""A script in which the answer of an abandoned attempt arrives while no worker has the task."""

from contextlib import closing
from pathlib import Path

from tests.grid.builders import bag
from tests.grid.grid import VirtualGrid


def late_answer(seed: int, home: Path) -> None:
    """Two workers in turn have a task and are lost; then the first one is back, with an answer that is too old."""
    grid = VirtualGrid(seed, home)
    with closing(grid):
        grid.broker.start()
        first = grid.worker("first")
        client = grid.client()
        client.submit(bag([30.0]))
        grid.run(1.0)
        grid.partition(first, 60.0)
        second = grid.worker("second")
        grid.run_until(lambda: not second.idle, 40.0, "the other worker has the task")
        second.crash()
        grid.run_until(lambda: not grid.broker.sessions.state.scheduler.grid.slots.workers, 40.0, "both are lost")
        grid.run(60.0)
        grid.finish()
        (recorded,) = grid.witness.recorded.values()
        assert recorded[2] == max(grid.witness.newest.values())
