"""FCFS, the paper's baseline (Section 3.1): the next task to any slot with room, lost tasks to the front."""

import pytest

from deskgrid.scheduler.model import AttemptOutcome, UnknownPolicy
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.builders import Grid, fcfs


def test_tasks_are_served_in_the_order_they_came() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    tasks = grid.tasks(5, 1, 9, 3)
    for task in tasks:
        grid.expect(a=[task])
        assert grid.end(task) == [task]


def test_whether_a_task_fits_is_not_asked() -> None:
    grid = Grid(fcfs(queue_length=1))
    grid.pc("a", 10)
    running, queued = grid.tasks(1000, 2000)
    grid.expect(a=[running])
    assert grid.queues() == {"a": [queued]}
    assert grid.scheduler.counters.unfit == 0


def test_a_lost_task_goes_to_the_front() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    first, second, third = grid.tasks(5, 5, 5)
    grid.expect(a=[first])
    grid.leave("a", planned=False)
    grid.pc("b")
    for task in (first, second, third):
        grid.expect(b=[task])
        grid.end(task)


def test_the_task_that_was_lost_last_is_served_first() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    grid.pc("b")
    tasks = grid.tasks(5, 5, 5)
    grid.tell_pass()
    first = grid.running("a")
    grid.leave("a")
    grid.leave("b")
    grid.pc("c")
    for task in (1 - first, first, tasks[2]):
        grid.expect(c=[task])
        grid.end(task)


def test_a_task_that_failed_goes_to_the_front_too() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    first, _ = grid.tasks(5, 5, retries=1)
    grid.expect(a=[first])
    assert grid.end(first, outcome=AttemptOutcome.ERROR) == []
    grid.expect(a=[first])


def test_queues_and_windows_that_shorten_are_left_alone() -> None:
    grid = Grid(fcfs(queue_length=1))
    grid.pc("a", 1000)
    running, queued = grid.tasks(100, 100)
    grid.expect(a=[running])
    assert grid.refresh("a", 50) == {}
    grid.expect()
    assert grid.queues() == {"a": [queued]}


def choices(seed: int) -> list[str]:
    """On which of five slots with room each of thirty tasks runs."""
    grid = Grid(fcfs(seed=seed))
    for name in "abcde":
        grid.pc(name)
    chosen = []
    for _ in range(30):
        (task,) = grid.tasks(5)
        grid.tell_pass()
        chosen.append(grid.inside.bound[task].slot.worker.name)
        grid.end(task)
    return chosen


def test_the_choice_among_slots_with_room_is_random_and_seeded() -> None:
    assert choices(1) == choices(1)
    assert choices(1) != choices(2)
    assert set(choices(1)) == set("abcde")


def test_any_slot_with_room_is_chosen_be_it_idle_busy_or_overdue() -> None:
    grid = Grid(fcfs(queue_length=20))
    grid.pc("overdue")
    (task,) = grid.tasks(5)
    grid.expect(overdue=[task])
    grid.wait(10)
    grid.pc("b")
    grid.pc("c")
    grid.tasks(*[50] * 30)
    grid.tell_pass()
    assert set(grid.queues()) == {"overdue", "b", "c"}


# --- which of the slots ----------------------------------------------------------------------------------------------


def test_in_turn_each_task_goes_to_the_next_pc_with_room_and_after_the_last_to_the_first() -> None:
    grid = Grid(make_policy("fcfs", choice="in-turn", queue_s=0, queue_length=1))
    for name in ("c", "a", "b"):
        grid.pc(name, slots=2 if name == "b" else 1)
    tasks = grid.tasks(*[5] * 8)
    grid.expect(a=tasks[0:1], b=tasks[1:2], b_1=tasks[2:3], c=tasks[3:4])
    assert grid.queues() == {"a": [4], "b": [5], "b_1": [6], "c": [7]}
    more = grid.tasks(5, 5, 5)
    grid.end(tasks[1])
    grid.end(tasks[3])
    grid.expect(b=tasks[5:6], c=tasks[7:8])
    assert grid.queues() == {"a": [4], "b": more[:1], "b_1": [6], "c": more[1:2]}


def test_first_is_always_the_first_by_name_with_room() -> None:
    grid = Grid(make_policy("fcfs", choice="first", queue_s=0, queue_length=1))
    grid.pc("b")
    grid.pc("a")
    tasks = grid.tasks(5, 5, 5)
    grid.expect(a=tasks[:1], b=tasks[2:])
    assert grid.queues() == {"a": tasks[1:2]}


def test_another_choice_is_refused() -> None:
    with pytest.raises(UnknownPolicy, match="choice is one of random, in-turn, first, not 'best'"):
        make_policy("fcfs", choice="best")
