"""A worker that has stopped its tasks, as the owner of its PC comes first: it gets nothing, and nothing is late."""

import math
from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import State
from deskgrid.scheduler.views.explain import explain
from deskgrid.scheduler.views.snapshot import worker_view
from tests.scheduler.builders import Grid, fcfs, pgs
from tests.scheduler.test_gangs import Lab
from tests.scheduler.test_views import made


def pause(grid: Grid, name: str, paused: bool = True) -> list[int]:
    """The owner comes, or goes; which tasks are called back."""
    commands = grid.tell(ev.WorkerPaused(name, paused))
    return [attempt.task for each in commands if isinstance(each, cmd.Recall) for attempt in each.attempts]


def at_work(**options: Any) -> tuple[Grid, int]:
    """A worker that runs a task of 100 s, and the task."""
    grid = Grid(pgs())
    grid.pc("a")
    (task,) = grid.tasks(100.0, **options)
    grid.expect(a=[task])
    return grid, task


def test_a_paused_worker_gets_nothing_until_it_goes_on() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    pause(grid, "a")
    (task,) = grid.tasks(5.0)
    grid.expect()
    grid.wait(1000.0)
    grid.expect()
    pause(grid, "a", False)
    grid.expect(a=[task])


def test_what_waits_behind_a_stopped_task_goes_elsewhere() -> None:
    grid = Grid(pgs())
    grid.pc("a")
    first, second, third = grid.tasks(0.2, 0.1, 50.0)
    handed = grid.tell_pass()["a"]
    assert first in handed
    assert pause(grid, "a") == handed
    behind = [task for task in handed if task != handed[0]]
    grid.give_back(*behind)
    grid.pc("b", slots=3)
    others = grid.tell_pass()
    assert sorted(task for tasks in others.values() for task in tasks) == sorted({first, second, third} - {handed[0]})
    assert all(name.startswith("b") for name in others)


def test_a_pause_is_told_once_and_only_of_workers_that_are_up() -> None:
    grid, task = at_work()
    assert pause(grid, "a") == [task]
    assert pause(grid, "a") == []
    assert pause(grid, "nobody") == []
    pause(grid, "a", False)
    assert grid.running("a") == task


@pytest.mark.parametrize("timeout", [None, 110.0])
def test_nothing_is_late_while_it_is_stopped(timeout: float | None) -> None:
    grid, task = at_work(timeout=timeout)
    grid.pc("b")
    grid.wait(50.0)
    pause(grid, "a")
    for _ in range(50):
        grid.wait(100_000.0)
        grid.say_alive()
        grid.expect()
    assert grid.state(task) == State.SENT
    pause(grid, "a", False)
    slot = grid.inside.slots.workers["a"].slots[0]
    assert grid.now - slot.started == 50.0
    grid.wait(50.0)
    grid.expect()
    assert slot.look_at < math.inf
    assert grid.end(task, worker="a", elapsed=100.0) == [task]


def test_a_timeout_counts_again_after_a_pause() -> None:
    grid, task = at_work(timeout=110.0)
    pause(grid, "a")
    grid.wait(1000.0)
    pause(grid, "a", False)
    grid.expect()
    grid.wait(1000.0)
    grid.say_alive()
    (command,) = [each for each in grid.tell(ev.PassDue()) if isinstance(each, cmd.GiveUp)]
    assert [attempt.task for attempt in command.attempts] == [task]


@pytest.mark.parametrize("planned", [True, False])
def test_a_worker_that_leaves_while_it_is_paused_wasted_only_what_ran(planned: bool) -> None:
    grid, _ = at_work()
    grid.wait(10.0)
    pause(grid, "a")
    grid.wait(1000.0)
    grid.leave("a", planned=planned)
    assert grid.inside.counters.wasted_s == 10.0
    assert not grid.inside.paused


def test_a_worker_that_joins_again_is_not_paused_unless_it_says_so() -> None:
    grid, task = at_work()
    pause(grid, "a")
    grid.wait(10.0)
    grid.pc("a", holds=[grid.holds(task, 0.0)])
    assert not grid.inside.paused
    grid.expect()


def test_what_began_during_a_pause_is_not_older_than_it_is() -> None:
    grid = Grid(pgs())
    grid.pc("a")
    first, second = grid.tasks(0.1, 0.1)
    grid.expect(a=[first, second])
    pause(grid, "a")
    grid.wait(10.0)
    grid.end(first, worker="a")
    grid.wait(10.0)
    pause(grid, "a", False)
    assert grid.inside.slots.workers["a"].slots[0].started == grid.now
    grid.expect()
    assert grid.end(second, worker="a") == [second]


def test_a_copy_on_a_paused_worker_is_not_older_either() -> None:
    grid = Grid(pgs())
    grid.pc("a")
    (task,) = grid.tasks(10.0, copies=True)
    grid.expect(a=[task])
    grid.pc("b")
    grid.wait(100.0)
    grid.say_alive()
    grid.expect(b=[task])
    copy = grid.inside.copies[task]
    pause(grid, "b")
    grid.wait(30.0)
    pause(grid, "b", False)
    assert copy.at == grid.now


def test_it_is_shown_and_explained_and_counts_as_away_for_as_long_again() -> None:
    grid, task = at_work()
    (waits,) = grid.tasks(5.0)
    grid.wait(7.0)
    pause(grid, "a")
    grid.wait(60.0)
    running = worker_view(grid.inside, "a", grid.now, 1, 1).slots[0].running
    assert running is not None
    assert running[2] == 7.0
    (slot,) = made(explain(grid.inside, waits, grid.now)).slots
    assert slot.shut == "paused"
    assert task == grid.running("a")


def test_a_gang_with_a_stopped_rank_is_not_late_and_a_paused_worker_gets_no_gang() -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    grid = lab.grid
    (gang,) = lab.submit(10.0, timeout=20.0)
    assert list(lab.starts()) == [gang]
    lab.began(gang)
    first = next(name for name in "abc" if grid.inside.slots.workers[name].slots[0].gang is not None)
    since = grid.inside.slots.workers[first].slots[0].started
    pause(grid, first)
    (waits,) = lab.submit(10.0)
    for _ in range(5):
        grid.wait(1000.0)
        grid.say_alive()
        assert lab.starts() == {}
    assert grid.state(gang) == State.SENT
    pause(grid, first, False)
    running = [slot for slot in grid.inside.slots.slots.values() if slot.gang is not None]
    assert [slot.started for slot in running] == [since + 5000.0] * 2
    assert grid.state(waits) == State.WAITING
