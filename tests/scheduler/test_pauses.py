"""Tasks that err again and again pause, and others get the slots meanwhile."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.retrying import AT_ONCE, LEAST_PAUSE_S, MOST_PAUSE_S, pause_after
from deskgrid.scheduler.model import AttemptOutcome, State
from deskgrid.scheduler.queues.task_ranges import spans_of
from tests.scheduler.builders import Grid, pgs
from tests.scheduler.test_views import explained


def erring(grid: Grid, times: int, retries: int = 1000) -> int:
    """A task that has erred so often, each time when it was tried."""
    (task,) = grid.tasks(1, retries=retries)
    for _ in range(times):
        grid.now += pause_after(times, 1.0)
        grid.say_alive()
        assert grid.tell_pass() == {"a": [task]}
        assert grid.end(task, outcome=AttemptOutcome.ERROR) == []
    return task


def test_the_first_errors_cost_no_time_and_later_ones_ever_more() -> None:
    pauses = [pause_after(errors, 0.01) for errors in range(AT_ONCE + 5)]
    assert pauses[: AT_ONCE + 1] == [0.0] * (AT_ONCE + 1)
    assert pauses[AT_ONCE + 1 :] == [LEAST_PAUSE_S * factor for factor in (1, 2, 4, 8)]
    assert pause_after(10**6, 0.01) == MOST_PAUSE_S


def test_a_task_that_is_long_pauses_longer_but_never_much_longer_than_it_takes() -> None:
    assert pause_after(AT_ONCE + 2, 60.0) == 120.0
    assert pause_after(10**6, 36_000.0) == pause_after(AT_ONCE + 1, 36_000.0) == 36_000.0


def test_a_task_that_pauses_is_tried_again_when_that_is_over_and_others_run_meanwhile() -> None:
    grid = Grid()
    grid.pc("a")
    task = erring(grid, AT_ONCE + 1)
    assert grid.state(task) == State.PAUSED
    assert grid.scheduler.wakes_at == grid.now + LEAST_PAUSE_S
    (other,) = grid.tasks(0.1)
    grid.expect(a=[other])
    assert grid.end(other) == [other]
    grid.now += LEAST_PAUSE_S / 2
    grid.expect()
    grid.now += LEAST_PAUSE_S / 2
    grid.expect(a=[task])
    assert grid.end(task) == [task]


def test_it_is_longer_the_next_time() -> None:
    grid = Grid()
    grid.pc("a")
    erring(grid, AT_ONCE + 3)
    assert grid.scheduler.wakes_at == grid.now + 4 * LEAST_PAUSE_S


def test_the_last_error_ends_a_task_without_a_pause() -> None:
    grid = Grid()
    grid.pc("a")
    task = erring(grid, AT_ONCE, retries=AT_ONCE)
    grid.expect(a=[task])
    assert grid.end(task, outcome=AttemptOutcome.TIMEOUT) == [task]
    assert grid.state(task) == State.FAILED


def test_a_task_that_pauses_can_be_cancelled_and_its_bag_forgotten() -> None:
    grid = Grid()
    grid.pc("a")
    task = erring(grid, AT_ONCE + 1)
    assert grid.cancel(task) == {}
    assert grid.state(task) == State.CANCELLED
    assert grid.tell(ev.BagForgotten(0)) == []
    grid.now += LEAST_PAUSE_S
    grid.expect()


def test_a_task_that_pauses_takes_a_new_prediction() -> None:
    grid = Grid()
    grid.pc("a")
    task = erring(grid, AT_ONCE + 1)
    grid.predict({task: 7.0})
    grid.now += LEAST_PAUSE_S
    grid.expect(a=[task])
    assert grid.inside.tasks.runtime(task) == 7.0


def test_it_says_when_it_is_tried_again() -> None:
    grid = Grid()
    grid.pc("a")
    task = erring(grid, AT_ONCE + 1)
    assert explained(grid.scheduler, task, grid.now + 0.25).again_s == pytest.approx(0.75)
    assert explained(grid.scheduler, task, grid.now + 1.25).again_s == 0.0


@pytest.mark.parametrize("barred", [False, True])
def test_a_task_whose_lost_attempt_erred_after_all_pauses_or_stays_barred(barred: bool) -> None:
    grid = Grid()
    grid.pc("a")
    grid.pc("b")
    (task,) = grid.tasks(1, retries=1)
    (worker,) = grid.tell_pass()
    attempt = grid.inside.bound[task].attempt
    grid.tell(ev.WorkerLeft(worker, planned=False))
    if barred:
        grid.tell(ev.BagGated(0, barred=True))
        grid.tell(ev.TasksRouted(spans_of([task])))
    grid.tell(ev.AttemptsEnded(worker, [ev.EndedAttempt(attempt, AttemptOutcome.ERROR, 1.0)]))
    assert grid.state(task) == (State.BARRED if barred else State.PAUSED)


def test_a_failed_task_may_wait_behind_what_another_worker_runs() -> None:
    grid = Grid(pgs())
    grid.pc("a")
    (task,) = grid.tasks(10, bag=1, retries=2)
    grid.expect(a=[task])
    grid.pc("b")
    (other,) = grid.tasks(10, bag=2)
    grid.expect(b=[other])
    grid.end(task, outcome=AttemptOutcome.ERROR, elapsed=5.0, worker="a")
    assert grid.state(task) == State.PAUSED
    grid.expect()
    assert grid.state(task) == State.QUEUED
    grid.end(other)
    grid.expect(b=[task])
