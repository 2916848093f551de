"""What if: answers from one picture, as it is and with something changed; and advice."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from typing import Any

import pytest

from deskgrid.scheduler.forecast import singles, under_policy
from deskgrid.scheduler.forecast.ahead import forecast
from deskgrid.scheduler.forecast.changes import ImaginedChange
from deskgrid.scheduler.forecast.compare import Dice, ImaginedEnd, PolicyUsed, UnfitTasks, advise, misfits
from deskgrid.scheduler.forecast.compare import compare as compared
from deskgrid.scheduler.forecast.correction import Estimate
from deskgrid.scheduler.forecast.picture import NOT_TOGETHER, TOO_FEW, TOO_LONG, Preparing, too_little
from deskgrid.scheduler.forecast.under_policy import simulated_end, stretch
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.forecast.grids import (
    DAY,
    HOUR,
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureTask,
    PictureWindow,
    bag,
    lab,
)

PACKING = PolicyUsed("packing", {})
DICE = Dice(7)
# Twenty PCs: 240 tasks of five minutes take an hour. Lab 1 closes in two hours, lab 2 in ten.
GRID = Picture(lab("lab1", 10, 2.0) + lab("lab2", 10, 10.0), (bag(240),))


def compare(
    picture: Picture, bag: int, changes: Sequence[ImaginedChange], policy: PolicyUsed, dice: Dice
) -> list[ImaginedEnd]:
    return list(compared(picture, bag, changes, policy, dice))


def medians(picture: Picture, *changes: ImaginedChange) -> list[float]:
    """The medians of the answers. Hours."""
    return [answer.when.median / HOUR if answer.when else inf for answer in compare(picture, 1, changes, PACKING, DICE)]


@pytest.mark.no_cover
def test_answers_stand_beside_each_other() -> None:
    found = medians(
        GRID,
        ImaginedChange(),
        ImaginedChange(more=(("lab2", 20),)),
        ImaginedChange(without=("lab1",)),
        ImaginedChange(split=2),
        ImaginedChange(begins_s=2 * HOUR),
        ImaginedChange(windows=(("lab2", ((DAY, 10 * HOUR),)),)),
    )
    as_it_is, same, twice_as_many, half_as_many, split, later, lab_2_away = found
    assert as_it_is == same == pytest.approx(1.04, abs=0.1)
    assert twice_as_many == pytest.approx(as_it_is / 2, rel=0.1)
    assert half_as_many == pytest.approx(2 * as_it_is, rel=0.1)
    assert split < as_it_is
    assert later == pytest.approx(2.0 + 2 * as_it_is, rel=0.1)  # lab 1 has closed by then
    assert lab_2_away == pytest.approx(24.0 + (2 * as_it_is - 2.0) / 2, rel=0.1)


def test_the_answer_is_an_interval_around_the_median() -> None:
    (answer,) = compare(GRID, 1, [], PACKING, DICE)
    assert answer.when is not None
    assert answer.when.low < answer.when.median < answer.when.high
    assert compare(GRID, 1, [ImaginedChange()], PACKING, DICE) == [answer, answer]


def test_a_bag_that_begins_later_leaves_the_pcs_to_others_until_then() -> None:
    picture = replace(GRID, bags=(replace(bag(240), begins=1.5 * HOUR), bag(240, 2)))
    first, second = (sorted(ends)[50] / HOUR for ends in _ends(picture))
    assert second == pytest.approx(1.04, abs=0.1)
    assert 2.5 < first < 4.0


def test_a_bag_that_begins_when_no_pc_is_there_waits_for_one() -> None:
    picture = replace(GRID, bags=(replace(bag(10), begins=12 * HOUR),))
    ((*ends,),) = _ends(picture)
    assert all(24 * HOUR < end < 25 * HOUR for end in ends)


def _ends(picture: Picture) -> list[list[float]]:
    return list(forecast(picture, Random(7)).values())


# --- what cannot be answered -----------------------------------------------------------------------------------------


def note(picture: Picture, change: ImaginedChange | None = None) -> str:
    answer = compare(picture, 1, [change or ImaginedChange()], PACKING, DICE)[1]
    assert answer.when is None
    return answer.note


def test_tasks_that_may_outlast_every_window_are_the_reason_if_one_probably_does() -> None:
    hour = (PicturePC("pc", (PictureWindow(0.0, HOUR), PictureWindow(DAY, DAY + HOUR))),)
    one_in_ten = Durations((600.0,) * 9 + (2 * HOUR,))
    few, many = bag(5, durations=one_in_ten), bag(40, durations=one_in_ten)
    assert note(Picture(hour, (many,))) == TOO_LONG
    assert too_little(few, (HOUR, 1.0)) == TOO_FEW
    assert too_little(few, (HOUR, 2.1)) == too_little(many, (HOUR, 2.1)) == TOO_FEW
    assert too_little(replace(many, keeps=True), (HOUR, 1.0)) == TOO_FEW


@pytest.mark.parametrize("lasts", [5e-324, 1e-320, 1e-300, 1e-9])
def test_a_window_of_next_to_no_length_is_too_short(lasts: float) -> None:
    closed = ImaginedChange(windows=(("*", ((0.0, lasts),)),))
    assert note(replace(GRID, bags=(bag(10),)), closed) == "10 tasks fit no window that is known"


def test_a_change_that_does_not_apply_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_policy, "TASKS", 2_000)
    assert note(GRID, ImaginedChange(without=("lab9",))) == "no PC and no site is called lab9"
    assert note(replace(GRID, pcs=()), ImaginedChange(more=(("*", 5),))) == "no PC is known"
    assert note(GRID, ImaginedChange(policy="best")).startswith("no policy 'best'; there are: packing, ")
    many = replace(GRID, bags=(bag(2_001),))
    assert (
        note(many, ImaginedChange(policy="pgs"))
        == "2,001 tasks wait, too many to try another policy with: at most 2,000"
    )
    gangs = replace(GRID, bags=(replace(bag(41), need=Need(2, 2, gang=True)),))
    assert note(gangs, ImaginedChange(policy="pgs")).endswith("with: at most 40 where some are parallel")


def test_a_bag_without_an_end_says_why() -> None:
    assert note(GRID, ImaginedChange(without=("*",))) == "no PC is up or announced"
    assert note(replace(GRID, bags=(replace(bag(1), barred=True),))) == "the bag is paused, or comes after another one"
    long = Group(3, Durations((11 * HOUR,)), 11 * HOUR, 11 * HOUR)
    assert note(replace(GRID, bags=(PictureBag(1, (long,), 3),))) == "3 tasks fit no window that is known"
    one = Group(1, Durations((11 * HOUR,)), 11 * HOUR, 11 * HOUR)
    assert note(replace(GRID, bags=(PictureBag(1, (one,), 1),))) == "1 task fits no window that is known"
    once = Picture((PicturePC("pc", (PictureWindow(0.0, HOUR),)),), (bag(100),))
    assert note(once) == TOO_FEW
    large = replace(GRID, bags=(replace(bag(1), need=Need(30, 30, gang=True)),))
    assert note(large) == NOT_TOGETHER
    labelled = replace(GRID, bags=(replace(bag(1), need=Need(labels=frozenset({"gpu"}))),))
    assert note(labelled) == "no PC that is up or announced has what its tasks need"


def test_parallel_tasks_are_answered_for_too() -> None:
    gangs = replace(GRID, bags=(replace(bag(20), need=Need(5, 5, gang=True)),))
    as_it_is, more = medians(gangs, ImaginedChange(more=(("lab2", 20),)))
    assert as_it_is == pytest.approx(5 * 5.0 / 60, rel=0.2)
    assert more == pytest.approx(as_it_is / 2, rel=0.5)
    long = Group(3, Durations((12 * HOUR,)), 12 * HOUR, 12 * HOUR)
    night = replace(GRID, pcs=lab("lab2", 10, 10.0))
    assert misfits(night, PictureBag(1, (long,), 3, need=Need(1, 4, speedup=Amdahl(0.0)))) is None
    assert misfits(night, PictureBag(1, (long,), 3, need=Need(4, 4))) == UnfitTasks(3, 12 * HOUR, 10 * HOUR, 2)


def test_what_fits_no_window_is_told_for_the_pc_on_which_most_can_be_done() -> None:
    fast = PicturePC("fast", (PictureWindow(0.0, 6 * HOUR),), speed=2.0)
    slow = PicturePC("slow", (PictureWindow(0.0, 10 * HOUR),), speed=0.5, labels=frozenset({"gpu"}))
    grid, long = Picture((fast, slow), ()), Group(3, Durations((11 * HOUR,)), 11 * HOUR, 11 * HOUR)
    assert misfits(grid, PictureBag(1, (long,), 3)) is None
    longer = replace(long, needs_s=14 * HOUR)
    assert misfits(grid, PictureBag(1, (longer,), 3)) == UnfitTasks(3, 7 * HOUR, 6 * HOUR, 2)
    labelled = PictureBag(1, (long,), 3, need=Need(labels=frozenset({"gpu"})))
    assert misfits(grid, labelled) == UnfitTasks(3, 22 * HOUR, 10 * HOUR, 3)


def test_pcs_that_can_never_have_the_environment_of_tasks_do_not_count() -> None:
    long = Group(3, Durations((11 * HOUR,)), 11 * HOUR, 11 * HOUR)
    fits = PicturePC("other", (PictureWindow(0.0, 20 * HOUR),), prepares=(Preparing("env", float("inf"), False),))
    grid = Picture((fits, PicturePC("short", (PictureWindow(0.0, 10 * HOUR),))), ())
    assert misfits(grid, PictureBag(1, (long,), 3)) is None
    found = misfits(grid, PictureBag(1, (long,), 3, environment="env", keeps=True))
    assert found == UnfitTasks(3, 11 * HOUR, 10 * HOUR, 2, keeps=True)


# --- another policy --------------------------------------------------------------------------------------------------


@pytest.mark.no_cover
def test_another_policy_is_tried_by_the_simulator() -> None:
    # One PC is about to close. FCFS does not know that, and gives it tasks that it cannot end.
    pcs = (
        *lab("lab1", 4, 10.0),
        PicturePC("leaves", tuple(PictureWindow(n * 400.0, n * 400.0 + 390.0) for n in range(400))),
    )
    picture = Picture(pcs, (bag(60, durations=Durations((1000.0,) * 2, 64.0)),))
    packing, fcfs, same = medians(picture, ImaginedChange(policy="fcfs"), ImaginedChange(policy="packing"))
    assert same == packing
    assert fcfs > 1.01 * packing


def end_under_pgs(picture: Picture, number: int = 1) -> float:
    return simulated_end(picture, number, make_policy("pgs"), Random(7))


MINUTE = Durations((60.0,) * 2, 64.0)


def test_a_slot_is_there_when_what_it_runs_has_ended() -> None:
    done = PictureBag(2, (Group(0, Durations((100.0, 300.0))),), 5)
    picture = Picture(
        (PicturePC("pc", (PictureWindow(-9.0, inf),), 2, (PictureTask(2, 0, 200.0),)),),
        (bag(1, durations=MINUTE), done),
    )
    assert end_under_pgs(picture) == 60.0  # on the other slot
    busy = replace(picture.pcs[0], running=(PictureTask(2, 0, 200.0), PictureTask(2, 0, 250.0)))
    assert end_under_pgs(replace(picture, pcs=(busy,))) == 110.0
    outlived = replace(picture.pcs[0], slots=1, running=(PictureTask(2, 0, 400.0),))
    assert end_under_pgs(replace(picture, pcs=(outlived,))) == 60.0


def test_a_slot_whose_task_outlasts_its_window_is_there_in_the_next() -> None:
    pcs = (PicturePC("pc", (PictureWindow(-9.0, 90.0), PictureWindow(200.0, 300.0)), 1, (PictureTask(2, 0, 200.0),)),)
    done = PictureBag(2, (Group(0, Durations((300.0,))),), 5)
    assert end_under_pgs(Picture(pcs, (bag(1, durations=MINUTE), done))) == 260.0


PAIR = Need(2, 2, gang=True)


def test_another_policy_is_tried_with_parallel_tasks() -> None:
    # Gangs of three on four PCs: one PC is left, and TLA lets no task that came later have it.
    threes = replace(bag(8, 2), need=Need(3, 3, gang=True))
    picture = Picture(lab("lab1", 4, 10.0), (threes, replace(bag(4), need=Need(gang=True))))
    packing, tla = medians(picture, ImaginedChange(policy="tla"))
    assert inf > tla > 1.5 * packing


def test_what_runs_now_keeps_its_slots_until_it_should_have_ended() -> None:
    done = PictureBag(2, (Group(0, Durations((300.0,))),), 5)
    gang = PictureBag(3, (Group(0, Durations((500.0,))),), 1, need=PAIR)
    pairs = replace(bag(1, durations=MINUTE), need=PAIR)
    busy = [
        PicturePC(name, (PictureWindow(-9.0, inf),), 2, (PictureTask(3, 0, 100.0, 8),), "lab") for name in ("a", "b")
    ]
    picture = Picture(tuple(busy), (pairs, done, gang))
    assert end_under_pgs(picture) == 60.0  # on the other slots
    both = replace(busy[0], running=(*busy[0].running, PictureTask(2, 0, 200.0)))
    assert end_under_pgs(replace(picture, pcs=(both, busy[1]))) == 160.0
    fast = [replace(pc, speed=2.0, running=pc.running * 2) for pc in busy]
    # Of four ranks at twice the speed: 500 - 2 * 100 s of work are left.
    assert end_under_pgs(replace(picture, pcs=tuple(fast))) == 180.0


@pytest.mark.parametrize("spans", [(), (PictureWindow(-9.0, -1.0),), (PictureWindow(50.0, 900.0),)])
def test_what_runs_on_a_pc_that_should_have_gone_is_left_out(spans: tuple[PictureWindow, ...]) -> None:
    done = PictureBag(2, (Group(0, Durations((300.0,))),), 5)
    up, late = (
        PicturePC("a", (PictureWindow(-9.0, inf),), 2, site="lab"),
        PicturePC("b", spans, 1, (PictureTask(2, 0, 200.0),), "lab"),
    )
    assert end_under_pgs(Picture((up, late), (replace(bag(1, durations=MINUTE), need=PAIR), done))) == 60.0


def test_a_policy_is_tried_where_only_some_pcs_suit() -> None:
    labelled = replace(bag(4, durations=MINUTE), need=Need(labels=frozenset({"gpu"})))
    some = (
        PicturePC("a", (PictureWindow(-9.0, inf),), 4),
        PicturePC("b", (PictureWindow(-9.0, inf),), 2, speed=9.0, labels=frozenset({"gpu"})),
    )
    assert end_under_pgs(Picture(some, (labelled,))) == 120.0
    apart = tuple([PicturePC(name, (PictureWindow(-9.0, inf),), reachable=name == "a") for name in "ab"])
    assert end_under_pgs(Picture(apart, (replace(bag(1), need=PAIR),))) == inf


def test_windows_of_the_week_come_again() -> None:
    picture = Picture(
        (PicturePC("pc", (PictureWindow(0.0, 90.0), PictureWindow(DAY, DAY + 90.0))),), (bag(3, durations=MINUTE),)
    )
    assert end_under_pgs(picture) == 7 * DAY + 60.0


def test_a_bag_that_no_policy_can_end_has_no_end() -> None:
    never = replace(GRID, bags=(bag(1, durations=Durations((DAY,))),))
    assert end_under_pgs(never) == inf
    assert stretch(never, 1, PACKING.make, partial(make_policy, "pgs"), 7) == 1.0


def test_a_bag_with_nothing_that_waits_ends_the_same_under_any_policy() -> None:
    assert end_under_pgs(GRID, number=5) == 0.0
    assert stretch(GRID, 5, PACKING.make, partial(make_policy, "pgs"), 7) == 1.0


# --- advice ----------------------------------------------------------------------------------------------------------


def test_advice_puts_first_what_helps_most() -> None:
    # 480 tasks need 40 hours of PCs. Today there are 20, and tomorrow again.
    picture = Picture(lab("big", 8, 2.0) + lab("small", 2, 2.0), (bag(480),))
    found = advise(picture, 1, DICE)
    assert found.misfits is None
    assert found.now.when is not None
    assert found.now.when.median > DAY
    assert [(each.group, each.pcs, each.hours) for each in found.longer] == [
        ("big", 8, 1),
        ("small", 2, 1),
        ("big", 8, 2),
        ("big", 8, 4),
    ]
    assert {each.closes_s for each in found.longer} == {2 * HOUR}
    best = found.longer[-1].answer.when
    assert best is not None
    assert best.median < 6 * HOUR


def test_pcs_of_no_site_are_grouped_by_their_names() -> None:
    pcs = tuple(PicturePC(name, (PictureWindow(0.0, HOUR),)) for name in ("lab1-01", "lab1-02", "desk"))
    found = advise(
        Picture((*pcs, PicturePC("always", (PictureWindow(0.0, inf),)), PicturePC("gone", ())), (bag(100),)), 1, DICE
    )
    assert {(each.group, each.pcs) for each in found.longer} == {("lab1-*", 2), ("desk*", 1)}


def test_without_pcs_that_close_there_is_nothing_to_keep_on() -> None:
    found = advise(Picture((PicturePC("always", (PictureWindow(0.0, inf),)),), (bag(10),)), 1, DICE)
    assert found.longer == []
    assert found.now.when is not None


LONG = Group(3, Durations((11 * HOUR,), 5.0), 11 * HOUR, 11.1 * HOUR)


def test_tasks_that_fit_no_window_are_left_out_and_told() -> None:
    short = bag(240).groups[0]
    found = advise(replace(GRID, bags=(PictureBag(1, (LONG, short), 243), bag(1, 2))), 1, DICE)
    assert found.misfits == UnfitTasks(3, 11.1 * HOUR, 10 * HOUR, 2)
    assert found.now.when is not None
    assert found.now.when.median < 2 * HOUR


@pytest.mark.parametrize("running", [(), (PictureTask(1, 0, 60.0),)])
def test_a_bag_of_which_every_waiting_task_is_too_long(running: tuple[PictureTask, ...]) -> None:
    pcs = (replace(GRID.pcs[0], running=running), *GRID.pcs[1:])
    found = advise(Picture(pcs, (PictureBag(1, (LONG,), 3),)), 1, DICE)
    assert found.misfits == UnfitTasks(3, 11.1 * HOUR, 10 * HOUR, 2)
    if not running:
        assert found.now == ImaginedEnd(None, "3 tasks fit no window that is known")
        assert found.longer == []


def test_without_any_window_nothing_is_called_too_long() -> None:
    found = advise(Picture((), (PictureBag(1, (LONG,), 3),)), 1, DICE)
    assert (found.misfits, found.now) == (None, ImaginedEnd(None, "no PC is up or announced"))


def test_a_bag_that_ends_at_once_has_no_room_for_a_factor() -> None:
    empty = replace(GRID, bags=(PictureBag(1, (), 5, 5),))
    assert compare(empty, 1, [ImaginedChange(policy="pgs")], PACKING, DICE)[1] == ImaginedEnd(Estimate(0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    "waiting",
    [PictureBag(1, (LONG,), 3), PictureBag(1, (replace(LONG, count=0),), 3), bag(20, durations=Durations((DAY,)))],
)
def test_what_never_ends_is_soon_known(waiting: PictureBag, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(singles.ForecastRun, "_next_window", _counted(singles.ForecastRun._next_window, looked))
    pcs = (replace(GRID.pcs[0], running=(PictureTask(1, 0, 60.0),)), *GRID.pcs[1:])
    assert set(forecast(Picture(pcs, (waiting,)), Random(7), 10)[1]) == {inf}
    assert len(looked) <= 10 * 2 * len(pcs)


def _counted(function: Callable[..., None], calls: list[int]) -> Callable[..., None]:
    def counted(*args: Any) -> None:
        calls.append(1)
        function(*args)

    return counted
