"""TLA, by the worked example of its paper (Fig. 4, Table 1), and its depths."""

import pytest

from deskgrid.scheduler.model import UnknownPolicy
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob, ParallelPolicy, Start
from deskgrid.scheduler.policies import make_policy, policy_options
from tests.scheduler.parallel.played import Grid, gang, hosts_of

# The figure says what runs, and its text does not. These two, and a first job of 4 processors where the table prints 3,
# give all eight turnarounds of the table.
QUEUE = ((4, 10.0, -5.0), (6, 2.0, -4.0), (2, 8.0, -2.0), (7, 2.0, -2.0))


def tla(**options: object) -> ParallelPolicy:
    parallel: ParallelPolicy = make_policy("tla", **options).parallel  # type: ignore[attr-defined]
    return parallel


def figure_4() -> Grid:
    """Sites A and B of nine slots; A is twice as fast. One slot of A is busy until 3, four of B until 5."""
    grid = Grid([*hosts_of("A", 1, 9, speed=2.0), *hosts_of("B", 1, 9)])
    for host, ranks, seconds in ((grid.hosts[0], 1, 3.0), (grid.hosts[1], 4, 5.0)):
        busy = gang(-ranks, ranks, seconds)
        grid.at(0.0, lambda busy=busy, host=host, seconds=seconds: run(grid, busy, host, seconds))  # type: ignore[misc]
    for number, (ranks, seconds, arrived) in enumerate(QUEUE, start=1):
        job = gang(number, ranks, seconds, arrived)
        grid.at(0.0, lambda job=job: grid.waiting.append(job))  # type: ignore[misc]
    return grid


def run(grid: Grid, job: ParallelJob, host: Host, seconds: float) -> None:
    grid.waiting.append(job)
    grid.start(Start(job, ((host, job.need.most),), seconds))


def starts(grid: Grid) -> dict[int, tuple[str, float]]:
    return {done.job.task: (done.start.ranks[0][0].site.name, done.began) for done in grid.done if done.job.task > 0}


def test_the_first_job_of_the_figure_scores_10_on_a_and_8_on_b_and_goes_to_b() -> None:
    grid = figure_4()
    grid.play(tla())
    first = next(done for done in grid.done if done.job.task == 1)
    assert first.start.considered == {"A": 10.0, "B": 8.0}
    assert starts(grid) == {1: ("B", 0.0), 2: ("A", 0.0), 3: ("A", 0.0), 4: ("A", 3.0)}
    assert sum(done.turnaround for done in grid.done if done.job.task > 0) / 4 == 8.0


def test_an_only_possible_site_is_scored_for_people_who_watch() -> None:
    grid, quiet = figure_4(), figure_4()
    grid.play(tla())
    quiet.play(tla(explain=False))
    second = {done.job.task: done.start.considered for done in grid.done}[2]
    assert second == {"A": (5.0 + 6.0 + 6.0) / 3}
    assert {done.job.task: done.start.considered for done in quiet.done}[2] is None
    assert starts(quiet) == starts(grid)


def test_a_job_alone_takes_the_fastest_site() -> None:
    grid = Grid([*hosts_of("A", 1, 9), *hosts_of("B", 1, 9, speed=2.0)]).submit([gang(1, 3, 10.0)])
    grid.play(tla())
    assert grid.done[0].start.considered == {"A": 10.0, "B": 5.0}
    assert starts(grid) == {1: ("B", 0.0)}


def test_with_depth_1_only_the_next_job_is_simulated() -> None:
    grid = figure_4()
    grid.play(tla(simulation_depth=1))
    first = next(done for done in grid.done if done.job.task == 1)
    assert first.start.considered == {"A": 10.0, "B": 10.0}
    assert first.start.ranks[0][0].site.name == "A"  # the fastest of equals
    assert len(grid.done) == 6


def test_without_a_depth_all_are_simulated() -> None:
    grid = figure_4()
    grid.play(tla(simulation_depth=None))
    assert starts(grid)[1] == ("B", 0.0)


def test_one_simulation_decides_about_as_many_jobs_as_the_allocation_depth() -> None:
    grid = figure_4()
    grid.play(tla(allocation_depth=3))
    considered = {done.job.task: done.start.considered for done in grid.done}
    assert considered[1] == {"A": 10.0, "B": 8.0}
    assert considered[2] is None
    assert considered[3] is None
    assert considered[4] is not None
    assert starts(grid) == {1: ("B", 0.0), 2: ("A", 0.0), 3: ("A", 0.0), 4: ("A", 3.0)}


def test_a_decision_taken_before_is_dropped_when_its_site_is_full() -> None:
    """Jobs 1 to 3 are decided about at once; job 1 takes longer than predicted, and B is free before A."""
    grid = Grid([*hosts_of("A", 1, 4, speed=2.0), *hosts_of("B", 1, 4)])
    grid.submit([gang(1, 4, 8.0), gang(2, 4, 8.1), gang(3, 4, 40.0)])
    grid.play(tla(allocation_depth=3), actual=lambda job: 5.0 if job.task == 1 else 1.0)
    considered = {done.job.task: done.start.considered for done in grid.done}
    assert considered[2] is None
    assert considered[3] is not None
    assert starts(grid) == {1: ("A", 0.0), 2: ("B", 0.0), 3: ("B", 8.1)}


@pytest.mark.parametrize("inner", ["bf", "wf", "random"])
def test_others_may_be_simulated_by_another_choice_of_sites(inner: str) -> None:
    grid = figure_4()
    grid.play(tla(inner=inner))
    assert len(grid.done) == 6
    again = figure_4()
    again.play(tla(inner=inner))
    assert starts(again) == starts(grid)


def test_a_job_too_large_for_every_site_does_not_count() -> None:
    grid = Grid([*hosts_of("A", 1, 4), *hosts_of("B", 1, 4)])
    grid.submit([gang(1, 2, 10.0), gang(2, 5, 1.0), gang(3, 3, 10.0)])
    grid.play(tla())
    assert grid.done[0].start.considered == {"A": 10.0, "B": 10.0}
    assert [done.job.task for done in grid.done] == [1, 3]


def test_moldable_jobs_are_simulated_with_the_size_that_they_would_get() -> None:
    grid = Grid([*hosts_of("A", 1, 4), *hosts_of("B", 1, 4)])
    grid.submit([gang(1, 2, 10.0), ParallelJob(2, Need(1, 3, gang=True), 10.0, 0.0)])
    grid.play(tla())
    assert {done.job.task: sum(ranks for _, ranks in done.start.ranks) for done in grid.done} == {1: 2, 2: 3}
    assert grid.done[0].start.considered == {"A": 10.0, "B": 10.0}


@pytest.mark.parametrize(
    "options",
    [
        {"simulation_depth": 0},
        {"simulation_depth": 2.5},
        {"simulation_depth": 10**100},
        {"allocation_depth": 0},
        {"allocation_depth": 2.5},
        {"inner": "best"},
    ],
)
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UnknownPolicy, match=next(iter(options))):
        make_policy("tla", **options)


def test_options_are_those_that_it_was_made_with() -> None:
    policy = make_policy("tla", simulation_depth=7, allocation_depth=2, inner="wf", seed=3, explain=False)
    kept = policy_options(policy)
    assert [kept[name] for name in ("simulation_depth", "allocation_depth", "inner", "seed", "explain")] == [
        7, 2, "wf", 3, False,
    ]  # fmt: skip
