"""Predictions that are wrong, as the f-model makes them."""

from itertools import islice, pairwise
from random import Random
from statistics import fmean

import pytest

from deskgrid.scheduler.simulation.simulator import RealWindow, SimulatedPC, cycle
from deskgrid.sleepbench.perturbation import NEGLIGIBLE, error, predictions, wrongly_announced


@pytest.mark.parametrize("factor", [2.0, 16.0])
def test_half_of_the_estimates_are_too_long_and_half_too_short_by_up_to_the_factor(factor: float) -> None:
    chance = Random(1)
    drawn = [error(factor, chance) for _ in range(20_000)]
    over, under = [f for f in drawn if f > 1], [f for f in drawn if f < 1]
    assert 1 / factor <= min(drawn) <= max(drawn) <= factor
    assert len(over) / len(drawn) == pytest.approx(0.5, abs=0.02)
    # Both uniform: Eq. 7 and 8.
    assert fmean(over) == pytest.approx((1 + factor) / 2, rel=0.02)
    assert fmean(under) == pytest.approx((1 + 1 / factor) / 2, rel=0.02)


def test_a_factor_of_1_is_no_error() -> None:
    assert predictions([3.0, 5.0], 1.0, Random(7), 100.0) == [3.0, 5.0]


def test_estimates_stay_below_the_most_but_never_below_it_for_what_is_longer() -> None:
    estimates = predictions([10.0, 90.0] * 200, 8.0, Random(0), 50.0)
    assert max(estimates[::2]) == 50.0
    assert max(estimates[1::2]) == 90.0
    assert min(estimates) < 10.0


def spans(pc: SimulatedPC, count: int = 50) -> list[RealWindow]:
    return list(islice(pc.timetable(), count))


def test_windows_happen_as_before_and_are_announced_wrongly_alike_in_each_run() -> None:
    right = SimulatedPC("a", cycle(100, 20), slots=3)
    wrong = wrongly_announced(right, 4.0, seed=5)
    assert (wrong.name, wrong.slots) == ("a", 3)
    assert [(s.opens, s.closes) for s in spans(wrong)] == [(s.opens, s.closes) for s in spans(right)]
    lasts = [span.announced - span.opens for span in spans(wrong)]
    assert 25 <= min(lasts) < 100 < max(lasts) <= 400
    assert spans(wrong) == spans(wrongly_announced(right, 4.0, seed=5))


def test_a_pc_that_is_still_there_announces_what_is_left_as_wrongly_until_next_to_nothing_is() -> None:
    found = spans(wrongly_announced(SimulatedPC("a", cycle(100, 20)), 4.0, seed=5), 500)
    for span in found:
        at = (span.opens, *span.closings)
        factors = [(later - now) / (span.closes - now) for now, later in pairwise(at)]
        assert all(0.25 <= factor <= 4.0 for factor in factors)
        assert all(now < span.closes - NEGLIGIBLE * 100 for now in at[:-1])
        assert span.closings[-1] >= span.closes - NEGLIGIBLE * 100
    assert fmean(bool(span.again) for span in found) == pytest.approx(0.5, abs=0.05)


def test_each_pc_and_each_seed_has_errors_of_its_own() -> None:
    a, b = SimulatedPC("a", cycle(100, 20)), SimulatedPC("b", cycle(100, 20))
    drawn = [wrongly_announced(pc, 4.0, seed) for pc in (a, b) for seed in (1, 2)]
    assert len({spans(pc, 1)[0].announced for pc in drawn}) == 4


def test_a_pc_that_stays_is_still_known_to_stay() -> None:
    assert spans(wrongly_announced(SimulatedPC("a"), 4.0, 1)) == spans(SimulatedPC("a"))


def test_a_window_so_short_that_an_error_would_leave_none_of_it_is_announced_as_it_is() -> None:
    span = RealWindow(1e9, 1e9 + 2e-7, 1e9 + 2e-7)
    pc = SimulatedPC("a", lambda: iter([span] * 20))
    assert all(each.announced > each.opens for each in spans(wrongly_announced(pc, 1000.0, 1)))
