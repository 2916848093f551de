"""How well runtimes have been predicted: the ratios, and what the scheduler reports about them."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.model import AttemptOutcome
from deskgrid.scheduler.prediction.prediction_error import ENOUGH, REMEMBERED, PredictionError, outlived, ratios
from tests.scheduler.builders import Grid


def of(*ratios: float) -> PredictionError:
    accuracy = PredictionError()
    for ratio in ratios:
        accuracy.add([ratio])
    return accuracy


def test_nothing_is_concluded_from_a_few_attempts() -> None:
    accuracy = of(*[3.0] * (ENOUGH - 1))
    assert accuracy.quantile(0.5) == 1.0
    accuracy.add([3.0])
    assert accuracy.quantile(0.5) == 3.0


@pytest.mark.parametrize(
    ("fraction", "ratio"), [(0.0, 1), (0.01, 2), (0.05, 6), (0.5, 51), (0.9, 91), (0.99, 100), (1.0, 100)]
)
def test_a_quantile_is_the_ratio_that_this_fraction_stays_within(fraction: float, ratio: int) -> None:
    ratios = list(range(1, 101))
    random.Random(1).shuffle(ratios)
    assert of(*ratios).quantile(fraction) == ratio


@given(st.lists(st.tuples(st.lists(st.sampled_from([0.5, 1.0, 3.0, 7.0]), max_size=150), st.booleans()), max_size=12))
def test_it_does_not_matter_how_many_come_together_or_when_somebody_asks(
    messages: list[tuple[list[float], bool]],
) -> None:
    accuracy = PredictionError()
    known: list[float] = []
    for message, asked in [*messages, ([], True)]:
        accuracy.add(message)
        known = (known + message)[-REMEMBERED:]
        if asked and len(known) >= ENOUGH:
            for fraction in (0.0, 0.3, 0.9, 1.0):
                assert accuracy.quantile(fraction) == sorted(known)[min(len(known) - 1, int(fraction * len(known)))]


def test_only_the_last_attempts_count() -> None:
    many = of(9.0, 9.0)
    many.add([3.0] * REMEMBERED)
    assert many.quantile(1.0) == 3.0
    accuracy = of(*[5.0] * REMEMBERED, *[1.0] * (REMEMBERED - 1))
    assert accuracy.quantile(1.0) == 5.0
    assert accuracy.quantile(0.0) == 1.0
    accuracy.add([2.0])
    assert accuracy.quantile(1.0) == 2.0
    assert accuracy.quantile(0.99) == 1.0


def test_of_many_no_more_are_kept_than_are_asked_for_soon() -> None:
    accuracy = of(*[1.0] * (10 * REMEMBERED))
    assert len(accuracy._recent) <= 2 * REMEMBERED


def test_of_equal_ratios_one_is_forgotten_at_a_time() -> None:
    accuracy = of(*[2.0] * (REMEMBERED // 2), *[1.0] * (REMEMBERED // 2), *[1.0] * (REMEMBERED // 4))
    assert accuracy.quantile(0.74) == 1.0
    assert accuracy.quantile(0.75) == 2.0


@pytest.mark.parametrize(("predicted", "actual"), [(0.0, 5.0), (5.0, 0.0), (1e-320, 1.0), (1e300, 1e-300)])
def test_what_makes_no_ratio_says_nothing(predicted: float, actual: float) -> None:
    assert ratios([10.0, predicted, 2.0], [30.0, actual, 1.0]) == [3.0, 0.5]


# --- what the scheduler tells ----------------------------------------------------------------------------------------


class Heard(PredictionError):
    """It writes down what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[float] = []

    def add(self, told: Sequence[float]) -> None:
        self.added += told
        super().add(told)


@pytest.fixture
def grid() -> Grid:
    """One PC that stays for 100 s, and runs a task of 30."""
    grid = Grid()
    grid.inside.prediction_error = Heard()
    grid.pc("a", 100)
    grid.expect(a=grid.tasks(30))
    return grid


def heard(grid: Grid) -> list[float]:
    accuracy = grid.inside.prediction_error
    assert isinstance(accuracy, Heard)
    return accuracy.added


def test_an_attempt_that_is_done_counts_with_what_it_took(grid: Grid) -> None:
    grid.end(0, elapsed=42.0)
    assert heard(grid) == [42.0 / 30.0]


@pytest.mark.parametrize("outcome", [AttemptOutcome.ERROR, AttemptOutcome.TIMEOUT, AttemptOutcome.CRASH])
def test_an_attempt_that_failed_says_nothing_of_its_runtime(grid: Grid, outcome: AttemptOutcome) -> None:
    grid.end(0, elapsed=42.0, outcome=outcome)
    assert heard(grid) == []


@pytest.mark.parametrize("planned", [True, False])
def test_one_that_was_killed_counts_if_it_had_outlived_its_prediction(grid: Grid, planned: bool) -> None:
    grid.wait(40.0)
    grid.leave("a", planned)
    assert heard(grid) == [40.0 / 30.0]


@pytest.mark.parametrize("after", [0.0, 29.0, 30.0])
def test_one_that_was_killed_before_that_does_not(grid: Grid, after: float) -> None:
    grid.wait(after)
    grid.leave("a")
    assert heard(grid) == []


def test_one_that_had_not_begun_does_not(grid: Grid) -> None:
    grid.wait(40.0)
    grid.leave("a", unstarted=[0])
    assert heard(grid) == []


@pytest.mark.parametrize(
    ("elapsed", "longest", "then"),
    [(10.0, 100.0, 20.0), (60.0, 100.0, 90.0), (90.0, 100.0, 180.0), (95.0, 100.0, 190.0), (10.0, math.inf, 20.0)],
)
def test_what_outlived_its_prediction_gets_twice_as_long_while_that_may_still_fit(
    elapsed: float, longest: float, then: float
) -> None:
    assert outlived(elapsed, longest) == pytest.approx(then)
