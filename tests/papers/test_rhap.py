"""The RHAP paper: its workload, and the order of the policies at fixed seeds."""

from itertools import islice
from random import Random
from statistics import fmean, stdev

import pytest

from deskgrid.papers.base import AskedExperiments
from deskgrid.papers.rhap.experiment import PAPER, USUAL, RhapTrial, drawn, load_of_others, pcs


def mean(policy: str, case: str, experiment: str = "load", seeds: int = 2, jobs: int = 300) -> float:
    found = [RhapTrial(experiment, case, policy, seed, jobs).rows() for seed in range(seeds)]
    return fmean(row.value for rows in found for row in rows)


@pytest.mark.slow
def test_partitions_by_power_are_better_than_those_by_processors() -> None:
    means = {policy: mean(policy, "0.7") for policy in ("rhap", "map", "ap2")}
    assert means["rhap"] < means["map"] < means["ap2"]


def test_a_run_is_the_same_each_time() -> None:
    trial = RhapTrial("load", "0.5", "rhap", 3, 100)
    assert trial.rows() == trial.rows()
    (row,) = trial.rows()
    assert (row.paper, row.experiment, row.case, row.policy, row.seed, row.unit) == (
        "rhap",
        "load",
        "0.5",
        "rhap",
        3,
        "s",
    )


@pytest.mark.parametrize(("mean_s", "cv"), [(16.0, 4.0), (2.0, 1.0), (1.0, 2.0)])
def test_times_have_the_mean_and_the_cv_that_are_asked_for(mean_s: float, cv: float) -> None:
    times = list(islice(drawn(Random(1), mean_s, cv), 100_000))
    assert fmean(times) == pytest.approx(mean_s, rel=0.05)
    assert stdev(times) / fmean(times) == pytest.approx(cv, rel=0.05)


def test_the_utilization_is_as_in_equation_9() -> None:
    arrivals = RhapTrial("load", "0.8", "rhap", 0, 5000).arrivals()
    gap = arrivals[-1].at / len(arrivals)
    assert 16.0 / gap / 64 == pytest.approx(0.8, rel=0.05)
    assert arrivals[0].runtimes == [8.0]  # nobody knows better: the mean, at the speed of the fastest
    assert arrivals[0].really() != [8.0]


def test_the_slow_pcs_are_listed_first() -> None:
    speeds = [pc.speed for pc in pcs()]
    assert speeds == [0.5] * 32 + [1.0] * 32
    assert [pc.name for pc in pcs()] == sorted(pc.name for pc in pcs())


def test_loads_are_whole_percent_up_to_30() -> None:
    chance = Random(2)
    assert {round(100 * load_of_others(chance)) for _ in range(2000)} == set(range(31))


def test_sensitivities_change_one_thing() -> None:
    usual = RhapTrial("load", "0.8", "rhap", 0, 50).arrivals()
    bursts = RhapTrial("arrival-cv", "4", "rhap", 0, 50).arrivals()
    assert RhapTrial("arrival-cv", "1", "rhap", 0, 50).arrivals() == usual
    assert RhapTrial("service-cv", "4", "rhap", 0, 50).arrivals() == usual
    assert [each.actual for each in bursts] == [each.actual for each in usual]
    assert bursts != usual


def test_if_no_cases_are_asked_for_only_the_usual_ones_are_made() -> None:
    cases = {trial.case for trial in PAPER.trials(AskedExperiments(["load"], [], [], [0]))}  # type: ignore[attr-defined]
    assert cases == set(USUAL)
    (trial,) = PAPER.trials(AskedExperiments(["load"], ["0.1"], ["rhap"], [7]))
    assert trial == RhapTrial("load", "0.1", "rhap", 7)
