"""Whose fault it is that work fails: a PC on which a bag fails gets no more of it, if the bag works elsewhere."""

import math
from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers import separating
from deskgrid.scheduler.handlers.separating import OWN_CATEGORIES
from deskgrid.scheduler.model import AttemptOutcome, InvariantBroken, State
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.policies import Policy, make_policy
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.avoided import FIRST_REST_S, LONGEST_REST_S, Avoided, Person, Why
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.failures import BAG_WORKERS, STREAK, Failures, _FailureRecord
from deskgrid.scheduler.state.timers import Timers
from deskgrid.scheduler.views.explain import explain
from tests.scheduler.builders import Grid, a_category, fcfs, packing, pgs, went_off
from tests.scheduler.test_views import made

ANN, BOB = CategoryKey("ann"), CategoryKey("bob")


def rests(grid: Grid, bag: int = 0) -> dict[str, float]:
    """The workers that get nothing of a bag, and for how long."""
    return {name: rest.until - grid.now for name, _, rest in grid.scheduler.resting_from(bag)}


def fail(grid: Grid, task: int, outcome: AttemptOutcome = AttemptOutcome.ERROR) -> list[int]:
    """A task fails where it runs; which tasks have ended by that."""
    return grid.end(task, outcome=outcome, worker=grid.inside.bound[task].slot.worker.name)


def beside(tasks: int, retries: int = 0, policy: Policy | None = None, **more: Any) -> tuple[Grid, list[int]]:
    """A bag of so many tasks of 10 s, one of which has been done on a good PC; a bad one is idle, the good one busy."""
    grid = Grid(policy or fcfs())
    grid.pc("good")
    all_tasks = grid.tasks(*[10.0] * (tasks + 2), retries=retries, **more)
    (first,) = grid.tell_pass()["good"]
    grid.end(first, worker="good")
    (second,) = grid.tell_pass()["good"]
    grid.pc("bad")
    return grid, [task for task in all_tasks if task not in (first, second)]


# --- tasks are tried elsewhere ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("outcome", [AttemptOutcome.ERROR, AttemptOutcome.TIMEOUT])
@pytest.mark.parametrize("policy", [fcfs(), pgs(0), packing(), make_policy("longest")])
def test_a_task_that_fails_is_tried_next_on_another_pc(policy: Policy, outcome: AttemptOutcome, retries: int) -> None:
    grid, tasks = beside(1, retries, policy)
    (task,) = grid.tell_pass()["bad"]
    assert task in tasks
    assert fail(grid, task, outcome) == []
    grid.expect()
    assert grid.state(task) == State.PAUSED
    assert made(explain(grid.inside, task, grid.now)).elsewhere == ("bad",)
    grid.end(grid.running("good"), worker="good")
    grid.expect(good=[task])
    assert grid.end(task, worker="good") == [task]


def test_it_comes_before_the_others_of_its_bag() -> None:
    grid, _ = beside(5)
    (task,) = grid.tell_pass()["bad"]
    fail(grid, task)
    grid.tell_pass()
    grid.end(grid.running("good"), worker="good")
    grid.expect(good=[task])


def test_a_task_that_fails_there_too_fails() -> None:
    grid, _ = beside(1)
    (task,) = grid.tell_pass()["bad"]
    fail(grid, task)
    grid.end(grid.running("good"), worker="good")
    grid.expect(good=[task])
    grid.pc("third")
    assert fail(grid, task) == [task], "the bag works on the good one, so the task is to blame"
    assert grid.state(task) == State.FAILED


def test_two_bad_pcs_do_not_pass_a_task_from_one_to_the_other_until_it_fails() -> None:
    grid, _ = beside(1)
    grid.pc("worse")
    ((first, (task,)),) = grid.tell_pass().items()
    fail(grid, task)
    ((second, _),) = grid.tell_pass().items()
    assert {first, second} == {"bad", "worse"}
    assert fail(grid, task) == [], "nobody knows whether the bag works there"
    grid.expect()
    grid.end(grid.running("good"), worker="good")
    grid.expect(good=[task])
    assert fail(grid, task) == [task]


def test_on_a_single_pc_tasks_fail_as_ever() -> None:
    grid = Grid()
    grid.pc("only")
    tasks = grid.tasks(10.0, 10.0, 10.0, 10.0)
    for task in tasks:
        grid.expect(only=[task])
        assert fail(grid, task) == [task]
    assert rests(grid) == {}


def test_a_single_task_fails_at_once() -> None:
    grid = Grid()
    grid.pc("a")
    grid.pc("b")
    (task,) = grid.tasks(10.0)
    grid.tell_pass()
    assert fail(grid, task) == [task]


def test_in_a_bag_that_fails_everywhere_no_pc_is_put_aside_and_few_tasks_are_tried_again() -> None:
    grid = Grid(fcfs())
    for name in ("a", "b", "c", "d"):
        grid.pc(name)
    grid.tasks(*[10.0] * 40)
    while handed := grid.tell_pass():
        for (task,) in handed.values():
            fail(grid, task)
            assert rests(grid) == {}
    counters = grid.scheduler.counters
    assert grid.inside.tasks.bags[0].failed == 40
    assert 40 <= counters.attempts < 40 + 2 * BAG_WORKERS
    assert rests(grid) == {}


def test_a_task_goes_anywhere_when_no_other_pc_is_left() -> None:
    grid, _ = beside(1, retries=3)
    (task,) = grid.tell_pass()["bad"]
    fail(grid, task)
    grid.leave("good")
    grid.cancel(*[each for each in range(3) if each != task])
    grid.expect()
    grid.wait(FIRST_REST_S)
    grid.expect(bad=[task])


def test_a_task_does_not_wait_for_a_pc_that_does_not_stay_long_enough_for_ever() -> None:
    grid = Grid(pgs(0))
    grid.pc("short", uptime=2000.0)
    grid.pc("long")
    (busy,) = grid.tasks(1900.0, bag=1)
    grid.expect(short=[busy])
    (task,) = grid.tasks(1000.0, retries=1)
    grid.expect(long=[task])
    grid.wait(10.0)
    fail(grid, task)
    waited = 0.0
    while not (handed := grid.tell_pass()):
        grid.wait(FIRST_REST_S)
        grid.say_alive()
        waited += FIRST_REST_S
    assert handed == {"long": [task]}
    assert waited == pytest.approx(LONGEST_REST_S, abs=2 * FIRST_REST_S)


def test_a_task_that_waits_for_another_pc_can_be_paused_with_its_bag_and_cancelled() -> None:
    for what in ("cancel", "pause", "predict"):
        grid, _ = beside(1)
        (task,) = grid.tell_pass()["bad"]
        fail(grid, task)
        if what == "cancel":
            grid.cancel(task)
            assert grid.state(task) == State.CANCELLED
        elif what == "pause":
            grid.tell(ev.BagGated(0, True))
            grid.tell(ev.TasksRouted([(0, 3)]))
            grid.end(grid.running("good"), worker="good")
            grid.expect()
            grid.wait(FIRST_REST_S)
            grid.expect()
            assert grid.state(task) == State.BARRED
        else:
            grid.predict({task: 3.0})
            grid.end(grid.running("good"), worker="good")
            grid.expect(good=[task])


def test_after_the_pause_of_a_task_that_fails_again_and_again_it_is_tried_elsewhere_too() -> None:
    grid = Grid()
    grid.pc("bad")
    (task,) = grid.tasks(10.0, retries=9)
    for _ in range(4):
        grid.expect(bad=[task])
        fail(grid, task)
    grid.pc("good")
    (busy,) = grid.tasks(5.0, bag=1)
    grid.expect(bad=[busy])
    grid.end(busy, worker="bad")
    grid.wait(1.0)
    grid.expect(good=[task])


def test_checkpointable_tasks_have_one_more_try_too_wherever_that_is() -> None:
    grid, tasks = beside(1, policy=pgs(0), min_piece=1.0)
    assert tasks
    (task,) = grid.tell_pass()["bad"]
    assert fail(grid, task) == []
    assert grid.state(task) == State.WAITING


# --- a bag rests from a PC -------------------------------------------------------------------------------------------


def three_fail(grid: Grid, outcome: AttemptOutcome = AttemptOutcome.ERROR) -> None:
    """Three tasks fail on the bad PC."""
    for _ in range(STREAK):
        assert rests(grid) == {}
        (task,) = grid.tell_pass()["bad"]
        assert fail(grid, task, outcome) == []


@pytest.mark.parametrize("outcome", [AttemptOutcome.ERROR, AttemptOutcome.CRASH, AttemptOutcome.TIMEOUT])
def test_after_three_in_a_row_a_pc_gets_nothing_of_a_bag_for_longer_and_longer(outcome: AttemptOutcome) -> None:
    grid, _ = beside(30)
    three_fail(grid, outcome)
    rest = FIRST_REST_S
    while rest < LONGEST_REST_S:  # it is another one each time
        assert rests(grid) == {"bad": pytest.approx(rest)}
        assert grid.scheduler.wakes_at <= grid.now + rest
        grid.wait(rest - 0.1)
        assert "bad" not in grid.tell_pass()
        grid.wait(0.2)
        (task,) = grid.tell_pass()["bad"]
        fail(grid, task, outcome)
        rest = min(2 * rest, LONGEST_REST_S)
    assert grid.inside.quarantine.workers == {}
    grid.end(grid.running("good"), worker="good")
    assert "good" in grid.tell_pass()


def test_other_bags_of_the_same_person_go_on_there_and_those_of_others() -> None:
    grid, _ = beside(30, key=ANN)
    three_fail(grid)
    for bag, key in ((1, ANN), (2, BOB)):
        (task,) = grid.tasks(10.0, bag=bag, key=key)
        grid.expect(bad=[task])
        grid.end(task, worker="bad")
    assert set(rests(grid)) == {"bad"}


def test_a_task_that_is_done_there_ends_the_rest() -> None:
    grid = Grid(pgs(0))
    grid.pc("good")
    grid.pc("bad", slots=2)
    (long,) = grid.tasks(50.0)
    grid.expect(good=[long])
    (other,) = grid.tasks(40.0)
    grid.expect(bad=[other])
    grid.tasks(*[10.0] * 6)
    for _ in range(STREAK):
        (task,) = grid.tell_pass()["bad_1"]
        assert fail(grid, task) == []
    assert set(rests(grid)) == {"bad"}
    grid.expect()
    grid.end(other, worker="bad")
    assert rests(grid) == {}
    assert len(grid.tell_pass()) == 2


def test_a_pc_is_not_to_blame_for_tasks_that_fail_on_good_ones_too() -> None:
    grid, _ = beside(30)
    three_fail(grid)
    assert set(rests(grid)) == {"bad"}
    grid.tell_pass()
    grid.end(grid.running("good"), worker="good")
    (task,) = grid.tell_pass()["good"]
    assert fail(grid, task) == [task]
    assert rests(grid) == {}
    assert "bad" in grid.tell_pass()


def test_a_rest_ends_when_the_bag_turns_out_to_fail_everywhere() -> None:
    grid = Grid(fcfs())
    grid.pc("good")
    grid.tasks(*[10.0] * 30)
    grid.tell_pass()
    grid.pc("bad")
    three_fail(grid)
    assert set(rests(grid)) == {"bad"}
    grid.tell_pass()
    fail(grid, grid.running("good"))
    assert rests(grid) == {}


def test_no_pc_rests_from_a_bag_that_no_other_pc_could_do() -> None:
    grid = Grid(fcfs())
    grid.pc("only", labels=frozenset({"gpu"}))
    grid.pc("other")
    tasks = grid.tasks(*[10.0] * 9, need=Need(labels=frozenset({"gpu"})))
    for task in tasks:
        grid.expect(only=[task])
        assert fail(grid, task) == [task]
    assert rests(grid) == {}


def test_a_pc_that_is_left_alone_gets_its_work_back() -> None:
    grid, _ = beside(30)
    three_fail(grid)
    assert rests(grid)
    grid.leave("good")
    assert rests(grid) == {}
    assert "bad" in grid.tell_pass()


def test_work_that_waits_there_goes_to_others() -> None:
    grid, _ = beside(30, policy=pgs(3))
    for _ in range(STREAK):
        assert grid.tell_pass()["bad"] == [grid.running("bad")]
        assert "bad" in grid.queues()
        fail(grid, grid.running("bad"))
    assert "bad" not in grid.queues()
    assert "bad" not in grid.tell_pass()


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> int:
    """So few tasks move in one step."""
    monkeypatch.setattr(separating, "SLICE_TASKS", 4)
    return 4


def test_a_bag_of_many_tasks_moves_a_part_at_a_time_and_others_are_served_meanwhile(slices: int) -> None:
    grid = Grid(pgs(0))
    grid.pc("good")
    count = 3 * slices
    grid.tasks(*[10.0] * (count + 2), key=ANN, probes=[1])
    grid.tell_pass()
    grid.end(grid.running("good"), worker="good")
    grid.tell_pass()
    grid.pc("bad")
    three_fail(grid)
    assert grid.inside.moving
    (other,) = grid.tasks(1.0, bag=1, key=BOB)
    passes = 0
    while grid.inside.moving:
        handed = grid.tell_pass(most=1)
        assert handed in ({}, {"bad": [other]})
        assert grid.scheduler.unfinished == bool(grid.inside.moving)
        passes += 1
    assert passes > 3
    assert {key.bag for key in grid.inside.categories.by_key if key.owner == "ann"} == {0}
    grid.end(grid.running("good"), worker="good")
    assert len(grid.tell_pass()["good"]) == 1


@pytest.mark.parametrize("how", ["pause", "cancel"])
def test_a_bag_that_moves_can_be_paused_and_cancelled(how: str, slices: int) -> None:
    for steps in range(7):
        grid = Grid(pgs(0))
        grid.pc("good")
        count = 2 * slices
        tasks = grid.tasks(*[10.0] * count)
        grid.tell_pass()
        grid.end(grid.running("good"), worker="good")
        grid.tell_pass()
        grid.pc("bad")
        three_fail(grid)
        for _ in range(steps):
            grid.tell_pass(most=1)
        if how == "pause":
            grid.tell(ev.BagGated(0, True))
            grid.tell(ev.TasksRouted([(tasks[0], count)]))
            while grid.inside.moving:
                grid.tell_pass(most=1)
            grid.end(grid.running("good"), worker="good")
            grid.expect()
            grid.tell(ev.BagGated(0, False))
            grid.tell(ev.TasksRouted([(tasks[0], count)]))
            assert "good" in grid.tell_pass()
        else:
            grid.cancel(*tasks)
            grid.tell(ev.BagForgotten(0))
            while grid.inside.moving:
                grid.tell_pass(most=1)
            assert not grid.inside.categories.by_key
            assert not grid.inside.avoided


def test_nobody_gets_more_categories_than_a_pass_can_look_at() -> None:
    grid = Grid(fcfs())
    grid.pc("good", slots=OWN_CATEGORIES + 2)
    for bag in range(OWN_CATEGORIES + 1):
        grid.tasks(*[10.0] * 6, bag=bag, key=ANN)
    grid.tell_pass()
    grid.pc("bad")
    for bag in range(OWN_CATEGORIES + 1):
        its = grid.inside.tasks.bags[bag]
        for task in range(6 * bag, 6 * bag + STREAK):
            grid.inside.failures.note(its, task, "bad", ())
        assert grid.scheduler._placing.separating.begin(its) == (bag < OWN_CATEGORIES)
    grid.tell_pass()
    assert len(grid.inside.categories.by_key) == OWN_CATEGORIES + 1


# --- what does not start ---------------------------------------------------------------------------------------------


def with_environment(*names: str) -> Grid:
    grid = Grid(fcfs())
    for name in names:
        grid.pc(name)
        grid.tell(ev.EnvironmentsReady(name, frozenset({"env"})))
    return grid


IN_ENV = CategoryKey("ann", environment="env")


def test_that_no_process_starts_counts_against_no_task_and_keeps_one_persons_work_from_the_pc() -> None:
    grid = Grid(fcfs())
    grid.pc("pc")
    (task,) = grid.tasks(10.0, key=ANN)
    for rest in (FIRST_REST_S, 2 * FIRST_REST_S):
        grid.expect(pc=[task])
        assert grid.end(task, outcome=AttemptOutcome.NO_START, worker="pc") == []
        kind, found = grid.scheduler.resting("pc") or (None, None)
        assert found
        assert (kind, found.why, found.lasts) == (Person("ann", ""), Why.NO_START, rest)
        (other,) = grid.tasks(10.0, bag=1, key=BOB)
        grid.expect(pc=[other])
        grid.end(other, worker="pc")
        grid.wait(rest)
    counters = grid.scheduler.counters
    assert (counters.no_start, counters.crashes, counters.errors, grid.state(task)) == (2, 0, 0, State.WAITING)


def test_a_pc_on_which_nothing_starts_for_two_people_is_put_in_quarantine() -> None:
    grid = Grid(fcfs())
    grid.pc("good")
    (busy,) = grid.tasks(1e5)
    grid.expect(good=[busy])
    grid.pc("bad", slots=3)
    tasks = [*grid.tasks(10.0, bag=1, key=ANN), *grid.tasks(10.0, 10.0, bag=2, key=BOB)]
    grid.tell_pass()
    for task in tasks:
        assert grid.inside.quarantine.workers == {}
        grid.end(task, outcome=AttemptOutcome.NO_START, worker="bad")
    assert set(grid.inside.quarantine.workers) == {"bad"}


def holds(grid: Grid, task: int, outcome: AttemptOutcome = AttemptOutcome.NO_START) -> list[cmd.Hold]:
    """What is to be held when a task ends so."""
    name = grid.inside.bound[task].slot.worker.name
    ended = [ev.EndedAttempt(grid.attempts[task], outcome, 0.0)]
    return [each for each in grid.tell(ev.AttemptsEnded(name, ended)) if isinstance(each, cmd.Hold)]


def test_bags_of_an_environment_that_starts_on_no_pc_are_to_be_held() -> None:
    grid = with_environment("a", "b", "c")
    first, second, _ = grid.tasks(10.0, 10.0, 10.0, key=IN_ENV)
    grid.tell_pass()
    assert holds(grid, first) == []
    (held,) = holds(grid, second)
    assert (held.environment, len(held.workers), held.silent) == ("env", 2, False)


def test_on_a_single_pc_it_has_to_fail_twice() -> None:
    grid = with_environment("a")
    (task,) = grid.tasks(10.0, key=IN_ENV)
    grid.expect(a=[task])
    assert holds(grid, task) == []
    grid.wait(FIRST_REST_S)
    grid.expect(a=[task])
    assert holds(grid, task) == [cmd.Hold("env", ["a"], False)]


def test_no_bag_is_held_whose_environment_starts_elsewhere() -> None:
    grid = with_environment("a", "b", "c")
    tasks = grid.tasks(*[10.0] * 9, key=IN_ENV)
    handed = grid.tell_pass()
    grid.end(*handed["c"], worker="c")
    for name in ("a", "b"):
        (task,) = handed[name]
        assert holds(grid, task) == []
    assert all(grid.state(task) != State.FAILED for task in tasks)
    assert set(grid.tell_pass()) == {"c"}


def test_an_environment_in_which_nobody_answers_is_held_too() -> None:
    grid = with_environment("a")
    grid.pc("a", slots=STREAK)
    grid.tell(ev.EnvironmentsReady("a", frozenset({"env"})))
    grid.tasks(*[1.0] * STREAK, key=IN_ENV, timeout=1.0)
    found: list[cmd.Hold] = []
    for _ in range(6):
        commands = grid.tell(ev.PassDue())
        found += [each for each in commands if isinstance(each, cmd.Hold)]
        given = [each for each in commands if isinstance(each, cmd.GiveUp)]
        for each in given:
            grid.tell(ev.AttemptsReturned("a", each.attempts))
        grid.wait(100.0)
        grid.say_alive()
    assert found
    assert found[0].silent


# --- what is known ---------------------------------------------------------------------------------------------------


def test_of_a_pc_only_failures_in_a_row_count_and_only_the_last() -> None:
    failures, bag = Failures(), ScheduledBag(1, a_category())
    assert failures.in_a_row(1, "a") == 0
    assert not failures.everywhere(bag, 9)
    for task in range(STREAK + 2):
        assert failures.note(bag, task, "a", ()) == []
    assert failures.in_a_row(1, "a") == STREAK
    failures.worked(1, "a")
    failures.worked(2, "a")
    assert failures.in_a_row(1, "a") == 0
    assert not failures.works_beside(1, "a")
    failures.worked(1, "b")
    assert failures.works_beside(1, "a")
    assert failures.note(bag, 7, "a", ()) == []
    assert failures.note(bag, 7, "b", {"a"}) == ["a"]
    assert failures.is_to_blame(1, {"a", "b"})
    for task in (8, 9):
        failures.note(bag, task, "a", ())
    assert failures.note(bag, 8, "b", {"a"}) == ["a"]
    assert failures.in_a_row(1, "a") == 1
    failures.check([1])
    failures.forget(1)
    failures.check([])


def test_a_bag_that_fails_everywhere_is_to_blame_until_a_task_of_it_is_done() -> None:
    failures, bag = Failures(), ScheduledBag(1, a_category())
    for number in range(BAG_WORKERS + 1):
        assert failures.everywhere(bag, 9) == (number >= BAG_WORKERS)
        failures.note(bag, number, f"pc{number}", ())
    bag.done += 1
    assert not failures.everywhere(bag, 9)
    failures.note(bag, 9, "pc0", ())
    assert not failures.everywhere(bag, 2)
    failures.note(bag, 9, "pc1", ())
    assert failures.everywhere(bag, 2)
    assert failures.everywhere(bag, 1)


def test_a_rest_that_nobody_is_to_blame_for_is_lifted_but_not_one_for_want_of_room() -> None:
    avoided = Avoided(timers := Timers())
    assert avoided.avoid(ANN, "a", Why.NO_ROOM, 0.0)
    assert avoided.avoid(BOB, "a", Why.FAILS, 0.0)
    assert not avoided.lift(ANN, "a")
    assert not avoided.lift(ANN, "b")
    assert avoided.lift(BOB, "a")
    assert not avoided.is_scarce(BOB)
    assert avoided.avoid(BOB, "a", Why.FAILS, 1.0)
    assert went_off(avoided, timers, 1.0 + FIRST_REST_S)
    assert not avoided.lift(BOB, "a"), "it is over"
    assert not avoided.works([BOB], "b", done=True)
    assert avoided.rests_of("b") == {}
    assert list(avoided.rests_of("a")) == [ANN]
    assert list(avoided.resting_from({BOB})) == []
    avoided.check([], {})


@pytest.mark.parametrize(
    ("what", "breaks"),
    [
        ("failures in a row of bag 0", lambda grid: grid.failures._bags[0].streaks.update(bad=[])),
        ("bags that failed on more", lambda grid: grid.failures._broken._bags.update({0: (0, set("wxyz"))})),
        ("that wait for another worker", lambda grid: next(iter(grid.categories.by_key.values())).elsewhere.clear()),
        ("bags that move", lambda grid: setattr(grid.tasks.bags[0], "moving", True)),
        ("workers that rest from nothing", lambda grid: grid.avoided._rests.update(bad={})),
    ],
)
def test_the_check_finds_what_contradicts_itself(what: str, breaks: Any) -> None:
    grid, _ = beside(3)
    (task,) = grid.tell_pass()["bad"]
    fail(grid, task)
    grid.scheduler.check(grid.now)
    breaks(grid.inside)
    if "wait for another" in what:
        grid.inside.categories.by_key[CategoryKey()].elsewhere[0] = math.inf
    with pytest.raises(InvariantBroken, match=what):
        grid.scheduler.check(grid.now)
    assert _FailureRecord(False).worked == set()
