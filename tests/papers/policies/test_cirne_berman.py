"""Cirne and Berman: a job chooses, when it arrives, the size with which it would end first."""

from dataclasses import replace

import pytest

from deskgrid.papers.scojo_p.policies.cirne_berman import CirneBerman
from deskgrid.scheduler.parallel.base import Host, ParallelJob
from deskgrid.scheduler.parallel.choices import Size
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.parallel.looking import grid_of, look_at, moldable, of_paper, running
from tests.scheduler.parallel.played import Grid, gang, hosts_of


def machine(slots: int) -> Host:
    (host,) = hosts_of("m", 1, slots=slots)
    return host


def chosen(
    host: Host, waiting: list[ParallelJob], going: list[tuple[int, float]], *, shrinks: bool = False
) -> list[int]:
    """The sizes of the waiting jobs. ``going``: (ranks, seconds) of those that run."""
    grid = grid_of([host], [])
    for number, (ranks, seconds) in enumerate(going):
        running(grid, number, host, seconds, ranks)
    grid.waiting += waiting
    sizes = CirneBerman(shrinks)
    look = look_at(grid, sizes)
    sizes.notice(look)
    return [sizes.size(look, job).ranks for job in waiting]


def test_on_an_empty_machine_a_job_takes_all_that_makes_it_faster() -> None:
    assert chosen(machine(8), [moldable(10, 1, 16, 80.0)], []) == [8]
    assert chosen(machine(64), [of_paper(10, 8, 100.0)], []) == [16]
    assert chosen(machine(64), [of_paper(10, 8, 100.0)], [], shrinks=True) == [8]


def test_it_starts_small_if_waiting_for_more_would_take_longer() -> None:
    # 2 slots now: 40 s. 8 slots in 35 s: 35 + 10 s. In 25 s: 25 + 10.
    assert chosen(machine(8), [moldable(10, 1, 8, 80.0)], [(6, 35.0)]) == [2]
    assert chosen(machine(8), [moldable(10, 1, 8, 80.0)], [(6, 25.0)]) == [8]


def test_those_that_wait_before_it_start_before_it() -> None:
    # The first takes 4 for 100 s; then the second can have 4 now, or 8 in 100 s.
    assert chosen(machine(8), [gang(10, 4, 100.0), moldable(11, 1, 8, 80.0)], []) == [4, 4]


def test_it_fills_a_gap_before_the_head_that_waits() -> None:
    # Task 10 needs all 8, in 50 s. 4 slots are free until then, enough for 4 ranks, 20 s; after it they are not sooner.
    assert chosen(machine(8), [gang(10, 8, 100.0), moldable(11, 1, 8, 80.0)], [(4, 50.0)]) == [8, 4]


def test_a_gap_that_is_too_short_is_not_filled() -> None:
    # In 10 s the head takes all for 100 s. 4 ranks would take 20 s, and there is no room beside the head.
    assert chosen(machine(8), [gang(10, 8, 100.0), moldable(11, 1, 8, 80.0)], [(4, 10.0)]) == [8, 8]


def test_beside_the_head_there_may_be_room_for_longer_jobs() -> None:
    assert chosen(machine(8), [gang(10, 6, 100.0), moldable(11, 1, 8, 80.0)], [(4, 10.0)]) == [6, 2]


def test_later_jobs_do_not_change_what_was_chosen() -> None:
    grid = grid_of([machine(8)], [moldable(10, 1, 8, 80.0)])
    sizes = CirneBerman()
    sizes.notice(look_at(grid, sizes))
    running(grid, 1, grid.hosts[0], 1000.0, 6)
    grid.waiting.append(moldable(11, 1, 8, 80.0))
    look = look_at(grid, sizes)
    sizes.notice(look)
    assert [sizes.size(look, job) for job in grid.waiting] == [Size(8), Size(2)]


def test_jobs_that_no_longer_wait_are_forgotten() -> None:
    grid = grid_of([machine(8)], [moldable(10, 1, 8, 80.0)])
    sizes = CirneBerman()
    sizes.notice(look_at(grid, sizes))
    job = grid.waiting.pop()
    sizes.notice(look_at(grid, sizes))
    with pytest.raises(KeyError):
        sizes.size(look_at(grid, sizes), job)


def test_a_job_that_can_never_start_asks_for_its_least() -> None:
    assert chosen(machine(4), [gang(10, 8, 10.0)], []) == [8]
    assert chosen(machine(4), [gang(10, 8, 10.0), moldable(11, 5, 8, 10.0)], [(2, 5.0)]) == [8, 5]


def test_nothing_can_be_said_behind_a_head_that_can_never_start() -> None:
    assert chosen(machine(8), [gang(10, 9, 10.0), moldable(11, 8, 8, 80.0)], [(4, 5.0)]) == [9, 8]


def test_slots_of_a_rank_count() -> None:
    job = moldable(10, 1, 8, 80.0)
    job.need = replace(job.need, slots=2)
    assert chosen(machine(8), [job], []) == [4]


@pytest.mark.parametrize("name", ["cirne-berman", "cirne-berman-shrink"])
def test_everything_runs(name: str) -> None:
    jobs = [of_paper(task, 4 + 2 * (task % 7), 10.0 + 900.0 * (task % 5), 40.0 * task) for task in range(60)]
    grid = Grid([machine(32)]).submit(jobs)
    grid.play(make_policy(name, margin=0.0).parallel)  # type: ignore[attr-defined]
    assert len(grid.done) == 60
