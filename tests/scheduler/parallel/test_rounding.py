"""What differs only by rounding is the same: 0.1 + 0.2 > 0.3, and three times 1.3 is less than 3.9."""

from collections.abc import Sequence

import pytest

from deskgrid.papers.cisne.policies.where import Normal
from deskgrid.papers.rhap.policies.listed import Listed
from deskgrid.papers.rhap.policies.partition import HAP
from deskgrid.papers.scojo_p.policies.cirne_berman import CirneBerman
from deskgrid.papers.scojo_p.policies.scojo import Scojo
from deskgrid.papers.tla.policies.ai2 import AdaptiveIntelligent2
from deskgrid.papers.tla.policies.sites import SimulatedJob, Sites
from deskgrid.papers.tla.policies.tla import TemporalLookAhead
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, Start
from deskgrid.scheduler.parallel.choices import Size
from deskgrid.scheduler.parallel.composed import default_policy
from deskgrid.scheduler.parallel.hosts import offer, strongest
from deskgrid.scheduler.parallel.reservation import earliest
from deskgrid.scheduler.parallel.sizes import Rigid
from deskgrid.scheduler.parallel.speedup import Measured
from deskgrid.scheduler.parallel.where import Alike
from tests.scheduler.parallel.looking import grid_of, look_at, moldable, running
from tests.scheduler.parallel.played import Grid, gang, hosts_of


def busy(hosts: Sequence[Host], *going: tuple[Host, float, float]) -> Grid:
    """It is 0.1 now. ``going``: on which PC one rank each has run since when, and for how long."""
    grid = grid_of(hosts, [])
    for number, (host, since, seconds) in enumerate(going, start=1):
        grid.now = since
        running(grid, number, host, seconds)
    grid.now = 0.1
    return grid


def site_of(start: Start | None) -> str:
    assert start is not None
    return start.ranks[0][0].site.name


def ranks_of(start: Start | None) -> int:
    assert start is not None
    return sum(ranks for _, ranks in start.ranks)


# --- one instant -----------------------------------------------------------------------------------------------------


def test_of_sites_that_are_free_at_one_instant_the_faster_one_is_reserved() -> None:
    slow, fast = hosts_of("A", 1), hosts_of("B", 1, speed=2.0)
    look = look_at(busy([*slow, *fast], (slow[0], 0.0, 0.3), (fast[0], 0.1, 0.2)), Rigid())
    found = earliest(look, gang(9, 1, 1.0), Size(1))
    assert found is not None
    assert (found.ranks, found.seconds) == (((fast[0], 1),), 0.5)


def test_of_sites_where_a_job_takes_equally_long_the_first_is_reserved() -> None:
    first, second = hosts_of("A", 2), hosts_of("B", 2)
    going = [(host, 0.1, 0.2) for host in first] + [(host, 0.0, 0.3) for host in second]
    found = earliest(look_at(busy([*first, *second], *going), Rigid()), gang(9, 2, 1.0), Size(2))
    assert found is not None
    assert {host.site.name for host, _ in found.ranks} == {"A"}


def test_pcs_that_are_free_at_one_instant_are_free_together() -> None:
    hosts = hosts_of("A", 2)
    grid = busy(hosts, (hosts[0], 0.1, 0.2), (hosts[1], 0.0, 0.3))
    found = earliest(look_at(grid, Rigid()), gang(9, 2, 1.0), Size(2))
    assert found is not None
    assert found.at == 0.3


def test_a_job_in_a_gap_may_end_at_the_instant_at_which_the_head_starts() -> None:
    hosts = hosts_of("A", 2)
    look = look_at(busy(hosts, (hosts[0], 0.0, 0.3)), Rigid())
    head = earliest(look, gang(9, 2, 1.0), Size(2))
    assert head is not None
    assert offer(look, hosts[0].site, gang(10, 1, 0.2), Size(1), head) is not None
    assert offer(look, hosts[0].site, gang(10, 1, 0.21), Size(1), head) is None


def test_what_is_free_at_the_instant_at_which_the_head_starts_may_be_used_beside_it() -> None:
    (host,) = hosts_of("A", 1, slots=4)
    look = look_at(busy([host], (host, 0.0, 0.3), (host, 0.1, 0.2)), Rigid())
    head = earliest(look, gang(9, 3, 1.0), Size(3))
    assert head is not None
    assert head.at == 0.3
    assert offer(look, host.site, gang(10, 1, 10.0), Size(1), head) is not None
    assert offer(look, host.site, gang(10, 2, 10.0), Size(2), head) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_job_that_would_end_when_a_window_closes_does_not_start(count: int) -> None:
    hosts = hosts_of("A", count)
    for seconds, fits in ((0.1, False), (0.09, True)):
        grid = grid_of(hosts, [], now=0.7)
        for host in hosts:
            host.closes = 0.8  # 0.7 + 0.1 is less
        look, job = look_at(grid, Rigid()), gang(9, count, seconds)
        assert (offer(look, hosts[0].site, job, Size(count)) is not None) is fits
        assert (earliest(look, job, Size(count)) is not None) is fits


def test_nor_does_it_wait_for_a_window_that_is_no_longer_than_it() -> None:
    hosts = hosts_of("A", 2)
    grid = Grid(hosts, {"A0": [(0.0, 1.0)], "A1": [(0.0, 0.2), (0.7, 0.8)]})  # 0.8 - 0.7 is more than 0.1
    grid.play(default_policy(), until=0.5)
    look = look_at(grid, Rigid())
    assert earliest(look, gang(9, 2, 0.1), Size(2)) is None
    assert earliest(look, gang(9, 2, 0.09), Size(2)) is not None


def test_nor_can_it_start_at_the_last_moment() -> None:
    hosts = hosts_of("A", 2)
    look = look_at(busy(hosts, (hosts[0], 0.0, 0.3)), Rigid())
    for host in hosts:
        host.closes = 0.9  # 0.9 - 0.6 is more than 0.3
    assert earliest(look, gang(9, 2, 0.6), Size(2)) is None
    assert earliest(look, gang(9, 2, 0.59), Size(2)) is not None


def test_what_tla_simulates_is_free_at_one_instant() -> None:
    slow, fast = hosts_of("A", 1), hosts_of("B", 1, speed=2.0)
    sites = Sites(look_at(busy([*slow, *fast], (fast[0], 0.1, 0.2)), Rigid()))
    # The first takes A until 0.3, when B is free, too: that is where the second goes.
    _, places = sites.turnaround(0, SimulatedJob(1, 0.3 - 0.1, 0.0), [SimulatedJob(1, 1.0, 0.0)])
    assert places == [1]


# --- ties ------------------------------------------------------------------------------------------------------------


def test_of_sites_with_the_same_score_tla_takes_the_faster_one() -> None:
    # On A the job ends at 0.7, and the next one at 0.35, on B. If it starts on B, they end at 0.4 and 0.65.
    hosts = [*hosts_of("A", 1, slots=4), *hosts_of("B", 1, slots=6, speed=2.0)]
    grid = grid_of(hosts, [gang(1, 3, 0.6), gang(2, 6, 0.5)], now=0.1)
    start = TemporalLookAhead().place(look_at(grid, Rigid()), grid.waiting[0], Size(3))
    assert start is not None
    assert start.considered is not None
    assert dict(start.considered) == pytest.approx({"A": 0.525, "B": 0.525})
    assert start.considered["A"] < start.considered["B"]
    assert site_of(start) == "B"


def test_where_both_use_the_same_power_ai2_takes_the_site_that_fits_best() -> None:
    labs = [("A", 2, 0.7), ("B", 3, 0.8), ("C", 3, 1.6)]  # each has room for one job
    hosts = [host for name, slots, speed in labs for host in hosts_of(name, 1, slots=slots, speed=speed)]
    grid = grid_of(hosts, [gang(number, 2, 1.0) for number in range(3)])
    start = AdaptiveIntelligent2().place(look_at(grid, Rigid()), grid.waiting[0], Size(2))
    assert start is not None
    assert start.considered is not None
    assert dict(start.considered) == pytest.approx({"A": 6.2, "C": 6.2})
    assert start.considered["A"] < start.considered["C"]
    assert site_of(start) == "A"


def test_sites_of_equally_fast_pcs_are_equally_fast_however_many_they_have() -> None:
    sites = Sites(look_at(grid_of([*hosts_of("A", 5, speed=1.1), *hosts_of("B", 6, speed=1.1)], []), Rigid()))
    assert (sites.speeds, sites.order) == ([1.1, 1.1], [0, 1])


def test_of_sites_with_the_same_load_cisne_takes_the_first() -> None:
    hosts = [*hosts_of("A", 3), *hosts_of("B", 3)]
    for host, load in zip(hosts, (0.1, 0.2, 0.3, 0.05, 0.25, 0.3), strict=True):
        host.load = load  # 0.1 + 0.2 + 0.3 is more than 0.6
    grid = grid_of(hosts, [gang(1, 3, 1.0)])
    assert site_of(Normal().place(look_at(grid, Rigid()), grid.waiting[0], Size(3))) == "A"


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_share_of_power_is_not_one_pc_more() -> None:
    need = Need(1, 8, gang=True)
    hosts = [(host, 1) for host in hosts_of("A", 8, speed=1.3)]
    assert strongest(hosts, need, Size(1, power=3 * 1.3)) == (3, hosts[:3])
    assert strongest(hosts[:3], need, Size(1, power=3.9)) == (3, hosts[:3])


def test_pcs_that_have_just_the_power_of_a_share_are_enough_where_they_are_listed() -> None:
    grid = grid_of(hosts_of("A", 3, speed=0.7), [moldable(1, 1, 8, 1.0)])
    assert ranks_of(Listed().place(look_at(grid, HAP()), grid.waiting[0], Size(1, power=2.1))) == 3


@pytest.mark.parametrize(("count", "slots"), [(8, 1), (1, 8)])
def test_pcs_that_are_alike_are_no_more_than_have_the_power_of_a_share(count: int, slots: int) -> None:
    grid = grid_of(hosts_of("A", count, slots, speed=0.7), [moldable(1, 1, 8, 1.0)])
    assert ranks_of(Alike().place(look_at(grid, HAP()), grid.waiting[0], Size(1, power=2.1))) == 3


def test_an_equal_part_is_rounded_up_only_if_it_is_more() -> None:
    # 9 BPUs of 0.7 each, for this job and the next, and half a BPU more. Nine times 0.7 is 9.000000000000002 times 0.7.
    grid = grid_of(hosts_of("A", 9, speed=0.7), [moldable(1, 1, 64, 1.0)])
    assert HAP().size(look_at(grid, HAP()), grid.waiting[0]).power == pytest.approx(5 * 0.7)


def test_of_sizes_with_which_a_job_ends_at_one_instant_cirne_berman_takes_the_largest() -> None:
    (host,) = hosts_of("A", 1, slots=2)
    job = moldable(9, 1, 2, 3.9)
    job.need = Need(1, 2, speedup=Measured(((1, 1.0), (2, 1.5))), gang=True)
    grid = grid_of([host], [])
    running(grid, 1, host, 1.3)
    grid.waiting.append(job)
    sizes = CirneBerman()
    look = look_at(grid, sizes)
    sizes.notice(look)
    assert sizes.size(look, job).ranks == 2  # now it would take 3.9 s; in 1.3 s, 2.6 s


def test_of_sizes_with_which_a_job_ends_at_one_instant_scojo_takes_the_one_that_starts_now() -> None:
    (host,) = hosts_of("A", 1, slots=2)
    job = moldable(9, 1, 2, 0.9)
    job.need = Need(1, 2, speedup=Measured(((1, 1.0), (2, 1.5))), gang=True)
    grid = grid_of([host], [])
    running(grid, 1, host, 0.3)
    grid.waiting.append(job)
    assert Scojo().instead(look_at(grid, Scojo()), job, Size(2)) == Size(1)  # 0.3 + 0.9 / 1.5 is less than 0.9
