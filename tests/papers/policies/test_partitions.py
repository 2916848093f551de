"""AP2, MAP, HAP, RHAP and its limit: what each job gets, by hand, and how it waits for that."""

from dataclasses import replace
from typing import Any

import pytest

from deskgrid.papers.rhap.policies.partition import AP2, HAP, MAP, MAX, RHAP, SlotSize
from deskgrid.scheduler.model import UnknownOption, UnknownPolicy
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob
from deskgrid.scheduler.parallel.choices import HowMany, Size
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.parallel.looking import grid_of, look_at, moldable, running
from tests.scheduler.parallel.played import Grid, gang, hosts_of


def lab(load: float = 0.0) -> list[Host]:
    """8 PCs of 1 BPU and 8 of 2: 24 BPUs."""
    slow = hosts_of("lab", [f"a{number}" for number in range(8)], speed=0.5, load=load)
    fast = hosts_of("lab", [f"b{number}" for number in range(8)], load=load)
    for host in fast:
        host.site = slow[0].site
    return [*slow, *fast]


def size_of(sizes: HowMany, waiting: int, going: int = 0, load: float = 0.0) -> Size:
    hosts = lab(load)
    grid = grid_of(hosts, [])
    for number in range(going):
        running(grid, number, hosts[number], 10.0)
    grid.waiting += [moldable(100 + number, 1, 64, 10.0) for number in range(waiting)]
    look = look_at(grid, sizes)
    return sizes.size(look, look.queue[0])


@pytest.mark.parametrize(("waiting", "ranks"), [(1, 9), (2, 6), (3, 5), (40, 1)])
def test_ap2_divides_the_processors_by_the_jobs_that_wait_and_one(waiting: int, ranks: int) -> None:
    assert size_of(AP2(), waiting, going=4) == SlotSize(1, ranks)


def test_map_counts_those_that_run_by_half() -> None:
    assert size_of(MAP(), 1, going=4) == SlotSize(1, 5)  # 16 / (1 + 2 + 1) + 0.5
    assert size_of(MAP(f=1.0), 1, going=4) == SlotSize(1, 4)  # 16 / 6 + 0.5
    assert size_of(MAP(f=0.0), 1, going=4) == size_of(AP2(), 1)


def test_hap_divides_the_speeds_whatever_the_load_is() -> None:
    assert size_of(HAP(), 1, going=4) == Size(1, 7 * 0.5)  # 24 / 4 + 0.5 BPUs, of 0.5 each
    assert size_of(HAP(), 1, going=4, load=0.3) == size_of(HAP(), 1, going=4)


def test_rhap_divides_what_others_leave_and_has_a_limit() -> None:
    assert size_of(RHAP(), 1, going=4, load=0.25) == Size(1, 5 * 0.5)  # 18 / 4 + 0.5 BPUs
    assert size_of(RHAP(), 1, load=0.25).power == pytest.approx(0.3 * 24 * 0.5)
    assert size_of(MAX(), 5, load=0.25) == Size(1, 0.3 * 24 * 0.5)


def test_a_partition_is_never_more_than_all() -> None:
    hosts = hosts_of("lab", 2, load=0.3)
    grid = grid_of(hosts, [moldable(0, 1, 64, 10.0)])
    look = look_at(grid, HAP())
    assert HAP().size(look, look.queue[0]).power <= 1.4
    assert RHAP(most=1.0).size(look, look.queue[0]).power <= 1.4
    assert AP2().size(look, look.queue[0]).power <= 1.4


def test_pcs_that_lack_a_label_do_not_count() -> None:
    hosts = lab()
    for host in hosts[:2]:
        host.labels = frozenset({"gpu"})
    job = moldable(0, 1, 64, 10.0)
    job.need = replace(job.need, labels=frozenset({"gpu"}))
    look = look_at(grid_of(hosts, [job]), AP2())
    assert AP2().size(look, job).power == pytest.approx(2.0)
    job.need = replace(job.need, labels=frozenset({"nobody"}))
    assert AP2().size(look, job) == SlotSize(1, 0.0)
    assert HAP().size(look, job) == Size(1, 0.0)


@pytest.mark.parametrize("sizes", [AP2(), MAP(), HAP(), RHAP(), MAX()])
def test_a_rigid_job_gets_what_it_asks_for(sizes: HowMany) -> None:
    look = look_at(grid_of(lab(), [gang(0, 7, 10.0)]), sizes)
    assert sizes.size(look, look.queue[0]).ranks == 7
    assert not sizes.size(look, look.queue[0]).power


def test_a_job_does_not_get_more_ranks_than_it_can_have() -> None:
    (done,) = play_jobs("ap2", lab(), [moldable(0, 1, 3, 10.0)]).done
    assert len(done.start.ranks) == 3


def test_what_others_use_of_its_pcs_is_missing_from_what_a_job_gets() -> None:
    (loaded,), (idle,) = (play("ap2", lab(load), 1).done for load in (0.25, 0.0))
    assert (len(loaded.start.ranks), len(idle.start.ranks)) == (12, 9)


def play(name: str, hosts: list[Host], jobs: int, **options: float) -> Grid:
    return play_jobs(name, hosts, [moldable(number, 1, 64, 16.0) for number in range(jobs)], **options)


def play_jobs(name: str, hosts: list[Host], jobs: list[ParallelJob], **options: float) -> Grid:
    grid = Grid(hosts).submit(jobs)
    policy = make_policy(name, margin=0.0, **options)
    grid.play(policy.parallel)  # type: ignore[attr-defined]
    return grid


@pytest.mark.parametrize("name", ["ap2", "map", "hap", "rhap", "max"])
def test_all_jobs_get_their_turn_in_order(name: str) -> None:
    done = play(name, lab(0.1), 12).done
    assert len(done) == 12
    began = [each.began for each in sorted(done, key=lambda each: each.job.task)]
    assert began == sorted(began)


def test_pcs_are_taken_as_they_are_listed_until_they_are_enough() -> None:
    (first, second) = sorted(play("max", lab(), 2).done, key=lambda each: each.job.task)
    assert [host.name for host, _ in first.start.ranks] == [f"a{number}" for number in range(8)]  # 7.2 BPUs
    assert [host.name for host, _ in second.start.ranks] == ["b0", "b1", "b2", "b3"]
    assert first.start.seconds == pytest.approx(16 / 8 / 0.5)


def test_a_partition_that_is_not_free_is_waited_for() -> None:
    hosts = lab()
    done = play("max", hosts, 3, most=0.6).done
    assert [each.began for each in done] == sorted(each.began for each in done)
    assert len({each.began for each in done}) == 3


def test_ranks_share_a_pc_of_several_slots() -> None:
    (done,) = play("ap2", hosts_of("lab", 2, slots=4), 1).done
    assert [(host.name, ranks) for host, ranks in done.start.ranks] == [("lab0", 4), ("lab1", 1)]


def test_the_second_site_is_taken_if_the_first_is_full() -> None:
    grid = Grid([*hosts_of("a", 2), *hosts_of("b", 2)])
    grid.submit([gang(0, 2, 10.0), gang(1, 2, 10.0), gang(2, 1, 1.0)])
    policy = make_policy("ap2", margin=0.0)
    grid.play(policy.parallel)  # type: ignore[attr-defined]
    where = [each.start.ranks[0][0].site.name for each in sorted(grid.done, key=lambda each: each.job.task)]
    assert where == ["a", "b", "a"]


@pytest.mark.parametrize(("name", "option"), [("map", "f"), ("rhap", "most"), ("max", "most"), ("scojo", "ideal")])
def test_parts_are_numbers_from_0_to_1(name: str, option: str) -> None:
    assert getattr(make_policy(name, **{option: 0.4}), option) == 0.4
    with pytest.raises(Exception, match=r"from 0 to 1, not 1\.5"):
        make_policy(name, **{option: 1.5})


def test_a_size_by_power_needs_its_least_ranks() -> None:
    assert Size(1, 0.5).of(lab(0.5)[0]) == 0.25
    assert SlotSize(1, 0.5).of(lab(0.25)[0]) == 0.75
    assert Need(2, 4).parallel


def test_pcs_that_close_too_early_are_passed_over() -> None:
    windows = {"a0": [(0.0, 5.0)], "a1": [(0.0, 100.0)], "b0": [(0.0, 100.0)], "b1": [(0.0, 100.0)]}
    grid = Grid([*hosts_of("a", 2), *hosts_of("b", 2)], windows).submit([gang(0, 2, 10.0), gang(1, 1, 20.0)])
    policy = make_policy("ap2", margin=0.0)
    grid.play(policy.parallel)  # type: ignore[attr-defined]
    where = [[host.name for host, _ in each.start.ranks] for each in grid.done]
    assert where == [["b0", "b1"], ["a1"]]


@pytest.mark.parametrize("options", [{"f": 2.0}, {"most": -0.1}, {"most": None}, {"f": "all"}, {"most": float("nan")}])
def test_options_that_are_no_part_of_something_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownPolicy):
        make_policy("rhap", **options)


@pytest.mark.parametrize("option", ["of", "divided", "most"])
def test_a_policy_has_the_options_of_its_row_only(option: str) -> None:
    with pytest.raises(UnknownOption, match=f"policy 'hap' has no option '{option}'"):
        make_policy("hap", **{option: 0.5})
