"""Classes by runtime, their aging, and the least size."""

import pytest

from deskgrid.papers.scojo_p.policies.classes import Classes, optimum
from deskgrid.papers.scojo_p.policies.nmin import Nmin
from deskgrid.scheduler.parallel.choices import Size
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.parallel.looking import grid_of, look_at, moldable, of_paper
from tests.scheduler.parallel.played import Grid, gang, hosts_of


@pytest.mark.parametrize(("seconds", "number"), [(1.0, 0), (59.9, 0), (60.0, 1), (3599.0, 1), (3600.0, 2)])
def test_the_limits_of_the_classes(seconds: float, number: int) -> None:
    assert Classes().class_of(seconds) == number


def test_what_counts_is_the_runtime_on_the_size_that_suits() -> None:
    assert optimum(of_paper(0, 8, 100.0)) == pytest.approx(100.0)
    assert optimum(gang(0, 4, 50.0)) == 50.0


def test_short_jobs_come_first_and_within_a_class_those_that_arrived_first() -> None:
    jobs = [gang(0, 1, 5000.0), gang(1, 1, 70.0), gang(2, 1, 5.0), gang(3, 1, 60.0), gang(4, 1, 50.0)]
    assert [job.task for job in Classes().order(jobs, 0.0)] == [2, 4, 1, 3, 0]


def test_jobs_rise_by_one_class_when_they_have_waited_five_times_their_runtime() -> None:
    jobs = [gang(0, 1, 4000.0), gang(1, 1, 100.0), gang(2, 1, 5.0, arrived=499.0)]
    assert [job.task for job in Classes().order(jobs, 499.9)] == [2, 1, 0]
    assert [job.task for job in Classes().order(jobs, 500.0)] == [1, 2, 0]
    assert Classes().rank(jobs[0], 20_000.0) == 1
    assert Classes().rank(jobs[2], 20_000.0) == 0


def test_a_short_job_overtakes_and_does_not_delay_the_head_of_the_queue() -> None:
    grid = Grid(hosts_of("a", 4))
    grid.submit([gang(0, 3, 10.0), gang(1, 4, 4000.0), gang(2, 4, 30.0, arrived=1.0), gang(3, 1, 9.0, arrived=2.0)])
    policy = make_policy("rigid", margin=0.0)
    grid.play(policy.parallel)  # type: ignore[attr-defined]
    assert {each.job.task: each.began for each in grid.done} == {0: 0.0, 2: 10.0, 3: 40.0, 1: 49.0}


def test_the_least_is_the_least() -> None:
    job = moldable(0, 3, 8, 10.0)
    assert Nmin().size(look_at(grid_of(hosts_of("a", 4), [job]), Nmin()), job) == Size(3)
    grid = Grid(hosts_of("a", 8)).submit([job])
    grid.play(make_policy("nmin").parallel)  # type: ignore[attr-defined]
    assert len(grid.done[0].start.ranks) == 3
