"""What the predictions of a bag are worth: ratios of tasks that were done, that were killed, and that run."""

from math import inf

import pytest

from deskgrid.scheduler.prediction.ratios import (
    BEYOND,
    ENOUGH,
    EXPERIENCED,
    LONGER,
    REMEMBERED,
    SHOWN,
    Ratios,
    narrow,
)
from deskgrid.scheduler.prediction.spread import EXACT, POINTS, Spread, longest, runtimes
from deskgrid.scheduler.prediction.spread import LONGER as OUTLIVED


def told(*ratios: float, longest: float = 10.0) -> Ratios:
    found = Ratios()
    found.add(ratios, longest)
    return found


def test_a_few_results_say_nothing() -> None:
    assert Ratios().spread() is EXACT
    assert told(*[2.0] * (ENOUGH - 1)).spread() is EXACT
    assert told(*[2.0] * ENOUGH).spread().ratios == (2.0,) * POINTS


def test_ratios_have_equal_weight() -> None:
    assert told(4.0, 1.0, 2.0, 3.0).spread().ratios == (1.0,) * 4 + (2.0,) * 4 + (3.0,) * 4 + (4.0,) * 4


def test_a_killed_task_counts_as_longer_than_it_ran() -> None:
    known = told(1.0, 1.0, 4.0, 4.0)
    known.show(7, 20.0, 10.0)  # at twice its prediction
    assert known.spread().ratios.count(4.0) == 10, "three of five, in sixteenths"
    known.show(8, 50.0, 10.0)
    assert known.spread().ratios[-1] == LONGER * 5.0, "nothing known takes longer than that"


def test_a_killed_task_counts_once_with_the_longest_it_ran_and_its_first_prediction() -> None:
    known = Ratios()
    known.show(7, 20.0, 10.0)
    known.show(7, 15.0, 40.0)
    assert known.shown == {7: (20.0, 10.0)}


def test_of_very_many_killed_tasks_the_latest_are_remembered() -> None:
    known = Ratios()
    for task in range(SHOWN + 1):
        known.show(task, 1.0, 1.0)
    assert len(known.shown) == SHOWN
    assert 0 not in known.shown


def test_running_tasks_count_as_longer_than_they_have_run() -> None:
    known = told(1.0, 1.0, 4.0, 4.0)
    assert known.spread([(20.0, 10.0), (5.0, 0.0)]).ratios.count(4.0) == 10


def test_the_distribution_is_made_again_when_enough_has_come() -> None:
    known = told(*[1.0] * 64)
    assert known.spread().ratios == (1.0,) * POINTS
    known.add([9.0] * 4, 10.0)
    assert known.spread().ratios[-1] == 1.0
    known.add([9.0], 10.0)
    assert known.spread().ratios[-1] == 9.0


def test_the_latest_are_remembered() -> None:
    known = told(*[9.0] * 50, *[1.0] * REMEMBERED)
    assert known.spread().ratios == (1.0,) * POINTS
    assert known.known() == [1.0] * REMEMBERED


def test_with_experience_no_task_is_expected_to_take_much_longer_than_the_longest_so_far() -> None:
    assert told(*[1.0] * (EXPERIENCED - 1)).spread().longest == float("inf")
    known = told(*[1.0] * EXPERIENCED, longest=10.0)
    assert known.spread().longest == BEYOND * 10.0
    known.show(1, 12.0, 10.0)
    known.add([1.0] * 2, 3.0)
    assert known.spread([(30.0, 1.0)]).longest == BEYOND * 30.0


@pytest.mark.parametrize(("most", "is_narrow"), [(1.0, True), (1.29, True), (1.31, False)])
def test_predictions_that_are_off_by_a_common_factor_are_narrow(most: float, is_narrow: bool) -> None:
    assert narrow(EXACT)
    assert narrow(told(2.0, 2.0, 2.0 * most, 2.0 * most).spread()) == is_narrow


def test_a_few_that_are_far_off_do_not_matter() -> None:
    assert narrow(Spread((0.1, *[1.0] * (POINTS - 2), 9.0)))


def test_runtimes_are_what_was_predicted_times_each_ratio_up_to_the_longest() -> None:
    assert runtimes(10.0, Spread((0.5, 1.0, 2.0), 15.0)) == [5.0, 10.0, 15.0]
    assert runtimes(10.0, Spread((0.5, 1.0, 2.0), 15.0), elapsed=5.0) == [10.0, 15.0]


def test_a_task_that_has_outlived_everything_takes_somewhat_longer() -> None:
    assert runtimes(10.0, EXACT, elapsed=20.0) == [20.0 * factor for factor in OUTLIVED]


@pytest.mark.parametrize("elapsed", [0.0, 5.0, 35.0, 100.0])
@pytest.mark.parametrize("limit", [25.0, inf])
def test_the_longest_that_a_task_may_take_is_found_without_all_the_others(elapsed: float, limit: float) -> None:
    spread = Spread((0.5, 1.0, 3.0), limit)
    assert longest(10.0, spread, elapsed) == runtimes(10.0, spread, elapsed)[-1]
