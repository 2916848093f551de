"""Checkpointable tasks on a virtual network: they outlast windows, and lose little whatever happens."""

import pytest

from deskgrid import wire
from deskgrid.wire import TaskOptions
from tests.grid import broker_node, clients
from tests.grid.builders import bag
from tests.grid.grid import VirtualGrid, cycle

CHECKPOINTS = TaskOptions(checkpoint=True, min_piece=30.0)
HOUR_S = 3600.0
# Of most tests: long enough for two checkpoints.
WINDOW_S = 1200.0
# How often a task saves in these tests.
PERIOD_S = 500.0
BAG = ("bag", 0)
# Hours pass in these tests: who has heard nothing looks up seldom.
LOOK_S = 5.0


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch, grid: VirtualGrid) -> VirtualGrid:
    monkeypatch.setattr(broker_node, "TICK_S", LOOK_S)
    monkeypatch.setattr(clients, "LOOK_S", LOOK_S)
    grid.broker.heartbeat_s, grid.broker.lease_s = LOOK_S, 3 * LOOK_S
    return grid


def submitted(grid: VirtualGrid, *seconds: float) -> None:
    """A checkpointable bag that is there."""
    grid.client().submit(bag(list(seconds), options=CHECKPOINTS))
    grid.work_s = 1000 * HOUR_S
    grid.run(0.5)


def worked(grid: VirtualGrid) -> float:
    return sum(grid.witness.executions.worked.values())


@pytest.mark.slow
def test_a_task_of_four_hours_takes_hardly_more_than_four_windows_of_an_hour(grid: VirtualGrid) -> None:
    grid.worker("pc", cycle((HOUR_S, 60.0)))
    began = grid.world.now
    submitted(grid, 4 * HOUR_S)
    grid.run_until(lambda: BAG in grid.witness.recorded, 8 * HOUR_S, "done")
    ideal = 4 * (HOUR_S + 60.0)
    assert grid.world.now - began <= 1.02 * ideal
    assert worked(grid) == pytest.approx(4 * HOUR_S, rel=0.001)
    assert grid.counters["planned_kills"] == 0
    assert grid.counters["pieces"] >= 4
    grid.finish()


def test_what_a_pc_that_vanishes_had_done_since_its_last_checkpoint_is_done_again(grid: VirtualGrid) -> None:
    first = grid.worker("first")
    submitted(grid, 3 * WINDOW_S)
    grid.run(2 * WINDOW_S)
    first.crash()
    grid.worker("second")
    grid.run_until(lambda: BAG in grid.witness.recorded, 3 * WINDOW_S, "done")
    assert 3 * WINDOW_S <= worked(grid) <= 3 * WINDOW_S + PERIOD_S + 30.0
    grid.finish()


@pytest.mark.parametrize("downtime", [0.5, 30.0, 2 * WINDOW_S])
def test_a_broker_that_is_killed_forgets_no_checkpoint(grid: VirtualGrid, downtime: float) -> None:
    grid.worker("pc", cycle((WINDOW_S, 60.0)))
    submitted(grid, 3.5 * WINDOW_S)
    grid.run(1.5 * WINDOW_S)
    grid.restart_broker(downtime)
    grid.run_until(lambda: BAG in grid.witness.recorded, 20 * WINDOW_S, "done")
    # What was saved while the broker was away is sent when it is back, so nothing is done twice.
    assert worked(grid) <= 3.5 * WINDOW_S + PERIOD_S
    grid.finish()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["receive", "commit: before", "commit: after", "send: before", "send: after"])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_piece_ends_with_its_checkpoint_at_whichever_step_the_broker_dies(
    grid: VirtualGrid, step: str, after: int
) -> None:
    grid.worker("pc", cycle((WINDOW_S, 60.0)))
    submitted(grid, 2 * WINDOW_S)
    closes = WINDOW_S - 12.0
    grid.run(closes - grid.world.now)
    grid.broker.steps.arm(step, after)
    grid.run_until(lambda: BAG in grid.witness.recorded, 5 * WINDOW_S, "done")
    assert grid.broker.lives == 2
    assert worked(grid) == pytest.approx(2 * WINDOW_S, abs=1.0)
    grid.finish()


def test_two_checkpoints_of_a_task_are_kept_and_none_when_it_has_ended(grid: VirtualGrid) -> None:
    grid.worker("pc")
    submitted(grid, 2 * WINDOW_S)
    recovery = grid.broker.sessions.state.journal.recovery

    def numbers() -> list[int]:
        return [number for _, _, number, *_ in recovery.checkpoints()]

    grid.run_until(lambda: len(numbers()) == 2, WINDOW_S, "two checkpoints")
    before = numbers()
    grid.run_until(lambda: numbers() != before, WINDOW_S, "another one")
    assert len(numbers()) == 2
    assert numbers()[0] == before[1]
    grid.run_until(lambda: BAG in grid.witness.recorded, 2 * WINDOW_S, "done")
    assert numbers() == []
    grid.finish()


def test_a_worker_that_has_the_checkpoint_is_not_sent_it_and_another_one_is(grid: VirtualGrid) -> None:
    grid.worker("pc", cycle((WINDOW_S, 60.0)))
    submitted(grid, 2.5 * WINDOW_S)
    grid.run(2.1 * WINDOW_S)
    assert grid.witness.said[wire.Checkpoint] == 0
    grid.workers["pc"].crash()
    grid.worker("other")
    grid.run_until(lambda: BAG in grid.witness.recorded, 2 * WINDOW_S, "done")
    assert grid.witness.said[wire.Checkpoint] == 1
    grid.finish()


@pytest.mark.slow
@pytest.mark.parametrize("step", ["receive", "commit: after", "send: after"])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_piece_ends_with_all_parts_of_its_checkpoint_whenever_the_broker_dies(
    grid: VirtualGrid, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    monkeypatch.setattr(wire, "CHECKPOINT_BYTES", 4)  # of nine
    grid.worker("pc", cycle((WINDOW_S, 60.0)))
    submitted(grid, 2 * WINDOW_S)
    grid.run(WINDOW_S - 12.0 - grid.world.now)
    grid.broker.steps.arm(step, after)
    grid.run(WINDOW_S)
    grid.workers["pc"].crash()
    grid.worker("other")
    grid.run_until(lambda: BAG in grid.witness.recorded, 5 * WINDOW_S, "done")
    assert grid.broker.lives == 2
    assert worked(grid) <= 2 * WINDOW_S + PERIOD_S
    assert grid.witness.said[wire.Checkpoint] % 3 == 0 < grid.witness.said[wire.Checkpoint]
    grid.finish()
