"""The tail of a bag on the virtual grid: a task runs on a slow PC, and a copy of it on another one."""

import pytest

from deskgrid.wire import TaskOptions
from tests.grid.builders import bag, executions
from tests.grid.clients import ClientNode
from tests.grid.grid import VirtualGrid, for_seconds
from tests.grid.worker_node import WorkerNode

# The task takes ten seconds, and ten times that on the slow PC. It is behind after 15 s, and its copy ends at 25 s.
TASK_S = 10.0
SLOW = 10.0


def tail(grid: VirtualGrid, *, copies: bool = True) -> tuple[WorkerNode, WorkerNode, ClientNode]:
    """A task that runs on a slow PC while a second PC is idle."""
    grid.witness.executions.slow["slow"] = SLOW
    slow = grid.worker("slow")
    grid.run(1.0)
    plan = bag([TASK_S])
    plan.options = TaskOptions(copies=copies)
    client = grid.client()
    client.submit(plan)
    grid.run(1.0)
    return slow, grid.worker("quick"), client


def copied(grid: VirtualGrid) -> None:
    """Wait until a copy runs."""
    grid.run_until(lambda: grid.counters["copies"] > 0, 30.0, "a copy")
    grid.run(1.0)


def test_the_first_answer_counts_and_the_other_attempt_is_stopped(grid: VirtualGrid) -> None:
    slow, quick, client = tail(grid)
    grid.run_until(lambda: client.idle, 30.0, "the copy's answer")
    grid.run(1.0)
    assert slow.idle
    assert quick.idle
    assert executions(grid) == [2]
    assert {worker for _, _, worker in grid.witness.executions.answers.values()} == {"quick"}
    grid.finish()


def test_a_bag_gets_no_copies_unless_it_allows_them(grid: VirtualGrid) -> None:
    _, _, client = tail(grid, copies=False)
    grid.run(40.0)
    assert not client.idle
    assert grid.counters["copies"] == 0
    grid.finish()
    assert executions(grid) == [1]


@pytest.mark.parametrize("downtime", [0.1, 5.0])
@pytest.mark.parametrize("copy_counts", [True, False])
def test_both_attempts_go_on_while_the_broker_is_restarted_and_one_counts(
    grid: VirtualGrid, downtime: float, copy_counts: bool
) -> None:
    _, quick, client = tail(grid)
    copied(grid)
    grid.restart_broker(downtime)
    grid.run(downtime)
    if not copy_counts:
        quick.crash()
    grid.finish()
    assert client.idle
    assert executions(grid) == [2]
    assert {worker for _, _, worker in grid.witness.executions.answers.values()} == {"quick" if copy_counts else "slow"}


def test_a_copy_that_ended_while_the_broker_was_down_counts(grid: VirtualGrid) -> None:
    slow, _, client = tail(grid)
    copied(grid)
    slow.crash()
    grid.restart_broker(20.0)
    grid.run_until(lambda: client.idle, 30.0, "the copy's answer")
    assert executions(grid) == [2]
    grid.finish()


@pytest.mark.parametrize("gone", ["slow", "quick"])
def test_the_loss_of_one_attempt_leaves_the_other_as_the_only_one(grid: VirtualGrid, gone: str) -> None:
    slow, quick, _ = tail(grid)
    copied(grid)
    (slow if gone == "slow" else quick).crash()
    grid.run(40.0)
    grid.finish()
    assert grid.counters["attempts"] == 1
    assert {worker for _, _, worker in grid.witness.executions.answers.values()} <= {"slow", "quick"} - {gone}


def test_a_copy_is_not_started_where_it_does_not_fit(grid: VirtualGrid) -> None:
    _, quick, client = tail(grid)
    quick.crash()
    grid.worker("short", for_seconds(20.0))
    grid.run(40.0)
    assert grid.counters["copies"] == 0
    assert not client.idle
    grid.finish()


def test_a_copy_gives_way_to_other_work_at_once(grid: VirtualGrid) -> None:
    _, _, _ = tail(grid)
    copied(grid)
    other = grid.client()
    other.submit(bag([1.0], "other"))
    grid.run_until(lambda: other.idle, 3.0, "the other bag's end")
    grid.finish()
    assert grid.counters["copies"] >= 2
