"""Attempts: only a task's newest attempt counts, whoever reports it and whatever happened to its worker."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, AttemptOutcome, State
from tests.scheduler.builders import Grid, fcfs, pgs

# --- answers --------------------------------------------------------------------------------------------------------


def test_the_answer_of_the_newest_attempt_ends_its_task() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    assert grid.end(task, worker="a") == [task]
    assert grid.state(task) == State.DONE


def test_the_same_answer_twice_counts_once() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    assert grid.answer([grid.attempts[task]] * 2) == [task]
    assert grid.end(task) == []
    assert (grid.scheduler.counters.done, grid.scheduler.counters.stale) == (1, 2)


def test_the_answer_of_an_old_attempt_is_ignored() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    old = grid.attempts[task]
    grid.leave("a", planned=False)
    grid.pc("b")
    grid.expect(b=[task])
    assert grid.answer([old], worker="a") == []
    assert grid.state(task) == State.SENT
    assert grid.end(task) == [task]


def test_an_answer_to_nothing_that_was_ever_asked_is_ignored() -> None:
    grid = Grid()
    (task,) = grid.tasks(5)
    assert grid.answer([Attempt(task, 1), Attempt(99, 1), Attempt(task, 0)]) == []
    assert grid.scheduler.counters.stale == 3


@pytest.mark.parametrize("outcome", [AttemptOutcome.DONE, AttemptOutcome.ERROR])
def test_no_number_of_an_attempt_names_a_task_that_is_only_queued(outcome: AttemptOutcome) -> None:
    grid = Grid(pgs(queue_length=1))
    grid.pc("a")
    first, queued = grid.tasks(5, 5)
    grid.tell_pass()
    if grid.state(first) == State.QUEUED:
        first, queued = queued, first
    assert grid.answer([Attempt(queued, 0)], outcome, worker="a") == []
    assert (grid.state(queued), grid.scheduler.counters.stale) == (State.QUEUED, 1)


def test_a_failed_attempt_counts_with_what_it_would_have_taken_at_speed_1() -> None:
    grid = Grid()
    grid.pc("a", speed=0.5)
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    grid.end(task, outcome=AttemptOutcome.ERROR, elapsed=20.0, worker="a")
    assert grid.inside.shares.account("").new_s == 10.0


def test_an_answer_that_another_worker_delivers_counts() -> None:
    grid = Grid()
    grid.pc("a")
    grid.pc("b")
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    assert grid.end(task, worker="b") == [task]
    (another,) = grid.tasks(5)
    grid.expect(a=[another])


def test_a_late_answer_of_a_lost_worker_counts_while_nothing_newer_was_sent() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    grid.leave("a", planned=False)
    assert grid.state(task) == State.WAITING
    assert grid.end(task) == [task]
    assert grid.priority() == []
    assert grid.scheduler.counters.adopted == 1


def test_a_late_answer_counts_while_the_task_is_queued_again() -> None:
    grid = Grid()
    grid.pc("a")
    grid.pc("b")
    first, second = grid.tasks(5, 5)
    grid.expect(a=[first], b=[second])
    grid.leave("a", planned=False)
    grid.expect()
    assert grid.queues() == {"b": [first]}
    assert grid.end(first) == [first]
    assert grid.queues() == {}


def test_a_late_error_counts_too() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5, retries=1)
    grid.expect(a=[task])
    grid.leave("a", planned=False)
    assert grid.end(task, outcome=AttemptOutcome.ERROR) == []
    assert grid.priority() == [task]
    # By its error the attempt has ended for good.
    assert grid.end(task) == []
    grid.pc("b")
    grid.expect(b=[task])
    assert grid.end(task, outcome=AttemptOutcome.ERROR) == [task]
    assert grid.state(task) == State.FAILED


@pytest.mark.parametrize("order", ["fifo", "newest-first", "longest-first"])
def test_a_task_that_waits_again_is_not_taken_for_the_one_that_was_withdrawn(order: str) -> None:
    grid = Grid(pgs(order=order))
    (task,) = grid.tasks(5, retries=3)
    for _ in range(3):
        grid.pc("a")
        grid.expect(a=[task])
        grid.leave("a", planned=False)
        assert grid.end(task, outcome=AttemptOutcome.ERROR) == []
        assert grid.priority() == [task]


# --- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [AttemptOutcome.ERROR, AttemptOutcome.TIMEOUT])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_task_survives_as_many_errors_and_timeouts_as_it_has_retries(outcome: AttemptOutcome, retries: int) -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5, retries=retries)
    for _ in range(retries):
        grid.expect(a=[task])
        assert grid.end(task, outcome=outcome) == []
    grid.expect(a=[task])
    assert grid.end(task, outcome=outcome) == [task]
    assert grid.state(task) == State.FAILED
    counters = grid.scheduler.counters
    assert (counters.errors, counters.timeouts) == (
        (retries + 1, 0) if outcome == AttemptOutcome.ERROR else (0, retries + 1)
    )


def test_a_task_that_crashed_three_times_is_given_up_whatever_its_retries() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5, retries=100)
    for crash in (1, 2, 3):
        grid.expect(a=[task])
        assert grid.end(task, outcome=AttemptOutcome.CRASH) == ([task] if crash == 3 else [])
    assert grid.state(task) == State.FAILED
    assert grid.scheduler.counters.crashes == 3


def test_crashes_need_no_retries_and_use_none_up() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5, retries=1)
    for outcome in (AttemptOutcome.CRASH, AttemptOutcome.ERROR, AttemptOutcome.CRASH):
        grid.expect(a=[task])
        assert grid.end(task, outcome=outcome) == []
    grid.expect(a=[task])
    assert grid.end(task) == [task]


@pytest.mark.parametrize("planned", [True, False])
def test_departures_and_losses_never_count_against_a_task(planned: bool) -> None:
    grid = Grid()
    (task,) = grid.tasks(5, retries=0)
    for _ in range(10):
        grid.pc("a", 100)
        grid.expect(a=[task])
        grid.leave("a", planned)
    grid.pc("a", 100)
    grid.expect(a=[task])
    assert grid.end(task) == [task]


# --- work at the worker --------------------------------------------------------------------------------------------


def test_short_tasks_are_sent_ahead_up_to_half_a_second_of_work() -> None:
    grid = Grid()
    grid.pc("a")
    tasks = grid.tasks(*[0.2] * 4)
    grid.expect(a=tasks[:2])
    assert grid.queues() == {"a": tasks[2:3]}
    assert grid.end(tasks[0]) == tasks[:1]
    grid.expect(a=tasks[2:3])


def test_tasks_that_take_no_time_are_sent_ahead_up_to_a_number() -> None:
    grid = Grid(pgs(queue_s=1.0))
    grid.pc("a")
    tasks = grid.tasks(*[0.0] * 5000)
    grid.expect(a=tasks[:2000])
    assert grid.queues() == {"a": tasks[2000:4000]}


def test_what_was_sent_ahead_starts_when_the_one_before_it_ends() -> None:
    grid = Grid()
    grid.pc("a")
    first, second = grid.tasks(0.2, 0.3)
    grid.expect(a=[first, second])
    grid.wait(7)
    grid.end(first, elapsed=6)
    (slot,) = grid.inside.slots.slots.values()
    assert (slot.started, slot.due, slot.ahead_s, slot.busy_s) == (7, 7.3, 0, 6)


def test_what_is_ahead_is_counted_down_as_it_starts() -> None:
    grid = Grid()
    grid.pc("a")
    tasks = grid.tasks(0.1, 0.1, 0.2, 0.05)
    grid.expect(a=tasks)
    (slot,) = grid.inside.slots.slots.values()
    for task, ahead in zip(tasks, (0.25, 0.05, 0.0, 0.0), strict=True):
        grid.end(task)
        assert slot.ahead_s == pytest.approx(ahead)


def test_answers_may_come_in_another_order_than_the_work_was_sent() -> None:
    grid = Grid()
    grid.pc("a")
    first, second = grid.tasks(0.2, 0.3)
    grid.expect(a=[first, second])
    grid.wait(1)
    assert grid.end(second, elapsed=0.3) == [second]
    assert grid.end(first, elapsed=0.25) == [first]
    (slot,) = grid.inside.slots.slots.values()
    assert slot.busy_s == pytest.approx(0.55)
    (third,) = grid.tasks(9)
    grid.expect(a=[third])


def test_work_that_was_handed_back_waits_in_the_priority_queue() -> None:
    grid = Grid()
    grid.pc("a")
    first, second = grid.tasks(0.2, 0.3)
    grid.expect(a=[first, second])
    grid.give_back(second)
    assert grid.priority() == [second]
    # What it says of an attempt that is not there any more is old.
    grid.give_back(second)
    assert grid.answer([grid.attempts[second]]) == []
    grid.expect(a=[second])


def test_handing_back_an_old_attempt_does_not_take_the_new_one_away() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    old = grid.attempts[task]
    grid.give_back(task)
    grid.expect(a=[task])
    assert grid.tell(ev.AttemptsReturned("a", [old])) == []
    assert grid.running("a") == task


def test_work_ahead_is_called_back_when_its_window_shortens() -> None:
    grid = Grid()
    grid.pc("a", 10)
    first, second, third = grid.tasks(0.2, 0.1, 0.1)
    grid.expect(a=[first, second, third])
    assert grid.refresh("a", 0.35) == {"a": [second, third]}
    grid.give_back(third)
    assert grid.refresh("a", 0.34) == {}
    assert grid.priority() == [third]


def test_work_ahead_is_called_back_when_what_runs_is_longer_than_thought() -> None:
    grid = Grid()
    grid.pc("a", 10)
    first, second = grid.tasks(0.2, 0.1)
    grid.expect(a=[first, second])
    assert grid.predict({first: 5}) == {}
    assert grid.predict({first: 9.95}) == {"a": [second]}


def test_work_ahead_that_is_longer_than_thought_is_called_back() -> None:
    grid = Grid()
    grid.pc("a", 10)
    first, second = grid.tasks(0.2, 0.1)
    grid.expect(a=[first, second])
    assert grid.predict({second: 9.9}) == {"a": [second]}


def test_fcfs_calls_nothing_back() -> None:
    grid = Grid(fcfs(queue_s=1.0))
    grid.pc("a", 10)
    first, second = grid.tasks(0.2, 0.1)
    grid.expect(a=[first, second])
    assert grid.predict({first: 50}) == {}
    assert grid.refresh("a", 0.1) == {}


def test_the_next_attempt_has_the_number_that_was_told() -> None:
    grid = Grid()
    grid.pc("a", 10)
    number = grid.scheduler.next_attempt
    (task,) = grid.tasks(1)
    grid.expect(a=[task])
    assert grid.inside.slots.workers["a"].slots[0].sent[0].attempt.number == number
    assert grid.scheduler.next_attempt == number + 1
