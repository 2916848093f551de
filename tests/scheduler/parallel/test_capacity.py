"""A moldable job gets a size that PCs have together: those that suit it, for long enough."""

from math import inf

import pytest

from deskgrid.scheduler.need import Need, of_memory
from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.policies import packs_singles, policy_names
from tests.scheduler.parallel.played import Grid, gang, hosts_of
from tests.scheduler.parallel.test_composed import parallel

NAMES = ["packing", *filter(packs_singles, policy_names())]
GPU = frozenset({"gpu"})


def moldable(task: int = 1, least: int = 2, most: int = 16, **needs: object) -> ParallelJob:
    """A job whose speed-up is linear. It takes a minute on one rank."""
    return ParallelJob(task, Need(least, most, speedup=Amdahl(0.0), gang=True, **needs), 60.0, 0.0)  # type: ignore[arg-type]


def size_of(grid: Grid, name: str) -> int:
    """How many ranks it has had, by a policy."""
    grid.play(parallel(name))
    (done,) = grid.done
    assert not done.killed
    return sum([ranks for _, ranks in done.start.ranks])


@pytest.mark.parametrize("name", NAMES)
def test_no_job_waits_for_more_pcs_than_suit_it(name: str) -> None:
    hosts = [*hosts_of("A", 6, 2), *hosts_of("B", 1)]
    for host in hosts[:2]:
        host.labels = GPU
    assert 2 <= size_of(Grid(hosts).submit([moldable(labels=GPU)]), name) <= 4


@pytest.mark.parametrize("name", NAMES)
def test_no_job_waits_for_more_memory_than_there_is(name: str) -> None:
    hosts = hosts_of("A", 6, 2, amounts=of_memory(4.0))
    assert 2 <= size_of(Grid(hosts).submit([moldable(amounts=of_memory(3))]), name) <= 6


@pytest.mark.parametrize("name", ["cisne-normal", "cisne-uniform-easy"])
def test_a_policy_that_has_one_rank_on_a_pc_gives_as_many_as_there_are_pcs(name: str) -> None:
    assert size_of(Grid(hosts_of("A", 5, 4)).submit([moldable()]), name) == 5


@pytest.mark.parametrize("name", NAMES)
def test_no_job_waits_for_more_pcs_than_are_there_together_for_long_enough(name: str) -> None:
    """Three PCs stay. The others are off after two seconds: too soon, however many ranks the job has."""
    hosts = hosts_of("A", 10)
    windows = {host.name: [(0.0, inf if number < 3 else 2.0)] for number, host in enumerate(hosts)}
    assert 2 <= size_of(Grid(hosts, windows).submit([moldable()]), name) <= 3


def test_memory_that_others_use_comes_back() -> None:
    hosts = hosts_of("A", 3, 2, amounts=of_memory(4.0))
    grid = Grid(hosts).submit(
        [ParallelJob(0, Need(3, 3, amounts=of_memory(4), gang=True), 1.0, 0.0), moldable(amounts=of_memory(2), most=6)]
    )
    grid.play(parallel("easy"))
    assert [(done.began, sum(ranks for _, ranks in done.start.ranks)) for done in grid.done] == [(0.0, 3), (1.0, 6)]


def test_a_smaller_size_is_kept_where_the_wanted_one_never_fits() -> None:
    hosts = hosts_of("A", 8)
    windows = {host.name: [(0.0, inf if number < 2 else 6.0)] for number, host in enumerate(hosts)}
    grid = Grid(hosts, windows, singles=True).submit([gang(0, 8, 2.0), moldable(most=8)])
    grid.play(parallel("easy"), until=0.0)
    assert [(keep.at, len(keep.ranks)) for keep in grid.keeps] == [(2.0, 2)]
