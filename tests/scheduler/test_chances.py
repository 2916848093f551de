"""Chances: if predictions of a bag say little, idle slots get the task that is worth most to try."""

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import State
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.policies.chances import PAST
from deskgrid.scheduler.policies.reserved import LAST_TASKS
from tests.scheduler.planned import Planned

BAG = 7
# Half of the tasks take a fifth of what was predicted, and half of them twice as long.
WRONG = (2.0, 20.0) * 10


def mispredicted(took: tuple[float, ...] = WRONG, confidence: float = 0.9, queue_s: float = 0.0) -> Planned:
    """A grid that has done so many tasks of a bag, predicted at 10 s, that it knows how long they take."""
    grid = Planned(queue_s=queue_s, confidence=confidence)
    grid.pc("stays")
    grid.tasks(*[10.0] * len(took), bag=BAG)
    for seconds in took:
        grid.tell_pass()
        grid.end(grid.running("stays"), elapsed=seconds)
    grid.leave("stays")
    return grid


def others(grid: Planned) -> None:
    """So many tasks wait that no places are reserved: short ones, which are not worth much."""
    grid.tasks(*[0.001] * (LAST_TASKS + 1), bag=BAG)


def test_an_idle_slot_tries_the_task_that_is_worth_most_though_it_is_predicted_not_to_fit() -> None:
    grid = mispredicted()
    others(grid)
    grid.pc("a", 10, windows=[(20, 500)])
    _, long, too_long = grid.tasks(4, 49, 51, bag=BAG)
    grid.expect(a=[long])
    assert too_long in grid.priority()


def test_the_longest_task_of_all_is_taken_where_it_is_certain_to_end() -> None:
    grid = mispredicted()
    others(grid)
    grid.pc("a", 1000)
    *_, longest = grid.tasks(4, 49, 51, bag=BAG)
    grid.expect(a=[longest])


def test_a_slot_that_is_kept_for_a_gang_takes_no_chances() -> None:
    """It is kept from 9 on. A task of 44 s ends in 8.8 or in 88, one of 4 s in 8 at the latest."""
    grid = mispredicted()
    grid.pc("a", site="lab")
    grid.pc("b", site="lab")
    (first,) = grid.tasks(9, need=Need(1, 1, gang=True), bag=8)
    (started,) = [command for command in grid.tell(ev.PassDue()) if isinstance(command, cmd.StartGang)]
    assert started.attempt.task == first
    (waits,) = grid.tasks(100, need=Need(2, 2, gang=True), bag=9)
    others(grid)
    chance, certain = grid.tasks(44, 4, bag=BAG)
    free = {"a", "b"}.difference([rank.worker for rank in started.ranks])
    grid.expect(**{free.pop(): [certain]})
    assert grid.state(waits) == State.WAITING
    assert grid.state(chance) == State.WAITING


def test_nothing_begins_on_a_slot_that_is_kept_if_no_task_is_short_enough() -> None:
    grid = mispredicted()
    grid.pc("a", site="lab")
    grid.pc("b", site="lab")
    grid.tasks(9, need=Need(1, 1, gang=True), bag=8)
    grid.tell(ev.PassDue())
    grid.tasks(100, need=Need(2, 2, gang=True), bag=9)
    grid.tasks(50, bag=BAG)
    grid.expect()


def test_no_task_takes_longer_than_the_longest_of_its_bag_for_all_that_is_known() -> None:
    grid = mispredicted()
    others(grid)
    grid.pc("a", 1.1 * 20 + 0.01)
    *_, longest = grid.tasks(4, 49, 4000, bag=BAG)
    grid.expect(a=[longest])


def test_each_idle_slot_has_one_the_tightest_first() -> None:
    grid = mispredicted()
    others(grid)
    for name, uptime in (("a", 4), ("b", 10), ("c", 6)):
        grid.pc(name, uptime, windows=[(20, 500)])
    nineteen, fortynine, twentynine, _ = grid.tasks(19, 49, 29, 70, bag=BAG)
    grid.expect(a=[nineteen], b=[fortynine], c=[twentynine])


@pytest.mark.parametrize("took", [(10.0,) * 20, (11.0, 12.0) * 10, (2.0, 20.0)])
def test_a_bag_is_taken_at_its_word_if_its_predictions_were_good_or_hardly_any_task_has_ended(
    took: tuple[float, ...],
) -> None:
    grid = mispredicted(took)
    grid.pc("a", 10, windows=[(20, 500)])
    grid.tasks(49, bag=BAG)
    grid.expect()


def test_where_predictions_are_trusted_nothing_is_left_to_chance() -> None:
    grid = mispredicted(confidence=0.0)
    grid.pc("a", 10, windows=[(20, 500)])
    grid.tasks(49, bag=BAG)
    grid.expect()


def test_a_prediction_that_many_tasks_share_is_a_bound_and_says_nothing_of_each() -> None:
    for submitted in (True, False):
        grid = Planned(confidence=0.9)
        grid.pc("stays")
        if submitted:
            grid.tell(ev.TasksSubmitted(BAG, 0, len(WRONG), [10.0]))
        else:
            grid.tasks(*[3.0] * len(WRONG), bag=BAG)
            grid.tell(ev.BagPredicted(BAG, 10.0))
        for seconds in WRONG:
            grid.tell_pass()
            grid.end(grid.running("stays"), elapsed=seconds)
        grid.leave("stays")
        grid.pc("a", 10, windows=[(20, 500)])
        grid.tell(ev.TasksSubmitted(BAG, 100, 1, [20.0]))
        grid.expect()


def test_a_killed_task_takes_longer_than_it_has_run() -> None:
    grid = mispredicted()
    others(grid)
    grid.pc("a", 10, windows=[(500, 9)])
    (task,) = grid.tasks(49, bag=BAG)
    grid.expect(a=[task])
    grid.wait(10)
    grid.leave("a")
    assert grid.view.runtimes(task) == [1.1 * 20], "it is not one of the half that take a fifth"
    grid.pc("b", 21, windows=[(500, 9)])
    assert task not in [each for some in grid.tell_pass().values() for each in some]
    grid.pc("c", 23, windows=[(500, 9)])
    assert grid.tell_pass()["c"] == [task]
    grid.pc("d", 10, windows=[(500, 9)])
    assert task not in grid.tell_pass()["d"], "it runs already"


def test_a_task_that_has_outlived_all_expectations_is_tried_where_a_little_more_is_left() -> None:
    grid = mispredicted()
    others(grid)
    (task,) = grid.tasks(49, bag=BAG)
    grid.pc("a", 30, windows=[(500, 40)])
    grid.expect(a=[task])
    grid.wait(30)
    grid.leave("a")
    grid.pc("b", 30.5, windows=[(500, 40)])
    assert task not in [each for some in grid.tell_pass().values() for each in some]
    grid.pc("c", 32, windows=[(500, 40)])
    assert grid.tell_pass()["c"] == [task]


def test_what_a_killed_task_would_cost_counts_against_a_chance() -> None:
    """The long one ends in 2.18 s or not at all, which is worth 2.4 at best; the certain one is worth 2.2."""
    grid = mispredicted()
    others(grid)
    grid.pc("a", 10, windows=[(20, 500)])
    certain, _ = grid.tasks(1.05, 10.9, bag=BAG)
    grid.expect(a=[certain])


def test_untried_tasks_are_found_behind_killed_ones_of_about_the_same_length() -> None:
    grid = mispredicted()
    others(grid)
    tried = grid.tasks(*[49.0] * (PAST - 1), bag=BAG)
    for task in tried:
        grid.inside.tasks.bags[BAG].show(task, 30.0, 49.0)
    (untried,) = grid.tasks(48, bag=BAG)
    grid.pc("a", 10, windows=[(20, 500)])
    grid.expect(a=[untried])


# --- the last tasks --------------------------------------------------------------------------------------------------


def test_one_of_the_last_tasks_takes_no_chance_if_its_place_is_free_before_that_would_end() -> None:
    for opens in (5, 15):
        grid = mispredicted()
        grid.pc("a", 10)
        grid.tell(ev.UptimeRefreshed("b", 0, [(opens, 100)]))
        (task,) = grid.tasks(10.9, bag=BAG)
        grid.expect(**({"a": [task]} if opens == 15 else {}))


def test_the_last_tasks_begin_where_they_are_nearly_certain_to_end_and_end_soonest() -> None:
    grid = mispredicted()
    grid.pc("a", 30)
    grid.pc("b", 300)
    short, long = grid.tasks(10, 10.9, bag=BAG)
    grid.expect(a=[long], b=[short])


def test_what_is_too_long_for_every_window_may_have_nearly_all_of_the_longest() -> None:
    grid = mispredicted()
    grid.pc("a", 21)
    (task,) = grid.tasks(10.9, bag=BAG)
    grid.expect(a=[task])


def test_tasks_for_which_no_window_is_left_may_take_any_chance() -> None:
    grid = mispredicted()
    grid.pc("a", 30)
    grid.pc("b", 5)
    short, long = grid.tasks(48, 49, bag=BAG)
    assert grid.tell_pass() == {"a": [long]}, "the other has no chance in 5 s"
    assert grid.priority() == [short]


def test_for_too_many_slots_no_places_are_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.scheduler.policies.reserved.LAST_PAIRS", 0)
    grid = mispredicted()
    grid.pc("a", 10)
    grid.tell(ev.UptimeRefreshed("b", 0, [(5, 100)]))
    (task,) = grid.tasks(10.9, bag=BAG)
    grid.expect(a=[task])


def test_a_slot_that_runs_something_is_not_for_chances() -> None:
    grid = mispredicted(queue_s=1.0)
    others(grid)
    grid.pc("a", 1000)
    grid.tell_pass()
    held = grid.running("a")
    (task,) = grid.tasks(0.9, bag=BAG)
    grid.tell_pass()
    assert grid.running("a") == held != task


def test_of_very_many_killed_tasks_of_one_length_some_are_passed_over() -> None:
    grid = mispredicted()
    others(grid)
    for task in grid.tasks(*[49.0] * (PAST + 2), bag=BAG):
        grid.inside.tasks.bags[BAG].show(task, 30.0, 49.0)
    grid.pc("a", 10, windows=[(20, 500)])
    assert grid.tell_pass()["a"] != []


def test_slots_whose_windows_close_together_are_as_good_as_each_other() -> None:
    grid = mispredicted()
    for name in ("c", "a", "b"):
        grid.pc(name, 1000)
    (last,) = grid.tasks(49, bag=BAG)
    assert last in [task for tasks in grid.tell_pass().values() for task in tasks]


def test_no_place_is_kept_on_a_pc_that_is_late() -> None:
    grid = mispredicted()
    grid.pc("a late one", 10, windows=[(20, 500)])
    grid.leave("a late one")
    grid.pc("b", 150)
    grid.wait(30)
    (last,) = grid.tasks(49, bag=BAG)
    grid.expect(b=[last])


# --- earlier bags ----------------------------------------------------------------------------------------------------

FUNCTION, PROGRAM = "ann\nrender", "ann\nnightly"


def after_a_bag(took: tuple[float, ...] = WRONG, names: tuple[str, ...] = (FUNCTION, PROGRAM)) -> Planned:
    """A grid that has done all of an earlier bag, predicted at 10 s."""
    grid = Planned(confidence=0.9)
    grid.pc("stays")
    grid.tasks(*[10.0] * len(took), bag=BAG, names=names)
    for seconds in took:
        grid.tell_pass()
        grid.end(grid.running("stays"), elapsed=seconds)
    grid.leave("stays")
    grid.pc("a", 10, windows=[(20, 500)])
    return grid


@pytest.mark.parametrize("names", [(FUNCTION,), ("ann\nother", PROGRAM)])
def test_the_next_bag_of_a_function_or_a_program_takes_chances_from_its_first_task_on(names: tuple[str, ...]) -> None:
    grid = after_a_bag()
    (task,) = grid.tasks(49, bag=BAG + 1, names=names)
    assert grid.view.runtimes(task) == [49 * 0.2] * 8 + [49 * 2.0] * 8
    assert not grid.view.certain(task)
    grid.tasks(*[0.001] * (LAST_TASKS + 1), bag=BAG + 1, names=names)
    assert grid.tell_pass()["a"] == [task]


@pytest.mark.parametrize("names", [(), ("ann\nother",), ("ben\nrender",)])
def test_a_bag_of_another_function_is_taken_at_its_word(names: tuple[str, ...]) -> None:
    grid = after_a_bag()
    (task,) = grid.tasks(49, bag=BAG + 1, names=names)
    assert grid.view.runtimes(task) == [49.0]
    grid.expect()


def test_if_the_predictions_of_earlier_bags_held_the_next_is_taken_at_its_word() -> None:
    grid = after_a_bag((20.0,) * 10 + (21.0,) * 10)
    (task,) = grid.tasks(49, bag=BAG + 1, names=[FUNCTION])
    assert grid.view.certain(task)
    assert grid.view.runtimes(task) == [49.0]


def test_a_prediction_that_many_tasks_share_neither_learns_from_earlier_bags_nor_teaches() -> None:
    grid = after_a_bag()
    grid.tell(ev.TasksSubmitted(BAG + 1, 100, 2, [49.0], names=[FUNCTION]))
    assert grid.view.runtimes(100) == [49.0]
    assert grid.view.certain(100)
    grid.expect()
    kept = grid.inside.earlier.kept(FUNCTION)
    grid.pc("b")
    for _ in range(2):
        grid.tell_pass()
        grid.end(grid.running("b"), elapsed=1.0)
    assert grid.inside.earlier.kept(FUNCTION) == kept


def test_a_bag_that_is_cancelled_teaches_what_it_has_shown() -> None:
    grid = after_a_bag(WRONG[:6], names=())
    tasks = grid.tasks(1, 1, bag=BAG + 1, names=[FUNCTION])
    grid.tell_pass()
    grid.end(grid.running("a"), elapsed=3.0)
    assert grid.inside.earlier.kept(FUNCTION) == []
    grid.cancel(*tasks)
    assert grid.inside.earlier.kept(FUNCTION) == [BAG + 1, 1, *[3.0] * 16]
