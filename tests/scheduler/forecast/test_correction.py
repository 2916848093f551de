"""Intervals are corrected by how earlier ones held."""

from array import array
from math import exp, inf
from random import Random
from statistics import fmean

import pytest

from deskgrid.scheduler.forecast.correction import (
    ENOUGH,
    LARGEST,
    REMEMBERED,
    Correction,
    Estimate,
    Score,
    estimate,
    score,
    stage_of,
)

TOLD = Estimate(100.0, 50.0, 200.0)


def test_an_estimate_is_the_median_and_the_middle_ninety_percent() -> None:
    assert estimate([float(number) for number in range(100)]) == Estimate(50.0, 5.0, 95.0)
    assert estimate([7.0]) == Estimate(7.0, 7.0, 7.0)
    assert estimate([1.0, 2.0, inf]) == Estimate(2.0, 1.0, inf)


def test_stages_go_by_the_part_that_has_ended() -> None:
    assert [stage_of(part) for part in (0.0, 0.05, 0.25, 0.5, 0.75, 1.0)] == [0, 0, 1, 2, 3, 3]


def test_a_score_says_how_far_off_the_median_the_truth_was() -> None:
    assert score(2, TOLD, 200.0) == pytest.approx(Score(2, -1.0, 1.0))
    assert score(2, TOLD, 400.0).above == pytest.approx(2.0)
    assert score(2, TOLD, 50.0).below == pytest.approx(1.0)
    assert score(2, TOLD, 0.0) == score(2, TOLD, 0.9), "times below a second are alike"
    assert score(2, Estimate(100.0, 50.0, inf), 1e9).above == 0.0


def test_few_scores_correct_nothing() -> None:
    correction = Correction()
    for _ in range(ENOUGH - 1):
        correction.learn(Score(1, 0.0, 3.0))
    assert correction.corrected(1, TOLD) == TOLD
    correction.learn(Score(1, 0.0, 3.0))
    assert correction.corrected(1, TOLD) == pytest.approx(Estimate(100.0, 100.0, 800.0))
    assert correction.corrected(0, TOLD) == TOLD, "each stage has scores of its own"


def test_what_is_unknown_stays_so() -> None:
    correction = Correction()
    for _ in range(ENOUGH):
        correction.learn(Score(0, 2.0, 2.0))
    assert correction.corrected(0, Estimate(inf, 5.0, inf)) == Estimate(inf, 5.0, inf)
    assert correction.corrected(0, Estimate(100.0, 50.0, inf)) == pytest.approx(Estimate(100.0, 25.0, inf))


def test_absurd_scores_are_bounded_and_forgotten() -> None:
    correction = Correction()
    for _ in range(REMEMBERED):
        correction.learn(Score(0, -1e9, 1e9))
    high = correction.corrected(0, TOLD).high
    assert high == pytest.approx(100.0 * exp(LARGEST * 0.6931471805599453))
    for _ in range(REMEMBERED):
        correction.learn(Score(0, 1.0, 1.0))
    assert correction.corrected(0, TOLD) == pytest.approx(TOLD)


def test_intervals_that_are_too_narrow_come_to_hold_nine_times_in_ten() -> None:
    chance, correction, held = Random(4), Correction(), []
    for _ in range(2_000):
        truth = 100.0 * exp(chance.gauss(0.0, 1.0))
        corrected = correction.corrected(1, TOLD)
        held.append(corrected.low <= truth <= corrected.high)
        correction.learn(score(1, TOLD, truth))
    assert fmean(held[REMEMBERED:]) == pytest.approx(0.9, abs=0.025)


def test_scores_are_kept_across_restarts() -> None:
    before, after = Correction(), Correction()
    for number in range(40):
        before.learn(Score(number % 4, number / 10.0, 1.0))
    for name, packed in before.packed():
        sides = array("d")
        sides.frombytes(packed)
        after.restore(name, sides)
    after.restore("9", [1.0, 2.0])
    after.restore("", [1.0, 2.0])
    assert list(after.packed()) == list(before.packed())
