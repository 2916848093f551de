"""SCOJO-P: targets by the load while a job runs, jobs to come, less now or more later, and sizes in a gap."""

from math import inf

import pytest

from deskgrid.papers.scojo_p.policies.coming import DAY_S, INTERVAL_S, ArrivalRates
from deskgrid.papers.scojo_p.policies.scojo import PROMISES, Scojo, resized
from deskgrid.scheduler.parallel.base import Host, ParallelJob
from deskgrid.scheduler.parallel.choices import HeadReservation, Size
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.parallel.looking import grid_of, look_at, moldable, of_paper, running
from tests.scheduler.parallel.played import Grid, gang, hosts_of

HOUR_S = 3600.0


def machine(slots: int) -> Host:
    (host,) = hosts_of("m", 1, slots=slots)
    return host


def target(slots: int, waiting: list[ParallelJob], going: list[tuple[int, float]], sizes: Scojo | None = None) -> int:
    """Of the first that waits. ``going``: (ranks, seconds) of those that run."""
    host = machine(slots)
    grid = grid_of([host], [])
    for number, (ranks, seconds) in enumerate(going):
        running(grid, number, host, seconds, ranks)
    grid.waiting += waiting
    sizes = sizes or Scojo()
    look = look_at(grid, sizes)
    sizes.notice(look)
    return sizes.size(look, look.queue[0]).ranks


# --- the target ------------------------------------------------------------------------------------------------------


def test_an_idle_machine_lets_a_job_grow_up_to_its_most() -> None:
    assert target(128, [of_paper(10, 8, 100.0)], []) == 16


def test_a_job_grows_until_the_machine_is_as_busy_as_it_should_be() -> None:
    assert target(16, [of_paper(10, 12, 100.0)], []) == 14  # 14 / 16 is nearer to 0.9 than 15 / 16


def test_jobs_that_wait_make_it_shrink() -> None:
    waiting = [of_paper(10 + number, 8, 100.0) for number in range(4)]
    assert target(16, waiting, []) == 4
    assert 4 < target(24, waiting, []) < 8


def test_jobs_that_run_make_it_shrink_as_far_as_they_overlap() -> None:
    assert target(16, [of_paper(10, 12, 100.0)], [(8, inf)]) == 7
    assert target(16, [of_paper(10, 12, 100.0)], [(8, 1.0)]) == 14
    assert target(16, [of_paper(10, 12, 100.0)], [(8, -5.0)]) == 14  # it should have ended


def test_a_job_that_takes_no_time_has_the_size_that_suits_it() -> None:
    assert target(16, [of_paper(10, 8, 0.0)], []) == 8


def test_a_rigid_job_is_not_resized() -> None:
    assert target(16, [gang(10, 12, 100.0), of_paper(11, 12, 100.0)], [(8, inf)]) == 12


def test_the_search_ends_when_it_comes_no_closer() -> None:
    # Whatever its size, the load is far from what it should be: one that is never reached.
    waiting = [of_paper(10, 8, 100.0), *[gang(11 + number, 64, 1e6) for number in range(5)]]
    assert target(64, waiting, []) == 4
    assert target(64, [of_paper(10, 8, 100.0)], [], Scojo(ideal=0.0)) == 4


def test_factors_that_only_swing_are_given_up() -> None:
    # The smaller the job, the longer it runs, and the more of the long ones it meets.
    waiting = [moldable(10, 1, 16, 160.0), *[moldable(11 + number, 1, 16, 1600.0) for number in range(3)]]
    assert 1 <= target(16, waiting, [(5, 30.0), (3, 12.0)]) <= 16


def test_resizing_rounds_and_stays_in_bounds() -> None:
    need = of_paper(0, 8, 1.0).need
    assert [resized(need, 8, factor) for factor in (0.1, 0.7, 1.0, 1.3, 9.0)] == [4, 6, 8, 10, 16]


# --- jobs to come ----------------------------------------------------------------------------------------------------


def test_what_came_at_a_time_of_day_comes_again() -> None:
    coming = ArrivalRates(1)
    for day in range(3):  # two days have passed between the first and the last of them
        for minute in range(4):
            coming.note(of_paper(0, 8, 60.0, day * DAY_S + INTERVAL_S + 60.0 * minute), 0)
    each = 8 * 60.0
    within = 12 / (2 + 180.0 / DAY_S)  # a day's jobs, all of them in its second half hour
    assert coming.work(10 * DAY_S, INTERVAL_S, 1.0) == 0.0
    assert coming.work(10 * DAY_S, 2 * INTERVAL_S, 1.0) == pytest.approx(within * each)
    assert coming.work(10 * DAY_S + 1.5 * INTERVAL_S, INTERVAL_S, 1.0) == pytest.approx(0.5 * within * each)
    assert coming.work(10 * DAY_S, 2 * DAY_S, 1.0) == pytest.approx(2 * within * each)


def test_their_sizes_follow_the_factor_and_their_runtimes_their_speed_ups() -> None:
    coming = ArrivalRates(2)
    coming.note(of_paper(0, 8, 100.0), 1)
    least, suits, most = (coming.work(0.0, INTERVAL_S, factor) for factor in (0.5, 1.0, 2.0))
    assert (least, suits, most) == pytest.approx((4 * 162.5, 8 * 100.0, 16 * 81.25))
    assert coming.work(0.0, INTERVAL_S, 0.1) == least
    assert coming.work(0.0, INTERVAL_S, 3.0) == most
    assert coming.work(0.0, INTERVAL_S, 0.75) == pytest.approx(6 * 131.25)
    assert coming.work(0.0, INTERVAL_S, 1.5) == pytest.approx(12 * 90.625)


def test_none_counts_for_longer_than_the_job_that_asks_runs() -> None:
    coming = ArrivalRates(1)
    coming.note(gang(0, 4, 1000.0), 0)
    assert coming.work(0.0, INTERVAL_S / 2, 1.0) == pytest.approx(0.5 * 4 * 900.0)


def test_a_busy_time_to_come_makes_jobs_smaller() -> None:
    sizes = Scojo(predicts=True)
    for number in range(40):
        sizes.learn(of_paper(-1, 8, 600.0, INTERVAL_S + number))
    job = of_paper(10, 12, 2 * HOUR_S)
    assert target(16, [job], [], sizes) < target(16, [job], [])


def test_each_job_is_learned_from_once() -> None:
    sizes = Scojo(predicts=True)
    grid = grid_of([machine(16)], [of_paper(10, 8, 60.0), of_paper(11, 8, 60.0)])
    sizes.notice(look_at(grid, sizes))
    grid.waiting.append(of_paper(12, 8, 60.0))
    sizes.notice(look_at(grid, sizes))
    sizes.notice(look_at(grid, sizes))
    assert sizes.coming is not None
    assert sizes.coming.work(0.0, INTERVAL_S, 1.0) == pytest.approx(3 * 8 * 60.0)


def test_without_prediction_nothing_is_learned() -> None:
    sizes = Scojo()
    sizes.learn(of_paper(0, 8, 60.0))
    assert sizes.coming is None


# --- less now, or more later -----------------------------------------------------------------------------------------


def instead(host: Host, job: ParallelJob, wanted: int, going: list[tuple[int, float]]) -> tuple[Scojo, Size]:
    grid = grid_of([host], [])
    for number, (ranks, seconds) in enumerate(going):
        running(grid, number, host, seconds, ranks)
    grid.waiting.append(job)
    sizes = Scojo()
    return sizes, sizes.instead(look_at(grid, sizes), job, Size(wanted))


def test_it_starts_smaller_if_it_then_ends_first() -> None:
    _, size = instead(machine(16), moldable(10, 2, 16, 160.0), 16, [(8, 15.0)])
    assert size == Size(8)  # 20 s now; with 16 it would take 15 + 10 s


def test_it_waits_for_more_if_it_then_ends_first_and_is_promised_that() -> None:
    job = moldable(10, 2, 16, 160.0)
    sizes, size = instead(machine(16), job, 16, [(8, 5.0)])
    assert size == Size(16)
    grid = grid_of([machine(16)], [job, *[of_paper(11 + number, 16, 500.0) for number in range(5)]])
    assert sizes.size(look_at(grid, sizes), job) == Size(16)


def test_it_waits_no_longer_than_for_the_end_that_is_best() -> None:
    _, size = instead(machine(16), moldable(10, 2, 16, 160.0), 16, [(4, 1.0), (4, 100.0), (4, 2.0), (4, 3.0)])
    assert size == Size(12)  # 3 + 160 / 12 s


def test_fewer_than_its_least_are_no_choice() -> None:
    _, size = instead(machine(16), moldable(10, 8, 16, 160.0), 12, [(12, 50.0)])
    assert size == Size(12)


def test_slots_of_several_pcs_become_free_one_after_the_other() -> None:
    first, second = hosts_of("m", 2, slots=4)
    grid = grid_of([first, second], [])
    running(grid, 1, second, 5.0, 4)
    running(grid, 2, first, 2.0, 3)
    job = moldable(10, 1, 8, 80.0)
    grid.waiting.append(job)
    sizes = Scojo()
    assert sizes.instead(look_at(grid, sizes), job, Size(8)) == Size(8)  # 5 + 10 s, not 2 + 20 s, nor 80 s


def test_promises_to_jobs_that_are_gone_are_dropped() -> None:
    job = moldable(1000, 2, 16, 160.0)
    sizes, _ = instead(machine(16), job, 16, [(8, 5.0)])
    for number in range(PROMISES):
        host = machine(16)
        grid = grid_of([host], [])
        running(grid, 1, host, 5.0, 8)
        grid.waiting.append(moldable(number, 2, 16, 160.0))
        sizes.instead(look_at(grid, sizes), grid.waiting[0], Size(16))
    crowd = [job, *[of_paper(2000 + number, 16, 500.0) for number in range(5)]]
    look = look_at(grid_of([machine(16)], crowd), sizes)
    sizes.notice(look)
    assert sizes.size(look, job) == Size(16)
    look.queue[0] = moldable(0, 2, 16, 160.0)
    assert sizes.size(look, look.queue[0]).ranks < 16


# --- in a gap --------------------------------------------------------------------------------------------------------


def filled(jobs: list[ParallelJob], going: int, room_s: float) -> list[tuple[int, int]]:
    """(Task, size) of those that are tried on 16 slots, of which ``going`` are busy until the head can start."""
    host = machine(16)
    grid = grid_of([host], [])
    running(grid, 0, host, room_s, going)
    head = gang(1, 16, 100.0)
    sizes = Scojo()
    reserved = HeadReservation(head, ((host, 16),), room_s, 100.0)
    return [(job.task, size.ranks) for job, size in sizes.fill(look_at(grid, sizes), jobs, reserved)]


def test_jobs_are_resized_so_that_all_fill_the_gap() -> None:
    # Three jobs of 8 x 50 s in a gap of 8 x 100 s: two thirds of that.
    assert filled([of_paper(10 + number, 8, 50.0) for number in range(3)], 8, 100.0) == [(10, 5), (11, 5), (12, 5)]
    assert filled([of_paper(10, 4, 50.0)], 8, 100.0) == [(10, 8)]


def test_jobs_that_would_not_fit_do_not_count_and_are_tried_as_they_are() -> None:
    assert filled([of_paper(10, 4, 500.0)], 8, 100.0) == [(10, 4)]
    assert filled([gang(10, 12, 50.0), gang(11, 8, 50.0)], 8, 100.0) == [(11, 8)]


def test_nothing_is_tried_where_nothing_is_free() -> None:
    assert filled([of_paper(10, 4, 50.0)], 16, 100.0) == []


@pytest.mark.parametrize("name", ["scojo", "scojo-p"])
def test_everything_runs_and_no_worse_than_with_rigid_sizes(name: str) -> None:
    jobs = [of_paper(task, 4 + 2 * (task % 7), 10.0 + 900.0 * (task % 5), 60.0 * task) for task in range(80)]
    means = {}
    for policy in (name, "rigid"):
        grid = Grid([machine(32)]).submit(jobs)
        grid.play(make_policy(policy, margin=0.0).parallel)  # type: ignore[attr-defined]
        assert len(grid.done) == 80
        means[policy] = sum(each.turnaround for each in grid.done) / 80
    assert means[name] < means["rigid"]
