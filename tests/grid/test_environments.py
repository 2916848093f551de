"""Bags that bring libraries, on a virtual network: PCs prepare them, and nothing is lost with a broker or a PC."""

import pytest

from deskgrid import wire
from deskgrid.wire import TaskOptions
from tests.grid.builders import bag, executions
from tests.grid.clients import ClientNode
from tests.grid.environments import MAC, NEVER, Wheel, libraries
from tests.grid.grid import VirtualGrid
from tests.grid.test_restarts import STEPS

REFUSED, TROUBLE = wire.Readiness.REFUSED, wire.Readiness.TROUBLE
TWO = libraries(Wheel("one"), Wheel("two"))


def bringing(grid: VirtualGrid, *wheels: Wheel, tasks: int = 6) -> ClientNode:
    """A client that submits a bag which brings these wheels; some moments pass."""
    client = grid.client()
    client.submit(bag([2.0] * tasks, brings=libraries(*wheels)))
    grid.run(1.0)
    return client


def held(grid: VirtualGrid) -> bool:
    return bool(grid.broker.sessions.state.book.by_id["bag"].held)


def test_tasks_run_where_their_environment_is_ready_and_others_run_anywhere(grid: VirtualGrid) -> None:
    grid.worker("mac", slots=2, system=MAC)
    grid.worker("pc", slots=2)
    client = grid.client()
    client.submit(bag([2.0] * 4, "brings", brings=TWO))
    client.submit(bag([2.0] * 4, "plain"))
    grid.finish()
    ran = {place[0]: set[str]() for place in grid.witness.recorded}
    for place, (task, _, number, _) in grid.witness.recorded.items():
        ran[place[0]].add(grid.witness.executions.answers[task, number][2])
    assert ran["brings"] == {"pc"}
    assert "mac" in ran["plain"]
    assert executions(grid) == [1] * 8


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_broker_that_dies_at_any_step_of_bringing_and_preparing_loses_nothing(
    grid: VirtualGrid, step: str, after: int
) -> None:
    grid.worker("pc", slots=3)
    client = grid.client()
    grid.run(1.0)
    grid.broker.steps.arm(step, after)
    client.submit(bag([3.0] * 6, size=2, brings=TWO))
    grid.run_until(lambda: grid.broker.lives == 2, 30.0, "killed and started again")
    grid.broker.steps.arm(step, 4 * after)
    grid.run_until(lambda: grid.broker.lives == 3, 30.0, "killed again")
    grid.finish()
    assert executions(grid) == [1] * 6


def test_a_pc_that_vanishes_while_it_prepares_is_replaced_and_asked_again_when_it_is_back(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    bringing(grid, Wheel("slow", 20.0))
    assert grid.witness.said[wire.Prepare] == 1
    pc.crash()
    grid.worker("other")
    pc.start()
    grid.finish()
    assert executions(grid) == [1] * 6
    assert grid.witness.executions.unpacked == {("pc", "slow"): 2, ("other", "slow"): 1}


def test_a_pc_in_trouble_fails_no_task_and_tries_again_later(grid: VirtualGrid) -> None:
    grid.worker("pc")
    bringing(grid, Wheel("once", 0.5, TROUBLE, 1))
    grid.run(5.0)
    assert not held(grid)
    assert executions(grid) == []
    grid.finish()
    assert executions(grid) == [1] * 6
    assert grid.witness.environments.said == {TROUBLE: 1, wire.Readiness.READY: 1}


@pytest.mark.parametrize("step", STEPS)
def test_a_bag_that_two_pcs_refuse_is_held_whenever_the_broker_dies_and_goes_on_when_it_is_resumed(
    grid: VirtualGrid, step: str
) -> None:
    for name in ("pc", "other", "third"):
        grid.worker(name)
    client = bringing(grid, Wheel("bad", 1.5, REFUSED, 1))
    grid.run(0.3)
    grid.broker.steps.arm(step, 0)
    grid.run_until(lambda: grid.broker.lives == 2, 30.0, "killed and started again")
    grid.run(100.0)
    assert held(grid) or grid.witness.environments.said[wire.Readiness.READY], "one that was in doubt is asked again"
    grid.restart_broker(1.0)
    client.ask("resume", {"bag": "bag"})
    grid.finish()
    assert executions(grid) == [1] * 6


def test_no_task_of_a_bag_that_is_held_ever_runs(grid: VirtualGrid) -> None:
    for name in ("pc", "other", "third"):
        grid.worker(name)
    bringing(grid, Wheel("bad", 1.5, REFUSED, NEVER))
    grid.run(200.0)
    assert held(grid)
    assert grid.witness.environments.said == {REFUSED: 3}
    grid.restart_broker(1.0)
    grid.run(200.0)
    assert held(grid)
    assert grid.witness.environments.said == {REFUSED: 3}, "nobody is asked to prepare it any more"
    grid.hopeless.add("bag")
    grid.finish()
    assert executions(grid) == []


def test_a_gang_begins_when_its_environment_is_ready_on_all_its_pcs(grid: VirtualGrid) -> None:
    grid.worker("mac", slots=2, system=MAC)
    grid.worker("pc")
    grid.worker("other")
    gang = TaskOptions(ranks=(2, 2), gang=True)
    grid.client().submit(bag([2.0] * 3, options=gang, brings=TWO))
    grid.finish()
    assert {place for _, _, place in grid.witness.executions.of_ranks.answers.values()} == {"pc", "other"}
