"""Predicted quantiles: from what they are made, that they hold, and that nothing makes them absurd."""

import math
import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.prediction.calibration import FURTHEST, LEVELS, Calibration, stage_of
from deskgrid.scheduler.prediction.kept import KEPT
from deskgrid.scheduler.prediction.runtimes import BEYOND, LONGEST, SHORTEST, Features, Prediction, Runtimes


def taught(features: Features, seconds: Iterable[float]) -> Runtimes:
    runtimes = Runtimes()
    for each in seconds:
        runtimes.observe(features, each)
    return runtimes


def median(runtimes: Runtimes, features: Features) -> float:
    found = runtimes.predict(features)
    assert found is not None
    return found.median


# --- from what -------------------------------------------------------------------------------------------------------


def test_nothing_is_predicted_while_nothing_is_known() -> None:
    assert Runtimes().predict(Features("b", "f", "p")) is None


def test_a_new_bag_is_predicted_by_its_function_then_its_program_then_everything() -> None:
    runtimes = Runtimes()
    for name, seconds in (("one", 1.0), ("two", 2.0), ("two", 2.0)):
        runtimes.observe(Features(name, f"function {name}", f"program {name}"), seconds)
    assert median(runtimes, Features("new", "function one", "program two")) == 1.0
    assert median(runtimes, Features("new", "another", "program one")) == 1.0
    assert median(runtimes, Features("new", "another", "another")) == 2.0
    assert runtimes.knows(Features("new", "another", "program one"))
    assert not runtimes.knows(Features("new", "another", "another"))


def test_the_runs_of_a_bag_soon_count_more_than_those_of_its_function() -> None:
    runtimes = taught(Features("old", "f"), [10.0] * 100)
    for _ in range(5):
        runtimes.observe(Features("new", "f"), 1.0)
    assert median(runtimes, Features("new", "f")) == 1.0
    assert median(runtimes, Features("other", "f")) == 10.0
    runtimes.end("new")
    assert median(runtimes, Features("new", "f")) == 10.0


def test_a_task_that_has_run_for_longer_than_all_others_makes_the_bag_longer() -> None:
    runtimes = taught(Features("b", "f"), [1.0] * 5)
    alone, beside = runtimes.predict(Features("b", "f")), runtimes.predict(Features("b", "f"), running=[0.5, 600.0])
    assert alone is not None
    assert beside is not None
    assert (alone.highest, beside.highest) == (1.0, 600.0)


def test_what_a_user_predicted_is_evidence_with_a_factor_that_is_learned() -> None:
    runtimes, features = Runtimes(), Features("", "", "p", predicted=100.0)
    first = runtimes.predict(features)
    assert first is not None
    assert first.low < 60.0
    assert first.median == pytest.approx(100.0, rel=0.1)
    assert first.high > 180.0
    for turn in range(300):
        runtimes.observe(features._replace(predicted=10.0 + turn), 2.0 * (10.0 + turn))
    assert median(runtimes, features) == pytest.approx(200.0)
    assert median(runtimes, features._replace(program="another")) < 110.0


def test_an_order_of_seconds_that_many_runs_contradict_is_not_followed() -> None:
    features = Features("b", "f", "p", predicted=1000.0)
    assert median(taught(features, [1.0] * 50), features) == 1.0


# --- that they hold --------------------------------------------------------------------------------------------------


def some_bags(number: int) -> Iterable[tuple[Features, list[float]]]:
    """Bags that differ, of three functions that differ more."""
    chance = random.Random(7)
    for place in range(number):
        middle = 3.0 * (place % 3) + chance.gauss(0.0, 0.5)
        yield (
            Features(f"bag {place}", f"function {place % 3}"),
            [chance.lognormvariate(middle, 0.4) for _ in range(60)],
        )


def covered(predict: Callable[[Prediction], float]) -> float:
    """How many tasks stay within a quantile, as they come one after another."""
    runtimes, within, count = Runtimes(), 0, 0
    for features, bag in some_bags(120):
        for seconds in bag:
            predicted = runtimes.predict(features)
            runtimes.observe(features, seconds, predicted)
            if predicted is not None:
                count += 1
                within += seconds <= predict(predicted)
    return within / count


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(LEVELS)))
def test_as_many_tasks_as_promised_stay_within_a_quantile(place: int) -> None:
    assert covered(lambda predicted: predicted[place]) == pytest.approx(LEVELS[place], abs=0.015)


def test_stages_differ_by_what_is_known() -> None:
    assert [stage_of(ended, known=False) for ended in (0, 1, 3, 4, 15, 16, 1000)] == [0, 1, 1, 2, 2, 3, 3]
    assert stage_of(0, known=True) == 4


def test_factors_are_bounded_whoever_lies() -> None:
    calibration = Calibration()
    for _ in range(10_000):
        calibration.learn(0, [1.0] * len(LEVELS), 1e9)
    assert calibration.corrected(0, [1.0] * len(LEVELS), 1e9) == pytest.approx([math.exp(FURTHEST)] * len(LEVELS))
    assert calibration.corrected(0, [1.0] * len(LEVELS), 2.0) == [2.0] * len(LEVELS)
    assert calibration.corrected(1, [1.0] * len(LEVELS), 1e9) == [1.0] * len(LEVELS)


def test_factors_go_on_after_a_restart() -> None:
    before, after = Calibration(), Calibration()
    for _ in range(50):
        before.learn(3, [1.0] * len(LEVELS), 5.0)
    after.restore(before.logs())
    assert after.corrected(3, [1.0] * len(LEVELS), 99.0) == before.corrected(3, [1.0] * len(LEVELS), 99.0)
    after.restore([9e9] * 3)
    assert after.logs() == before.logs()
    after.restore([9e9] * len(before.logs()))
    assert max(after.corrected(3, [1.0] * len(LEVELS), 99.0)) == pytest.approx(math.exp(FURTHEST))


# --- that nothing makes them absurd ----------------------------------------------------------------------------------

ABSURD = st.sampled_from([0.0, -1.0, 1e-300, 1.0, 3600.0, 31_536_000.0, 1e300, math.inf, math.nan])


@given(
    st.lists(st.tuples(ABSURD, st.sampled_from([None, 0.0, 5.0, 1e300, math.inf])), max_size=60),
    st.lists(st.floats(0.0, 1e12), max_size=20),
)
def test_predictions_are_finite_and_ascending_whatever_was_seen(
    seen: list[tuple[float, float | None]], running: list[float]
) -> None:
    runtimes = Runtimes()
    for seconds, asked in seen:
        features = Features("b", "f", "p", predicted=asked)
        runtimes.observe(features, seconds, runtimes.predict(features, running))
        found = runtimes.predict(features, running)
        assert found is not None
        low, middle, high, highest, _ = found
        assert 0.0 < low <= middle <= high <= highest < math.inf


def test_one_poisoned_pc_of_twenty_moves_nothing_far() -> None:
    honest, poisoned = Runtimes(), Runtimes()
    chance = random.Random(3)
    for turn in range(2000):
        seconds, pc = chance.uniform(8.0, 12.0), turn % 20
        features = Features("b", "f", "p", f"pc{pc}")
        honest.observe(features, seconds, honest.predict(features))
        poisoned.observe(features, 31_536_000.0 if pc == 0 else seconds, poisoned.predict(features))
    one, other = (each.predict(Features("b", "f", "p")) for each in (honest, poisoned))
    assert one is not None
    assert other is not None
    assert other[:3] == pytest.approx(one[:3], rel=0.3)


def test_no_upper_quantile_is_far_above_everything_that_was_ever_seen() -> None:
    runtimes, features = taught(Features("b", "f"), [1.0] * 20), Features("b", "f")
    for _ in range(3000):
        runtimes.observe(features, 1.0, Prediction(9.0, 9.0, 0.0, 0.0, stage_of(20, known=True)))
    found = runtimes.predict(features)
    assert found is not None
    assert found.highest == BEYOND


def test_how_predictions_held_for_one_owner_says_nothing_of_another() -> None:
    runtimes = Runtimes()

    def factors(owner: str) -> list[float]:
        """How the quantiles of an owner are corrected."""
        features = Features(f"{owner}\nb", f"{owner}\ng")
        runtimes.observe(features, 1.0)
        runtimes.end(f"{owner}\nb")
        runtimes.observe(features, 1.0)
        found = runtimes.predict(features)
        assert found is not None
        return list(found[:4])

    before = factors("a")
    for owner in ("liar", "b", "c"):
        for _ in range(100):
            runtimes.observe(Features("", f"{owner}\nf"), 1e8, Prediction(1.0, 1.0, 1.0, 1.0, stage_of(1, known=True)))
    assert factors("a") == before
    assert factors("new") != before, "a new owner begins with what holds for most"


@pytest.mark.slow
def test_owners_that_were_used_last_are_remembered() -> None:
    runtimes = Runtimes()
    for place in range(KEPT + 1):
        for owner in ("often", f"owner {place}"):
            runtimes.observe(Features("", f"{owner}\nf"), 1.0, Prediction(1.0, 1.0, 1.0, 1.0, 0))
    known = runtimes.learned["calibration"]
    assert len(known.names) == KEPT
    assert "often" in known.names
    after = Runtimes()
    restored = after.learned["calibration"]
    restored.restore("often", known.kept("often"))
    restored.restore("", [1.0])
    assert restored.kept("often") == known.kept("often") != []
    assert restored.kept("nobody") == []
    assert list(restored.names) == ["often"]


def test_memory_is_bounded_and_what_was_used_last_is_kept() -> None:
    runtimes = Runtimes()
    for place in range(KEPT + 50):
        runtimes.observe(Features("", "often"), 1.0)
        runtimes.observe(Features(f"b{place}", f"f{place}", f"p{place}", predicted=1.0), 1.0)
    assert not runtimes.knows(Features("", "f0", "p0"))
    assert runtimes.knows(Features("", "often"))
    assert runtimes.knows(Features("", f"f{KEPT + 49}"))


def test_an_owner_of_many_loses_one_first() -> None:
    runtimes = Runtimes()
    for place in range(3):
        runtimes.observe(Features("", f"few\n{place}"), 1.0)
    for place in range(KEPT):
        runtimes.observe(Features("", f"many\n{place}"), 1.0)
    for place in range(4, 10):
        runtimes.observe(Features("", f"few\n{place}"), 1.0)
    assert [name for name in runtimes.learned["function"].names if name.startswith("few")] == [
        f"few\n{place}" for place in range(10) if place != 3
    ]
    assert len(runtimes.learned["function"].names) == KEPT
    runtimes.end("unknown")


def test_runs_of_functions_and_programs_go_on_after_a_restart() -> None:
    before, after = taught(Features("b", "f", "p"), [1.0, 3.0, 2.0]), Runtimes()
    functions, programs = before.learned["function"], before.learned["program"]
    assert functions.kept("f") == programs.kept("p") == [1.0, 3.0, 2.0]
    assert (list(functions.fresh), list(programs.fresh)) == (["f"], ["p"])
    assert programs.kept("unknown") == []
    again = after.learned["program"]
    again.restore("p", [*programs.kept("p"), math.nan])
    assert again.kept("p") == [1.0, 3.0, 2.0, LONGEST]


# --- whole distributions ---------------------------------------------------------------------------------------------


def test_a_whole_distribution_has_points_that_are_equally_likely() -> None:
    runtimes = taught(Features("b", "f"), [float(number) for number in range(1, 101)])
    found = runtimes.spread(Features("b", "f"))
    assert found is not None
    assert found.own == 100
    assert list(found.points) == sorted(found.points)
    assert found.points[0] == pytest.approx(1.0, abs=1.0)
    assert found.points[len(found.points) // 2] == pytest.approx(50.0, abs=2.0)
    assert found.points[-1] == pytest.approx(99.0, abs=1.0)


def test_a_whole_distribution_of_a_bag_without_runs_is_that_of_its_function() -> None:
    runtimes = taught(Features("old", "f"), [10.0] * 30)
    known, unknown = runtimes.spread(Features("new", "f")), runtimes.spread(Features("new", "g"))
    assert known == unknown
    assert known is not None
    assert (set(known.points), known.own) == ({10.0}, 0)
    assert Runtimes().spread(Features("new", "f")) is None


def test_what_other_bags_took_is_not_mixed_into_a_bag_of_another_function() -> None:
    runtimes = taught(Features("old", "f"), [1_000.0] * 30)
    runtimes.observe(Features("new", "g2"), 1.0)
    runtimes.end("new")
    runtimes.observe(Features("other", ""), 2.0)
    found = runtimes.spread(Features("other", ""), running=[1.5])
    assert found is not None
    assert set(found.points) == {2.0}


def wide(ended: Sequence[float], running: Sequence[float] = (), bag: str = "b") -> tuple[float, ...]:
    runtimes = Runtimes()
    for seconds in ended:
        runtimes.observe(Features("b", "f"), seconds)
    found = runtimes.spread(Features(bag, "f"), running)
    assert found is not None
    return found.wide


def test_while_many_tasks_outlast_all_that_have_ended_some_may_take_much_longer() -> None:
    early = wide([10.0, 12.0], [13.0] * 18)
    # As if the two were the first of 21 of a distribution whose spread is as expected, or nearly.
    assert [seconds for seconds in early if seconds < 13.0] == [10.0, 10.0, 12.0, 12.0, 12.0]
    assert early == tuple(sorted(early))
    assert 30.0 < early[len(early) // 2] < 60.0
    assert 150.0 < early[-1] < 500.0
    # The more have ended, and the more alike they are, the less.
    later = wide([10.0, 12.0] * 10, [13.0] * 8)
    assert 13.0 < later[-1] < 25.0
    assert max(wide([10.0, 12.0])) > max(wide([10.0, 12.0] * 3)) > 12.0


def test_when_enough_tasks_have_ended_nothing_longer_is_expected() -> None:
    assert wide([10.0] * 10) == ()
    assert wide([10.0] * 10, bag="another of the same function") == ()
    assert wide([10.0] * 8) != ()
    assert wide([10.0] * 100, [9.0] * 50) == ()
    assert wide([10.0] * 100, [11.0] * 50) != ()


def test_of_a_bag_without_runs_whose_tasks_outlast_all_others_nothing_more_is_known() -> None:
    runtimes = taught(Features("old", "f"), [1.0] * 30)
    found = runtimes.spread(Features("new", "g"), running=[300.0])
    assert found is not None
    assert (set(found.points), found.wide) == ({300.0}, ())


def test_what_takes_longer_is_bounded() -> None:
    assert max(wide([3e8], [1e300] * 10)) <= LONGEST
    assert min(wide([0.0], [0.0] * 10)) >= SHORTEST
