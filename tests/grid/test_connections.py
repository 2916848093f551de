"""Connections break, and messages in flight are lost."""

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.wire import Outcome
from tests.grid.builders import bag, executions, submitted
from tests.grid.grid import VirtualGrid, cycle, for_seconds


def test_a_task_goes_on_while_the_connection_is_away_and_is_executed_once(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [10.0])
    pc.break_link()
    grid.run(5.0)
    assert grid.counters["adopted"] == 1
    grid.finish()
    assert executions(grid) == [1]
    assert grid.world.now < 13.0


@pytest.mark.parametrize("half_open", [False, True])
def test_a_result_that_is_lost_on_its_way_is_said_again(grid: VirtualGrid, half_open: bool) -> None:
    pc = grid.worker("pc", delay_s=0.4)
    grid.worker("other")
    grid.run(5.0)
    submitted(grid, [10.0, 10.0, 3.0])
    grid.run_until(lambda: len(grid.witness.executions.answers) == 3, 60.0, "an answer of each task")
    pc.break_link(half_open=half_open)
    grid.finish()
    assert executions(grid) == [1, 1, 1]


def test_a_result_that_waited_for_a_connection_counts_although_the_window_has_closed(grid: VirtualGrid) -> None:
    pc = grid.worker("pc", cycle((20.0, 30.0)))
    submitted(grid, [10.0])
    grid.run(8.0)
    grid.partition(pc, 14.0)
    grid.worker("other")
    grid.finish()
    assert executions(grid) == [1]
    assert grid.counters["planned_kills"] == 0


def test_a_result_is_said_again_when_its_confirmation_was_lost_and_only_a_window_that_opens_makes_itself_heard(
    grid: VirtualGrid,
) -> None:
    pc = grid.worker("pc", cycle((12.0, 0.5), (100.0, 1.0)))
    grid.run(0.5)
    submitted(grid, [9.0])
    grid.run(8.2)
    pc.clog(3.2)  # from before the end of the task until between the windows
    grid.run(6.0)
    assert len(grid.witness.recorded) == 1
    assert pc.idle, "the worker has been told so"
    grid.finish()


def test_work_that_is_lost_on_its_way_is_given_again_before_any_lease_is_out(grid: VirtualGrid) -> None:
    pc = grid.worker("pc", delay_s=0.3)
    grid.run(3.0)
    client = grid.client()
    client.submit(bag([5.0]))
    grid.run_until(lambda: bool(grid.witness.newest), 5.0, "work on its way")
    pc.break_link(half_open=True)
    grid.finish()
    assert executions(grid) == [1]
    assert grid.counters["losses"] == 0
    assert grid.counters["attempts"] == 2


def test_work_sent_in_answer_to_an_earlier_introduction_is_not_done_twice(grid: VirtualGrid) -> None:
    submitted(grid, [20.0])
    grid.worker("pc", delay_s=1.5)  # the introduction is said again before it is answered
    grid.finish()
    assert grid.counters["attempts"] > 1
    assert executions(grid) == [1]


def test_a_leave_that_is_lost_is_made_good_by_the_next_introduction(grid: VirtualGrid) -> None:
    pc = grid.worker("pc", for_seconds(20.0), delay_s=0.3)
    other = grid.worker("other")
    grid.run(3.0)
    submitted(grid, [60.0, 10.0])
    grid.run(16.0)
    grid.partition(pc, 3.0)
    grid.finish()
    assert other.idle
    assert grid.counters["planned_kills"] == 0


def test_a_window_that_closes_before_its_work_arrives_kills_nothing(grid: VirtualGrid) -> None:
    grid.broker.sessions.state.scheduler.grid.set_policy(make_policy("fcfs"))
    pc = grid.worker("pc", cycle((20.0, 30.0)), delay_s=0.3)
    grid.run(19.8)
    submitted(grid, [10.0])
    assert grid.witness.newest, "the work was sent while the window was open, as far as the broker knew"
    assert pc.idle
    assert grid.counters["departures"] == 1
    assert grid.counters["planned_kills"] == 0
    grid.finish()
    assert executions(grid) == [1]


def test_a_task_outlives_a_lease_that_ran_out_when_nobody_else_began_it(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [60.0])
    grid.partition(pc, 40.0)
    grid.run(39.0)
    assert grid.counters["losses"] == 1
    grid.finish()
    assert executions(grid) == [1]
    assert grid.counters["adopted"] == 1


def test_the_late_answer_of_an_old_attempt_changes_nothing(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [20.0])
    grid.partition(pc, 30.0)
    grid.run(2.0)
    grid.worker("other")
    grid.run_until(lambda: len(grid.witness.executions.answers) == 2, 60.0, "both attempts' answers")
    grid.finish()
    assert grid.counters["losses"] == 1
    assert grid.counters["stale"] == 1
    (recorded,) = grid.witness.recorded.values()
    assert recorded[2] == max(grid.witness.newest.values())


def test_a_task_that_was_cancelled_while_its_worker_was_cut_off_is_stopped_when_it_is_back(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    client = submitted(grid, [600.0, 3.0])
    grid.partition(pc, 20.0)
    grid.run(1.0)
    client.cancel("bag", [0])
    grid.run(1.0)
    assert grid.witness.recorded["bag", 0][1] == Outcome.CANCELLED
    grid.finish()
    assert grid.world.now < 60.0


def test_a_connection_that_takes_nothing_for_a_while_costs_one_introduction(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    grid.run(1.0)
    pc.clog(2.0)
    submitted(grid, [5.0])
    grid.finish()
    assert executions(grid) == [1]
    assert grid.counters["losses"] == 0
