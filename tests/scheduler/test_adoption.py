"""Work that outlives a connection, a worker or a broker: which worker may go on with it, and which tasks run again."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, State
from tests.scheduler.builders import Grid

# --- a worker that comes back --------------------------------------------------------------------------------------


def test_a_worker_that_was_lost_may_go_on_with_what_it_holds() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(50)
    grid.expect(a=[task])
    grid.wait(20)
    grid.leave("a", planned=False)
    grid.wait(5)
    assert grid.pc("a", holds=[grid.holds(task, 25)]) == {}
    assert grid.state(task) == State.SENT
    (slot,) = grid.inside.slots.slots.values()
    assert (slot.started, slot.due) == (0, 50)
    grid.expect()
    assert grid.end(task) == [task]


def test_what_somebody_else_was_given_meanwhile_is_stopped() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(50)
    grid.expect(a=[task])
    old = grid.holds(task, 3)
    grid.leave("a", planned=False)
    grid.pc("b")
    grid.expect(b=[task])
    assert grid.pc("a", holds=[old]) == {"a": [task]}
    assert grid.running("b") == task


def test_what_is_queued_somewhere_else_is_taken_out_of_that_queue() -> None:
    grid = Grid()
    grid.pc("a")
    grid.pc("b")
    first, second = grid.tasks(5, 5)
    grid.expect(a=[first], b=[second])
    grid.leave("a", planned=False)
    grid.expect()
    assert grid.queues() == {"b": [first]}
    assert grid.pc("a", holds=[grid.holds(first, 1)]) == {}
    assert grid.queues() == {}
    assert grid.running("a") == first


def test_a_worker_over_a_new_connection_keeps_what_it_has_and_loses_what_was_on_its_way() -> None:
    grid = Grid()
    grid.pc("a", 100)
    running, on_its_way = grid.tasks(0.2, 0.1)
    grid.expect(a=[running, on_its_way])
    assert grid.pc("a", 100, holds=[grid.holds(running, 0.1)]) == {}
    assert grid.priority() == [on_its_way]
    assert grid.scheduler.counters.kills == 0
    grid.expect(a=[on_its_way])


def test_held_attempts_keep_their_slots_and_what_runs_comes_first() -> None:
    grid = Grid()
    grid.pc("a", slots=2)
    tasks = grid.tasks(0.3, 5, 0.1)
    grid.expect(a=[tasks[0], tasks[2]], a_1=[tasks[1]])
    grid.leave("a", planned=False)
    ahead, running, other = grid.holds(tasks[2], None), grid.holds(tasks[0], 0.2), grid.holds(tasks[1], 1, slot=1)
    assert grid.pc("a", slots=2, holds=[ahead, running, other]) == {}
    slots = grid.inside.slots.workers["a"].slots
    assert [[sent.attempt.task for sent in slot.sent] for slot in slots] == [[tasks[0], tasks[2]], [tasks[1]]]


@pytest.mark.parametrize("slot", [-1, 1])
def test_an_attempt_on_a_slot_that_a_worker_has_not_is_stopped(slot: int) -> None:
    grid = Grid()
    grid.pc("a", slots=2)
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    assert grid.pc("a", slots=1, holds=[grid.holds(task, 1, slot)]) == {"a": [task]}
    assert grid.priority() == [task]


def test_a_cancelled_attempt_is_stopped_when_its_worker_comes_back() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(5)
    grid.expect(a=[task])
    grid.leave("a", planned=False)
    assert grid.cancel(task) == {}
    assert grid.pc("a", holds=[grid.holds(task, 1)]) == {"a": [task]}


# --- a scheduler that was restored ---------------------------------------------------------------------------------


def test_a_restored_batch_knows_what_has_ended_and_what_is_held() -> None:
    grid = Grid(first_attempt=100)
    done, failed, cancelled, held, waiting = grid.tasks(
        1, 2, 3, 4, 5, done=[0], failed=[1], cancelled=[2], held=[Attempt(3, 42)]
    )
    states = [grid.state(task) for task in (done, failed, cancelled, held, waiting)]
    assert states == [State.DONE, State.FAILED, State.CANCELLED, State.HELD, State.WAITING]
    bag = grid.inside.tasks.bags[0]
    assert (bag.done, bag.failed, bag.cancelled, bag.left_s) == (1, 1, 1, 9)
    assert grid.regular() == [waiting]
    grid.pc("a")
    grid.expect(a=[waiting])
    assert grid.attempts[waiting].number == 100


def test_a_held_task_is_not_placed_and_is_adopted_from_whoever_has_it() -> None:
    grid = Grid(first_attempt=100)
    (task,) = grid.tasks(50, held=[Attempt(0, 42)])
    grid.pc("a")
    grid.expect()
    assert grid.pc("b", holds=[ev.HeldAttempt(Attempt(task, 42), 0, 30.0)]) == {}
    assert grid.state(task) == State.SENT
    assert grid.answer([Attempt(task, 42)]) == [task]


def test_an_older_attempt_of_a_held_task_is_stopped() -> None:
    grid = Grid(first_attempt=100)
    (task,) = grid.tasks(50, held=[Attempt(0, 42)])
    assert grid.pc("b", holds=[ev.HeldAttempt(Attempt(task, 41), 0, 30.0)]) == {"b": [task]}
    assert grid.answer([Attempt(task, 41)]) == []
    assert grid.state(task) == State.HELD


def test_the_answer_of_a_held_attempt_counts() -> None:
    grid = Grid(first_attempt=100)
    (task,) = grid.tasks(50, held=[Attempt(0, 42)])
    assert grid.answer([Attempt(task, 42)]) == [task]
    assert grid.tell(ev.HoldExpired()) == []
    assert grid.priority() == []


def test_what_nobody_came_back_with_is_made_again_and_still_welcome() -> None:
    grid = Grid(first_attempt=100)
    first, second = grid.tasks(50, 60, held=[Attempt(0, 42), Attempt(1, 43)])
    assert grid.tell(ev.HoldExpired()) == []
    assert grid.priority() == [second, first]
    assert grid.answer([Attempt(first, 42)]) == [first]
    grid.pc("a")
    grid.expect(a=[second])
    assert grid.answer([Attempt(second, 43)]) == []


def test_only_held_tasks_expire() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(50)
    grid.expect(a=[task])
    grid.leave("a", planned=False)
    assert grid.tell(ev.HoldExpired()) == []
    assert grid.priority() == [task]
