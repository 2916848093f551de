"""The broker's disk fills up and gets room again, at any moment of a grid's life."""

import pytest

from deskgrid.wire import TaskOptions
from tests.grid.builders import bag, executions, submitted
from tests.grid.grid import VirtualGrid

# What the broker is doing when the disk fills: just about to take the bag, to hand it out, to take its results.
MOMENTS = [0.0, 0.01, 0.5, 9.9, 10.5]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seconds", [0.3, 40.0])
def test_whenever_the_disk_fills_every_task_ends_once_by_itself(
    grid: VirtualGrid, moment: float, seconds: float
) -> None:
    grid.worker("pc", slots=2)
    client = grid.client()
    client.submit(bag([10.0] * 6, size=2))
    grid.run(moment)
    grid.broker.fill_disk(seconds)
    grid.finish()
    assert executions(grid) == [1] * 6


# The same for a gang of ten seconds: it is prepared, is about to begin, runs, and its ranks end.
@pytest.mark.parametrize("moment", [0.0, 0.01, 0.1, 0.2, 5.0, 10.1, 10.5])
@pytest.mark.parametrize("seconds", [0.3, 40.0])
def test_whenever_the_disk_fills_gangs_end_by_themselves(grid: VirtualGrid, moment: float, seconds: float) -> None:
    for name in ("pc0", "pc1"):
        grid.worker(name)
    grid.run(6.0)
    client = grid.client()
    client.submit(bag([10.0] * 2, options=TaskOptions(ranks=(2, 2), gang=True)))
    grid.run(moment)
    grid.broker.fill_disk(seconds)
    grid.finish()


def test_a_gang_ends_when_the_results_of_its_ranks_can_be_written_and_does_not_run_twice(grid: VirtualGrid) -> None:
    pcs = [grid.worker(name) for name in ("pc0", "pc1")]
    grid.run(6.0)
    grid.client().submit(bag([10.0], options=TaskOptions(ranks=(2, 2), gang=True)))
    grid.run(8.0)
    grid.broker.fill_disk(100.0)
    grid.run(60.0)
    assert [pc.session.unwritten for pc in pcs if pc.session is not None] == [1, 1]
    grid.finish()
    assert len(grid.witness.executions.of_ranks.answers) == 2


def test_results_wait_at_their_worker_and_nothing_is_executed_twice(grid: VirtualGrid) -> None:
    pc = grid.worker("pc", slots=4)
    submitted(grid, [10.0] * 4)
    grid.broker.fill_disk(300.0)
    grid.run(200.0)
    assert grid.witness.recorded == {}
    assert pc.session is not None
    assert pc.session.unwritten == 4
    grid.finish()
    assert executions(grid) == [1] * 4


@pytest.mark.slow
def test_the_broker_does_not_grow_while_the_disk_is_full(grid: VirtualGrid) -> None:
    """Bags that are refused leave nothing behind, nor do results that are not taken."""
    grid.worker("pc", slots=2)
    submitted(grid, [5.0] * 2)
    grid.broker.fill_disk(400.0)
    client = grid.client()
    for number in range(20):
        client.submit(bag([5.0] * 10, size=5, name=f"more{number}"))
    grid.run(390.0)
    state = grid.broker.sessions.state
    assert (len(state.book.by_id), len(state.scheduler.grid.tasks.bags)) == (1, 1)
    assert not any(state.take_leaving())
    grid.finish()


def test_a_broker_that_is_killed_while_its_disk_is_full_carries_on(grid: VirtualGrid) -> None:
    grid.worker("pc")
    submitted(grid, [10.0, 10.0])
    grid.broker.fill_disk(30.0)
    grid.run(15.0)
    grid.broker.kill()
    grid.run(20.0)
    grid.broker.start()
    grid.finish()
    assert executions(grid) == [1, 1]
