"""PCs drawn from fitted distributions: the figures, the statistics of what is drawn, the day and the week."""

import math
import pickle
import random
from itertools import islice, pairwise, takewhile
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.simulation.simulator import RealWindow, SimulatedPC
from deskgrid.sleepbench.workloads.fits import (
    DAY_S,
    HOUR_S,
    LENGTH_LEAST_S,
    WEEK_S,
    Fit,
    Length,
    find_fit,
    fit_names,
    fitted_lab,
    spans,
    spent,
)
from deskgrid.sleepbench.workloads.source import WorkloadError

DISTRIBUTIONS = ("exponential", "weibull", "lognormal", "gamma")
# The mean availability and unavailability of each system as measured, hours: the exponential's parameter is just that.
MEASURED = {
    "nd07cpu": (13.73, 4.25),
    "microsoft99": (67.01, 16.49),
    "g5k06": (32.41, 7.41),
    "lanl05": (1779.99, 5.92),
    "ldns04": (141.06, 8.61),
    "overnet03": (2.29, 12.0),
    "pl05": (159.49, 49.61),
    "skype06": (16.27, 14.31),
    "websites02": (11.85, 1.18),
}
EULER = 0.5772156649015329


def digamma(x: float) -> float:
    """The derivative of lgamma, roughly."""
    return (math.lgamma(x + 1e-5) - math.lgamma(x - 1e-5)) / 2e-5


def mean_log(length: Length) -> float:
    """What the logarithm of a draw is on average."""
    first, second = (*length.parameters, 0.0)[:2]
    return {
        "exponential": lambda: math.log(first) - EULER,
        "weibull": lambda: math.log(second) - EULER / first,
        "lognormal": lambda: first,
        "gamma": lambda: digamma(first) + math.log(second),
    }[length.distribution]()


def weeks(pc: SimulatedPC, count: int) -> list[RealWindow]:
    """The windows that open in the first weeks."""
    return list(takewhile(lambda span: span.opens < count * WEEK_S, pc.timetable()))


def share_there(pcs: tuple[SimulatedPC, ...], count: int, instants: list[float]) -> float:
    """The share of PCs that are there, over these instants of each of the first weeks."""
    there = 0
    for pc in pcs:
        windows = weeks(pc, count)
        times = [week * WEEK_S + instant for week in range(count) for instant in instants]
        there += sum(any(span.opens <= time < span.closes for span in windows) for time in times)
    return there / (len(pcs) * count * len(instants))


def share_of_time(pcs: tuple[SimulatedPC, ...], count: int) -> float:
    """The share of the first weeks for which PCs are there."""
    limit = count * WEEK_S
    return fmean(sum(min(span.closes, limit) - span.opens for span in weeks(pc, count)) / limit for pc in pcs)


def lab(name: str, pcs: int, day_cycle: float, seed: int = 1) -> tuple[SimulatedPC, ...]:
    """PCs with this amplitude."""
    return fitted_lab(find_fit(name, day_cycle), pcs, seed=seed).pcs


def test_all_nine_systems_have_all_four_distributions() -> None:
    assert set(fit_names()) == set(MEASURED)
    for system in fit_names():
        for distribution in DISTRIBUTIONS:
            assert find_fit(f"{system}:{distribution}").up.distribution == distribution


@pytest.mark.parametrize("system", MEASURED)
def test_gamma_keeps_the_measured_means_and_is_the_default(system: str) -> None:
    assert find_fit(system) == find_fit(f"{system}:gamma")
    fit, exponential = find_fit(system), find_fit(f"{system}:exponential")
    assert (exponential.up.mean(), exponential.down.mean()) == MEASURED[system]
    assert (fit.up.mean(), fit.down.mean()) == pytest.approx(MEASURED[system], rel=0.025)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("state", ["up", "down"])
def test_draws_have_the_mean_and_the_mean_logarithm_of_their_distribution(distribution: str, state: str) -> None:
    fit = find_fit(f"microsoft99:{distribution}")
    length = fit.up if state == "up" else fit.down
    chance = random.Random(5)
    draws = [length.draw(chance) for _ in range(40_000)]
    assert fmean(draws) == pytest.approx(length.mean(), rel=0.06)
    assert fmean(map(math.log, draws)) == pytest.approx(mean_log(length), abs=0.03)


def test_parameters_are_those_of_the_source() -> None:
    fit = find_fit("nd07cpu:weibull")
    assert (fit.up.parameters, fit.down.parameters) == ((0.45, 4.16), (0.51, 0.74))
    fit = find_fit("pl05:lognormal")
    assert (fit.up.parameters, fit.down.parameters) == ((1.44, 2.86), (0.4, 2.45))


def test_only_desktops_have_a_day_by_default_in_which_people_take_cpus_and_switch_pcs_on() -> None:
    cycles = {name: find_fit(name).day_cycle for name in fit_names()}
    assert {name: cycle for name, cycle in cycles.items() if cycle} == {"nd07cpu": 0.5, "microsoft99": -0.5}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nd08", "there is no fit 'nd08', only nd07cpu, microsoft99, "),
        ("", "there is no fit ''"),
        ("nd07cpu:pareto", "there is no distribution 'pareto', only exponential, weibull, lognormal, gamma"),
    ],
)
def test_an_unknown_fit_is_an_error_that_names_those_there_are(name: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        find_fit(name)


@pytest.mark.parametrize("amplitude", [1.0, -1.0, 2.0, math.nan])
def test_an_amplitude_that_would_stop_time_is_refused(amplitude: float) -> None:
    with pytest.raises(WorkloadError, match="above -1 and below 1"):
        find_fit("nd07cpu", amplitude)


def test_a_lab_is_so_many_pcs_with_so_many_slots() -> None:
    found = fitted_lab(find_fit("nd07cpu"), 3, slots=4)
    assert [(pc.name, pc.slots) for pc in found.pcs] == [("pc1", 4), ("pc2", 4), ("pc3", 4)]
    assert found.title == "3 PCs as CPUs of desktops at Notre Dame, 2007 (nd07cpu:gamma, day cycle +0.5)"
    assert fitted_lab(find_fit("lanl05"), 1).title == "1 PCs as clusters at Los Alamos (lanl05:gamma)"


def test_the_windows_of_a_pc_depend_on_seed_and_number_alone() -> None:
    fit = find_fit("nd07cpu")
    few, many = fitted_lab(fit, 2, seed=7).pcs, fitted_lab(fit, 9, seed=7).pcs
    list(islice(many[0].timetable(), 50))  # what is read of one changes no other
    assert [list(islice(pc.timetable(), 50)) for pc in few] == [list(islice(pc.timetable(), 50)) for pc in many[:2]]
    assert next(pickle.loads(pickle.dumps(few[0])).timetable()) == next(few[0].timetable())
    firsts = {next(spans(fit, seed, number)).closes for seed in (7, 8) for number in (1, 2)}
    assert len(firsts) == 4


@pytest.mark.parametrize("name", [f"{system}:{distribution}" for system in MEASURED for distribution in DISTRIBUTIONS])
def test_windows_are_in_order_apart_announced_as_they_are_and_never_end(name: str) -> None:
    found = list(islice(spans(find_fit(name, 0.9), 3, 1), 300))
    assert len(found) == 300
    assert found[0].opens >= 0.0
    assert all(span.announced == span.closes > span.opens for span in found)
    # The shortest gap at the quickest pace, less what is lost to rounding.
    assert all(after.opens - span.closes > 0.5 * LENGTH_LEAST_S for span, after in pairwise(found))


def test_without_a_day_cycle_lengths_are_those_of_the_fit() -> None:
    fit = find_fit("overnet03:exponential", 0.0)
    found = list(islice(spans(fit, 11, 1), 1, 8000))
    ups = [(span.closes - span.opens) / HOUR_S for span in found]
    downs = [(after.opens - span.closes) / HOUR_S for span, after in pairwise(found)]
    assert fmean(ups) == pytest.approx(2.29, rel=0.04)
    assert fmean(downs) == pytest.approx(12.0, rel=0.04)
    assert sum(up < 2.29 * math.log(2) for up in ups) / len(ups) == pytest.approx(0.5, abs=0.02)


def test_a_run_begins_in_the_middle_of_the_lives_of_the_pcs() -> None:
    pcs = lab("nd07cpu:gamma", 1500, 0.0)
    assert share_there(pcs, 1, [0.0]) == pytest.approx(find_fit("nd07cpu:gamma").availability, abs=0.035)


WORKING = [day * DAY_S + hour * HOUR_S for day in range(5) for hour in (13.0, 15.0, 16.9)]
NIGHT = [day * DAY_S + hour * HOUR_S for day in range(1, 5) for hour in (3.0, 6.0, 8.9)]
WEEKEND = [day * DAY_S + hour * HOUR_S for day in (5, 6) for hour in (13.0, 15.0, 16.9)]


def test_people_take_their_pcs_in_office_hours() -> None:
    pcs = lab("nd07cpu", 300, 0.5)
    working, night, weekend = (share_there(pcs, 4, instants) for instants in (WORKING, NIGHT, WEEKEND))
    assert working < night - 0.1
    assert working < weekend - 0.1


def test_below_0_pcs_are_there_in_office_hours() -> None:
    pcs = lab("nd07cpu", 300, -0.5)
    working, night, weekend = (share_there(pcs, 4, instants) for instants in (WORKING, NIGHT, WEEKEND))
    assert working > night + 0.08
    assert working > weekend + 0.08


def test_with_0_every_hour_is_like_every_other() -> None:
    pcs = lab("nd07cpu", 400, 0.0)
    shares = [share_there(pcs, 6, instants) for instants in (WORKING, NIGHT, WEEKEND)]
    assert max(shares) - min(shares) < 0.03


@pytest.mark.parametrize("amplitude", [-0.5, 0.5])
def test_a_day_cycle_leaves_the_availability_about_as_it_was(amplitude: float) -> None:
    assert share_of_time(lab("nd07cpu", 300, amplitude), 8) == pytest.approx(
        share_of_time(lab("nd07cpu", 300, 0.0), 8), abs=0.04
    )


@pytest.mark.parametrize(
    ("now", "length", "amplitude", "end"),
    [
        (0.0, 100.0, 0.0, 100.0),
        (10 * HOUR_S, HOUR_S, 0.5, 10 * HOUR_S + HOUR_S / 1.5),  # Monday at 10
        (0.0, HOUR_S * (1 - 0.5 * 40 / 128), 0.5, HOUR_S),  # Monday night
        (8 * HOUR_S, HOUR_S * (1 - 0.5 * 40 / 128) + HOUR_S * 1.5, 0.5, 10 * HOUR_S),  # over the opening
        (16 * HOUR_S, HOUR_S * 0.5 + HOUR_S * (1 + 0.5 * 40 / 128), -0.5, 18 * HOUR_S),  # over the closing
        (5 * DAY_S + 10 * HOUR_S, HOUR_S * (1 - 0.5 * 40 / 128), 0.5, 5 * DAY_S + 11 * HOUR_S),  # Saturday at 10
        (4 * DAY_S + 17 * HOUR_S, 64 * HOUR_S * (1 - 0.5 * 40 / 128), 0.5, WEEK_S + 9 * HOUR_S),  # a weekend
        (-WEEK_S + 10 * HOUR_S, HOUR_S * 1.5, 0.5, -WEEK_S + 11 * HOUR_S),  # the Monday before
        (12345.0, 3 * WEEK_S, 0.9, 12345.0 + 3 * WEEK_S),
    ],
)
def test_a_length_is_spent_at_the_pace_of_the_hour(now: float, length: float, amplitude: float, end: float) -> None:
    assert spent(now, length, amplitude) == pytest.approx(end, abs=1e-6)


@given(st.floats(-1e8, 1e8), st.floats(0.0, 3 * WEEK_S), st.floats(0.0, 3 * WEEK_S), st.floats(-0.99, 0.99))
def test_two_lengths_one_after_the_other_are_one(now: float, first: float, second: float, amplitude: float) -> None:
    together = spent(now, first + second, amplitude)
    assert spent(spent(now, first, amplitude), second, amplitude) == pytest.approx(together, abs=1e-4)
    assert together >= now


def test_a_fit_refuses_what_is_no_amplitude_however_it_is_made() -> None:
    length = Length("exponential", (1.0,))
    with pytest.raises(WorkloadError):
        Fit("any", "any", length, length, 1.5)
