"""Changes that are only imagined: what a picture of the grid is with them."""

from dataclasses import replace
from math import inf

import pytest

from deskgrid.scheduler.forecast.changes import ImaginedChange, Unchangeable, changed, matching, more_pcs, stays_longer
from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureTask,
    PictureWindow,
    Preparing,
)
from deskgrid.scheduler.need import Need

HOUR = 3600.0
# Lab 1 is open for another hour, lab 2 opens in two hours.
LAB_1 = tuple(
    PicturePC(f"lab1-{n}", (PictureWindow(-10.0, HOUR),), 2, (PictureTask(7, 0, 30.0),), "lab 1") for n in (1, 2)
)
LAB_2 = tuple(
    PicturePC(f"lab2-{n}", (PictureWindow(2 * HOUR, 4 * HOUR), PictureWindow(6 * HOUR, 9 * HOUR)), site="lab 2")
    for n in (1, 2, 3)
)
BAG = PictureBag(7, (Group(10, Durations((50.0, 60.0), 4.0), 55.0, 70.0), Group(0, Durations((5.0,)))), 20, ended=8)
OTHER = PictureBag(8, (Group(3, Durations((1.0,)), 2.0),), 3)
PICTURE = Picture(LAB_1 + LAB_2, (BAG, OTHER))


def names(picture: Picture) -> list[str]:
    return [pc.name for pc in picture.pcs]


def test_no_change_changes_nothing() -> None:
    assert changed(PICTURE, 7, ImaginedChange()) == PICTURE
    assert changed(PICTURE, 7, ImaginedChange(policy="pgs")) == PICTURE


@pytest.mark.parametrize(("pattern", "found"), [("lab 2", 3), ("lab2-*", 3), ("*-1", 2), ("lab2-[13]", 2), ("*", 5)])
def test_a_pattern_stands_for_names_or_for_a_site(pattern: str, found: int) -> None:
    assert len(matching(PICTURE.pcs, pattern)) == found


@pytest.mark.parametrize(
    "change",
    [
        ImaginedChange(without=("lab3-*",)),
        ImaginedChange(windows=(("lab 3", ((0.0, 1.0),)),)),
        ImaginedChange(more=(("x", 1),)),
    ],
)
def test_a_pattern_that_stands_for_nothing_is_named(change: ImaginedChange) -> None:
    with pytest.raises(Unchangeable, match="no PC and no site is called "):
        changed(PICTURE, 7, change)


def test_more_slots_than_a_forward_run_can_take_are_not_imagined() -> None:
    assert len(more_pcs(LAB_1, [("*", 10_000)])) == 10_000
    with pytest.raises(Unchangeable, match="10,001 more PCs like these have more than 20,000 slots"):
        more_pcs(LAB_1, [("*", 10_000), ("lab1-1", 1)])


def test_tasks_of_pcs_that_are_not_there_begin_again() -> None:
    found = changed(PICTURE, 8, ImaginedChange(without=("lab 1", "lab2-3")))
    assert names(found) == ["lab2-1", "lab2-2"]
    assert [[group.count for group in bag.groups] for bag in found.bags] == [[12, 0], [3]]


def test_other_windows_take_the_place_of_those_of_a_pc() -> None:
    found = changed(PICTURE, 7, ImaginedChange(windows=(("lab1-1", ((0.0, 60.0), (100.0, 50.0))), ("lab2-*", ()))))
    assert found.pcs[0] == replace(LAB_1[0], spans=(PictureWindow(0.0, 60.0), PictureWindow(100.0, 150.0)))
    assert found.pcs[1] == LAB_1[1]
    assert not any(pc.spans for pc in found.pcs[2:])
    assert found.bags == PICTURE.bags


def test_a_pc_whose_window_opens_later_loses_what_it_runs() -> None:
    found = changed(PICTURE, 7, ImaginedChange(windows=(("lab1-1", ((1.0, 60.0),)),)))
    assert found.pcs[0].running == ()
    assert found.pcs[1] == LAB_1[1]
    assert found.bags[0].groups[0].count == 11


@pytest.mark.parametrize("windows", [((0.0, 10.0), (9.0, 1.0)), ((10.0, 1.0), (0.0, 1.0))])
def test_windows_come_in_order(windows: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(Unchangeable, match="windows overlap, or are not in order"):
        changed(PICTURE, 7, ImaginedChange(windows=(("*", windows),)))


def test_on_more_pcs_no_environment_is_ready_yet() -> None:
    pc = replace(LAB_1[0], prepares=(Preparing("numpy", 9.0, ready=True),))
    (found,) = more_pcs([pc], [("*", 1)])
    assert (pc.prepares_s("numpy"), found.prepares_s("numpy")) == (0.0, 9.0)


def test_more_pcs_are_like_those_that_are_there_and_idle() -> None:
    found = more_pcs(PICTURE.pcs, [("lab 1", 3), ("lab2-2", 1)])
    assert [pc.name for pc in found] == ["lab1-1+1", "lab1-2+2", "lab1-1+3", "lab2-2+4"]
    assert found[3].spans == LAB_2[1].spans
    assert all((pc.spans, pc.slots, pc.running) == (LAB_1[0].spans, 2, ()) for pc in found[:3])
    assert names(changed(PICTURE, 7, ImaginedChange(more=(("lab2-2", 1),), without=("lab2-2",))))[-1] == "lab2-2+1"


def test_a_window_may_last_longer_and_reach_the_next() -> None:
    away = replace(
        LAB_2[0], spans=(PictureWindow(2 * HOUR, 4 * HOUR, (3 * HOUR, 4 * HOUR)), PictureWindow(6 * HOUR, 9 * HOUR))
    )
    assert stays_longer(away, HOUR).spans == (
        PictureWindow(2 * HOUR, 5 * HOUR, (4 * HOUR, 5 * HOUR)),
        PictureWindow(6 * HOUR, 9 * HOUR),
    )
    assert stays_longer(LAB_2[0], 2 * HOUR).spans == (PictureWindow(2 * HOUR, 9 * HOUR),)
    assert stays_longer(LAB_2[0], 8 * HOUR).spans == (PictureWindow(2 * HOUR, 12 * HOUR),)
    assert stays_longer(PicturePC("new", ()), HOUR) == PicturePC("new", ())
    assert stays_longer(PicturePC("open", (PictureWindow(0.0, inf),)), HOUR) == PicturePC(
        "open", (PictureWindow(0.0, inf),)
    )


def test_waiting_tasks_are_split_and_running_ones_are_not() -> None:
    bag, other = changed(PICTURE, 7, ImaginedChange(split=2)).bags
    assert bag.groups[:2] == (replace(BAG.groups[0], count=0), BAG.groups[1])
    assert bag.groups[2:] == (Group(20, Durations((25.0, 30.0), 4.0), 27.5, 35.0),)
    assert (bag.total, bag.ended, other) == (30, 8, OTHER)


def test_a_bag_may_begin_later() -> None:
    bag, other = changed(PICTURE, 7, ImaginedChange(begins_s=HOUR)).bags
    assert (bag.begins, other) == (HOUR, OTHER)


def test_a_gang_of_which_a_pc_is_lost_begins_again_once_and_frees_its_other_pcs() -> None:
    running, other = PictureTask(1, 0, 3.0, gang=7), PictureTask(1, 0, 1.0)
    pcs = (
        PicturePC("a", (PictureWindow(0.0, inf),), 2, (running, running)),
        PicturePC("b", (PictureWindow(0.0, inf),), 3, (running, running, other)),
    )
    waiting = PictureBag(1, (Group(5, Durations((9.0,))),), 9, need=Need(2, 2, slots=2, gang=True))
    found = changed(Picture(pcs, (waiting,)), 1, ImaginedChange(without=("a",)))
    assert found.pcs == (replace(pcs[1], running=(other,)),)
    assert [group.count for group in found.bags[0].groups] == [6]
