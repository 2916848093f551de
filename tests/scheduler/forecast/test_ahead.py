"""The grid is run forward from a picture of it."""

from dataclasses import replace
from math import exp, inf
from random import Random
from statistics import fmean, median
from typing import Any

import pytest

from deskgrid.scheduler.forecast.ahead import CERTAIN, USUAL, Uncertainty, forecast
from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureShare,
    PictureTask,
    PictureWindow,
    Preparing,
    widened,
)
from deskgrid.scheduler.forecast.preparing import PREPARING_AT_ONCE, ready_at
from deskgrid.scheduler.model import WEEK_S

OPEN = (PictureWindow(0.0, inf),)
TEN = Durations((10.0,), 50)


def pcs(count: int, spans: tuple[PictureWindow, ...] = OPEN, **more: object) -> tuple[PicturePC, ...]:
    return tuple(replace(PicturePC(f"pc{number}", spans), **more) for number in range(count))  # type: ignore[arg-type]


def group(count: int, durations: Durations = TEN, needs_s: float = 0.0) -> Group:
    return Group(count, durations, durations.points[-1], needs_s)


def bag(number: int, *groups: Group, **more: object) -> PictureBag:
    total = sum(each.count for each in groups)
    return replace(PictureBag(number, groups, total), **more)  # type: ignore[arg-type]


def ends(picture: Picture, runs: int = 5, seed: int = 1, **more: object) -> dict[int, list[float]]:
    """Without any uncertainty but in the runtimes and windows themselves."""
    return forecast(picture, Random(seed), runs, **{"uncertainty": CERTAIN, **more})  # type: ignore[arg-type]


def end(picture: Picture, number: int = 1) -> float:
    """When a bag ends, which has to be the same in all runs."""
    (found,) = {round(seconds, 6) for seconds in ends(picture)[number]}
    return found


# --- tasks on slots ---------------------------------------------------------------------------------------------------


def test_tasks_that_wait_go_to_the_slot_that_is_free_first() -> None:
    assert end(Picture(pcs(2), (bag(1, group(5)),))) == 30.0
    assert end(Picture((PicturePC("pc", OPEN, slots=2),), (bag(1, group(4)),))) == 20.0
    assert end(Picture(pcs(1, speed=2.0), (bag(1, group(4)),))) == 20.0


def test_a_task_that_runs_has_the_rest_of_its_time_left() -> None:
    picture = Picture(pcs(1, running=(PictureTask(1, 0, 4.0),)), (bag(1, group(1)),))
    assert end(picture) == 16.0
    assert end(replace(picture, bags=(bag(1, group(0)),))) == 6.0
    assert end(Picture(pcs(1, running=(PictureTask(1, 0, 4.0),), speed=2.0), (bag(1, group(0)),))) == 1.0


def test_a_slow_pc_needs_a_longer_window() -> None:
    short, long = PictureWindow(0.0, 15.0), PictureWindow(100.0, 130.0)
    assert end(Picture(pcs(1, (short, long)), (bag(1, group(1, needs_s=10.0)),))) == 10.0
    assert end(Picture(pcs(1, (short, long), speed=0.5), (bag(1, group(1, needs_s=10.0)),))) == 120.0
    never = Picture(pcs(1, (short,), speed=0.5), (bag(1, group(1, needs_s=10.0)),))
    assert end(never) == inf
    assert end(Picture(pcs(1, (short,), speed=2.0), (bag(1, group(1, Durations((20.0,), 50), needs_s=20.0)),))) == 10.0


def test_a_piece_that_fits_no_window_of_a_slow_pc_waits_for_another_pc() -> None:
    slow, fast = (
        PicturePC("slow", (PictureWindow(0.0, 100.0),), speed=0.5),
        PicturePC("fast", (PictureWindow(500.0, 700.0),)),
    )
    tasks = bag(1, group(1, needs_s=60.0), keeps=True)
    assert end(Picture((slow, fast), (tasks,))) == 510.0


def test_what_was_done_of_a_task_is_done_at_the_speed_of_its_pc() -> None:
    hundred = Durations((100.0,), 50)
    slow, fast = (
        PicturePC("slow", (PictureWindow(0.0, 100.0),), speed=0.5),
        PicturePC("fast", (PictureWindow(500.0, 900.0),), speed=2.0),
    )
    keeps = Picture((slow, fast), (bag(1, group(1, hundred, 20.0), keeps=True),))
    assert end(keeps) == 525.0  # half of it is done at 100 s, the rest takes 25 s
    assert end(replace(keeps, bags=(bag(1, group(1, hundred, 20.0)),))) == 550.0
    runs = replace(slow, running=(PictureTask(1, 0, 10.0),))
    assert end(replace(keeps, pcs=(runs, fast), bags=(bag(1, group(0, hundred, 20.0), keeps=True),))) == 522.5


def test_a_task_that_has_run_for_long_is_one_of_the_longer_ones() -> None:
    durations = Durations((5.0, 10.0, 20.0, 30.0), 9)
    picture = Picture(pcs(1, running=(PictureTask(1, 0, 12.0),)), (bag(1, group(0, durations)),))
    assert {round(seconds, 6) for seconds in ends(picture, 50)[1]} == {8.0, 18.0}


def test_tasks_of_next_to_no_time_do_not_stop_it() -> None:
    tiny = Durations((0.0, 0.0, 0.0, 5e-324), 2)
    picture = Picture(pcs(2), (bag(1, group(99, tiny)), bag(2, group(4))))
    found = forecast(picture, Random(1), 20, USUAL)
    assert median(found[2]) == pytest.approx(20.0, rel=0.3)
    assert max(found[1]) < 60.0


def test_a_task_that_has_run_longer_than_all_known_ones_goes_on_for_a_while() -> None:
    picture = Picture(pcs(1, running=(PictureTask(1, 0, 100.0),)), (bag(1, group(0)),))
    left = ends(picture, 1_000)[1]
    assert min(left) > 0.0
    assert fmean(seconds > 100.0 for seconds in left) == pytest.approx(0.125, abs=0.04)


# --- environments -----------------------------------------------------------------------------------------------------


def preparing(seconds: float, **more: Any) -> PicturePC:
    return replace(PicturePC("slow", OPEN), prepares=(Preparing("numpy", seconds), Preparing("other", 1e6)), **more)


def test_tasks_wait_for_their_environment_and_others_do_not() -> None:
    needy = bag(1, group(3), environment="numpy")
    assert end(Picture((preparing(7.0),), (needy,))) == 37.0
    assert end(Picture((preparing(7.0), *pcs(1)), (needy,))) == 20.0
    both = Picture((preparing(7.0),), (needy, bag(2, group(2))))
    assert (end(both), end(both, 2)) == (40.0, 50.0), "the other bag fills the time"
    ready = PicturePC("pc", OPEN, prepares=(Preparing("numpy", 7.0, ready=True),))
    assert end(Picture((ready,), (needy,))) == 30.0


def test_a_task_that_was_interrupted_waits_for_the_environment_of_its_next_pc() -> None:
    here = PicturePC("here", (PictureWindow(0.0, 100.0, (5.0,)),))
    picture = Picture(
        (here, preparing(30.0, running=(PictureTask(2, 0, 0.0),))), (bag(1, group(1), environment="numpy"),)
    )
    gone = replace(picture, bags=(*picture.bags, bag(2, group(0))))
    assert end(gone) == 40.0


def test_a_pc_prepares_an_environment_in_the_first_window_that_leaves_time_for_a_task() -> None:
    spans = (PictureWindow(0.0, 20.0), PictureWindow(100.0, 130.0), PictureWindow(200.0, 300.0))
    pc = preparing(12.0, spans=spans)
    assert end(Picture((pc,), (bag(1, group(1, needs_s=10.0), environment="numpy"),))) == 122.0
    assert ready_at([pc], "numpy") == {0: 12.0}
    assert ready_at([pc], "nothing") == {}


def test_only_a_few_pcs_prepare_an_environment_at_a_time_and_those_that_stay_longest_come_first() -> None:
    many = [preparing(7.0)] * (2 * PREPARING_AT_ONCE + 1)
    picture = Picture(tuple(many), (bag(1, group(len(many)), environment="numpy"),))
    assert sorted(ready_at(many, "numpy").values()) == [7.0] * PREPARING_AT_ONCE + [14.0] * PREPARING_AT_ONCE + [21.0]
    assert end(picture) == 27.0
    brief = preparing(7.0, spans=(PictureWindow(0.0, 50.0),))
    assert ready_at([brief, *many], "numpy")[0] == 21.0


def test_a_pc_that_has_no_time_left_when_it_may_prepare_an_environment_does_so_in_its_next_window() -> None:
    brief = preparing(7.0, spans=(PictureWindow(0.0, 10.0), PictureWindow(100.0, 200.0)))
    late = preparing(7.0, spans=(PictureWindow(50.0, 200.0),))
    never = preparing(7.0, spans=(PictureWindow(0.0, 10.0),))
    found = ready_at([brief, late, never, *[preparing(7.0)] * PREPARING_AT_ONCE], "numpy")
    assert [found[place] for place in range(4)] == [107.0, 57.0, inf, 7.0]


def test_a_bag_whose_environment_no_pc_can_prepare_never_ends() -> None:
    needy = bag(1, group(1), environment="numpy")
    assert (
        end(Picture((preparing(inf), preparing(2e9, spans=(PictureWindow(0.0, 1e9),))), (needy, bag(2, group(1)))))
        == inf
    )


def test_many_tasks_take_as_long_as_all_of_them_together() -> None:
    chance = Random(5)
    points = tuple(sorted(chance.lognormvariate(2.0, 0.8) for _ in range(48)))
    for count in (2_000, 200_000, 20_000_000):
        found = ends(Picture(pcs(8), (bag(1, group(count, Durations(points, 99))),)), 20)[1]
        assert median(found) == pytest.approx(count * fmean(points) / 8, rel=0.05)


def test_tasks_that_take_no_time_end_at_once() -> None:
    nothing = Durations((0.0,), 9)
    picture = Picture(pcs(2, running=(PictureTask(1, 0, 0.0),)), (bag(1, group(1_000, nothing)),))
    assert end(picture) == 0.0
    assert forecast(picture, Random(1), 3)[1] == [0.0] * 3


# --- windows ----------------------------------------------------------------------------------------------------------


def test_no_task_begins_in_a_window_that_is_too_short_for_it() -> None:
    night = (PictureWindow(0.0, 35.0), PictureWindow(100.0, 140.0))
    assert end(Picture(pcs(1, night), (bag(1, group(4, needs_s=10.0)),))) == 110.0
    assert end(Picture(pcs(1, (PictureWindow(50.0, 90.0),)), (bag(1, group(1, needs_s=10.0)),))) == 60.0
    assert end(Picture(pcs(1, (PictureWindow(-20.0, -5.0), PictureWindow(7.0, 90.0))), (bag(1, group(1)),))) == 17.0


def test_a_shorter_task_of_another_bag_takes_the_rest_of_a_window() -> None:
    long, short = group(2, Durations((30.0,)), 30.0), group(1, Durations((4.0,)), 4.0)
    picture = Picture(pcs(1, (PictureWindow(0.0, 40.0), PictureWindow(100.0, 200.0))), (bag(1, long), bag(2, short)))
    assert (end(picture, 1), end(picture, 2)) == (130.0, 34.0)


def test_windows_that_were_announced_come_again_each_week() -> None:
    picture = Picture(pcs(1, (PictureWindow(0.0, 5.0), PictureWindow(100.0, 120.0))), (bag(1, group(3, needs_s=9.0)),))
    assert end(picture) == WEEK_S + 110.0
    assert end(replace(picture, bags=(bag(1, group(2, needs_s=9.0)),))) == 120.0
    assert end(replace(picture, pcs=pcs(1, (PictureWindow(0.0, 5.0), PictureWindow(100.0, inf))))) == 130.0


def test_windows_of_a_pc_that_announces_as_many_as_it_may_go_on_as_they_end() -> None:
    spans = (PictureWindow(0.0, 15.0), PictureWindow(20.0, 35.0))
    often = tuple([replace(pc, again_s=20.0) for pc in pcs(1, spans)])
    assert end(Picture(often, (bag(1, group(4, needs_s=9.0)),))) == 70.0


@pytest.mark.parametrize(
    "grid",
    [(), pcs(1, ()), pcs(2, (PictureWindow(0.0, 15.0),)), pcs(1, (PictureWindow(0.0, 5.0), PictureWindow(50.0, 59.0)))],
    ids=["no PC", "no window", "not for all", "too short"],
)
def test_a_bag_never_ends_if_no_window_is_left_for_it(grid: tuple[PicturePC, ...]) -> None:
    assert end(Picture(grid, (bag(1, group(5, needs_s=10.0)),))) == inf


def test_a_task_is_interrupted_if_its_window_closes_early_and_begins_again() -> None:
    early = (PictureWindow(0.0, 100.0, (8.0,)), PictureWindow(200.0, inf))
    assert end(Picture(pcs(1, early), (bag(1, group(1)),))) == 210.0
    assert end(Picture(pcs(1, early), (bag(1, group(1), keeps=True),))) == 202.0
    running = pcs(1, early, running=(PictureTask(1, 0, 1.0),))
    assert end(Picture(running, (bag(1, group(0)),))) == 210.0
    assert end(Picture(running, (bag(1, group(0), keeps=True),))) == 201.0


def test_a_task_that_was_interrupted_needs_a_longer_window_than_it_had() -> None:
    spans = (
        PictureWindow(0.0, 100.0, (8.0,)),
        PictureWindow(200.0, 207.0),
        PictureWindow(300.0, 320.0, (309.0,)),
        PictureWindow(400.0, 420.0),
    )
    assert end(Picture(pcs(1, spans), (bag(1, group(1)),))) == 410.0


def test_of_a_block_of_tasks_those_count_that_ended_before_the_window_closed() -> None:
    for really in (55.0, 95.0):
        spans = (PictureWindow(0.0, 10_000.0, (really,)), PictureWindow(20_000.0, inf))
        left = 1_000 - int(really / 10.0)
        assert end(Picture(pcs(1, spans), (bag(1, group(1_000)),))) == pytest.approx(20_000.0 + 10.0 * left)


def test_all_tasks_that_were_interrupted_begin_again() -> None:
    early = (PictureWindow(0.0, 100.0, (8.0,)), PictureWindow(200.0, 500.0))
    picture = Picture((*pcs(3, early), PicturePC("other", (PictureWindow(0.0, 3.0),))), (bag(1, group(3)),))
    assert end(picture) == 210.0
    assert end(replace(picture, pcs=(PicturePC("one", early, 3),))) == 210.0
    assert end(replace(picture, pcs=(*pcs(2, early[:1]), *pcs(1, early)))) == 230.0


def test_ends_of_windows_are_drawn() -> None:
    spans = (PictureWindow(0.0, 100.0, (5.0, 50.0)), PictureWindow(200.0, inf))
    assert set(ends(Picture(pcs(1, spans), (bag(1, group(1)),)), 30)[1]) == {10.0, 210.0}


# --- bags -------------------------------------------------------------------------------------------------------------


def test_bags_are_served_in_order_of_priority_and_then_as_they_came() -> None:
    first, second = bag(1, group(2)), bag(2, group(2))
    assert [end(Picture(pcs(1), (first, second)), number) for number in (1, 2)] == [20.0, 40.0]
    above = (first, replace(second, priority=1))
    assert [end(Picture(pcs(1), above), number) for number in (1, 2)] == [40.0, 20.0]


def test_longer_tasks_begin_first_if_that_is_the_policy() -> None:
    first, second = bag(1, group(1, Durations((5.0,)))), bag(2, group(1))
    assert end(Picture(pcs(1), (first, second)), 1) == 5.0
    assert end(Picture(pcs(1), (first, second), longest_first=True), 1) == 15.0


def test_shares_take_turns_and_the_one_that_has_used_least_comes_first() -> None:
    mine, yours = bag(1, group(4), share="me"), bag(2, group(4), share="you")
    picture = Picture(pcs(1), (mine, yours), shares=(PictureShare("me", 15.0),))
    assert (end(picture, 1), end(picture, 2)) == (80.0, 60.0)
    assert end(replace(picture, shares=(PictureShare("me", 1e6),)), 2) == 40.0
    assert end(replace(picture, shares=()), 1) == 70.0
    assert end(replace(picture, shares=(PictureShare("me", 0.0, 3.0),)), 1) == 60.0


def test_a_bag_with_a_limit_has_no_more_slots_than_that() -> None:
    limited = bag(1, group(4), limit=2)
    assert end(Picture(pcs(4), (limited, bag(2, group(4)))), 1) == 20.0
    running = (PicturePC("a", OPEN, running=(PictureTask(1, 0, 0.0),)), *pcs(3))
    assert end(Picture(running, (bag(1, group(3), limit=1),)), 1) == 40.0
    changing = pcs(4, (PictureWindow(0.0, 15.0), PictureWindow(100.0, inf)))
    assert end(Picture(changing, (bag(1, group(2, needs_s=10.0), limit=1),)), 1) == 110.0


def test_an_interrupted_task_waits_for_its_turn_if_its_bag_has_a_limit() -> None:
    early = (PicturePC("a", (PictureWindow(0.0, 100.0, (8.0,)),), running=(PictureTask(1, 0, 1.0),)), *pcs(3))
    assert end(Picture(early, (bag(1, group(2), limit=1),))) == 38.0


def test_another_slot_goes_on_with_a_bag_that_has_a_limit() -> None:
    changing = (PicturePC("a", (PictureWindow(0.0, 15.0), PictureWindow(100.0, inf))), *pcs(2))
    assert end(Picture(changing, (bag(1, group(3, needs_s=10.0), limit=1),))) == 30.0
    both = (*pcs(2, (PictureWindow(0.0, 10.5),)), *pcs(2))
    assert end(Picture(both, (bag(1, group(4, needs_s=10.0), limit=2),))) == 20.0
    closing = (
        PicturePC("a", (PictureWindow(0.0, 15.0),)),
        PicturePC("b", (PictureWindow(0.0, 12.0), PictureWindow(14.0, inf))),
    )
    assert end(Picture(closing, (bag(1, group(2, needs_s=10.0), limit=1),))) == 24.0


def licensed(pcs: tuple[PicturePC, ...], *bags: PictureBag, **licences: int) -> dict[int, float]:
    found = ends(Picture(pcs, bags, licences=tuple(licences.items())))
    assert all(len(set(its)) == 1 for its in found.values())
    return {number: its[0] for number, its in found.items()}


ONE, TWO = (("matlab", 1),), (("matlab", 2),)


def test_no_more_tasks_run_than_there_are_licences() -> None:
    assert licensed(pcs(4), bag(1, group(4), licences=ONE), matlab=2) == {1: 20.0}
    assert licensed(pcs(4), bag(1, group(4), licences=TWO), matlab=3) == {1: 40.0}
    assert licensed(pcs(4), bag(1, group(400), licences=ONE), matlab=2) == {1: 2_000.0}


def test_bags_share_licences_and_others_run_beside_them() -> None:
    its = (bag(1, group(4), licences=ONE), bag(2, group(4), licences=ONE), bag(3, group(4)))
    assert licensed(pcs(4), *its, matlab=2) == {1: 20.0, 2: 40.0, 3: 20.0}
    assert licensed(pcs(3), *its[:2], bag(3, group(4), begins=15.0), matlab=2) == {1: 20.0, 2: 40.0, 3: 50.0}


def test_a_bag_may_have_a_limit_and_several_licences() -> None:
    both = (*ONE, ("spss", 1))
    assert licensed(pcs(4), bag(1, group(4), licences=both), matlab=4, spss=1) == {1: 40.0}
    assert licensed(pcs(4), bag(1, group(4), licences=ONE, limit=1), matlab=4) == {1: 40.0}
    its = bag(1, group(2, Durations((30.0,))), licences=ONE), bag(2, group(2), licences=(("spss", 1),))
    assert licensed(pcs(4), *its, matlab=1, spss=1) == {1: 60.0, 2: 20.0}


def test_what_runs_has_its_licence_until_it_ends() -> None:
    its = bag(1, group(0), licences=ONE), bag(2, group(1), licences=ONE)
    busy = (PicturePC("a", OPEN, running=(PictureTask(1, 0, 4.0),)), *pcs(3))
    assert licensed(busy, *its, matlab=1) == {1: 6.0, 2: 16.0}
    lost = (PicturePC("a", (PictureWindow(0.0, 100.0, (5.0,)),), running=(PictureTask(1, 0, 4.0),)), *pcs(1))
    assert licensed(lost, bag(1, group(0), licences=ONE), bag(2, group(1), licences=ONE), matlab=1) == {
        1: 15.0,
        2: 25.0,
    }


def test_if_there_are_too_few_licences_a_bag_never_ends_and_delays_nobody() -> None:
    its = bag(1, group(4), licences=TWO), bag(2, group(4))
    assert licensed(pcs(2), *its, matlab=1) == {1: inf, 2: 20.0}
    assert licensed(pcs(2), *its) == {1: inf, 2: 20.0}


def test_slots_that_wait_for_a_licence_take_what_begins_or_is_interrupted_meanwhile() -> None:
    its = bag(1, group(2, Durations((50.0,))), licences=ONE), bag(2, group(1), begins=20.0)
    assert licensed(pcs(2), *its, matlab=1) == {1: 100.0, 2: 30.0}
    short = (PicturePC("a", OPEN), PicturePC("b", (PictureWindow(0.0, 60.0), PictureWindow(70.0, inf))))
    assert licensed(short, its[0], bag(2, group(1, Durations((65.0,)), 65.0)), matlab=1)[2] in (115.0, 135.0)


def test_a_bag_that_is_barred_never_ends_and_delays_nobody() -> None:
    picture = Picture(pcs(1), (bag(1, group(1), barred=True), bag(2, group(1))))
    assert (end(picture, 1), end(picture, 2)) == (inf, 10.0)
    early = pcs(1, (PictureWindow(0.0, 100.0, (8.0,)), PictureWindow(200.0, inf)), running=(PictureTask(1, 0, 1.0),))
    assert end(Picture(early, (bag(1, group(0), barred=True),))) == inf


# --- chance -----------------------------------------------------------------------------------------------------------


def spread(known: int, uncertainty: Uncertainty = USUAL) -> float:
    points = tuple(exp(place / 20.0) for place in range(40))
    picture = Picture(pcs(8), (bag(1, group(400, Durations(points, known))),))
    found = sorted(forecast(picture, Random(3), 100, uncertainty)[1])
    return found[95] / found[5]


def test_the_less_is_known_of_a_bag_the_wider_its_runs_differ() -> None:
    assert spread(0) > 1.5 * spread(60) > 1.5 * spread(60, uncertainty=CERTAIN)
    assert spread(60, uncertainty=Uncertainty(0.5, 0.0, False)) == pytest.approx(exp(2 * 1.645 * 0.5), rel=0.2)


def test_the_same_chance_gives_the_same_runs() -> None:
    picture = Picture(pcs(4), (bag(1, group(50, Durations((5.0, 10.0, 90.0), 3))),))
    assert forecast(picture, Random(7)) == forecast(picture, Random(7)) != forecast(picture, Random(8))


def test_with_more_pcs_a_bag_ends_sooner_in_nearly_every_run() -> None:
    picture = Picture(pcs(4), (bag(1, group(200, Durations((5.0, 10.0, 90.0), 3))),))
    more = replace(picture, pcs=pcs(8))
    pairs = list(zip(forecast(picture, Random(7))[1], forecast(more, Random(7))[1], strict=True))
    assert fmean(after < before for before, after in pairs) > 0.95


def test_if_the_longest_tasks_may_be_yet_to_be_seen_every_other_run_has_them() -> None:
    pc = PicturePC("pc", (PictureWindow(0.0, inf),))
    like = Durations((10.0,), 5.0, (10.0, 10.0, 90.0))
    (found,) = forecast(Picture((pc,), (bag(1, group(2, like)),)), Random(1), 100, CERTAIN).values()
    assert sum(end == 20.0 for end in found) > 60  # half of the runs, and 4 in 9 of the others
    assert sorted(found)[75] == 100.0
    assert max(found) == 180.0
    assert widened(Picture((pc,), (bag(1, group(2, Durations((10.0,)))),))) is None
    others = widened(Picture((pc,), (bag(1, group(2, like)), bag(2, group(3)))))
    assert others is not None
    assert [bag.groups[0].durations.points for bag in others.bags] == [like.wide, group(3).durations.points]
