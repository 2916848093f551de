"""Turns in a plan for everybody's tasks: what a window gets when only some people have their turn."""

from collections.abc import Sequence
from math import inf

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.policies.planning.planner import FilledInterval, Interval, Plan
from deskgrid.scheduler.policies.planning.turn import LOOKED_AT, Turn, choose
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.queues.longest_first import LongestFirst
from deskgrid.scheduler.queues.shares import PLANNED_LEAD_S
from deskgrid.scheduler.queues.task_ranges import grouped
from tests.scheduler.builders import Grid, packing

ANN, BOB = CategoryKey("ann"), CategoryKey("bob")


def queue(*runtimes: float) -> LongestFirst:
    """The tasks of somebody, numbered from 0."""
    its = LongestFirst()
    its.add(grouped(list(range(len(runtimes))), list(runtimes)))
    return its


def window(slot: str, start: float, end: float, *runtimes: float) -> FilledInterval:
    return FilledInterval(Interval(start, end, (slot, 0)), list(runtimes))


def turn(
    *queues: LongestFirst, near: Sequence[LongestFirst] = (), others: Sequence[LongestFirst] = (), rare: float = inf
) -> Turn:
    return Turn(queues, near, others, rare)


def chosen(plan: Plan, whose: Turn, limit: float = inf) -> float | None:
    """The runtime of what is chosen for the first window of a plan, from the start of that window on."""
    entry = choose(plan, plan.fills[0], plan.fills[0].interval.start, limit, whose)
    return None if entry is None else entry.runtime


def planned(plan: Plan) -> list[list[float]]:
    return [sorted(fill.runtimes) for fill in plan.fills]


def test_who_has_used_least_comes_first_with_a_task_that_is_planned_for_the_window() -> None:
    plan = Plan(100.0, [window("a", 0, 100, 10, 20, 30, 40)])
    everybody = turn(queue(20, 10), queue(40, 30))
    assert chosen(plan, everybody) == 20
    assert planned(plan) == [[10, 30, 40]]
    assert chosen(plan, everybody, limit=10) is None
    assert chosen(plan, turn(queue(50), queue(40, 30))) == 40
    assert planned(plan) == [[10, 30]]


def test_whose_turn_it_is_gets_a_planned_task_before_others_even_if_it_is_shorter() -> None:
    plan = Plan(100.0, [window("a", 0, 100, 20, 40)])
    assert chosen(plan, turn(queue(20), near=[queue(40)])) == 20
    assert planned(plan) == [[40]]


@pytest.mark.parametrize(
    ("there_ends", "takes", "left"),
    [
        (100.0, 35, [[], [40]]),  # it is shorter, and the other window has room for the longer one
        (39.0, None, [[40], [35]]),  # it has not
    ],
)
def test_tasks_of_two_windows_change_places_if_both_fit(
    there_ends: float, takes: float | None, left: list[list[float]]
) -> None:
    plan = Plan(200.0, [window("a", 0, 42, 40), window("b", 0, there_ends, 35)])
    assert chosen(plan, turn(queue(35), others=[queue(40)])) == takes
    assert planned(plan) == left


def test_a_longer_task_takes_the_place_of_a_shorter_one_as_far_as_the_window_has_room() -> None:
    plan = Plan(200.0, [window("a", 0, 90, 30, 38), window("b", 100, 200, 45, 55, 65)])
    assert chosen(plan, turn(queue(65, 55, 45), near=[queue(38, 30)])) == 45
    assert planned(plan) == [[38], [30, 55, 65]]


def test_a_window_is_filled_no_longer_than_until_the_end_of_the_plan() -> None:
    plan = Plan(42.0, [window("a", 0, 90, 40), window("b", 0, 90, 30)])
    assert chosen(plan, turn(queue(30), others=[queue(40)])) == 30
    assert planned(plan) == [[], [40]]
    plan = Plan(40.0, [window("a", 0, 90, 40), window("b", 5, 90, 30)])
    assert chosen(plan, turn(queue(30), others=[queue(40)])) is None


def test_a_task_that_is_planned_nowhere_changes_no_places() -> None:
    plan = Plan(100.0, [window("a", 10, 90, 40), window("b", 0, 10, 35)])
    assert chosen(plan, turn(queue(35), others=[queue(40)])) is None, "that window is over"
    assert chosen(plan, turn(queue(36), others=[queue(40)])) is None
    assert chosen(plan, turn(queue(60), others=[queue(40)]), limit=50) is None
    assert planned(plan) == [[40], [35]]


def test_others_who_are_not_too_far_ahead_come_before_the_plan_is_spoiled() -> None:
    plan = Plan(100.0, [window("a", 0, 41, 40)])
    assert chosen(plan, turn(queue(35), near=[queue(40)])) == 40
    assert planned(plan) == [[]]


def test_a_task_that_fits_few_windows_keeps_the_one_that_is_planned_for_it() -> None:
    plan = Plan(100.0, [window("a", 0, 100, 30, 60)])
    assert chosen(plan, turn(queue(5), others=[queue(60, 30)], rare=60)) is None
    assert chosen(plan, turn(queue(5), others=[queue(60, 30)], rare=50)) == 60
    assert planned(plan) == [[30]]


def test_only_some_tasks_of_a_window_are_looked_at() -> None:
    plan = Plan(1e6, [window("a", 0, inf, 5, *([10.0] * LOOKED_AT))])
    assert chosen(plan, turn(queue(5))) is None
    plan = Plan(1e6, [window("a", 0, inf, 5, *([10.0] * (LOOKED_AT - 1)))])
    assert chosen(plan, turn(queue(5))) == 5


# --- in a grid -------------------------------------------------------------------------------------------------------


def contested(lead_s: float, served: bool = True) -> tuple[Grid, list[int], list[int]]:
    """A window of 100 s that holds exactly a task of Ann, who is ahead by so many seconds of each slot, and others
    that hold those of Bob. Both have a task on a PC if he is ``served``.
    """
    grid = Grid(packing(margin=0.0, queue_s=0.0, confidence=0.0))
    if served:
        grid.tasks(140, bag=3, key=ANN)
        grid.tasks(10, bag=4, key=BOB)
        grid.pc("c", uptime=11)
        grid.pc("d", uptime=150)
        assert len(grid.tell_pass()) == 2
        grid.wait(1.0)
    assert grid.tell(ev.UsageRestored({"ann": lead_s * 3 - 130.0 if served else lead_s})) == []
    anns, bobs = grid.tasks(99.0, bag=1, key=ANN), grid.tasks(60.0, 60.0, bag=2, key=BOB)
    grid.refresh("b", 0, windows=[(101, 61), (201, 61)])
    grid.pc("a", uptime=100, windows=[(300, 61), (400, 61)])
    return grid, anns, bobs


def test_a_plan_lets_others_go_first_until_they_are_three_minutes_of_the_grid_ahead() -> None:
    grid, anns, _ = contested(PLANNED_LEAD_S - 10.0)
    grid.expect(a=anns)
    grid, _, bobs = contested(PLANNED_LEAD_S + 10.0)
    grid.expect(a=bobs[:1])


def test_who_has_nothing_on_a_slot_waits_for_no_plan() -> None:
    grid, _, bobs = contested(PLANNED_LEAD_S - 10.0, served=False)
    grid.expect(a=bobs[:1])
