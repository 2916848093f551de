"""Packing without a plan, packing with wrong predictions, and its cost."""

from itertools import chain

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import AttemptOutcome
from deskgrid.scheduler.policies import Policy, make_policy
from deskgrid.scheduler.policies.packing import LONG_PAUSE, SLOT_COST_S, TASKS
from deskgrid.scheduler.policies.planning.planner import INTERVALS
from deskgrid.scheduler.prediction.prediction_error import ENOUGH
from tests.scheduler.builders import Grid, packing
from tests.scheduler.planned import Planned
from tests.scheduler.test_cost import cost

# --- one window by itself --------------------------------------------------------------------------------------------


def test_without_a_plan_a_window_gets_the_longest_that_fits_each_time() -> None:
    grid = Planned()
    grid.pc("a", 10.6)
    grid.tasks(5, 5, 4.5, 3, 2.4)
    grid.tell_pass()
    assert grid.planner.best is None, "the tasks are too many for the window"
    assert grid.run_all("a", 2) == [5, 5]


def test_of_very_many_tasks_no_plan_is_made_but_slots_are_used() -> None:
    grid = Planned()
    grid.pc("a", 10.6)
    grid.tasks(*[5.0] * (TASKS - 2), 3, 2.4)
    grid.tell_pass()
    assert [len(runtimes) for _, runtimes in grid.planner.asked] == [TASKS]
    grid = Planned()
    grid.pc("a", 10.6)
    grid.tasks(*[5.0] * (TASKS - 1), 3, 2.4)
    grid.tell_pass()
    assert [runtimes for _, runtimes in grid.planner.asked] == [[]]
    assert grid.run_all("a", 2) == [5, 5]


def test_for_very_many_categories_no_plan_is_made_but_slots_are_used() -> None:
    for slots, planned in ((INTERVALS, 2), (INTERVALS + 1, 0)):
        grid = Planned()
        grid.pc("a", 10, slots=slots)
        grid.tasks(5, 4)
        handed = grid.tell_pass()
        assert sorted(chain.from_iterable(handed.values())) == [0, 1]
        assert [len(runtimes) for _, runtimes in grid.planner.asked] == [planned]


def test_where_no_plan_can_be_made_windows_are_seldom_looked_at() -> None:
    grid = Planned()
    grid.pc("a", 10_000, slots=INTERVALS + 1)
    grid.tasks(5, 4)
    assert grid.looks() == 1
    pause = LONG_PAUSE * SLOT_COST_S * (INTERVALS + 1 + 1)  # the slots, and the PC
    for wait, looks in ((0.9 * pause, 0), (0.2 * pause, 1)):
        grid.wait(wait)
        grid.tasks(5)
        assert grid.looks() == looks


@pytest.mark.parametrize("policy", [packing(), make_policy("longest", margin=0)])
def test_a_cancelled_task_that_would_have_fitted_does_not_hold_up_the_pass(policy: Policy) -> None:
    grid = Grid(policy)
    grid.pc("a", 20)
    running, long, short = grid.tasks(9, 8.5, 3)
    grid.expect(a=[running])
    (too_long,) = grid.tasks(50)
    grid.cancel(short, long)
    grid.wait(9)
    grid.end(running)
    grid.expect()
    assert grid.priority() == [too_long]


def test_a_cancelled_task_that_had_a_chance_does_not_hold_up_the_pass() -> None:
    grid = Planned(confidence=0.9)
    grid.experience(*[1.0] * 12, *[3.0] * 8)
    grid.pc("a", 10, windows=[(20, 100)])
    running, chance, too_long = grid.tasks(2, 5, 50)
    grid.expect(a=[running])
    grid.cancel(chance)
    grid.wait(2)
    grid.end(running, elapsed=2)
    grid.expect()
    assert grid.priority() == [too_long]


# --- queues ----------------------------------------------------------------------------------------------------------


def test_short_tasks_are_queued_behind_others_up_to_some_seconds() -> None:
    grid = Planned(queue_s=1.0)
    grid.pc("a", 100)
    tasks = grid.tasks(*[0.3] * 8, 5)
    handed = grid.tell_pass()
    held = [*handed["a"], *grid.queues().get("a", [])]
    assert held == [tasks[0], *tasks[1:4]] or held == [8]
    grid.end(8)
    handed = grid.tell_pass()
    assert len(handed["a"]) + len(grid.queues().get("a", [])) == 4


def test_tasks_of_some_seconds_are_not_queued() -> None:
    grid = Planned(queue_s=1.0)
    grid.pc("a", 100)
    grid.tasks(1.0, 1.0, 1.0)
    assert len(grid.tell_pass()["a"]) == 1
    assert grid.queues() == {}


# --- when predictions are wrong --------------------------------------------------------------------------------------


def test_badly_predicted_tasks_are_given_more_of_a_window() -> None:
    grid = Planned(confidence=0.9)
    grid.experience(*[3.0] * ENOUGH)
    grid.pc("a", 10, windows=[(20, 100)])
    four, three = grid.tasks(4, 3)
    grid.expect(a=[three])
    assert grid.packing.requirement.stretch == 3.0
    assert grid.packing.requirement.needs(3) == 9
    assert grid.priority() == [four]


def test_well_predicted_and_overestimated_tasks_are_not_stretched() -> None:
    for ratio in (1.0, 0.5):
        grid = Planned(confidence=0.9)
        grid.experience(*[ratio] * ENOUGH)
        grid.pc("a", 10, windows=[(20, 100)])
        (task,) = grid.tasks(9)
        grid.expect(a=[task])


def test_predictions_are_trusted_without_confidence() -> None:
    grid = Planned()
    grid.experience(*[3.0] * ENOUGH)
    grid.pc("a", 10, windows=[(20, 100)])
    (task,) = grid.tasks(9)
    grid.expect(a=[task])
    assert grid.packing.requirement.stretch == 1.0


def test_what_would_fit_in_no_window_may_have_nearly_all_of_the_longest() -> None:
    grid = Planned(confidence=0.9)
    grid.experience(*[3.0] * ENOUGH)
    grid.pc("short", 9)
    grid.pc("long", 10)
    grid.tasks(9.2)
    (task,) = grid.tasks(9.4)
    grid.expect(long=[task])
    assert grid.packing.requirement.ample == pytest.approx(9.5, abs=0.001)


def test_a_slot_for_which_nothing_is_certain_takes_what_fits_if_its_prediction_is_right() -> None:
    grid = Planned(confidence=0.9)
    grid.experience(*[3.0] * 20)
    grid.pc("a", 10, windows=[(20, 100)])
    (task,) = grid.tasks(9)
    grid.expect(a=[task])


def test_that_others_were_overestimated_makes_nothing_fit() -> None:
    grid = Planned(confidence=0.9)
    grid.experience(*[0.1] * 20)
    grid.pc("a", 10, windows=[(20, 100)])
    grid.tasks(11)
    grid.expect()


def test_attempts_that_took_no_time_at_all_do_not_stop_it() -> None:
    grid = Planned(confidence=0.9)
    grid.experience(*[0.0] * (2 * ENOUGH))
    grid.pc("a", 10)
    (task,) = grid.tasks(9)
    grid.expect(a=[task])


# --- what it costs ---------------------------------------------------------------------------------------------------


def crowd(waiting: int, slots: int, windows: int) -> Scheduler:
    """Workers that announce windows, and tasks too long for the open ones: every pass is asked for something."""
    scheduler = Scheduler(packing(queue_s=1.0, confidence=0.9))
    ahead = [(100.0 * number, 50.0) for number in range(1, windows + 1)]
    for number in range(slots):
        scheduler.handle(ev.WorkerJoined(f"pc{number}", 1, 30.0 + number / 1000, ahead), 0.0)
    scheduler.handle(ev.TasksSubmitted(0, 0, waiting, [40.0]), 0.0)
    scheduler.handle(ev.PassDue(), 0.0)
    return scheduler


def submit(scheduler: Scheduler, count: int, now: float) -> None:
    """One by one, a millisecond between them, each with its pass."""
    for number in range(count):
        scheduler.handle(ev.TasksSubmitted(1, scheduler.counters.submitted, 1, [40.0]), now + number / 1000)
        scheduler.handle(ev.PassDue(), now + number / 1000)


@pytest.mark.parametrize(("waiting", "slots", "windows"), [(10_000, 10, 64), (100_000, 10, 64), (10_000, 1000, 64)])
def test_a_pass_stays_cheap_where_there_is_too_much_to_plan(waiting: int, slots: int, windows: int) -> None:
    scheduler = crowd(waiting, slots, windows)
    first = cost(scheduler, lambda: submit(scheduler, 1, 1.0))
    more = cost(scheduler, lambda: submit(scheduler, 100, 1.001))
    print(f"\n{waiting} tasks, {slots} slots of {windows} windows: {first} calls, and {more} for 100 more submissions")
    assert first < 100_000
    assert more < 40_000, "windows were looked through again in the pause"


@pytest.mark.parametrize("waiting", [1_000, 100_000])
def test_filling_windows_by_themselves_does_not_depend_on_how_many_tasks_wait(waiting: int) -> None:
    scheduler = Scheduler(packing())
    for number in range(10):
        scheduler.handle(ev.WorkerJoined(f"pc{number}", 1, 10.6), 0.0)
    scheduler.handle(ev.TasksSubmitted(0, 0, waiting, [3 + number / 1e5 for number in range(waiting)]), 0.0)
    scheduler.handle(ev.PassDue(), 0.0)
    slot = scheduler.grid.slots.slots[0]
    ended = ev.EndedAttempt(slot.sent[0].attempt, AttemptOutcome.DONE, slot.sent[0].runtime)
    scheduler.handle(ev.AttemptsEnded("pc0", [ended]), slot.due)
    assert cost(scheduler, lambda: scheduler.handle(ev.PassDue(), scheduler.now)) < 2_000
    assert slot.sent
