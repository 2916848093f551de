"""Intervals are corrected by how earlier ones held."""

from math import exp, inf
from random import Random
from statistics import fmean

import pytest

from deskgrid.scheduler.forecast.correction import (
    ENOUGH,
    LARGEST,
    LEAST,
    NAMES,
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
        correction.learn("a", Score(1, 0.0, 3.0))
    assert correction.corrected("a", 1, TOLD) == TOLD
    correction.learn("a", Score(1, 0.0, 3.0))
    assert correction.corrected("a", 1, TOLD) == pytest.approx(Estimate(100.0, 100.0 / 2**LEAST, 800.0))
    assert correction.corrected("a", 0, TOLD) == TOLD, "each stage has scores of its own"


def test_what_is_unknown_stays_so() -> None:
    correction = Correction()
    for _ in range(ENOUGH):
        correction.learn("a", Score(0, 2.0, 2.0))
    assert correction.corrected("a", 0, Estimate(inf, 5.0, inf)) == Estimate(inf, 5.0, inf)
    assert correction.corrected("a", 0, Estimate(100.0, 50.0, inf)) == pytest.approx(Estimate(100.0, 25.0, inf))


def test_absurd_scores_are_bounded_and_forgotten() -> None:
    correction = Correction()
    for _ in range(REMEMBERED):
        correction.learn("a", Score(0, -1e9, 1e9))
    high = correction.corrected("a", 0, TOLD).high
    assert high == pytest.approx(100.0 * exp(LARGEST * 0.6931471805599453))
    for _ in range(REMEMBERED):
        correction.learn("a", Score(0, 1.0, 1.0))
    assert correction.corrected("a", 0, TOLD) == pytest.approx(TOLD)


def test_intervals_that_are_too_narrow_come_to_hold_nine_times_in_ten() -> None:
    chance, correction, held = Random(4), Correction(), []
    for _ in range(2_000):
        truth = 100.0 * exp(chance.gauss(0.0, 1.0))
        corrected = correction.corrected("a", 1, TOLD)
        held.append(corrected.low <= truth <= corrected.high)
        correction.learn("a", score(1, TOLD, truth))
    assert fmean(held[REMEMBERED:]) == pytest.approx(0.9, abs=0.025)


def test_scores_are_kept_across_restarts() -> None:
    before, after = Correction(), Correction()
    for number in range(40):
        before.learn("a b", Score(number % 4, number / 10.0, 1.0))
    for name in before.names:
        after.restore(name, before.kept(name))
    for name in ("9 a", "0", "", "x a"):
        after.restore(name, [1.0, 2.0])
    assert list(after.names) == list(before.names) == [f"{stage} a b" for stage in range(4)] == list(before.fresh)
    assert [after.kept(name) for name in after.names] == [before.kept(name) for name in before.names]
    assert not after.fresh
    assert after.kept("0 c") == []


def test_nobody_spoils_the_intervals_of_others() -> None:
    correction = Correction()
    for number in range(REMEMBERED):
        correction.learn("liar", Score(1, -1e9, 1e9))
        correction.learn("a", Score(1, 1.0, number / REMEMBERED))
    assert correction.corrected("a", 1, TOLD).high < 200.0
    assert correction.corrected("new", 1, TOLD) == TOLD, "two owners are too few to say what holds for others"
    for _ in range(ENOUGH):
        correction.learn("b", Score(1, 1.0, 2.0))
        correction.learn("c", Score(1, 1.0, 1.0))
    assert correction.corrected("new", 1, TOLD).high == pytest.approx(100.0 * 2**1.5), "the median of four"
    assert correction.corrected("new", 2, TOLD) == TOLD


def test_no_side_of_an_interval_is_lost() -> None:
    correction = Correction()
    for _ in range(REMEMBERED):
        correction.learn("a", Score(1, -5.0, -5.0))
    assert correction.corrected("a", 1, TOLD) == pytest.approx(Estimate(100.0, 100.0 / 2**LEAST, 100.0 * 2**LEAST))


def test_scores_that_were_used_last_are_remembered() -> None:
    correction = Correction()
    for number in range(NAMES + 2):
        correction.learn("first" if number % 2 else f"{number}", Score(1, 1.0, 1.0))
    for number in range(NAMES):
        correction.learn(f"{number} other", Score(1, 1.0, 1.0))
        correction.learn("first", Score(1, 1.0, 1.0))
    assert len(correction.names) == NAMES
    assert len(correction.kept("1 first")) == 2 * REMEMBERED
