"""PCs that do not keep their hours get tasks that will almost surely end in time, and others only if they are idle."""

from collections.abc import Sequence

import pytest

from deskgrid.scheduler.placing import caution
from tests.scheduler.builders import Grid, fcfs, packing

# How long the windows of a PC lasted: its habit. The median is 1000 s; 15 % of them end before 400 s, 70 % before 1300.
LASTED = (200, 400, 600, 800, 900, 1000, 1100, 1300, 1500, 1800)
EARLY, MEDIAN, LATE = 400, 1000, 1300


def known(policy_of_grid: Grid, *pcs: str, lasted: Sequence[float] = LASTED) -> Grid:
    """The grid after these PCs had such windows."""
    grid = policy_of_grid
    for seconds in lasted:
        for pc in pcs:
            grid.pc(pc, 9000)
        grid.wait(seconds)
        for pc in pcs:
            grid.leave(pc, planned=True)
    return grid


def test_a_task_that_ends_before_nearly_all_windows_comes_before_a_longer_one() -> None:
    grid = known(Grid(packing()), "a")
    long, short = grid.tasks(MEDIAN - 10, EARLY - 10)
    grid.pc("a", 9000)
    grid.expect(a=[short])
    assert grid.priority() == [long]


@pytest.mark.parametrize("runtime", [MEDIAN - 10, LATE - 10])
def test_an_idle_slot_takes_a_longer_task_if_no_short_one_waits(runtime: float) -> None:
    grid = known(Grid(packing()), "a")
    too_long, task = grid.tasks(LATE + 10, runtime)
    grid.pc("a", 9000)
    grid.expect(a=[task])
    assert grid.priority() == [too_long]


@pytest.mark.parametrize(("slots", "handed", "waits"), [(200, {"a": 1, "b": 2}, 0), (1, {"a": 1, "b": 0}, 2)])
def test_a_bag_that_comes_to_idle_slots_begins_with_what_surely_ends_in_time_on_so_many_of_them(
    slots: int, handed: dict[str, int], waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caution, "SLOTS", slots)
    grid = known(Grid(packing()), "a", "b")
    grid.pc("a", 9000)
    grid.pc("b", 9000)
    grid.expect()
    tasks = grid.tasks(MEDIAN - 10, EARLY - 10, EARLY - 20)
    grid.expect(**{pc: [tasks[place]] for pc, place in handed.items()})
    assert grid.priority() == [tasks[waits]]


def test_slots_of_one_pc_count_on_the_same() -> None:
    grid = known(Grid(packing()), "a")
    tasks = grid.tasks(MEDIAN - 10, EARLY - 10, EARLY - 20)
    grid.pc("a", 9000, slots=2)
    grid.expect(a=tasks[1:2], a_1=tasks[2:])
    assert grid.priority() == tasks[:1]


def test_who_keeps_its_hours_is_taken_at_its_word_and_a_policy_without_times_does_not_care() -> None:
    grid = known(Grid(packing()), "a", lasted=(9000, 9000))
    long, short = grid.tasks(MEDIAN - 10, EARLY - 10)
    grid.pc("a", 9000)
    grid.expect(a=[long])
    assert grid.priority() == [short]
    grid = known(Grid(fcfs()), "a")
    first, _ = grid.tasks(LATE + 10, EARLY - 10)
    grid.pc("a", 9000)
    grid.expect(a=[first])


def test_a_pc_that_is_gone_or_known_better_is_no_longer_in_doubt() -> None:
    grid = known(Grid(packing()), "a", lasted=(400, 500))
    grid.pc("a", 9000)
    assert list(grid.inside.doubted) == ["a"]
    grid.leave("a", planned=True)
    assert not grid.inside.doubted
    grid.pc("a", 9000)
    grid.inside.hours.forget()
    grid.refresh("a", 100)
    assert not grid.inside.doubted
