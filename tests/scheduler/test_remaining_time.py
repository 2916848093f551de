"""How much time a slot has left (paper, Section 2.2), as time passes and predictions change (Section 2.1)."""

from deskgrid.scheduler.model import State
from tests.scheduler.builders import Grid, pgs

# --- tl: uptime is interpolated, and stands still while a task runs as predicted -----------------------------------


def test_uptime_is_interpolated_between_what_the_worker_says() -> None:
    grid = Grid(pgs())
    grid.pc("a", 20)
    grid.wait(11)
    ten, eight = grid.tasks(10, 8)
    grid.expect(a=[eight])
    assert grid.priority() == [ten]


def test_time_left_stands_still_while_the_running_task_keeps_to_its_prediction() -> None:
    grid = Grid(pgs())
    grid.pc("a", 100)
    (running,) = grid.tasks(30)
    grid.expect(a=[running])
    grid.wait(29)
    seventy, less = grid.tasks(70, 69.9)
    grid.expect()
    assert grid.queues() == {"a": [less]}
    assert grid.state(seventy) == State.WAITING


def test_time_left_falls_while_the_running_task_is_overdue() -> None:
    grid = Grid(pgs())
    grid.pc("a", 100)
    (running,) = grid.tasks(30)
    grid.expect(a=[running])
    grid.wait(40)
    sixty, less = grid.tasks(60, 59.9)
    grid.expect()
    assert grid.queues() == {"a": [less]}
    assert grid.state(sixty) == State.WAITING


def test_time_left_of_a_slot_that_nothing_happened_to_falls_when_its_task_becomes_overdue() -> None:
    grid = Grid(pgs())
    grid.pc("a", 100)
    (running,) = grid.tasks(30)
    grid.expect(a=[running])
    for seconds in (10, 10, 10):
        grid.wait(seconds)
        grid.expect()
    (slot,) = grid.inside.slots.slots.values()
    assert slot.remaining(grid.now) == 70
    grid.wait(10)
    (sixty,) = grid.tasks(60)
    grid.expect()
    assert grid.queues() == {}
    assert grid.priority() == [sixty]


def test_what_no_longer_fits_when_its_turn_comes_joins_the_priority_queue() -> None:
    grid = Grid(pgs())
    grid.pc("a", 20)
    running, queued = grid.tasks(9, 10)
    grid.expect(a=[running])
    assert grid.queues() == {"a": [queued]}
    grid.wait(12)
    assert grid.end(running) == [running]
    grid.expect()
    assert grid.priority() == [queued]
    assert grid.scheduler.counters.unfit == 1


def test_the_margin_counts_when_the_turn_of_a_queued_task_comes() -> None:
    grid = Grid(pgs(margin=2))
    grid.pc("a", 20)
    running, queued = grid.tasks(5, 10)
    grid.expect(a=[running])
    grid.wait(8)
    grid.end(running)
    grid.expect()
    assert grid.priority() == [queued]


def test_what_no_longer_fits_on_one_slot_is_placed_on_another_in_the_same_pass() -> None:
    grid = Grid(pgs())
    grid.pc("a", 20)
    running, queued = grid.tasks(9, 10)
    grid.expect(a=[running])
    grid.wait(12)
    grid.pc("b", 11)
    grid.end(running)
    grid.expect(b=[queued])


# --- predictions that are updated after submission (Section 2.1) ---------------------------------------------------


def test_a_queued_task_that_is_longer_than_thought_is_placed_anew() -> None:
    grid = Grid(pgs())
    grid.pc("a", 20)
    running, queued = grid.tasks(9, 10)
    grid.expect(a=[running])
    assert grid.queues() == {"a": [queued]}
    assert grid.predict({queued: 15}) == {}
    grid.pc("b", 16)
    grid.expect(b=[queued])


def test_a_running_task_that_is_longer_than_thought_leaves_less_room() -> None:
    grid = Grid(pgs())
    grid.pc("a", 20)
    running, queued = grid.tasks(9, 10)
    grid.expect(a=[running])
    assert grid.predict({running: 12}) == {}
    grid.expect()
    assert grid.queues() == {}
    assert grid.priority() == [queued]


def test_a_running_task_that_is_shorter_than_thought_leaves_more_room() -> None:
    grid = Grid(pgs())
    grid.pc("a", 20)
    running, twelve = grid.tasks(9, 12)
    grid.expect(a=[running])
    assert grid.queues() == {}
    grid.predict({running: 7})
    grid.expect()
    assert grid.queues() == {"a": [twelve]}


def test_waiting_tasks_are_found_by_their_new_runtimes() -> None:
    grid = Grid(pgs(queue_length=0))
    grid.pc("a", 10)
    long, longer = grid.tasks(20, 30)
    grid.expect()
    assert grid.priority() == [longer, long]
    grid.predict({long: 40, longer: 9})
    grid.expect(a=[longer])
    assert grid.priority() == [long]


def test_a_slot_that_is_on_time_may_be_tighter_than_one_that_is_late() -> None:
    grid = Grid(pgs())
    grid.pc("late", 1000)
    grid.tasks(5)
    grid.tell_pass()
    grid.pc("on time", 100)
    grid.tasks(50)
    grid.tell_pass()
    grid.wait(20)
    grid.tell_pass()
    slots, now = grid.inside.slots, grid.scheduler.now
    found = [index.tightest(limit, now) for index in slots.indexes for limit in (10, 40)]
    names = {slots.slots[row[2]].worker.name for row in found if row is not None}
    assert names == {"on time"}
