"""Several people: categories and whose turn it is; pauses, limits and licences."""

import math
from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.answers import RESTART_S
from deskgrid.scheduler.model import Attempt, AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.placing.turns import CATEGORIES, LOOK_S
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.queues.shares import HALF_LIFE_S, LEAD_S, decayed
from deskgrid.scheduler.queues.task_ranges import spans_of
from deskgrid.scheduler.views.explain import Restraint, WaitingCounts, restraint, waiting_of
from tests.scheduler.builders import Grid, fcfs, packing, pgs
from tests.scheduler.test_views import made

ANN, BOB = CategoryKey("ann"), CategoryKey("bob")


def gate(grid: Grid, bag: int, barred: bool, tasks: list[int]) -> None:
    """Pause a bag, or let it go on."""
    assert grid.tell(ev.BagGated(bag, barred)) == []
    assert grid.tell(ev.TasksRouted(spans_of(tasks))) == []


def used(grid: Grid, **seconds: float) -> None:
    """What people have used before."""
    assert grid.tell(ev.UsageRestored(seconds)) == []


# --- turns -----------------------------------------------------------------------------------------------------------


def test_the_policy_chooses_freely_until_somebody_is_a_minute_of_the_grid_ahead() -> None:
    grid = Grid(packing())
    used(grid, ann=2 * LEAD_S - 1.0, bob=0.0)
    first = grid.tasks(50, 50, 50, bag=1, key=ANN)
    second = grid.tasks(10, 10, bag=2, key=BOB)
    grid.pc("a", slots=2)
    grid.expect(a=[first[0]], a_1=[second[0]])


def test_who_is_further_ahead_waits_until_nothing_of_the_others_fits() -> None:
    grid = Grid(packing())
    used(grid, ann=10_000.0)
    longer = grid.tasks(60, 50, bag=1, key=ANN)
    short = grid.tasks(10, bag=2, key=BOB)
    grid.pc("a", slots=2)
    grid.expect(a=short, a_1=longer[:1])


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", [pgs(0), fcfs(), packing()])
@pytest.mark.parametrize("before_s", [0.0, 1e6])
def test_who_has_nothing_on_a_slot_gets_the_next_free_one_beside_somebody_who_is_busy(
    policy: Any, before_s: float
) -> None:
    grid = Grid(policy)
    used(grid, bob=before_s)
    anns = grid.tasks(*[5.0] * 100, bag=1, key=ANN)
    grid.pc("a", slots=4)
    running = [task for tasks in grid.tell_pass().values() for task in tasks]
    assert len(running) == 4
    for bobs in grid.tasks(*[4.0] * 10, bag=2, key=BOB), anns:
        for _ in range(10):
            grid.wait(1.0)
            grid.end(running.pop(0), elapsed=1.0, worker="a")
            ((task,),) = grid.tell_pass().values()
            running.append(task)
            assert any(task in bobs for task in running)


@pytest.mark.parametrize("policy", [pgs(0), fcfs(), packing()])
def test_nobody_waits_for_somebody_whose_tasks_end_at_once(policy: Any) -> None:
    grid = Grid(policy)
    used(grid, ann=1e6)
    grid.pc("a")
    failing = grid.tasks(*[5.0] * 100, bag=2, key=BOB)
    ((running,),) = grid.tell_pass().values()
    anns = grid.tasks(*[5.0] * 3, bag=1, key=ANN)
    served = []
    for _ in range(6):
        seconds = 2.0 if running in anns else 0.01
        grid.wait(seconds)
        grid.end(running, elapsed=seconds, worker="a")
        ((running,),) = grid.tell_pass().values()
        served.append(running in anns)
        assert running in anns or running in failing
    assert sum(served) == 3


def test_once_everybody_has_something_on_a_slot_those_within_a_minute_of_the_grid_are_served_alike() -> None:
    grid = Grid(packing())
    anns = grid.tasks(*[60.0] * 4, bag=1, key=ANN)
    grid.pc("a")
    grid.expect(a=anns[:1])
    bobs = grid.tasks(10, 9, bag=2, key=BOB)
    grid.pc("b", slots=2)
    grid.expect(b=bobs[:1], b_1=[anns[1]])


def test_explain_says_that_those_come_first_who_have_nothing_on_a_pc() -> None:
    grid = Grid(fcfs())
    first, second = grid.tasks(60.0, 60.0, bag=1, key=ANN)
    grid.pc("a")
    grid.expect(a=[first])
    assert not restraint(grid.inside, second, grid.now).beside
    grid.tasks(10, bag=2, key=BOB)
    assert restraint(grid.inside, second, grid.now).beside


def test_seconds_that_rounding_leaves_of_very_long_tasks_are_few_and_go_with_the_last_task() -> None:
    grid = Grid(fcfs())
    grid.pc("a", slots=2)
    (long,) = grid.tasks(1e10, key=ANN)
    (short,) = grid.tasks(0.1, key=ANN, bag=1)
    assert len(grid.tell_pass()) == 2
    grid.end(long)
    account = grid.inside.shares.accounts["ann"]
    assert account.out_s != 0.1
    assert account.out_s == pytest.approx(0.1, abs=1e-5)
    grid.end(short)
    assert account.out_s == 0.0


def test_a_share_of_twice_the_weight_may_use_twice_as_much() -> None:
    grid = Grid(packing())
    used(grid, ann=1000.0, bob=600.0)
    assert grid.tell(ev.SharesArranged({"ann": ("ann", 2.0)})) == []
    long, short = grid.tasks(50, bag=1, key=ANN), grid.tasks(10, bag=2, key=BOB)
    grid.pc("a")
    grid.expect(a=long)
    grid.end(*long, elapsed=50.0)
    assert grid.tell(ev.SharesArranged({})) == []
    another = grid.tasks(50, bag=3, key=ANN)
    grid.expect(a=short)
    grid.end(*short, elapsed=10.0)
    grid.expect(a=another)


def test_several_keys_of_one_person_are_one_share() -> None:
    grid = Grid(packing())
    assert grid.tell(ev.SharesArranged({"ann": ("ann", 1.0), "ann-laptop": ("ann", 1.0)})) == []
    used(grid, ann=600.0)
    grid.tasks(50, bag=1, key=CategoryKey("ann-laptop"))
    bobs = grid.tasks(10, bag=2, key=BOB)
    grid.pc("a")
    grid.expect(a=bobs)


def test_errors_and_crashes_are_charged_and_departures_and_losses_are_not() -> None:
    grid = Grid(packing())
    done, error, crash, gone, lost = grid.tasks(10, 9, 8, 7, 6, bag=1, key=ANN, retries=0)
    grid.pc("a")
    for task, outcome in ((done, AttemptOutcome.DONE), (error, AttemptOutcome.ERROR), (crash, AttemptOutcome.CRASH)):
        grid.expect(a=[task])
        grid.end(task, outcome=outcome, elapsed=5.0, worker="a")
    account = grid.inside.shares.accounts["ann"]
    charged = 15.0 + RESTART_S  # the process of the crash is replaced
    assert (account.used(grid.now), account.out) == (charged, 0)
    for planned in (True, False):
        handed = grid.tell_pass() or (grid.pc("a"), grid.tell_pass())[1]
        assert handed
        grid.wait(3.0)
        assert account.out == 1
        grid.leave("a", planned=planned)
        assert (account.out, account.out_s) == (0, 0.0)
        assert account.used(grid.now) == pytest.approx(charged, abs=0.01)
    assert {gone, lost} & set(grid.priority())


def test_half_of_what_was_used_is_left_after_three_days() -> None:
    grid = Grid()
    used(grid, ann=100.0)
    account = grid.inside.shares.accounts["ann"]
    assert account.used(0.0) == 100.0
    assert account.used(HALF_LIFE_S) == pytest.approx(50.0)
    assert decayed(100.0, -1.0) == 100.0


def test_of_ones_own_bags_those_of_a_higher_priority_come_first_and_the_others_fill_up() -> None:
    grid = Grid(packing())
    low = grid.tasks(80, bag=1, key=ANN)
    high = grid.tasks(10, 500, bag=2, key=CategoryKey("ann", 5))
    grid.pc("a", uptime=100, slots=2)
    grid.expect(a=high[:1], a_1=low)


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", [pgs(queue_length=0), fcfs(), packing()])
def test_many_categories_have_their_turns_in_one_pass(policy: Any) -> None:
    grid = Grid(policy)
    count = CATEGORIES + 3
    tasks = [grid.tasks(5, 5, bag=bag, key=CategoryKey(f"owner {bag}"))[0] for bag in range(count)]
    for worker in range(2 * count):
        grid.pc(f"pc{worker}")
    handed = [task for tasks in grid.tell_pass().values() for task in tasks]
    assert sorted(handed) == sorted([*tasks, *(task + 1 for task in tasks)])
    assert grid.scheduler.unfinished is False


def test_a_bounded_pass_goes_on_with_the_same_turns() -> None:
    grid = Grid(packing())
    anns, bobs = grid.tasks(*[5.0] * 6, bag=1, key=ANN), grid.tasks(*[5.0] * 6, bag=2, key=BOB)
    grid.pc("a", slots=12)
    handed: list[int] = []
    while len(handed) < 12:
        some = [task for tasks in grid.tell_pass(most=2).values() for task in tasks]
        assert some
        handed += some
    assert sorted(handed) == [*anns, *bobs]


def test_in_pgs_regular_tasks_of_several_people_are_postponed_up_to_the_first_that_fits() -> None:
    grid = Grid(pgs(queue_length=1, order="fifo"))
    long, bobs = grid.tasks(500, 5, 500, bag=1, key=ANN), grid.tasks(500, 6, 7, bag=2, key=BOB)
    grid.pc("a", uptime=100, slots=2)
    handed = grid.tell_pass()
    assert sorted(task for tasks in handed.values() for task in tasks) == [long[1], bobs[1]]
    assert set(grid.priority()) >= {long[0]}
    assert grid.queues()


# --- rare windows ----------------------------------------------------------------------------------------------------


def test_a_task_that_fits_only_rare_windows_has_first_claim_on_them() -> None:
    grid = Grid(packing())
    used(grid, ann=1e6)
    rare = grid.tasks(5000, bag=1, key=ANN)
    grid.tasks(*[90.0] * 40, bag=2, key=BOB)
    for worker in range(19):
        grid.pc(f"pc{worker}", uptime=100)
    grid.pc("long", uptime=6000)
    assert grid.tell_pass()["long"] == rare


def test_a_window_of_which_there_are_many_is_claimed_by_nobody() -> None:
    grid = Grid(packing())
    used(grid, ann=1e6)
    running = grid.tasks(50, bag=3, key=ANN)
    grid.pc("ann's", uptime=60)
    grid.expect(**{"ann's": running})
    grid.tasks(5000, bag=1, key=ANN)
    bobs = grid.tasks(*[90.0] * 40, bag=2, key=BOB)
    for worker in range(3):
        grid.pc(f"pc{worker}", uptime=100)
    grid.pc("long", uptime=6000)
    assert set(grid.tell_pass()["long"]) < set(bobs)


def test_claims_are_looked_at_again_after_a_while_and_respect_limits() -> None:
    grid = Grid(packing())
    used(grid, ann=1e6)
    rare = grid.tasks(5000, 5500, 5600, bag=1, key=CategoryKey("ann", 0, (), 1, 1))
    grid.tasks(*[90.0] * 40, bag=2, key=BOB)
    for worker in range(29):
        grid.pc(f"pc{worker}", uptime=100)
    grid.tell_pass()
    grid.wait(LOOK_S)
    grid.pc("long", uptime=6000, slots=2)
    handed = grid.tell_pass()
    assert [task for task in rare if [task] in handed.values()] == [rare[2]]


# --- pauses ----------------------------------------------------------------------------------------------------------


def test_no_task_of_a_paused_bag_is_placed_until_it_is_resumed() -> None:
    grid = Grid(pgs(queue_length=1))
    tasks = grid.tasks(5, 6, 7, 8, bag=1)
    grid.pc("a")
    grid.expect(a=tasks[:1])
    assert grid.queues() == {"a": [tasks[1]]}
    gate(grid, 1, True, tasks)
    assert [grid.state(task) for task in tasks] == [State.SENT, *[State.BARRED] * 3]
    grid.end(tasks[0])
    grid.expect()
    gate(grid, 1, False, tasks)
    grid.expect(a=[tasks[3]])


def test_a_bag_is_paused_before_its_tasks_have_moved() -> None:
    grid = Grid(packing())
    tasks, other = grid.tasks(5, 5, 5, bag=1), grid.tasks(1, bag=2)
    assert grid.tell(ev.BagGated(1, True)) == []
    grid.pc("a")
    grid.expect(a=other)
    assert State.BARRED in {grid.state(task) for task in tasks}


def test_what_comes_back_to_a_paused_bag_is_barred_and_can_be_cancelled() -> None:
    grid = Grid(packing())
    tasks = grid.tasks(5, 5, 5, bag=1, retries=9)
    grid.pc("a", slots=2)
    grid.expect(a=[tasks[0]], a_1=[tasks[1]])
    gate(grid, 1, True, tasks)
    grid.end(tasks[0], outcome=AttemptOutcome.ERROR)
    grid.leave("a")
    assert [grid.state(task) for task in tasks] == [State.BARRED] * 3
    assert grid.cancel(*tasks[:2]) == {}
    new = grid.tasks(4, bag=1, barred=True)
    grid.pc("b")
    grid.expect()
    gate(grid, 1, False, [*tasks, *new])
    grid.expect(b=[tasks[2]])
    assert grid.state(tasks[0]) == State.CANCELLED


def test_the_answer_of_a_lost_pc_counts_although_the_bag_is_paused() -> None:
    grid = Grid(packing())
    (task,) = grid.tasks(5, bag=1)
    grid.pc("a")
    grid.expect(a=[task])
    gate(grid, 1, True, [task])
    grid.leave("a", planned=False)
    assert grid.state(task) == State.BARRED
    grid.end(task, worker="a")
    assert grid.state(task) == State.DONE


def test_no_task_of_a_paused_bag_waits() -> None:
    grid = Grid(packing())
    tasks = grid.tasks(50, 50, bag=1)
    grid.tasks(10, bag=2)
    grid.pc("a")
    gate(grid, 1, True, tasks)
    assert made(waiting_of(grid.inside, 1)) == WaitingCounts(0, 0, 2, None)


@pytest.mark.parametrize(
    "event",
    [
        ev.BagGated(9, True),
        ev.TasksRouted([(9, 1)]),
        ev.SharesArranged({"ann": ("ann", 0.0)}),
        ev.UsageRestored({"ann": math.inf}),
    ],
)
def test_what_makes_no_sense_is_refused(event: ev.Event) -> None:
    with pytest.raises(IllegalEvent):
        Grid().tell(event)


# --- limits and licences ---------------------------------------------------------------------------------------------


def test_at_most_as_many_tasks_of_a_bag_are_on_slots_as_its_limit_says() -> None:
    grid = Grid(packing())
    tasks = grid.tasks(9, 8, 7, bag=1, key=CategoryKey("ann", 0, (), 2, 1))
    grid.pc("a", slots=4)
    grid.expect(a=[tasks[0]], a_1=[tasks[1]])
    assert restraint(grid.inside, tasks[2], grid.now) == Restraint(2, 2, (), 0.0)
    grid.end(tasks[1])
    grid.expect(a_1=[tasks[2]])


def test_a_licence_is_used_by_one_task_at_a_time_across_people() -> None:
    grid = Grid(packing())
    assert grid.tell(ev.LicencesCounted({"m": 1})) == []
    anns = grid.tasks(9, bag=1, key=CategoryKey("ann", 0, (("m", 1),)))
    bobs = grid.tasks(8, 3, bag=2, key=CategoryKey("bob", 0, (("m", 1),)))
    both = grid.tasks(7, bag=3, key=CategoryKey("bob", 0, (("m", 2),)))
    grid.pc("a", slots=3)
    grid.expect(a=anns)
    assert restraint(grid.inside, bobs[0], grid.now).lacking == (("m", 1, 0, 1),)
    grid.end(*anns)
    grid.expect(a=[bobs[0]])
    assert grid.tell(ev.LicencesCounted({"m": 3})) == []
    grid.expect(a_1=both)
    assert grid.tell(ev.LicencesCounted({})) == []
    grid.end(bobs[0])
    grid.expect()
    assert restraint(grid.inside, bobs[1], grid.now).lacking == (("m", 1, 0, 0),)


def test_a_licence_comes_back_when_the_lease_of_a_lost_worker_has_run_out() -> None:
    grid = Grid(packing())
    assert grid.tell(ev.LicencesCounted({"m": 1})) == []
    task, other = grid.tasks(9, 8, bag=1, key=CategoryKey("ann", 0, (("m", 1),)))
    grid.pc("a")
    grid.pc("b")
    grid.expect(a=[task])
    grid.leave("a", planned=False)
    ((again,),) = grid.tell_pass().values()
    assert {grid.state(task), grid.state(other)} == {State.SENT, State.WAITING}
    assert again in (task, other)


def test_a_held_attempt_keeps_its_licence_after_a_restart() -> None:
    grid = Grid(packing(), first_attempt=100)
    assert grid.tell(ev.LicencesCounted({"m": 1})) == []
    held, other = grid.tasks(9, 8, bag=1, key=CategoryKey("ann", 0, (("m", 1),)), held=[Attempt(0, 50)])
    grid.pc("a")
    grid.expect()
    grid.tell(ev.HoldExpired())
    grid.expect(a=[held])
    assert grid.state(other) == State.WAITING


@pytest.mark.parametrize("how", ["handed back", "answered", "lost"])
def test_cancelled_tasks_keep_their_licences_until_their_worker_has_answered_for_them(how: str) -> None:
    grid = Grid(pgs())
    grid.tell(ev.LicencesCounted({"m": 2}))
    key = CategoryKey(licences=(("m", 1),))
    tasks = grid.tasks(5.0, 5.0, key=key)
    (other,) = grid.tasks(5.0, bag=1, key=key)
    (free,) = grid.tasks(5.0, bag=2)
    grid.pc("a", 100, slots=3)
    grid.tell_pass()
    attempts = [grid.inside.bound[task].attempt for task in tasks]
    grid.cancel(*tasks, free)
    assert list(grid.scheduler.owed_by("a")) == attempts
    assert not grid.scheduler.owed_by("b")
    grid.pc("b", 100)
    assert grid.tell_pass() == {}
    for name, attempt in (("b", attempts[0]), ("a", attempts[0])):
        grid.tell(ev.AttemptsReturned(name, [attempt]))
        assert grid.inside.categories.licences.free("m") == (name == "a")
    if how == "handed back":
        grid.tell(ev.AttemptsReturned("a", [attempts[1]]))
    elif how == "answered":
        grid.tell(ev.AttemptsEnded("a", [ev.EndedAttempt(attempts[1], AttemptOutcome.DONE, 1.0)]))
    else:
        grid.leave("a", planned=False)
    assert grid.inside.categories.licences.free("m") == 2
    assert [other] in grid.tell_pass().values()


def test_an_answer_for_other_work_frees_no_licence_of_what_a_worker_is_to_stop() -> None:
    grid = Grid(packing())
    grid.tell(ev.LicencesCounted({"m": 1}))
    (task,) = grid.tasks(5.0, key=CategoryKey(licences=(("m", 1),)))
    (free,) = grid.tasks(5.0, bag=1)
    grid.pc("a", 100, slots=2)
    grid.tell_pass()
    grid.cancel(task)
    assert grid.end(free, worker="a") == [free]
    assert grid.inside.categories.licences.free("m") == 0
    assert list(grid.scheduler.owed_by("a")) == [grid.attempts[task]]
    assert grid.scheduler.silent_slots("a") == 0


def test_tasks_that_were_sent_ahead_to_a_silent_worker_keep_their_licences_until_it_answers() -> None:
    grid = Grid(pgs())
    grid.tell(ev.LicencesCounted({"m": 2}))
    grid.tasks(0.1, 0.1, key=CategoryKey(licences=(("m", 1),)), timeout=1.0)
    grid.pc("a")
    grid.tell_pass()
    attempts = [sent.attempt for sent in grid.inside.bound[0].slot.sent]
    grid.wait(60.0)
    grid.say_alive()
    (given_up,) = grid.tell(ev.PassDue())
    assert isinstance(given_up, cmd.GiveUp)
    assert grid.inside.categories.licences.free("m") == 0
    grid.tell(ev.AttemptsReturned("a", attempts))
    assert grid.inside.categories.licences.free("m") == 2


def test_an_attempt_that_was_taken_back_keeps_its_licence_until_it_is_answered_or_lost() -> None:
    for answered in (True, False):
        grid = Grid(packing())
        assert grid.tell(ev.LicencesCounted({"m": 1})) == []
        (task,) = grid.tasks(5, bag=1, key=CategoryKey("ann", 0, (("m", 1),)), timeout=5.0)
        grid.pc("a")
        grid.pc("b")
        grid.expect(a=[task])
        attempt = grid.attempts[task]
        while not grid.inside.owed:
            grid.wait(10.0)
            grid.say_alive()
            assert not [c for c in grid.tell(ev.PassDue()) if isinstance(c, cmd.Assign)]
        assert grid.inside.categories.licences.free("m") == 0
        if answered:
            assert grid.tell(ev.AttemptsReturned("a", [attempt])) == []
        else:
            grid.leave("a", planned=False)
        assert grid.inside.categories.licences.free("m") == 1
        assert task in [task for tasks in grid.tell_pass().values() for task in tasks]


def test_it_is_said_when_it_is_the_turn_of_others() -> None:
    grid = Grid(packing())
    used(grid, ann=1000.0, bob=100.0)
    (task,) = grid.tasks(9, bag=1, key=ANN)
    assert restraint(grid.inside, task, grid.now).lead_s == 0.0
    grid.tasks(8, bag=2, key=BOB)
    assert restraint(grid.inside, task, grid.now).lead_s == 900.0


def test_the_order_of_all_categories_changes_with_the_policy() -> None:
    grid = Grid(packing())
    anns, bobs = grid.tasks(5, 9, 7, bag=1, key=ANN), grid.tasks(5, 9, bag=2, key=BOB)
    grid.pc("tiny", uptime=1)
    grid.expect()
    grid.tell(ev.PolicyChanged(pgs(order="fifo")))
    assert grid.priority() == [*anns, *bobs]
    grid.tell(ev.PolicyChanged(packing()))
    assert grid.priority() == [anns[1], anns[2], anns[0], bobs[1], bobs[0]]


def test_a_category_goes_with_its_last_bag() -> None:
    grid = Grid(packing())
    for bag in (1, 2):
        grid.tasks(5, bag=bag, key=ANN)
    grid.cancel(0, 1)
    for bag, left in ((1, 1), (2, 0)):
        grid.tell(ev.BagForgotten(bag))
        assert len(grid.inside.categories.by_key) == left
