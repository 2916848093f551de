"""Long shots: if a bag's predictions were far too long, idle slots try tasks that are predicted not to fit."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.policies.packing import AGAIN, LONG_SHOTS, TASKS
from deskgrid.scheduler.state.prediction_error import ENOUGH
from tests.scheduler.planned import Planned

BAG = 7


def overestimated(took: float = 1.0, confidence: float = 0.9, queue_s: float = 0.0) -> Planned:
    """A grid that has done so many tasks of a bag, predicted at 10 s, that it knows how long they take."""
    grid = Planned(queue_s=queue_s, confidence=confidence)
    grid.pc("stays")
    tasks = grid.tasks(*[10.0] * ENOUGH, bag=BAG)
    for _ in tasks:
        grid.tell_pass()
        grid.end(grid.running("stays"), elapsed=took)
    grid.leave("stays")
    return grid


def test_an_idle_slot_tries_the_longest_of_a_bag_whose_predictions_were_far_too_long() -> None:
    grid = overestimated(took=1.0)
    grid.pc("a", 10, windows=[(20, 500)])
    _, long, too_long = grid.tasks(20, 90, 110, bag=BAG)
    grid.expect(a=[long])
    assert too_long in grid.priority()
    assert grid.scheduler.policy.requirement.needs(20) == 20, "for others, and afterwards, predictions count"


def test_each_idle_slot_has_one_the_longest_first_on_the_tightest_where_it_may_end() -> None:
    grid = overestimated(took=1.0)
    for name, uptime in (("a", 4), ("b", 10), ("c", 6)):
        grid.pc(name, uptime, windows=[(20, 500)])
    thirty, ninety, fifty, seventy = grid.tasks(30, 90, 50, 70, bag=BAG)
    grid.expect(a=[thirty], b=[ninety], c=[fifty])
    assert grid.priority() == [seventy]


def test_what_is_predicted_to_fit_goes_first() -> None:
    grid = overestimated(took=1.0)
    grid.pc("a", 10, windows=[(20, 500)])
    fits, _ = grid.tasks(9, 20, bag=BAG)
    grid.expect(a=[fits])


@pytest.mark.parametrize(("took", "tried"), [(4.9, True), (5.0, False), (10.0, False), (30.0, False)])
def test_a_bag_that_took_half_of_what_was_predicted_or_more_is_taken_at_its_word(took: float, tried: bool) -> None:
    grid = overestimated(took)
    grid.pc("a", 10, windows=[(20, 500)])
    (task,) = grid.tasks(10.5, bag=BAG)
    grid.expect(**({"a": [task]} if tried else {}))


def test_one_in_ten_is_chance_enough() -> None:
    for short in (2, 3):
        grid = Planned(confidence=0.9)
        grid.pc("stays")
        grid.tasks(*[10.0] * ENOUGH, bag=BAG)
        for number in range(ENOUGH):
            grid.tell_pass()
            grid.end(grid.running("stays"), elapsed=1.0 if number < short else 5.0)
        grid.leave("stays")
        grid.pc("a", 10, windows=[(20, 500)])
        (task,) = grid.tasks(50, bag=BAG)
        grid.expect(**({"a": [task]} if short == 3 else {}))


def test_that_another_bag_was_overestimated_makes_no_task_a_long_shot() -> None:
    grid = overestimated()
    grid.pc("a", 10, windows=[(20, 500)])
    grid.tasks(20, bag=BAG + 1)
    grid.expect()


def test_a_prediction_that_many_tasks_share_is_a_bound_and_says_nothing_of_each() -> None:
    for submitted in (True, False):
        grid = Planned(confidence=0.9)
        grid.pc("stays")
        if submitted:
            grid.tell(ev.TasksSubmitted(BAG, 0, ENOUGH, [10.0]))
        else:
            grid.tasks(*[3.0] * ENOUGH, bag=BAG)
            grid.tell(ev.BagPredicted(BAG, 10.0))
        for _ in range(ENOUGH):
            grid.tell_pass()
            grid.end(grid.running("stays"), elapsed=1.0)
        grid.leave("stays")
        grid.pc("a", 10, windows=[(20, 500)])
        grid.tell(ev.TasksSubmitted(BAG, 100, 1, [20.0]))
        grid.expect()


def test_what_was_tried_in_vain_is_tried_again_only_where_much_more_is_left() -> None:
    grid = overestimated()
    grid.pc("a", 10, windows=[(20, 500)])
    (task,) = grid.tasks(50, bag=BAG)
    grid.expect(a=[task])
    grid.wait(10)
    grid.leave("a")
    grid.pc("b", AGAIN * 10, windows=[(20, 500)])
    grid.expect()
    grid.pc("c", AGAIN * 10 + 1, windows=[(20, 500)])
    grid.expect(c=[task])


def test_a_slot_that_runs_something_is_not_for_long_shots() -> None:
    grid = overestimated(queue_s=1.0)
    grid.pc("a", 10, windows=[(20, 500)])
    short, _ = grid.tasks(0.6, 50, bag=BAG)
    grid.expect(a=[short])
    assert grid.queues() == {}


def test_where_predictions_are_trusted_there_are_no_long_shots() -> None:
    grid = overestimated(confidence=0.0)
    grid.pc("a", 10, windows=[(20, 500)])
    grid.tasks(50, bag=BAG)
    grid.expect()


def test_so_many_tasks_are_looked_at_in_a_pass() -> None:
    for others in (LONG_SHOTS - 1, LONG_SHOTS):
        grid = overestimated()
        grid.pc("a", 10, windows=[(20, 500)])
        grid.tasks(*[200.0] * others)
        (task,) = grid.tasks(50, bag=BAG)
        grid.expect(**({"a": [task]} if others < LONG_SHOTS else {}))


def test_the_longest_ago_is_forgotten_of_very_many_that_were_tried() -> None:
    grid = overestimated()
    tried = grid.packing._tried
    tried.update((-number, 1.0) for number in range(1, TASKS + 1))
    grid.pc("a", 10, windows=[(20, 500)])
    (task,) = grid.tasks(50, bag=BAG)
    grid.expect(a=[task])
    assert (len(tried), -1 in tried, -2 in tried, task in tried) == (TASKS, False, True, True)
