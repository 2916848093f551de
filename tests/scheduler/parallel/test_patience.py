"""A job that has waited for too long comes first, one at a time, and waits for late work without being passed."""

import pytest

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import ParallelJob, Start
from deskgrid.scheduler.parallel.hosts import expected_end, frees
from deskgrid.scheduler.parallel.patience import LEAST_S, PART, PATIENCE, least_patient, patience_ends, tolerance
from deskgrid.scheduler.parallel.speedup import Amdahl
from tests.scheduler.parallel.looking import grid_of, running
from tests.scheduler.parallel.played import Grid, gang, hosts_of
from tests.scheduler.parallel.test_composed import began, parallel

HOUR = 3600.0


def test_patience_lasts_for_five_times_the_runtime_and_for_ten_minutes_at_least() -> None:
    assert patience_ends(gang(1, 4, HOUR, 50.0)) == 50.0 + PATIENCE * HOUR
    assert patience_ends(gang(1, 4, 1.0, 50.0)) == 50.0 + LEAST_S
    moldable = ParallelJob(1, Need(2, 8, speedup=Amdahl(0.0), gang=True), HOUR, 0.0)
    assert patience_ends(moldable) == PATIENCE * HOUR / 2


def test_the_one_whose_patience_ended_first_comes_first() -> None:
    jobs = [gang(1, 4, HOUR), gang(2, 1, 1.0, 10.0), gang(3, 1, 1.0, 5.0)]
    grid = grid_of(hosts_of("A", 4), jobs)
    assert least_patient(jobs, grid.sites, LEAST_S) is None
    assert least_patient(jobs, grid.sites, LEAST_S + 20.0) is jobs[2]
    assert least_patient(jobs, grid.sites, PATIENCE * HOUR) is jobs[2]
    assert least_patient(jobs[:1], grid.sites, PATIENCE * HOUR) is jobs[0]
    assert least_patient([], grid.sites, PATIENCE * HOUR) is None


@pytest.mark.parametrize(
    ("arrived", "began", "first"),
    [
        (0.0, 700.0, False),  # its patience had ended before, and it is served
        (0.0, 500.0, True),  # it was patient when it began
        (50.0, 800.0, True),  # it came later
    ],
)
def test_the_next_one_comes_first_when_those_before_it_have_less_than_a_quarter(
    arrived: float, began: float, first: bool
) -> None:
    hosts, waits = hosts_of("A", 8), gang(9, 8, 1.0, 10.0)
    grid = grid_of(hosts, [waits], began)
    before = gang(1, 2, 100.0, arrived)
    grid.waiting.append(before)
    grid.start(Start(before, ((hosts[0], 1), (hosts[1], 1)), 100.0))
    assert PART == 2 / 8
    assert (least_patient([waits], grid.sites, 900.0) is waits) is first


def test_work_that_is_late_may_end_at_any_moment_when_patience_ended_twice_as_long_ago() -> None:
    waits = gang(2, 2, 1.0)
    assert [tolerance(waits, LEAST_S + seconds) for seconds in (-10.0, 0.0, 30.0)] == [0.0, 0.0, 15.0]
    assert [expected_end(at, 100.0, 15.0) for at in (101.0, 100.0, 85.0, 84.0)] == [101.0, 100.0, 100.0, 116.0]
    hosts = hosts_of("A", 1, 3)
    grid = grid_of(hosts, [], 600.0)
    for task, seconds in enumerate((10.0, 20.0, 50.0)):
        running(grid, task, hosts[0], seconds)
    assert frees(hosts[0], waits, 640.0) == [(640.0, 1), (650.0, 1), (670.0, 1)]
    assert frees(hosts[0], waits, 600.0) == [(610.0, 1), (620.0, 1), (650.0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["packing", "nmin", "easy"])
def test_tasks_that_are_always_late_do_not_delay_a_job_for_ever(name: str) -> None:
    """Some small jobs take four times what was predicted: something is always late, and others seem to end sooner."""
    grid = Grid(hosts_of("A", 16)).submit([gang(0, 16, 200.0, 1.0)])
    grid.submit([gang(number, 1, 20.0 + number % 7, number * 2.5) for number in range(1, 3_000)])
    grid.play(parallel(name), actual=lambda job: (1.0, 0.5, 1.0, 4.0, 1.5)[job.task % 5])
    assert began(grid)[0] < 1.0 + 5 * 200.0 + 200.0


@pytest.mark.slow
def test_a_task_that_never_ends_keeps_others_from_idle_slots_for_no_longer_than_half_the_time() -> None:
    grid = Grid(hosts_of("A", 2)).submit([gang(0, 1, 600.0), gang(1, 2, 1.0, 1.0)])
    grid.submit([gang(number, 1, 10.0, number * 20.0) for number in range(2, 1_000)])
    grid.play(parallel("packing"), actual=lambda job: 1e6 if job.task == 0 else 1.0)
    late = [start for task, start in began(grid).items() if task > 1 and start > 601.0]
    assert len(late) > 900
    assert 1 not in {done.job.task for done in grid.done if done.ended < 5e8}


def test_a_job_that_can_start_at_no_known_time_waits_aside_and_the_next_is_the_head() -> None:
    """Job 2 needs more than there is: with EASY, slots are kept for job 3 nevertheless; without, it has its turn."""
    small = [gang(number, 1, 10.0, 2.0 + number) for number in range(4, 200)]
    for name in ("easy", "ff", "packing"):
        grid = Grid(hosts_of("A", 2)).submit([gang(1, 1, 10.0), gang(2, 3, 1.0, 1.0), gang(3, 2, 9.0, 1.0), *small])
        grid.play(parallel(name))
        assert began(grid)[3] == (10.0 if name != "packing" else began(grid)[3])
        assert 2 not in began(grid)
        assert len(began(grid)) == 198


def test_jobs_that_need_as_much_as_one_that_waits_aside_wait_aside_too() -> None:
    windows = {"A0": [(0.0, 50.0)], "A1": [(0.0, 50.0)]}
    for name in ("easy", "ff"):
        grid = Grid(hosts_of("A", 2), windows)
        grid.submit([gang(1, 2, 60.0), gang(2, 2, 70.0), gang(3, 2, 20.0)])
        grid.play(parallel(name), until=40.0)
        assert began(grid) == {3: 0.0}
