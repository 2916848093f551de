"""The systems of the paper on TLA: loads, speeds, and where the jobs come from."""

from pathlib import Path

import pytest

from deskgrid.papers.base import PaperError
from deskgrid.papers.tla.clusters import RigidJob, load_of, scaled, speeds, systems, workload
from tests.sleepbench.workloads.files import job, log

JOBS = [RigidJob(0.0, 100.0, 4), RigidJob(50.0, 10.0, 8), RigidJob(200.0, 40.0, 1)]


def test_the_load_is_work_over_time_and_processors() -> None:
    assert load_of(JOBS, 10) == pytest.approx((400.0 + 80.0 + 40.0) / 200.0 / 10)


@pytest.mark.parametrize("load", [0.5, 0.75, 1.0])
def test_runtimes_are_scaled_to_a_load_and_nothing_else_is(load: float) -> None:
    jobs = scaled(JOBS, [8, 16], load)
    assert load_of(jobs, 24) == pytest.approx(load)
    assert [(job.submitted, job.processors) for job in jobs] == [(job.submitted, job.processors) for job in JOBS]
    assert len({round(new.runtime / old.runtime, 9) for new, old in zip(jobs, JOBS, strict=True)}) == 1


def test_a_job_for_which_no_cluster_is_large_enough_is_refused() -> None:
    with pytest.raises(PaperError, match="a job has 8 processors, and the largest cluster 4"):
        scaled(JOBS, [4, 4], 0.5)


def test_jobs_that_all_come_at_once_are_no_load() -> None:
    with pytest.raises(PaperError, match="all 1 jobs arrive at once"):
        scaled(JOBS[:1], [8], 0.5)


@pytest.mark.parametrize("system", ["A1", "A2", "D2"])
@pytest.mark.parametrize("heterogeneity", [0.1, 0.2])
def test_speeds_have_the_heterogeneity_and_the_power_that_the_paper_demands(system: str, heterogeneity: float) -> None:
    clusters = systems()[system]
    vectors = [speeds(clusters, heterogeneity, seed) for seed in range(10)]
    for vector in vectors:
        assert min(vector) >= 0.1
        assert sum([(speed - 1.0) ** 2 for speed in vector]) / len(vector) == pytest.approx(heterogeneity)
        assert sum([speed * size for speed, size in zip(vector, clusters, strict=True)]) == pytest.approx(sum(clusters))
    assert len({tuple(vector) for vector in vectors}) == 10
    assert speeds(clusters, heterogeneity, 3) == vectors[3]


def test_without_heterogeneity_all_speeds_are_1() -> None:
    assert speeds([8, 128], 0.0, 5) == [1.0, 1.0]


def test_clusters_that_cannot_be_so_different_are_refused() -> None:
    with pytest.raises(PaperError, match=r"no speeds of 2 clusters have a heterogeneity of 9\.0"):
        speeds([8, 8], 9.0, 0)


def test_a_log_is_the_workload_of_its_system_only(tmp_path: Path) -> None:
    lines = [
        job(1, submit=300, run=50, processors=16),
        job(2, submit=100, run=7, processors=1),
        job(3, submit=200, run=-1, processors=4),
        job(4, submit=250, run=9, processors=-1),
    ]
    path = log(tmp_path, lines, "some.swf.gz")
    assert workload("A1", path) == [RigidJob(0.0, 7.0, 1), RigidJob(200.0, 50.0, 16)]
    drawn = workload("D1", path)
    assert len(drawn) == 50_000
    assert drawn[0].submitted == 0.0
    assert workload("A1", None) == drawn


def test_a_log_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PaperError, match="has no job to run"):
        workload("A1", log(tmp_path, [job(run=-1)]))
