"""Which site, and which PCs: BF, FF, AI2, CISNE's two, and ours."""

import pytest

from deskgrid.papers.cisne.policies.where import CisneNeed
from deskgrid.scheduler.model import UnknownPolicy
from deskgrid.scheduler.need import Need, of_memory
from deskgrid.scheduler.parallel.base import Host, ParallelJob, ParallelPolicy, RunningJob, Site
from deskgrid.scheduler.parallel.choices import DecisionView, Sharing, Size
from deskgrid.scheduler.parallel.sizes import EqualShare
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.parallel.where import Fastest
from deskgrid.scheduler.policies import make_policy, policy_options
from tests.scheduler.parallel.played import Grid, gang, hosts_of


def parallel(name: str, **options: object) -> ParallelPolicy:
    found: ParallelPolicy = make_policy(name, **options).parallel  # type: ignore[attr-defined]
    return found


def places(grid: Grid) -> dict[int, list[str]]:
    return {done.job.task: [host.name for host, ranks in done.start.ranks for _ in range(ranks)] for done in grid.done}


def test_fastest_first_takes_the_fastest_site_and_best_fit_the_fullest() -> None:
    for name, site in (("ff", "B0"), ("bf", "A0")):
        grid = Grid([*hosts_of("A", 1, 4), *hosts_of("B", 1, 8, speed=2.0)]).submit([gang(1, 3, 6.0)])
        grid.play(parallel(name))
        assert places(grid) == {1: [site] * 3}


def test_ai2_prefers_what_uses_more_power_now() -> None:
    """Best fit leaves the fast site for job 2, which has no room elsewhere; else both would use less."""
    grid = Grid([*hosts_of("A", 1, 4), *hosts_of("B", 1, 8, speed=2.0)]).submit([gang(1, 3, 6.0), gang(2, 8, 6.0)])
    grid.play(parallel("ai2"))
    assert places(grid)[1] == ["A0"] * 3
    assert grid.done[0].start.considered is None
    assert {done.job.task: done.start.considered for done in grid.done}[1] == {"A": 3.0 + 16.0, "B": 6.0}


def test_ai2_is_fastest_first_if_that_uses_more_power() -> None:
    grid = Grid([*hosts_of("A", 1, 4), *hosts_of("B", 1, 8, speed=2.0)]).submit([gang(1, 3, 6.0), gang(2, 2, 6.0)])
    grid.play(parallel("ai2"))
    assert places(grid) == {1: ["B0"] * 3, 2: ["B0"] * 2}
    assert {done.job.task: done.start.considered for done in grid.done}[1] == {"A": 7.0, "B": 10.0}


def test_ai2_takes_the_only_site_that_both_choose_and_none_if_there_is_none() -> None:
    grid = Grid([*hosts_of("A", 1, 4, speed=2.0), *hosts_of("B", 1, 8)]).submit([gang(1, 3, 6.0), gang(2, 9, 6.0)])
    grid.play(parallel("ai2"))
    assert places(grid) == {1: ["A0"] * 3}
    assert grid.done[0].start.considered is None


def test_a_gang_takes_the_slowest_pcs_that_let_it_be_as_fast_and_those_that_close_first() -> None:
    site = Site("A")
    hosts = [Host(name, site, 1, 1, speed=speed) for name, speed in (("a", 0.5), ("b", 2.0), ("c", 1.0), ("d", 1.0))]
    windows = {"a": [(0.0, 1e3)], "b": [(0.0, 1e3)], "c": [(0.0, 1e3)], "d": [(0.0, 100.0)]}
    grid = Grid(hosts, windows).submit([gang(1, 1, 20.0), gang(2, 2, 20.0)])
    grid.play(parallel("easy"))
    assert places(grid) == {1: ["b"], 2: ["d", "c"]}
    assert grid.done[0].start.seconds == 10.0


def test_slots_memory_and_labels_of_pcs_are_respected() -> None:
    site = Site("A")
    hosts = [
        Host("a", site, 4, 4, amounts=of_memory(4.0)),
        Host("b", site, 8, 8, amounts=of_memory(12.0), labels=frozenset({"gpu"})),
        Host("c", site, 3, 3, labels=frozenset({"gpu"})),
    ]
    need = Need(3, 3, slots=2, amounts=of_memory(5), labels=frozenset({"gpu"}))
    grid = Grid(hosts).submit([ParallelJob(1, need, 5.0, 0.0), ParallelJob(2, need, 5.0, 0.0)])
    grid.play(parallel("easy"))
    assert places(grid) == {1: ["c", "b", "b"], 2: ["c", "b", "b"]}
    assert [done.began for done in grid.done] == [0.0, 5.0]
    assert [keep.at for keep in grid.keeps] == [5.0]


def test_cisne_takes_the_least_loaded_pcs_one_rank_each() -> None:
    hosts = hosts_of("A", 4, 2)
    for host, load in zip(hosts, (0.3, 0.1, 0.2, 0.0), strict=True):
        host.processors, host.load = 1, load
    grid = Grid(hosts).submit([gang(1, 2, 10.0), gang(2, 3, 10.0), gang(3, 4, 10.0), gang(4, 5, 1.0)])
    grid.play(parallel("cisne-normal"))
    assert places(grid) == {1: ["A3", "A1"], 2: ["A2", "A0", "A3"], 3: ["A1", "A3", "A2", "A0"]}
    # A3 is shared by jobs 1 and 2, so job 2 should take twice as long.
    assert {done.job.task: done.start.seconds for done in grid.done} == {1: 10.0, 2: 20.0, 3: 20.0}


def test_cisne_occupies_no_more_slots_than_its_multiprogramming_level() -> None:
    for mpl, began in ((1, [0.0, 10.0, 20.0]), (2, [0.0, 0.0, 10.0])):
        grid = Grid(hosts_of("A", 2, 4)).submit([gang(number, 2, 10.0) for number in range(3)])
        for host in grid.hosts:
            host.processors = 1
        grid.play(parallel("cisne-normal-easy", mpl=mpl))
        assert sorted(done.began for done in grid.done) == began
        assert grid.keeps[0].at == 10.0


def test_cisne_uniform_puts_unlike_jobs_together() -> None:
    talks = CisneNeed(2, 2, gang=True, cpu=0.1)
    grid = Grid(hosts_of("A", 4, 2)).submit(
        [gang(1, 2, 10.0), ParallelJob(2, talks, 10.0, 0.0), gang(3, 2, 10.0), ParallelJob(4, talks, 10.0, 0.0)]
    )
    for host in grid.hosts:
        host.processors = 1
    grid.play(parallel("cisne-uniform"))
    assert places(grid) == {1: ["A0", "A1"], 2: ["A2", "A3"], 3: ["A2", "A3"], 4: ["A0", "A1"]}


def test_cisne_takes_the_site_with_the_least_load() -> None:
    grid = Grid([*hosts_of("A", 2, load=0.2), *hosts_of("B", 2, load=0.1), *hosts_of("C", 1)])
    grid.submit([gang(1, 2, 10.0), gang(2, 2, 10.0), gang(3, 2, 10.0)])
    grid.play(parallel("cisne-uniform-easy"))
    assert places(grid) == {1: ["B0", "B1"], 2: ["A0", "A1"], 3: ["B0", "B1"]}


def test_a_multiprogramming_level_is_at_least_1() -> None:
    with pytest.raises(UnknownPolicy, match="mpl is a number from 1 up, not 0"):
        make_policy("cisne-normal", mpl=0)
    assert policy_options(make_policy("cisne-uniform", mpl=2))["mpl"] == 2
    assert Sharing().pace(Host("a", Site("A"), 2, 1), 1) == 1.0


def test_pcs_that_close_too_early_are_left_out_by_cisne() -> None:
    hosts = hosts_of("A", 3)
    grid = Grid(hosts, {"A0": [(0.0, 5.0)], "A1": [(0.0, 50.0)], "A2": [(0.0, 50.0)]}).submit([gang(1, 2, 10.0)])
    grid.play(parallel("cisne-normal"))
    assert places(grid) == {1: ["A1", "A2"]}


# --- ours ------------------------------------------------------------------------------------------------------------


def test_a_moldable_job_gets_pcs_that_are_alike() -> None:
    """A job that is alone may have all; but fast and slow PCs together would be as slow as the slow ones."""
    site = Site("A")
    hosts = [Host(f"{kind}{n}", site, 1, 1, speed=speed) for kind, speed in (("f", 1.0), ("s", 0.5)) for n in range(10)]
    grid = Grid(hosts).submit([ParallelJob(1, Need(1, 20, speedup=Amdahl(0.0)), 30.0, 0.0)])
    grid.play(parallel("packing"))
    assert places(grid) == {1: [f"f{number}" for number in range(10)]}


def test_a_moldable_job_starts_with_half_of_its_share_but_not_with_less() -> None:
    for busy, began in ((10, 0.0), (11, 50.0)):
        grid = Grid(hosts_of("A", 1, 12)).submit(
            [gang(1, busy, 50.0), ParallelJob(2, Need(1, 12, speedup=Amdahl(0.0)), 60.0, 1e-3)]
        )
        grid.play(parallel("packing"))
        second = next(done for done in grid.done if done.job.task == 2)
        assert second.began == pytest.approx(began, abs=1e-2)


def test_a_moldable_job_gets_more_ranks_if_it_would_not_end_in_time_otherwise() -> None:
    hosts = hosts_of("A", 10)
    grid = Grid(hosts, {host.name: [(0.0, 12.0)] for host in hosts})
    need = Need(1, 10, speedup=Amdahl(0.0))
    grid.submit([ParallelJob(1, need, 60.0, 0.0), ParallelJob(2, need, 300.0, 0.0)])
    grid.play(parallel("packing"))
    assert {done.job.task: len(done.start.ranks) for done in grid.done} == {1: 6}
    assert grid.done[0].killed is False


def test_the_most_ranks_that_a_moldable_job_may_have_are_tried_too() -> None:
    hosts = hosts_of("B", 3)
    grid = Grid([*hosts_of("A", 1, 1), *hosts], {host.name: [(0.0, 30.0)] for host in hosts})
    grid.submit([gang(1, 1, 1000.0)])
    grid.submit(
        [ParallelJob(2, Need(1, 3, speedup=Amdahl(0.0)), 60.0, 1.0)]
    )  # its share is one rank; two take too long, too
    grid.play(parallel("packing"))
    assert places(grid) == {1: ["A0"], 2: ["B0", "B1", "B2"]}


def test_a_rigid_job_goes_where_it_ends_first_and_of_equal_sites_where_it_fits_best() -> None:
    grid = Grid([*hosts_of("A", 1, 8), *hosts_of("B", 1, 4), *hosts_of("C", 1, 2, speed=2.0)])
    grid.submit([gang(1, 2, 10.0), gang(2, 2, 20.0)])
    grid.play(parallel("packing"))
    assert places(grid) == {2: ["C0"] * 2, 1: ["B0"] * 2}


def test_a_size_by_power_can_be_had_at_the_fastest_site_too() -> None:
    site = Site("A")
    hosts = [Host(f"a{number}", site, 1, 1, speed=speed) for number, speed in enumerate((0.5, 1.0, 1.0))]
    grid = Grid(hosts)
    grid.play(parallel("easy"))
    job = ParallelJob(1, Need(1, 3, speedup=Amdahl(0.0)), 8.0, 0.0)
    start = Fastest().place(DecisionView(grid, 0.0, [job], EqualShare()), job, Size(1, power=1.5))
    assert start is not None
    assert [host.name for host, _ in start.ranks] == ["a1", "a2"]
    assert (
        Fastest().place(DecisionView(grid, 0.0, [job], EqualShare()), job, Size(1, power=9.0)) is not None
    )  # all that it may have


def test_pcs_that_others_use_wholly_count_for_nothing() -> None:
    grid = Grid([*hosts_of("A", 2, load=1.0), *hosts_of("B", 1, 8)])
    grid.submit(
        [
            ParallelJob(1, Need(1, 4, speedup=Amdahl(0.0)), 8.0, 0.0),
            ParallelJob(2, Need(3, 4, speedup=Amdahl(0.0)), 8.0, 0.0),
        ]
    )
    grid.play(parallel("packing"))
    assert {name for names in places(grid).values() for name in names} == {"B0"}


def test_a_moldable_job_in_a_gap_does_not_grow() -> None:
    """Job 2 waits for all from 10 on. With its share, job 3 would end later; with more ranks, sooner: it waits."""
    grid = Grid(hosts_of("A", 10)).submit([gang(1, 2, 10.0), gang(2, 10, 0.5, 0.1)])
    grid.submit([ParallelJob(3, Need(1, 8, speedup=Amdahl(0.0)), 50.0, 0.2)])
    grid.play(parallel("packing"))
    assert [done.job.task for done in sorted(grid.done, key=lambda done: done.began)] == [1, 2, 3]


def test_a_pc_suits_what_it_has_labels_and_memory_for() -> None:
    host = Host("a", Site("A"), 1, 1, amounts=of_memory(4.0), labels=frozenset({"gpu"}))
    assert host.suits(Need(amounts=of_memory(4), labels=frozenset({"gpu"})))
    assert not host.suits(Need(amounts=of_memory(5)))
    assert not host.suits(Need(labels=frozenset({"matlab"})))


def test_a_running_gang_has_as_many_ranks_as_its_pcs_together() -> None:
    host, other = hosts_of("A", 2, 2)
    assert RunningJob(gang(1, 3, 1.0), host.site, ((host, 2), (other, 1)), 0.0, 1.0).size == 3
