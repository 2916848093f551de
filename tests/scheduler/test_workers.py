"""Workers: their windows as announced and as time passes, how they leave, and what is counted then."""

import gc
import math

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import PlannedWindow, Windows
from deskgrid.scheduler.state.bags import ScheduledBag, TaskBatch
from deskgrid.scheduler.state.slots import Away, Slot, Worker
from tests.scheduler.builders import Grid, pgs


def ends_at(grid: Grid, name: str) -> float:
    return grid.inside.slots.workers[name].ends_at


# --- uptime --------------------------------------------------------------------------------------------------------


def test_a_window_that_is_extended_takes_more() -> None:
    grid = Grid()
    grid.pc("a", 10)
    (task,) = grid.tasks(20)
    grid.expect()
    grid.refresh("a", 21)
    grid.expect(a=[task])


def test_heartbeats_that_are_late_do_not_extend_a_window() -> None:
    grid = Grid()
    grid.pc("a", 100)
    for late in (0.4, 0.1, 0.499):
        grid.wait(10)
        grid.refresh("a", 100 - grid.now + late)
        assert ends_at(grid, "a") == 100
    grid.refresh("a", 100 - grid.now + 0.5)
    assert ends_at(grid, "a") == 100.5


def test_the_earliest_estimate_of_the_end_of_a_window_is_kept() -> None:
    grid = Grid()
    grid.pc("a", 100)
    grid.refresh("a", 99.9)
    grid.refresh("a", 99.95)
    assert ends_at(grid, "a") == 99.9


def test_a_window_that_is_shortened_gives_back_what_it_no_longer_holds_the_last_first() -> None:
    grid = Grid(pgs(queue_length=3, order="fifo"))
    grid.pc("a", 100)
    tasks = grid.tasks(10, 20, 30, 5)
    grid.expect(a=tasks[:1])
    assert grid.queues() == {"a": tasks[1:]}
    assert grid.refresh("a", 40) == {}
    assert grid.queues() == {"a": [tasks[1]]}
    assert grid.priority() == tasks[2:]
    grid.expect()
    assert grid.queues() == {"a": [tasks[1], tasks[3]]}


def test_a_window_may_become_open_ended_and_back() -> None:
    grid = Grid()
    grid.pc("a", 10)
    grid.refresh("a", math.inf)
    assert ends_at(grid, "a") == math.inf
    grid.refresh("a", math.inf)
    grid.wait(5)
    grid.refresh("a", 3)
    assert ends_at(grid, "a") == 8
    assert grid.inside.slots.workers["a"].uptime(7) == 1
    assert grid.inside.slots.workers["a"].uptime(9) == 0


def test_announced_windows_are_kept_while_a_worker_is_up_and_while_it_is_away() -> None:
    grid = Grid()
    grid.wait(100)
    grid.pc("a", 10, windows=[(20, 5)])
    worker = grid.inside.slots.workers["a"]
    assert worker.windows == (PlannedWindow(120, 125),)
    grid.refresh("a", 10, windows=[(30, 6)])
    assert worker.windows == (PlannedWindow(130, 136),)
    assert worker.windows[0].lasts == 6
    assert grid.inside.away == {}
    grid.tell(ev.WorkerLeft("a", planned=True, windows=[(40, 7)]))
    assert grid.inside.away == {"a": Away(Windows([PlannedWindow(140, 147)]))}
    grid.refresh("a", 0, windows=[(50, 8)])
    assert grid.inside.away == {"a": Away(Windows([PlannedWindow(150, 158)]))}
    grid.pc("a", 10)
    assert grid.inside.away == {}


def test_a_worker_that_vanished_is_expected_back_as_it_had_announced() -> None:
    grid = Grid()
    grid.pc("a", 10, windows=[(20, 5)])
    grid.leave("a", planned=False)
    assert grid.inside.away == {"a": Away(Windows([PlannedWindow(20, 25)]))}
    grid.tell(ev.WorkerForgotten("a"))
    assert grid.inside.away == {}
    grid.tell(ev.WorkerForgotten("a"))


def test_a_worker_without_an_open_window_may_leave_and_be_lost() -> None:
    grid = Grid()
    grid.leave("a", planned=False)
    assert grid.inside.away == {}
    grid.tell(ev.WorkerLeft("a", planned=True, windows=[(20, 5)]))
    assert grid.inside.away == {"a": Away(Windows([PlannedWindow(20, 25)]))}
    counters = grid.scheduler.counters
    assert (counters.departures, counters.losses) == (0, 0)


# --- what is counted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planned", "early", "expected"),
    [(True, False, (1, 0, 2, 2)), (True, True, (1, 0, 2, 0)), (False, False, (0, 1, 2, 0))],
)
def test_what_ran_when_its_worker_went_is_counted_as_killed(
    planned: bool, early: bool, expected: tuple[int, int, int, int]
) -> None:
    grid = Grid()
    grid.pc("a", slots=3)
    tasks = grid.tasks(10, 20)
    grid.expect(a=tasks[:1], a_1=tasks[1:])
    grid.wait(4)
    grid.leave("a", planned, early=early)
    counters = grid.scheduler.counters
    assert (counters.departures, counters.losses, counters.kills, counters.planned_kills) == expected
    assert (counters.wasted_s, counters.busy_s, counters.window_s) == (8, 8, 12)


def test_what_was_handed_back_unstarted_is_not_counted_as_killed() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(10)
    grid.expect(a=[task])
    grid.leave("a", unstarted=[task])
    assert grid.scheduler.counters.kills == 0
    assert grid.priority() == [task]


def test_an_old_attempt_that_is_handed_back_does_not_hide_that_the_new_one_was_killed() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(10)
    grid.expect(a=[task])
    old = grid.attempts[task]
    grid.give_back(task)
    grid.expect(a=[task])
    grid.tell(ev.WorkerLeft("a", planned=True, unstarted=[old]))
    assert grid.scheduler.counters.kills == 1


def test_work_that_a_worker_comes_back_with_is_not_counted_twice() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(100)
    grid.expect(a=[task])
    grid.wait(30)
    grid.pc("a", holds=[grid.holds(task, 30)])
    grid.wait(20)
    grid.end(task, elapsed=50)
    grid.wait(10)
    grid.leave("a")
    counters = grid.scheduler.counters
    assert (counters.window_s, counters.busy_s) == (60, 50)


def expected(grid: Grid) -> list[tuple[str, int, list[PlannedWindow]]]:
    """What policies are told of windows to come."""
    return [(coming.worker, coming.slots, list(coming.windows)) for coming in grid.view.upcoming()]


def test_a_worker_that_announces_nothing_is_expected_to_go_on_as_it_did_once_it_has_come_back() -> None:
    grid = Grid()
    grid.pc("a", 10, slots=2)
    assert expected(grid) == [("a", 2, [])], "nobody knows its habits"
    grid.wait(10)
    grid.tell(ev.WorkerLeft("a", planned=True))
    assert expected(grid) == [("a", 2, [])], "nor whether it will be back"
    grid.wait(5)
    grid.pc("a", 20, slots=2)
    assert expected(grid) == [("a", 2, [PlannedWindow(40, 60), PlannedWindow(65, 85)])]
    grid.wait(20)
    grid.tell(ev.WorkerLeft("a", planned=True))
    assert expected(grid) == [("a", 2, [PlannedWindow(40, 60), PlannedWindow(65, 85)])]
    grid.wait(10)
    grid.tell(ev.PassDue())
    assert expected(grid) == [("a", 2, [PlannedWindow(45, 65), PlannedWindow(70, 90)])], "it is late"


@pytest.mark.parametrize("left", [ev.WorkerLeft("a", planned=False), ev.WorkerLeft("a", planned=True, early=True)])
def test_one_that_did_not_leave_as_planned_has_no_habits(left: ev.WorkerLeft) -> None:
    grid = Grid()
    grid.pc("a", 10)
    grid.wait(4)
    grid.tell(left)
    grid.wait(5)
    grid.pc("a", 20)
    assert expected(grid) == [("a", 1, [])]


def test_what_a_worker_announces_counts_more_than_its_habits() -> None:
    grid = Grid()
    grid.pc("a", 10)
    grid.wait(10)
    grid.tell(ev.WorkerLeft("a", planned=True))
    grid.wait(5)
    grid.pc("a", 20, windows=[(100, 7)])
    assert expected(grid) == [("a", 1, [PlannedWindow(115, 122)])]


def test_an_open_ended_worker_is_not_expected_to_come_again() -> None:
    grid = Grid()
    grid.pc("a", 10)
    grid.wait(10)
    grid.tell(ev.WorkerLeft("a", planned=True))
    grid.wait(5)
    grid.pc("a", math.inf)
    assert expected(grid) == [("a", 1, [])]


# --- what is left ---------------------------------------------------------------------------------------------------


def test_workers_that_left_and_bags_that_were_forgotten_leave_nothing_to_the_garbage_collector() -> None:
    grid = Grid()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for bag in range(3):
            grid.pc("a", 100, slots=8)
            tasks = grid.tasks(*[1.0] * 4, bag=bag)
            grid.expect(**{f"a_{slot}" if slot else "a": [task] for slot, task in enumerate(tasks)})
            grid.end(*tasks)
            grid.tell(ev.BagForgotten(bag))
            grid.leave("a")
        gc.collect()
        left = {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert left.isdisjoint({Worker, Slot, ScheduledBag, TaskBatch})
