"""The model of Lublin and Feitelson: its means and shapes are those that its authors give."""

import math
from collections import Counter
from statistics import fmean

import pytest

from deskgrid.sleepbench.workloads.lublin import INTERVAL_S, INTERVALS, gamma_cdf, interval_weights, lublin_jobs


def test_means_are_those_of_the_authors_log_of_256_processors() -> None:
    jobs = lublin_jobs(1, 10_000, 256)  # lublin_256.swf: 4863 s, 22.10 processors, a quarter of the jobs serial
    assert fmean(job.runtime_s for job in jobs) == pytest.approx(4863, rel=0.03)
    assert fmean(job.processors for job in jobs) == pytest.approx(22.1, rel=0.03)
    assert Counter(job.processors == 1 for job in jobs)[True] / len(jobs) == pytest.approx(0.249, abs=0.01)


def test_no_job_needs_more_than_the_machine_and_half_of_them_a_power_of_two() -> None:
    sizes = [job.processors for job in lublin_jobs(2, 5000, 128)]
    assert min(sizes) == 1
    assert max(sizes) == 128
    powers = sum([size > 1 and math.log2(size).is_integer() for size in sizes]) / len(sizes)
    assert powers == pytest.approx(0.576 + 0.05, abs=0.05)  # some of the others are one by chance


def test_jobs_arrive_in_order_and_fewer_of_them_at_night() -> None:
    jobs = lublin_jobs(3, 5000)
    assert [job.submitted_s for job in jobs] == sorted(job.submitted_s for job in jobs)
    hours = Counter(int(job.submitted_s % (INTERVALS * INTERVAL_S) // 3600) for job in jobs)
    assert hours[14] > 5 * hours[4]


def test_weights_of_a_day_have_the_mean_one() -> None:
    weights = interval_weights()
    assert len(weights) == INTERVALS
    assert fmean(weights) == pytest.approx(1.0)
    assert min(weights) > 0.0


def test_a_smaller_shape_of_the_gaps_makes_more_load_with_the_same_jobs() -> None:
    usual, more = lublin_jobs(4, 2000), lublin_jobs(4, 2000, aarr=9.83)
    assert [job[1:] for job in usual] == [job[1:] for job in more]
    assert more[-1].submitted_s < usual[-1].submitted_s


def test_the_same_seed_draws_the_same_jobs() -> None:
    assert lublin_jobs(5, 100) == lublin_jobs(5, 200)[:100]
    assert lublin_jobs(5, 100) != lublin_jobs(6, 100)


@pytest.mark.parametrize(("value", "shape", "scale"), [(1.0, 1.0, 2.0), (3.0, 1.0, 1.0), (20.0, 1.0, 3.0)])
def test_a_gamma_distribution_of_shape_one_is_exponential(value: float, shape: float, scale: float) -> None:
    assert gamma_cdf(value, shape, scale) == pytest.approx(1.0 - math.exp(-value / scale))
    assert gamma_cdf(0.0, shape, scale) == 0.0
