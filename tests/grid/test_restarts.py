"""The broker is killed, at any step, and started again on the same home."""

import pytest

from tests.grid.builders import bag, executions, submitted
from tests.grid.grid import VirtualGrid

STEPS = ("receive", "settle", "commit: before", "commit: after", "send: before", "send: after")


@pytest.mark.parametrize("downtime", [0.1, 5.0, 600.0])
def test_what_was_running_when_the_broker_was_killed_goes_on_and_is_executed_once(
    grid: VirtualGrid, downtime: float
) -> None:
    for name in ("pc1", "pc2", "pc3"):
        grid.worker(name)
    submitted(grid, [20.0] * 7)
    grid.restart_broker(downtime)
    grid.run(downtime)
    grid.finish()
    assert executions(grid) == [1] * 7
    assert grid.broker.lives == 2


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_bag_survives_a_broker_that_dies_at_any_step_of_taking_it(grid: VirtualGrid, step: str, after: int) -> None:
    grid.worker("pc", slots=3)
    grid.run(1.0)
    client = grid.client()
    grid.run(1.0)
    grid.broker.steps.arm(step, after)
    client.submit(bag([3.0] * 8, size=2))
    grid.run_until(lambda: grid.broker.lives == 2, 30.0, "killed and started again")
    grid.finish()
    assert grid.witness.told["bag"] == 8
    assert executions(grid) == [1] * 8


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_result_survives_a_broker_that_dies_at_any_step_of_taking_it(
    grid: VirtualGrid, step: str, after: int
) -> None:
    grid.worker("pc", slots=2)
    submitted(grid, [5.0, 5.0, 7.0])
    grid.run_until(lambda: grid.world.now > 5.4, 6.0, "the moment before the results")
    grid.broker.steps.arm(step, after)
    grid.finish()
    assert grid.broker.lives == 2
    assert executions(grid) == [1] * 3


def test_an_attempt_that_nobody_comes_back_with_is_made_again(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [20.0])
    grid.broker.kill()
    pc.crash()
    grid.broker.start()
    grid.worker("other")
    grid.finish()
    assert executions(grid) == [2]


def test_a_broker_that_is_stopped_tells_its_workers_and_loses_nothing(grid: VirtualGrid) -> None:
    grid.worker("pc")
    submitted(grid, [10.0, 10.0])
    grid.broker.stop()
    grid.run(3.0)
    grid.broker.start()
    grid.finish()
    assert executions(grid) == [1, 1]


def test_a_broker_that_froze_finds_its_workers_as_they_were(grid: VirtualGrid) -> None:
    grid.worker("pc")
    submitted(grid, [60.0])
    grid.freeze_broker(25.0)
    grid.finish()
    assert executions(grid) == [1]
    assert grid.counters["losses"] == 0


def test_attempts_whose_prediction_became_short_are_still_known_after_a_restart(grid: VirtualGrid) -> None:
    """Else an attempt that was given up before the prediction changed would count as the newest."""
    pc = grid.worker("pc")
    client = submitted(grid, [30.0])
    grid.partition(pc, 29.7)
    grid.run(16.0)
    client.ask("runtimes", {"bag": "bag", "items": [0], "runtimes": [0.1]})
    other = grid.worker("other")
    grid.run(3.0)
    assert not other.idle
    grid.partition(other, 60.0)
    grid.restart_broker(5.0)
    grid.finish()
    (recorded,) = grid.witness.recorded.values()
    assert recorded[2] == max(grid.witness.newest.values())
