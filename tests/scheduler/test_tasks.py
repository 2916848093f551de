"""Bags and tasks: what is counted, cancelled in every state, predicted anew, forgotten."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.state.tasks import TaskTable
from tests.scheduler.builders import Grid, a_category, packing, pgs
from tests.scheduler.conftest import WatchedStates

# --- cancel ---------------------------------------------------------------------------------------------------------


def test_a_waiting_task_is_cancelled_out_of_the_regular_queue() -> None:
    grid = Grid()
    first, second, third = grid.tasks(1, 2, 3)
    assert grid.cancel(second) == {}
    assert grid.regular() == [first, third]
    assert grid.state(second) == State.CANCELLED


@pytest.mark.parametrize("order", ["fifo", "newest-first", "longest-first"])
def test_a_waiting_task_is_cancelled_out_of_the_priority_queue(order: str) -> None:
    grid = Grid(pgs(order=order))
    grid.pc("a", 1)
    first, second, third = grid.tasks(2, 3, 4)
    grid.expect()
    assert grid.cancel(second) == {}
    assert sorted(grid.priority()) == [first, third]


def test_a_queued_task_is_cancelled_out_of_its_queue() -> None:
    grid = Grid(pgs(queue_length=2))
    grid.pc("a")
    first, second, third = grid.tasks(1, 2, 3)
    grid.expect(a=[first])
    assert grid.queues() == {"a": [second, third]}
    assert grid.cancel(second) == {}
    assert grid.queues() == {"a": [third]}


def test_a_running_task_is_stopped_and_its_answer_no_longer_counts() -> None:
    grid = Grid()
    grid.pc("a")
    first, second = grid.tasks(1, 2)
    grid.expect(a=[first])
    grid.wait(0.75)
    assert grid.cancel(first) == {"a": [first]}
    assert grid.end(first) == []
    assert grid.state(first) == State.CANCELLED
    (slot,) = grid.inside.slots.slots.values()
    assert slot.busy_s == 0.75
    grid.expect(a=[second])


def test_a_task_that_was_sent_ahead_is_stopped() -> None:
    grid = Grid()
    grid.pc("a")
    first, second = grid.tasks(0.2, 0.2)
    grid.expect(a=[first, second])
    assert grid.cancel(second) == {"a": [second]}
    (slot,) = grid.inside.slots.slots.values()
    assert (slot.busy_s, grid.running("a")) == (0, first)


def test_a_held_task_is_cancelled() -> None:
    grid = Grid(first_attempt=9)
    (task,) = grid.tasks(5, held=[Attempt(0, 3)])
    assert grid.cancel(task) == {}
    assert grid.answer([Attempt(task, 3)]) == []
    grid.tell(ev.HoldExpired())
    assert grid.state(task) == State.CANCELLED


def test_what_has_ended_stays_as_it_is() -> None:
    grid = Grid()
    grid.pc("a")
    done, failed, cancelled = grid.tasks(1, 2, 3)
    grid.cancel(cancelled)
    grid.expect(a=[done])
    grid.end(done)
    grid.expect(a=[failed])
    grid.end(failed, outcome=AttemptOutcome.ERROR)
    assert grid.cancel(done, failed, cancelled, cancelled) == {}
    assert [grid.state(task) for task in (done, failed, cancelled)] == [State.DONE, State.FAILED, State.CANCELLED]
    assert grid.scheduler.counters.cancelled == 1


def test_one_order_cancels_tasks_in_every_state() -> None:
    grid = Grid()
    grid.pc("a")
    grid.pc("b")
    tasks = grid.tasks(1, 2, 3, 4, 5, 6)
    grid.expect(a=[tasks[0]], b=[tasks[1]])
    assert grid.cancel(*tasks) == {"a": [tasks[0]], "b": [tasks[1]]}
    assert grid.inside.tasks.bags[0].cancelled == 6
    grid.expect()


@pytest.mark.parametrize("order", ["fifo", "newest-first", "longest-first"])
def test_a_cancelled_task_does_not_hide_those_that_wait(order: str) -> None:
    grid = Grid(pgs(order=order, queue_length=0))
    grid.pc("short", 1)
    tasks = grid.tasks(*range(2, 12))
    grid.expect()
    grid.cancel(*tasks[::2])
    grid.pc("a", 1000)
    for task in grid.priority():
        grid.expect(a=[task])
        grid.end(task)
    assert grid.inside.tasks.bags[0].done == 5


def test_slots_are_still_filled_first_when_the_shortest_tasks_were_cancelled() -> None:
    grid = Grid(pgs())
    shortest, first, second = grid.tasks(1, 10, 10)
    grid.cancel(shortest)
    grid.pc("a", 5)
    grid.pc("b", 25)
    grid.pc("c", 30)
    grid.expect(b=[first], c=[second])


def test_many_cancelled_tasks_leave_nothing_behind() -> None:
    for order in ("fifo", "longest-first"):
        grid = Grid(pgs(order=order))
        grid.pc("short", 0.5)
        early = grid.tasks(*[1.0] * 3000)
        grid.expect()
        late = grid.tasks(*[1.0] * 3000)
        assert grid.cancel(*early[:2500], *late[:2500]) == {}
        assert len(grid.priority()) == 500
        assert grid.regular() == late[2500:]


# --- bags ----------------------------------------------------------------------------------------------------------


def test_a_bag_counts_its_tasks_over_all_its_batches() -> None:
    grid = Grid(pgs(queue_length=0))
    grid.pc("a")
    first = grid.tasks(1, 2, bag=7)
    grid.tasks(100, bag=8)
    second = grid.tasks(3, 4, bag=7)
    grid.expect(a=first[:1])
    grid.end(first[0])
    grid.cancel(second[0])
    bag = grid.inside.tasks.bags[7]
    assert (bag.total, bag.done, bag.cancelled, bag.settled, bag.left_s, bag.longest) == (4, 1, 1, 2, 6, 4)


def test_one_runtime_serves_a_whole_batch_until_one_task_differs() -> None:
    grid = Grid()
    grid.tell(ev.TasksSubmitted(0, 0, 4, [5.0]))
    grid.predict({2: 9.0})
    assert [grid.inside.tasks.runtime(task) for task in range(4)] == [5, 5, 9, 5]
    assert grid.inside.tasks.bags[0].left_s == 24


def test_a_prediction_for_a_task_that_has_ended_changes_nothing_that_is_left() -> None:
    grid = Grid()
    grid.pc("a")
    first, _ = grid.tasks(5, 6)
    grid.expect(a=[first])
    grid.end(first)
    grid.predict({first: 100})
    assert grid.inside.tasks.bags[0].left_s == 6


def test_a_bag_is_predicted_anew_as_a_whole() -> None:
    grid = Grid(pgs(queue_length=1))
    grid.pc("a", 100)
    tasks = grid.tasks(10, 20, 30, bag=1)
    (other,) = grid.tasks(1000, bag=2)
    grid.expect(a=tasks[:1])
    grid.end(tasks[0])
    grid.expect(a=[tasks[1]])
    assert grid.queues() == {"a": [tasks[2]]}
    assert grid.tell(ev.BagPredicted(1, 60.0)) == []
    grid.expect()
    assert grid.queues() == {}
    assert set(grid.priority()) == {tasks[2], other}
    bag = grid.inside.tasks.bags[1]
    assert (bag.left_s, bag.longest) == (120, 60)


def test_a_bag_whose_tasks_have_ended_can_be_forgotten() -> None:
    grid = Grid()
    grid.pc("a")
    (kept,) = grid.tasks(5, bag=1)
    done, cancelled = grid.tasks(1, 2, bag=2)
    grid.cancel(cancelled)
    grid.expect(a=[kept])
    with pytest.raises(IllegalEvent, match="bag 2 has 1 tasks that have not ended"):
        grid.tell(ev.BagForgotten(2))
    grid.end(kept)
    grid.expect(a=[done])
    grid.end(done)
    assert grid.tell(ev.BagForgotten(2)) == []
    assert set(grid.inside.tasks.bags) == {1}
    assert grid.end(done) == []
    (later,) = grid.tasks(1, bag=2)
    assert later > cancelled
    grid.expect(a=[later])


def test_a_bag_that_grows_after_all_its_tasks_have_ended_has_work_left_again() -> None:
    grid = Grid()
    grid.pc("a")
    for runtime in (0.1, 0.2, 0.3):
        (task,) = grid.tasks(runtime)
        assert grid.inside.tasks.bags[0].left_s == runtime
        grid.expect(a=[task])
        grid.end(task)
        assert grid.inside.tasks.bags[0].left_s == 0


def test_the_longest_task_of_a_bag_that_waits_is_found_in_any_of_its_batches() -> None:
    table = TaskTable()
    table.add(a_category, 1, 0, 3, [5.0])
    table.add(a_category, 1, 3, 4, [7.0, 9.0, 9.0, 1.0])
    table.add(a_category, 1, 7, 2, [9.0, 9.0])
    table.add(a_category, 2, 9, 1, [100.0])
    assert table.waiting(1) == (9, 4)
    table.move(4, State.SENT)
    assert table.waiting(1) == (8, 5)
    for task in (5, 7, 8):
        table.move(task, State.QUEUED)
    assert table.waiting(1) == (5, 3)
    for task in (3, 6, 0):
        table.move(task, State.DONE)
    assert table.waiting(1) == (2, 1)
    for task in (1, 2):
        table.move(task, State.HELD)
    assert table.waiting(1) == (0, None)


def test_those_that_can_be_cancelled_are_found_in_ranges_and_those_bound_to_slots_are_counted() -> None:
    table = TaskTable()
    table.add(a_category, 1, 0, 6, [5.0])
    table.add(a_category, 1, 6, 2, [5.0])
    for task, state in ((1, State.SENT), (2, State.DONE), (4, State.QUEUED)):
        table.move(task, state)
    assert table.open_spans([(0, 8)]) == [(0, 2), (3, 3), (6, 2)]
    assert table.open_spans([(0, 8)], unsent=True) == [(0, 1), (3, 3), (6, 2)]
    assert [table.bound(first, 3) for first in (0, 2, 3)] == [1, 1, 1]
    assert table.bound(0, 6) == 2


def test_a_small_bag_is_predicted_by_its_own_tasks_beside_many_that_are_bound() -> None:
    grid = Grid(packing(queue_s=1.0))
    for number in range(12):
        grid.pc(f"pc{number}")
    (small,) = grid.tasks(5.0, bag=1)
    grid.tell_pass()
    grid.tasks(*[5.0] * 11, bag=2)
    grid.tell_pass()
    assert len(grid.inside.bound) == 12
    assert grid.tell(ev.BagPredicted(1, 60.0)) == []
    assert grid.inside.bound[small].slot.sent[0].runtime == 60.0


def test_a_change_that_is_not_allowed_is_seen() -> None:
    states = WatchedStates([State.DONE, State.SENT])
    states[1] = State.DONE
    with pytest.raises(AssertionError, match="DONE became"):
        states[:] = bytes([State.SENT, State.DONE])
