"""Packing: when it plans, what it knows then, and what it does with its plan."""

from collections import deque
from collections.abc import Callable
from itertools import chain
from math import inf

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import PlannedWindow, UpcomingWindows, Windows
from deskgrid.scheduler.policies.base import OpenSlot
from deskgrid.scheduler.policies.packing import (
    INTERVAL_COST_S,
    PAUSE,
    SLACK_S,
    SLOT_COST_S,
    TASK_COST_S,
    WINDOW_COST_S,
)
from deskgrid.scheduler.policies.planning.planner import FilledInterval, Interval
from deskgrid.scheduler.policies.reserved import AMPLE
from tests.scheduler.builders import Grid
from tests.scheduler.planned import Planned


def between_windows() -> Planned:
    """A window of 5 s that holds none of the tasks, and announced ones that do: there is room, and tasks wait."""
    grid = Planned()
    grid.pc("a", 5, windows=[(10, 100), (120, 100)])
    grid.tasks(20, 30)
    assert grid.looks() == 1
    grid.wait(1)
    return grid


# --- when it plans ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda grid: grid.pc("b", 3),
        lambda grid: grid.pc("a", 5, windows=[(10, 100), (120, 100)]),
        lambda grid: grid.refresh("a", 3, windows=[(9, 100), (119, 100)]),
        lambda grid: grid.refresh("a", 4, windows=[(9, 100), (118, 100)]),
        lambda grid: grid.refresh("a", 4, windows=[(9, 100)]),
        lambda grid: grid.refresh("away", 0, windows=[(5, 60)]),
        lambda grid: grid.tell(ev.WorkerLeft("away", planned=True, windows=[(5, 60)])),
        lambda grid: grid.tasks(40),
        lambda grid: grid.cancel(0),
        lambda grid: grid.predict({0: 25}),
        lambda grid: grid.tell(ev.BagPredicted(0, 25)),
    ],
)
def test_what_it_could_not_foresee_is_planned_for(change: Callable[[Grid], object]) -> None:
    grid = between_windows()
    change(grid)
    assert grid.looks() == 1
    grid.wait(1)
    assert grid.looks() == 0


def test_a_worker_that_leaves_or_is_forgotten_is_planned_for() -> None:
    grid = between_windows()
    grid.pc("b", 3)
    assert grid.looks() == 1
    grid.wait(1)
    grid.leave("b")
    assert grid.looks() == 1
    grid.wait(1)
    grid.tell(ev.WorkerForgotten("b"))
    assert grid.looks() == 1
    grid.wait(1)
    grid.tell(ev.WorkerForgotten("b"))
    grid.tell(ev.WorkerLeft("nobody", planned=False))
    assert grid.looks() == 0


@pytest.mark.parametrize("late", [0.0, 0.2, 0.4])
def test_a_heartbeat_that_says_nothing_new_is_not_planned_for(late: float) -> None:
    grid = between_windows()
    grid.refresh("a", 4 + late, windows=[(9 + late, 100), (119 + late, 100)])
    assert grid.looks() == 0
    grid.refresh("away", 0, windows=[(5, 60)])
    assert grid.looks() == 1
    grid.wait(1)
    grid.refresh("away", 0, windows=[(4 + late, 60)])
    assert grid.looks() == 0


def test_tasks_that_end_as_predicted_are_not_planned_for() -> None:
    grid = Planned()
    grid.pc("a", 100)
    grid.tasks(20, 30, 10)
    assert grid.looks() == 1
    assert sorted(grid.run_all("a", 3)) == [10, 20, 30]
    assert grid.looks() == 0


def test_one_task_is_not_planned_for_where_a_slot_without_an_end_is_free() -> None:
    grid = Planned()
    grid.pc("a", 100)
    grid.pc("b", inf)
    grid.tasks(200)
    assert grid.looks() == 0
    assert grid.running("b") == 0
    grid.tasks(20)
    assert grid.looks() == 1, "the slot that is free now ends"


def test_after_a_look_nothing_is_planned_for_ten_times_as_long_as_it_took() -> None:
    grid = between_windows()
    pause = PAUSE * (1 * INTERVAL_COST_S + 3 * TASK_COST_S + 2 * SLOT_COST_S + 2 * WINDOW_COST_S)
    grid.tasks(25)
    assert grid.looks() == 1
    grid.wait(0.9 * pause)
    grid.tasks(25)
    assert grid.looks() == 0
    grid.wait(0.2 * pause)
    assert grid.looks() == 1, "what happened in the pause is planned for after it"


def test_a_burst_of_submissions_is_not_planned_for_one_by_one() -> None:
    grid = between_windows()
    grid.planner.asked.clear()
    # Not through the grid, which checks everything after each event.
    handle = grid.scheduler.handle
    for number in range(1000):
        handle(ev.TasksSubmitted(1, 2 + number, 1, [25.0]), grid.now + number / 1000)
        handle(ev.PassDue(), grid.now + number / 1000)
    assert 3 <= len(grid.planner.asked) <= 40


# --- what it knows ---------------------------------------------------------------------------------------------------


def test_it_knows_every_slot_and_when_that_is_free() -> None:
    grid = Planned()
    grid.pc("a", 100, slots=2)
    grid.pc("b")
    grid.tasks(7)
    grid.tell_pass()
    grid.wait(3)
    slots = list(grid.view.open_slots())
    # The scheduler's clock is that of its last event.
    grid.tell(ev.HoldExpired())
    busy = [slot for slot in grid.view.open_slots() if slot.free == 7]
    assert len(busy) == 1
    assert [slot[:2] for slot in slots] == [("a", 0), ("a", 1), ("b", 0)]
    assert {slot.closes for slot in slots} == {100, float("inf")}
    idle = next(slot for slot in grid.view.open_slots() if slot not in busy)
    assert idle.free == 3
    grid.wait(20)
    grid.tell(ev.HoldExpired())
    assert {slot.free for slot in grid.view.open_slots()} == {23}, "what is overdue is taken to end now"


def test_a_slot_is_free_when_what_is_queued_is_done() -> None:
    grid = Planned(queue_s=10.0)
    grid.pc("a", 100)
    grid.tasks(4, 4)
    grid.tell_pass()
    assert grid.view.open_slot(0) == OpenSlot("a", 0, 8, 100, 0)


def test_a_worker_that_is_away_has_the_slots_it_had_and_one_never_seen_has_one() -> None:
    grid = Planned()
    grid.pc("a", 10, slots=3, windows=[(20, 5)])
    grid.pc("b", 10)
    grid.leave("a", planned=False)
    grid.tell(ev.UptimeRefreshed("c", 0, [(30, 5)]))
    assert list(grid.view.upcoming()) == [
        UpcomingWindows("b", 1, Windows()),
        UpcomingWindows("a", 3, Windows([PlannedWindow(20, 25)])),
        UpcomingWindows("c", 1, Windows([PlannedWindow(30, 35)])),
    ]
    grid.refresh("a", 0, windows=[(21, 5)])
    assert next(come for come in grid.view.upcoming() if come.worker == "a").slots == 3
    grid.tasks(20)
    grid.tell_pass()
    ((known, _),) = grid.planner.asked
    assert [(come.worker, come.slots) for come in known.announced] == [("b", 1), ("a", 3), ("c", 1)]


def test_a_worker_in_quarantine_is_not_planned_with() -> None:
    grid = Planned()
    grid.pc("a", 10)
    grid.pc("b", 10)
    grid.inside.quarantine.workers["a"] = None  # type: ignore[assignment]  # who is there is asked, not for how long
    assert [slot.worker for slot in grid.view.open_slots()] == ["b"]


def test_a_margin_is_kept_free_in_each_window() -> None:
    grid = Planned(margin=2)
    grid.pc("a", 10, windows=[(20, 8)])
    grid.tasks(9)
    grid.expect()
    ((known, runtimes),) = grid.planner.asked
    assert known.current == {("a", 0): Interval(0, 8 - SLACK_S, ("a", 0))}
    assert grid.packing.requirement.ample == AMPLE * (8 - SLACK_S)
    assert runtimes == []
    seven, _ = grid.tasks(7, 8)
    grid.expect(a=[seven])


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 2])
def test_tasks_go_where_the_plan_has_them_on_workers_that_stay(slots: int) -> None:
    grid = Planned()
    for name in ("a", "b")[: 3 - slots]:
        grid.pc(name, slots=slots)
    grid.tasks(4, 4, 4, 6, 6)
    for _ in range(12):
        grid.looks()
        for slot in list(grid.inside.slots.slots.values()):
            if slot.sent and slot.due <= grid.now:
                grid.end(slot.sent[0].attempt.task)
        grid.looks()
        grid.wait(1)
    grid.looks()
    assert grid.now == 12
    for slot in grid.inside.slots.slots.values():
        grid.end(slot.sent[0].attempt.task)
    assert grid.scheduler.counters.done == 5


def test_a_short_window_keeps_its_tasks_for_the_best_fill_and_a_long_one_takes_the_rest() -> None:
    grid = Planned()
    grid.pc("short", 9.5)
    grid.pc("long", 21)
    grid.tasks(5, 4, 10, 10)
    grid.tell_pass()
    assert grid.inside.tasks.runtime(grid.running("short")) in (4, 5)
    assert sorted(grid.run_all("short", 2)) == [4, 5]


def test_a_window_that_opens_late_gets_what_was_planned_for_it() -> None:
    grid = between_windows()
    grid.leave("a")
    grid.wait(20)
    grid.packing._next_look = float("inf")
    grid.pc("a", 94.3)
    grid.tell_pass()
    assert grid.planner.asked == []
    assert sorted(grid.run_all("a", 2)) == [20, 30]
    assert not any(fill.runtimes for fill in chain.from_iterable(grid.packing._fills.values()))


@pytest.mark.parametrize("uptime", [21, 31, 45, 400])
def test_a_window_that_closes_when_it_was_not_to_is_filled_by_itself(uptime: float) -> None:
    grid = between_windows()
    grid.leave("a")
    grid.wait(20)
    grid.packing._next_look = float("inf")
    grid.pc("a", uptime)
    grid.tell_pass()
    longest = 30 if uptime > 30 else 20
    assert grid.inside.tasks.runtime(grid.running("a")) == longest


def test_a_task_that_fits_no_window_waits_and_does_not_spoil_the_plan_for_the_others() -> None:
    grid = Planned()
    grid.pc("a", 21, windows=[(30, 21)])
    grid.tasks(500, 10, 5, 21, 15)
    grid.tell_pass()
    ((_, runtimes),) = grid.planner.asked
    assert runtimes == [5, 10, 15]
    assert grid.planner.best is not None
    grid.run_all("a", 2)
    assert grid.priority()[:2] == [0, 3]


def test_predictions_that_change_are_planned_anew() -> None:
    grid = Planned()
    grid.pc("a", 25)
    grid.tasks(12, 8, 6, 2)
    assert grid.looks() == 1
    assert grid.inside.tasks.runtime(grid.running("a")) == 12
    grid.wait(1)
    grid.predict({1: 3, 2: 5})
    grid.wait(11)
    grid.end(0)
    grid.tell_pass()
    ((_, runtimes),) = grid.planner.asked
    assert runtimes == [2, 3, 5]
    assert grid.planner.best is not None
    assert sorted([grid.running("a"), *grid.priority()]) == [1, 2, 3]


def test_tasks_of_a_plan_that_are_gone_are_passed_over() -> None:
    grid = Planned()
    grid.pc("a", 100)
    grid.tasks(30, 20, 10)
    grid.tell_pass()
    grid.packing._next_look = float("inf")
    first = grid.running("a")
    gone = next(task for task in (0, 1, 2) if task != first)
    grid.cancel(gone)
    grid.run_all("a", 1)
    assert grid.running("a") == 3 - first - gone


@pytest.mark.parametrize(("closes", "planned"), [(9.3, False), (9.6, True), (10.4, True), (10.7, False)])
def test_what_is_planned_for_a_window_is_for_one_that_closes_at_about_that_time(closes: float, planned: bool) -> None:
    grid = Planned()
    grid.packing._next_look = float("inf")
    grid.pc("a", closes)
    short, long = grid.tasks(3, 9)
    grid.packing._fills = {("a", 0): deque([FilledInterval(Interval(0, 10, ("a", 0)), [3])])}
    grid.expect(a=[short if planned else long])


def test_what_was_planned_for_a_window_that_has_gone_does_not_hide_what_is_for_this_one() -> None:
    grid = Planned()
    grid.packing._next_look = float("inf")
    grid.pc("a", 20)
    _, planned, _ = grid.tasks(4, 3, 12)
    rooms = [Interval(0, 10, ("a", 0)), Interval(11, 20, ("a", 0))]
    grid.packing._fills = {("a", 0): deque([FilledInterval(rooms[0], [4]), FilledInterval(rooms[1], [3])])}
    grid.expect(a=[planned])


def test_a_planned_task_that_is_gone_is_not_replaced_by_a_shorter_one_of_another_window() -> None:
    grid = Planned()
    grid.packing._next_look = float("inf")
    grid.pc("a", 100)
    planned, _ = grid.tasks(10, 20)
    grid.packing._fills = {("a", 0): deque([FilledInterval(Interval(0, 100, ("a", 0)), [10, 30])])}
    grid.expect(a=[planned])


def test_a_task_exactly_as_long_as_the_longest_room_is_no_part_of_a_plan() -> None:
    grid = Planned()
    grid.pc("a", 21)
    grid.tasks(21 - SLACK_S, 10, 5)
    grid.tell_pass()
    ((_, runtimes),) = grid.planner.asked
    assert grid.packing.requirement.ample == AMPLE * (21 - SLACK_S)
    assert runtimes == [5, 10]


def test_of_several_windows_of_a_slot_the_plan_for_the_first_comes_first_whatever_their_length() -> None:
    grid = Planned()
    grid.pc("a", 20, windows=[(30, 12.5), (50, 20)])
    longest, *first = grid.tasks(12, 11, 8.5)
    grid.tell_pass()
    assert grid.planner.best is not None
    assert [fill.interval.start for fill in grid.planner.best.fills] == [30, 0], "the shortest is filled first"
    assert grid.running("a") in first
    assert longest in grid.priority()


def test_where_all_that_was_planned_is_gone_a_window_gets_the_longest_that_fits() -> None:
    grid = Planned()
    grid.packing._next_look = float("inf")
    grid.pc("a", 100)
    longest, _ = grid.tasks(20, 10)
    grid.packing._fills = {("a", 0): deque([FilledInterval(Interval(0, 100, ("a", 0)), [30, 40])])}
    grid.expect(a=[longest])


# --- what it says of its plan ----------------------------------------------------------------------------------------


def test_it_says_what_it_intends_and_no_more_what_was_placed() -> None:
    grid = between_windows()
    assert sorted(grid.packing.planned()) == [("a", 10.0, 50.0)]
    grid.pc("b", 40)
    grid.looks()
    assert sum(work.seconds for work in grid.packing.planned()) == 20.0


def test_without_a_plan_it_intends_nothing() -> None:
    assert list(Planned().packing.planned()) == []
