"""What a driver may ask of a scheduler."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.model import Attempt, AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.prediction.prediction_error import OUTLIVED
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.failures import STREAK
from tests.scheduler.builders import Grid


def test_whether_a_worker_is_up_and_what_it_holds() -> None:
    grid = Grid()
    grid.pc("a", slots=2)
    tasks = grid.tasks(0.2, 5, 0.1)
    handed = grid.tell_pass()
    assert set(tasks) == {*handed["a"], *handed["a_1"]}
    assert grid.scheduler.is_up("a")
    assert grid.scheduler.attempts_at("a") == [grid.attempts[task] for task in [*handed["a"], *handed["a_1"]]]
    grid.leave("a")
    assert not grid.scheduler.is_up("a")


def test_where_attempts_are() -> None:
    grid = Grid()
    grid.wait(3)
    grid.pc("a")
    tasks = grid.tasks(0.1, 0.2)
    grid.tell_pass()
    (waiting,) = grid.tasks(50)
    assert [grid.scheduler.find(grid.attempts[task]) for task in tasks] == [("a", 3.0)] * 2
    assert grid.scheduler.find(Attempt(tasks[0], 99)) is grid.scheduler.find(Attempt(waiting, 1)) is None


def test_whose_answer_still_counts_though_no_slot_has_it() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5)
    grid.tell_pass()
    assert (grid.scheduler.orphans, grid.scheduler.is_orphan(grid.attempts[task])) == (0, False)
    grid.leave("a", planned=False)
    assert (grid.scheduler.orphans, grid.scheduler.is_orphan(grid.attempts[task])) == (1, True)
    assert not grid.scheduler.is_orphan(Attempt(task, 99))


def test_what_is_known_of_a_task() -> None:
    grid = Grid()
    grid.pc("a")
    task, _ = grid.tasks(5, 6, retries=1)
    grid.tell_pass()
    crashed = grid.running("a")
    grid.end(crashed, outcome=AttemptOutcome.CRASH, worker="a")
    scheduler = grid.scheduler
    assert (scheduler.state(task), scheduler.runtime(task)) == (State.WAITING, 5)
    assert list(scheduler.runtimes(task, 2)) == [5, 6]
    assert scheduler.crashes(crashed) == ("a",)
    grid.tell_pass()
    assert scheduler.open_spans([(task, 2)]) == [(task, 2)]
    assert scheduler.open_spans([(task, 2)], unsent=True) == [(1 - grid.running("a"), 1)]
    assert scheduler.bound_tasks(task, 2) == 2
    for ask in (scheduler.state, scheduler.runtime, lambda task: scheduler.runtimes(task, 1)):
        with pytest.raises(IllegalEvent, match="unknown task 99"):
            ask(99)


def test_who_is_in_quarantine_and_who_owes_an_answer() -> None:
    grid = Grid()
    grid.pc("a")
    grid.pc("b")
    for number in range(STREAK + 1):
        grid.tasks(5, bag=number, key=CategoryKey(f"person {number}"))
    for _ in range(STREAK):
        grid.tell_pass()
        grid.end(grid.running("a"), outcome=AttemptOutcome.CRASH, worker="a")
    found = grid.scheduler.quarantined("a")
    assert found
    assert found.failures == STREAK
    assert grid.scheduler.quarantined("b") is None
    assert not grid.scheduler.owed_by("a")


def test_only_what_outlived_its_prediction_is_predicted_anew() -> None:
    grid = Grid()
    grid.pc("a", 1000)
    short, right = grid.tasks(5, 50)
    assert grid.scheduler.outlived({short: 10, right: 50}, grid.now) == {short: OUTLIVED * 10}
    assert grid.scheduler.outlived({}, grid.now) == {}


def test_a_scheduler_counts_on_from_another() -> None:
    grid, counters = Grid(), Counters(done=7)
    grid.scheduler.count_on(counters)
    grid.pc("a")
    grid.tasks(5)
    assert (grid.scheduler.counters.done, counters.submitted) == (7, 1)


def test_a_batch_that_continues_the_last_one_of_its_bag_is_a_part_of_it() -> None:
    grid = Grid()
    first, *_ = grid.tasks(5, 5)
    grid.tell(ev.BagPredicted(0, 6.0))
    grid.tasks(6, 6, grows=True)
    done, other = grid.tasks(6, 7, grows=True, done=[4])
    assert grid.scheduler.runtimes(first, 6) == [6, 6, 6, 6, 6, 7]
    assert [grid.scheduler.state(task) for task in (done, other)] == [State.DONE, State.WAITING]
    grid.pc("a", slots=9)
    grid.tell_pass()
    assert len(grid.scheduler.attempts_at("a")) == 5
    grid.scheduler.check(grid.now)
