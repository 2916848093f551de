"""Quantiles of a bag's runs and a prior, beside running tasks, against the definition written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.prediction.sample import PRIOR_WEIGHT, RUNNING, Mixture

SECONDS = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0])
LEVELS = (0.05, 0.3, 0.5, 0.9, 0.95)


def by_definition(own: list[float], points: list[float], running: list[float], level: float) -> tuple[float, float]:
    """The quantile, by spreading the weight of each running task over all that is longer; as a range for rounding."""
    weights = [[value, 1.0] for value in own] + [[value, PRIOR_WEIGHT / len(points)] for value in points]
    weights.sort()
    for elapsed in sorted(running):
        if longer := [each for each in weights if each[0] > elapsed]:
            total = sum(weight for _, weight in longer)
            for each in longer:
                each[1] += each[1] / total
    return tuple(reached(weights, level + slack) for slack in (-1e-7, 1e-7))  # type: ignore[return-value]


def reached(weights: list[list[float]], level: float) -> float:
    total, mass = sum(weight for _, weight in weights), 0.0
    for value, weight in weights:
        mass += weight
        if mass >= level * total:
            return value
    return weights[-1][0]


@given(
    st.lists(SECONDS, max_size=12),
    st.lists(SECONDS, max_size=5),
    st.lists(SECONDS | st.just(0.0) | st.just(100.0), max_size=RUNNING),
)
def test_running_tasks_count_as_longer_than_they_have_run(
    own: list[float], points: list[float], running: list[float]
) -> None:
    if not own and not points:
        return
    found = Mixture(sorted(own), sorted(points)).quantiles(LEVELS, running)
    for level, value in zip(LEVELS, found, strict=True):
        assert value in by_definition(own, points, running, level)


def test_the_short_tasks_that_end_first_do_not_make_a_bag_look_short() -> None:
    ended, prior = [1.0, 1.0, 1.0], [1.0, 1.0, 10.0, 10.0]
    (alone,) = Mixture(ended, prior).quantiles([0.6], [])
    (beside,) = Mixture(ended, prior).quantiles([0.6], [2.0] * 5)
    assert (alone, beside) == (1.0, 10.0)


def test_of_very_many_running_tasks_evenly_spread_ones_stand_for_all() -> None:
    ended, running = [float(n) for n in range(1, 101)], [n / 10 for n in range(1000)]
    few = Mixture(ended, []).quantiles(LEVELS, running)
    exact = [by_definition(ended, [1.0], running, level)[0] for level in LEVELS]
    assert few == pytest.approx(exact, rel=0.2)
