"""The default policy against EASY backfilling, and what a decision of it costs."""

import time
from collections.abc import Iterator
from math import inf
from random import Random
from statistics import fmean

import pytest

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Aside, Keep, ParallelJob, ParallelPolicy, ParallelView, Start
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.policies import make_policy
from tests.pace import pace, typical
from tests.scheduler.parallel.played import Grid, hosts_of


def parallel(name: str) -> ParallelPolicy:
    found: ParallelPolicy = make_policy(name, margin=0.0).parallel  # type: ignore[attr-defined]
    return found


def labs(seed: int) -> Grid:
    """Two sites of 20 PCs; gangs of 1 to 8 that come at once. PCs and runtimes as in random grids of single tasks.

    A PC is up for 5 minutes to 2 hours, then away for 1.2, 30 or 300 s; a gang takes a fifth of a window on average.
    """
    chance = Random(f"labs {seed}")
    hosts = [*hosts_of("A", 20), *hosts_of("B", 20)]
    away = chance.choice((1.2, 30.0, 300.0))
    windows, ups = {}, {}
    for host in hosts:
        up = ups[host] = 300.0 * 24.0 ** chance.random()
        windows[host.name] = [(place * (up + away), place * (up + away) + up) for place in range(int(4e4 / up))]
    mean = 0.2 * fmean(ups.values())
    by_site = [sorted((ups[host] for host in hosts if host.site.name == site), reverse=True) for site in "AB"]
    jobs: list[ParallelJob] = []
    while len(jobs) < 50:
        ranks = chance.randint(1, 8)
        seconds = chance.expovariate(1.0 / (mean * (0.4 if chance.random() < 0.8 else 3.4)))
        if seconds < 0.7 * max(site[ranks - 1] for site in by_site):
            jobs.append(ParallelJob(len(jobs), Need(ranks, ranks, gang=True), seconds, 0.0))
    return Grid(hosts, windows).submit(jobs)


@pytest.mark.slow
def test_in_labs_with_windows_the_last_gang_ends_much_sooner_than_with_easy_and_none_is_killed() -> None:
    ratios = []
    for seed in range(5):
        ends = []
        for name in ("packing", "easy"):
            grid = labs(seed)
            while len(grid.done) < 50:
                grid.play(parallel(name), until=grid.now + 500.0)
            assert not any(done.killed for done in grid.done)
            ends.append(max(done.ended for done in grid.done))
        ratios.append(ends[0] / ends[1])
    assert fmean(ratios) < 0.85


class Timed:
    """Measures the processor time of each decision."""

    def __init__(self, policy: ParallelPolicy) -> None:
        self.name = policy.name
        self.policy = policy
        self.seconds: list[float] = []

    def decide(self, view: ParallelView) -> Iterator[Start | Keep | Aside]:
        decisions, took = self.policy.decide(view), 0.0
        while True:
            began = time.thread_time()
            decided: Start | Keep | Aside | None = next(decisions, None)
            took += time.thread_time() - began
            if decided is None:
                self.seconds.append(took)
                return
            yield decided


@pytest.mark.slow
@pytest.mark.parametrize("waited", [0.0, 1e5])
@pytest.mark.parametrize("moldable", [False, True])
def test_a_decision_about_200_gangs_on_200_slots_takes_few_milliseconds(moldable: bool, waited: float) -> None:
    """The median of some, in beats of about two milliseconds."""
    chance = Random(7)
    hosts = [host for site in "ABCD" for host in hosts_of(site, 50)]
    windows: dict[str, list[tuple[float, float]]] = {}
    for host in hosts:
        host.speed = chance.choice((0.6, 0.8, 1.0))
        opens, windows[host.name] = 0.0, []
        for _ in range(16):
            lasts = chance.uniform(600.0, 7200.0)
            windows[host.name].append((opens, opens + lasts))
            opens += lasts + 300.0
    jobs = []
    for number in range(300):
        ranks = chance.randint(2, 16)
        need = Need(1, ranks, speedup=Amdahl(0.05), gang=True) if moldable else Need(ranks, ranks, gang=True)
        came = 0.0 if number % 2 else chance.uniform(0.0, 1.0)
        jobs.append(ParallelJob(number, need, chance.uniform(60.0, 3600.0), came - waited))
    policy = Timed(parallel("packing"))
    grid = Grid(hosts, windows, singles=True).submit(jobs)
    grid.play(policy, until=-1.0)
    policy.seconds.clear()
    before = pace(time.thread_time)
    for number in range(75):
        grid.at(number / 10, lambda: None)
    grid.play(policy, until=20.0)
    assert len(policy.seconds) > 50
    assert typical(policy.seconds) < 5 * max(before, pace(time.thread_time))


@pytest.mark.parametrize("closes", [inf, 1000.0])
def test_a_moldable_gang_starts_on_pcs_that_are_not_alike_if_no_others_are_enough(closes: float) -> None:
    hosts = hosts_of("A", 4)
    for host in hosts[2:]:
        host.speed = 0.5
    grid = Grid(hosts, {host.name: [(0.0, closes)] for host in hosts})
    grid.submit(
        [
            ParallelJob(1, Need(3, 4, speedup=Amdahl(0.0), gang=True), 60.0, 0.0),
            ParallelJob(2, Need(1, 1, gang=True), 5.0, 1.0),
        ]
    )
    grid.play(parallel("packing"), until=500.0)
    assert {done.job.task: (done.began, done.killed) for done in grid.done} == {1: (0.0, False), 2: (30.0, False)}
