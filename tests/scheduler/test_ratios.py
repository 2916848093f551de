"""What the predictions of a bag are worth: ratios of tasks that were done, that were killed, and that run."""

from math import inf

import pytest

from deskgrid.scheduler.prediction.earlier import EarlierBags, Past, Vote
from deskgrid.scheduler.prediction.ratios import (
    BEYOND,
    EXPERIENCED,
    LONGER,
    REMEMBERED,
    SHOWN,
    Ratios,
)
from deskgrid.scheduler.prediction.spread import ENOUGH, EXACT, POINTS, RatioSpread, longest, narrow, runtimes
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
    assert known.spread(lambda: [(20.0, 10.0), (5.0, 0.0)]).ratios.count(4.0) == 10


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
    assert known.spread(lambda: [(30.0, 1.0)]).longest == BEYOND * 30.0


@pytest.mark.parametrize(("most", "is_narrow"), [(1.0, True), (1.29, True), (1.31, False)])
def test_predictions_that_are_off_by_a_common_factor_are_narrow(most: float, is_narrow: bool) -> None:
    assert narrow(EXACT)
    assert narrow(told(2.0, 2.0, 2.0 * most, 2.0 * most).spread()) == is_narrow


def test_a_few_that_are_far_off_do_not_matter() -> None:
    assert narrow(RatioSpread((0.1, *[1.0] * (POINTS - 2), 9.0)))


def test_runtimes_are_what_was_predicted_times_each_ratio_up_to_the_longest() -> None:
    assert runtimes(10.0, RatioSpread((0.5, 1.0, 2.0), 20.0)) == [5.0, 10.0, 20.0]
    assert runtimes(10.0, RatioSpread((0.5, 1.0, 2.0), 15.0)) == [5.0, 10.0]
    assert runtimes(10.0, RatioSpread((0.5, 1.0, 2.0), 15.0), elapsed=5.0) == [10.0]


@pytest.mark.parametrize(("predicted", "elapsed"), [(40.0, 0.0), (10.0, 10.0)])
def test_if_all_that_is_likely_exceeds_the_longest_a_task_takes_as_long_as_that(
    predicted: float, elapsed: float
) -> None:
    assert runtimes(predicted, RatioSpread((0.5, 1.0, 2.0), 15.0), elapsed) == [15.0]


def test_a_task_that_has_outlived_everything_takes_somewhat_longer() -> None:
    assert runtimes(10.0, EXACT, elapsed=20.0) == [20.0 * factor for factor in OUTLIVED]


@pytest.mark.parametrize("elapsed", [0.0, 5.0, 35.0, 100.0])
@pytest.mark.parametrize("limit", [25.0, inf])
def test_a_bound_on_what_a_task_may_take_is_found_without_all_the_others(elapsed: float, limit: float) -> None:
    unlimited, spread = RatioSpread((0.5, 1.0, 3.0)), RatioSpread((0.5, 1.0, 3.0), limit)
    assert longest(10.0, unlimited, elapsed) == runtimes(10.0, unlimited, elapsed)[-1]
    assert runtimes(10.0, spread, elapsed)[-1] <= longest(10.0, spread, elapsed) <= max(limit, 1.7 * elapsed)


# --- earlier bags ----------------------------------------------------------------------------------------------------

NAME = "ann\nrender"
WIDE = (0.5,) * 8 + (2.0,) * 8


def after(*bags: tuple[float, ...]) -> EarlierBags:
    earlier = EarlierBags()
    for number, ratios in enumerate(bags):
        earlier.teach([NAME], Vote(number, ENOUGH, ratios))
    return earlier


def next_bag(earlier: EarlierBags, number: int = 99) -> Ratios:
    return Ratios(Past(earlier, [NAME], number))


def votes(earlier: EarlierBags) -> dict[int, Vote]:
    record = earlier.find([NAME])
    return {} if record is None else record.votes


def test_a_new_bag_begins_with_the_ratios_of_earlier_ones_if_they_are_far_apart() -> None:
    bag = next_bag(after(WIDE))
    assert not bag.alike
    assert bag.spread() == RatioSpread(WIDE)
    bag = next_bag(after((3.0,) * POINTS))
    assert bag.alike
    assert bag.spread() is EXACT


def test_earlier_bags_count_as_much_as_a_few_tasks_and_its_own_results_soon_decide() -> None:
    bag = next_bag(after(WIDE))
    bag.add([1.0] * 4, 10.0)
    assert bag.spread().ratios == (0.5,) * 4 + (1.0,) * 8 + (2.0,) * 4
    bag.add([1.0] * 40, 10.0)
    assert narrow(bag.spread())


def test_what_runs_counts_beside_earlier_bags() -> None:
    bag = next_bag(after(WIDE))
    assert bag.spread(lambda: [(10.0, 10.0)] * 4).ratios == (0.5,) * 4 + (2.0,) * 12


def test_what_other_bags_teach_counts_until_the_bag_teaches_itself() -> None:
    earlier = after()
    bag = next_bag(earlier)
    bag.add([1.0] * (EXPERIENCED - 1), 10.0)
    assert bag.spread().ratios == (1.0,) * POINTS
    earlier.teach([NAME], Vote(1, ENOUGH, WIDE))
    assert bag.spread().ratios[-1] == 2.0
    bag.add([1.0], 10.0)
    earlier.teach([NAME], Vote(1, ENOUGH, (9.0,) * 8 + (20.0,) * 8))
    assert bag.spread().ratios[-1] == 2.0
    earlier.forget()
    assert bag.spread().ratios == (1.0,) * POINTS


def test_a_bag_teaches_when_it_has_enough_results_and_each_time_that_they_are_four_times_as_many() -> None:
    earlier = after()
    bag, taught = next_bag(earlier), list[int]()
    for _ in range(70):
        bag.add([1.0], 10.0)
        if (vote := votes(earlier).get(99)) is not None:
            taught.append(vote.done)
    assert sorted(set(taught)) == [16, 64]
    bag.teach()
    assert votes(earlier)[99].done == 70
    bag.add([1.0] * 2, 10.0)
    bag.teach()
    assert votes(earlier)[99].done == 70, "it would hardly be another"


def test_a_bag_without_results_or_without_a_name_teaches_nothing() -> None:
    earlier = after()
    bag = next_bag(earlier)
    bag.show(7, 1.0, 1.0)
    bag.teach()
    bag = told(*[1.0] * 20)
    bag.teach()
    assert votes(earlier) == {}


def test_killed_tasks_count_in_what_later_bags_are_told() -> None:
    earlier = after()
    bag = next_bag(earlier)
    bag.add([1.0] * 2, 10.0)
    bag.show(7, 30.0, 10.0)
    bag.show(8, 30.0, 10.0)
    bag.teach()
    assert votes(earlier)[99].ratios == (1.0,) * 8 + (LONGER * 3.0,) * 8


def test_one_pc_does_not_decide_what_later_bags_are_told() -> None:
    earlier = after()
    bag = next_bag(earlier)
    for pc in ("pc1", "pc2", "pc3"):
        bag.add([1.0] * 20, 10.0, pc)
    for worker in ("liar", "liar~2"):
        bag.add([1e-6] * 35, 1e-3, worker)
    bag.teach()
    assert votes(earlier)[99].ratios.count(1e-6) == POINTS // 4
    alone = next_bag(earlier, 100)
    alone.add([2.0] * 20, 10.0, "pc1")
    assert votes(earlier)[100].ratios == (2.0,) * POINTS
