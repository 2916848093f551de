"""First come first served, EASY, and ours: who starts when, for whom slots are kept, and what windows allow."""

from collections.abc import Iterator
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.need import Need, of_memory
from deskgrid.scheduler.parallel import reservation
from deskgrid.scheduler.parallel.base import Aside, Host, Keep, ParallelJob, ParallelPolicy, ParallelView, Site, Start
from deskgrid.scheduler.parallel.choices import DecisionView, Size
from deskgrid.scheduler.parallel.composed import TRIED
from deskgrid.scheduler.parallel.order import Shortest
from deskgrid.scheduler.parallel.reservation import LEVELS, earliest
from deskgrid.scheduler.parallel.sizes import Rigid, working_set
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.parallel.played import Grid, gang, hosts_of


def parallel(name: str, **options: object) -> ParallelPolicy:
    found: ParallelPolicy = make_policy(name, **options).parallel  # type: ignore[attr-defined]
    return found


def began(grid: Grid) -> dict[int, float]:
    return {done.job.task: done.began for done in grid.done}


def look_of(grid: Grid, margin: float = 0.0) -> DecisionView:
    return DecisionView(grid, grid.now, list(grid.waiting), Rigid(), Requirement(margin))


def test_first_come_first_served_lets_all_wait_with_the_head() -> None:
    grid = Grid(hosts_of("A", 4)).submit([gang(1, 3, 10.0), gang(2, 2, 5.0), gang(3, 1, 1.0)])
    grid.play(parallel("ff"))
    assert began(grid) == {1: 0.0, 2: 10.0, 3: 10.0}
    assert grid.keeps == []


def test_slots_are_kept_for_the_head_where_there_are_single_tasks() -> None:
    grid = Grid(hosts_of("A", 4), singles=True).submit([gang(1, 3, 10.0), gang(2, 2, 5.0)])
    grid.play(parallel("ff"))
    assert [(keep.job.task, keep.at, sum(ranks for _, ranks in keep.ranks)) for keep in grid.keeps] == [(2, 10.0, 2)]


def test_easy_fills_gaps_without_delaying_the_head() -> None:
    """Job 3 ends before job 2 can start; job 4 would not; job 5 takes a slot that job 2 does not need."""
    grid = Grid(hosts_of("A", 6))
    grid.submit([gang(1, 4, 10.0), gang(2, 5, 5.0), gang(3, 1, 9.0), gang(4, 2, 11.0), gang(5, 1, 30.0)])
    grid.play(parallel("easy"))
    assert began(grid) == {1: 0.0, 2: 10.0, 3: 0.0, 4: 15.0, 5: 0.0}


@pytest.mark.parametrize("others", [TRIED - 1, TRIED])
def test_only_so_many_jobs_that_differ_are_tried_while_the_head_waits(others: int) -> None:
    long = [gang(10 + place, 1, 200.0 - place) for place in range(others)]
    grid = Grid(hosts_of("A", 4)).submit([gang(1, 3, 10.0), gang(2, 4, 5.0), *long, gang(3, 1, 9.0)])
    grid.play(parallel("easy"))
    assert (began(grid)[3] == 0.0) == (others < TRIED)


def test_easy_fills_a_pc_of_many_slots_beside_what_is_reserved() -> None:
    grid = Grid(hosts_of("A", 1, 6))
    grid.submit([gang(1, 4, 10.0), gang(2, 5, 5.0), gang(3, 1, 9.0), gang(4, 2, 11.0), gang(5, 1, 30.0)])
    grid.play(parallel("easy"))
    assert began(grid) == {1: 0.0, 2: 10.0, 3: 0.0, 4: 15.0, 5: 0.0}


def test_nothing_is_tried_where_no_slot_is_idle() -> None:
    grid = Grid(hosts_of("A", 2)).submit([gang(1, 2, 10.0), gang(2, 2, 5.0), gang(3, 1, 1.0, 1.0)])
    grid.play(parallel("easy"))
    assert began(grid) == {1: 0.0, 2: 10.0, 3: 15.0}


def test_a_gang_starts_only_where_it_ends_before_the_first_window_closes() -> None:
    """Three PCs are together from 20 to 60; before that, one closes after 15."""
    windows = {"A0": [(0.0, 100.0)], "A1": [(0.0, 15.0), (20.0, 60.0)], "A2": [(0.0, 100.0)]}
    grid = Grid(hosts_of("A", 3), windows).submit(
        [gang(1, 3, 30.0), gang(2, 2, 25.0), gang(3, 1, 10.0), gang(4, 1, 19.0)]
    )
    grid.play(parallel("easy"))
    assert began(grid) == {1: 20.0, 2: 50.0, 3: 0.0, 4: 0.0}
    assert not any(done.killed for done in grid.done)
    assert grid.keeps[0].at == 20.0


def test_the_margin_is_kept_before_a_window_closes() -> None:
    for margin, starts in ((1.0, {}), (0.5, {1: 0.0})):
        grid = Grid(hosts_of("A", 2), {"A0": [(0.0, 11.0)], "A1": [(0.0, 11.0)]}).submit([gang(1, 2, 10.0)])
        grid.play(parallel("easy", margin=margin))
        assert began(grid) == starts
        assert grid.keeps == []


def test_a_reservation_counts_memory_that_running_gangs_give_back() -> None:
    site = Site("A")
    hosts = [Host("a", site, 4, 4, amounts=of_memory(8.0)), Host("b", site, 4, 4, amounts=of_memory(8.0))]
    grid = Grid(hosts)
    small, large = Need(2, 2, amounts=of_memory(3)), Need(2, 2, amounts=of_memory(6))
    grid.submit(
        [
            ParallelJob(1, small, 10.0, 0.0),
            ParallelJob(2, small, 20.0, 0.0),
            ParallelJob(3, large, 5.0, 0.0),
            ParallelJob(4, Need(1, 1, amounts=of_memory(9)), 1.0, 0.0),
        ]
    )
    grid.play(parallel("easy"))
    assert began(grid) == {1: 0.0, 2: 0.0, 3: 20.0}


def test_a_window_to_come_has_all_memory_and_slots_of_its_pc() -> None:
    site = Site("A")
    hosts = [Host("a", site, 2, 2, amounts=of_memory(8.0)), Host("b", site, 2, 2, amounts=of_memory(8.0))]
    windows = {"a": [(0.0, 30.0), (40.0, 100.0)], "b": [(0.0, 100.0)]}
    grid = Grid(hosts, windows)
    grid.submit(
        [
            ParallelJob(1, Need(2, 2, amounts=of_memory(4)), 25.0, 0.0),
            ParallelJob(2, Need(4, 4, amounts=of_memory(4)), 30.0, 0.0),
        ]
    )
    grid.play(parallel("easy"))
    assert began(grid) == {1: 0.0, 2: 40.0}
    assert grid.keeps[0].at == 40.0


def test_a_window_to_come_has_the_memory_that_a_gang_occupies_now() -> None:
    hosts = [Host("a", Site("A"), 1, 1, amounts=of_memory(8.0))]
    grid = Grid(hosts, {"a": [(0.0, 30.0), (40.0, 100.0)]})
    grid.submit(
        [
            ParallelJob(1, Need(1, 1, amounts=of_memory(8)), 25.0, 0.0),
            ParallelJob(2, Need(1, 1, amounts=of_memory(8)), 30.0, 0.0),
        ]
    )
    grid.play(parallel("easy"))
    assert began(grid) == {1: 0.0, 2: 40.0}


def test_a_site_with_pcs_of_many_speeds_is_tried_at_some_of_them() -> None:
    site = Site("A")
    hosts = [Host(f"a{number:02}", site, 1, 1, speed=1.0 - number / 40) for number in range(2 * LEVELS)]
    grid = Grid(hosts, {host.name: [(0.0, 5.0), (10.0, 100.0)] for host in hosts})
    grid.submit([gang(1, 4, 20.0), gang(2, 17, 1.0)])
    grid.play(parallel("easy"))
    assert began(grid) == {1: 10.0}
    assert {host.name for host, _ in grid.done[0].start.ranks} == {"a00", "a01", "a02", "a03"}


def test_an_overdue_job_is_expected_to_go_on_for_as_long_as_it_is_late() -> None:
    for hosts in (hosts_of("A", 1, 4), hosts_of("A", 4)):
        grid = Grid(hosts).submit([gang(1, 3, 10.0), gang(2, 2, 5.0, 20.0), gang(3, 1, 5.0, 20.0)])
        grid.play(parallel("easy"), actual=lambda job: 3.0 if job.task == 1 else 1.0)
        assert began(grid)[2] == 30.0
        assert {keep.at for keep in grid.keeps} == {30.0, 40.0}  # at 20 and 25; job 1 was expected until 10


def test_power_is_reserved_on_the_strongest_pcs() -> None:
    site = Site("A")
    hosts = [Host(f"a{number}", site, 1, 1, speed=speed) for number, speed in enumerate((0.5, 1.0, 1.0, 0.5))]
    grid = Grid(hosts).submit([gang(1, 3, 10.0)])
    grid.play(parallel("easy"), until=0.0)
    job = ParallelJob(2, Need(1, 4, speedup=Amdahl(0.0)), 8.0, 0.0)
    reserved = earliest(look_of(grid), job, Size(1, power=2.0))
    assert reserved is not None
    assert (reserved.at, [host.name for host, _ in reserved.ranks]) == (20.0, ["a1", "a2"])
    assert earliest(look_of(grid), job, Size(1, power=9.0)) is not None  # all that it may have
    assert (
        earliest(look_of(grid), ParallelJob(3, Need(1, 3, speedup=Amdahl(0.0)), 8.0, 0.0), Size(1, power=2.5))
        is not None
    )
    assert (
        earliest(look_of(grid), ParallelJob(4, Need(5, 9, speedup=Amdahl(0.0)), 8.0, 0.0), Size(5, power=9.0)) is None
    )


def test_of_two_sites_the_one_where_the_head_can_start_sooner_is_reserved() -> None:
    grid = Grid([*hosts_of("A", 2), *hosts_of("B", 2), *hosts_of("C", 2, speed=2.0)])
    grid.submit([gang(1, 2, 6.0), gang(2, 2, 20.0), gang(3, 2, 10.0), gang(4, 2, 10.0)])
    grid.play(parallel("easy"), until=0.0)
    assert [(keep.at, keep.ranks[0][0].site.name) for keep in grid.keeps] == [(3.0, "C")]


def test_a_moldable_job_of_which_nothing_is_known_is_as_large_as_it_may_be_and_others_as_they_use_well() -> None:
    assert working_set(Need(2, 6)) == 6
    assert working_set(Need(1, 20, speedup=Downey(5.0, 0.0))) == 5
    grid = Grid(hosts_of("A", 3)).submit([ParallelJob(1, Need(1, 8, speedup=Amdahl(0.0)), 9.0, 0.0)])
    grid.play(parallel("easy"))
    assert grid.done[0].ended == 3.0


# --- ours ------------------------------------------------------------------------------------------------------------


def test_the_shortest_is_next_and_who_waits_rises() -> None:
    order = Shortest().order
    short, long = gang(1, 1, 100.0, 1_000.0), gang(2, 1, 200.0, 0.0)
    assert order([long, short], 1_000.0) == [short, long]
    late = gang(3, 1, 100.0, 2_100.0)
    assert order([long, late], 2_100.0) == [long, late]
    wide = gang(4, 8, 100.0, 1_000.5)
    assert order([wide, short], 1_001.0) == [short, wide]


def test_of_jobs_that_came_together_the_largest_is_first() -> None:
    jobs = [gang(1, 1, 10.0), gang(2, 1, 30.0), gang(3, 1, 20.0), gang(4, 1, 15.0, 1.0)]
    assert [job.task for job in Shortest().order(jobs, 1.0)] == [4, 2, 3, 1]


@pytest.mark.slow
def test_a_large_job_starts_in_the_end_although_small_ones_keep_coming() -> None:
    grid = Grid(hosts_of("A", 4))
    grid.submit([gang(0, 4, 50.0, 0.5), *(gang(number, 2, 4.0, number * 2.0) for number in range(1, 2_000))])
    grid.at(0.0, lambda: grid.waiting.insert(0, gang(-1, 3, 10.0)))
    grid.play(parallel("packing"))
    assert 600.0 < began(grid)[0] < 605.0  # its patience lasts for ten minutes


# --- random grids ----------------------------------------------------------------------------------------------------

NAMES = ["easy", "packing", "bf", "tla", "ai2", "cisne-normal-easy", "cisne-uniform-easy", "ff"]


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    hosts: list[Host] = []
    windows: dict[str, list[tuple[float, float]]] = {}
    for site in "AB"[: draw(st.integers(1, 2))]:
        for host in hosts_of(site, draw(st.integers(1, 4)), draw(st.integers(1, 2))):
            host.speed = draw(st.sampled_from([0.5, 0.8, 1.0]))
            host.amounts = of_memory(draw(st.sampled_from([4.0, 8.0])))
            lengths = draw(st.lists(st.integers(5, 40), min_size=2, max_size=8))
            opens = 0.0
            windows[host.name] = []
            for up, away in zip(lengths[::2], lengths[1::2], strict=False):
                windows[host.name].append((opens, opens + up))
                opens += up + away
            windows[host.name].append((opens, inf))
            hosts.append(host)
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        ranks = draw(st.integers(1, 4))
        moldable = draw(st.booleans())
        need = Need(
            ranks,
            ranks + 2 if moldable else ranks,
            draw(st.integers(1, 2)),
            of_memory(draw(st.sampled_from([0, 1, 4]))),
            speedup=Amdahl(0.1) if moldable else None,
            gang=True,
        )
        jobs.append(ParallelJob(number, need, draw(st.integers(1, 30)) + 0.25, float(draw(st.integers(0, 30)))))
    return Grid(hosts, windows, singles=draw(st.booleans())).submit(jobs)


class Watched:
    """After each decision, what was kept for the head can still begin at the time that it was kept for."""

    def __init__(self, policy: ParallelPolicy) -> None:
        self.name = policy.name
        self.policy = policy

    def decide(self, view: ParallelView) -> Iterator[Start | Keep | Aside]:
        kept: Keep | None = None
        for decided in self.policy.decide(view):
            yield decided
            if isinstance(decided, Keep):
                assert kept is None
                kept = decided
            elif isinstance(decided, Start):
                assert decided.job is not (kept and kept.job)
        if kept is None:
            return
        for host, ranks in kept.ranks:
            if host.closes > kept.at:  # else it is a window to come
                free = host.idle + sum(slots for at, slots in host.frees if at <= kept.at)
                assert free >= ranks * kept.job.need.slots


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(grids(), st.sampled_from(NAMES))
def test_no_start_breaks_a_window_or_delays_what_is_reserved(grid: Grid, name: str) -> None:
    policy = Watched(parallel(name, margin=0.0))
    grid.play(policy)
    assert not any(done.killed for done in grid.done)
    # In the end all windows are open-ended, so those that need one slot have run, unless others are ahead of them.
    if name in ("easy", "packing"):
        assert all(job.need.least * job.need.slots > 1 for job in grid.waiting)


class Unbounded(Watched):
    """Before each decision, each job would wait for the same if all sites were swept, however few ranks can meet."""

    def decide(self, view: ParallelView) -> Iterator[Start | Keep | Aside]:
        for job in view.waiting:
            found = earliest(DecisionView(view, view.now, [job], Rigid()), job, Size(job.need.most))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(reservation, "_may_be_together", lambda *_: True)
                swept = earliest(DecisionView(view, view.now, [job], Rigid()), job, Size(job.need.most))
            assert [found and (found.ranks, found.at, found.seconds)] == [
                swept and (swept.ranks, swept.at, swept.seconds)
            ]
        yield from self.policy.decide(view)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(grids())
def test_no_start_is_missed_because_too_few_ranks_seem_to_be_together(grid: Grid) -> None:
    grid.play(Unbounded(parallel("easy", margin=0.0)))


def test_a_site_is_not_swept_for_ranks_that_are_never_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the PCs are up now, and half later."""
    hosts = hosts_of("A", 10)
    windows = {host.name: [(0.0, 100.0)] if number % 2 else [(100.0, 200.0)] for number, host in enumerate(hosts)}
    sweeps: list[tuple[int, float]] = []

    class Counted(reservation._SiteSweep):
        def __init__(self, horizon: reservation._Horizon, job: ParallelJob, seconds: float, speed: float) -> None:
            super().__init__(horizon, job, seconds, speed)
            sweeps.append((job.task, self.now))

    monkeypatch.setattr(reservation, "_SiteSweep", Counted)
    grid = Grid(hosts, windows).submit([gang(1, 6, 10.0), gang(2, 5, 60.0), gang(3, 5, 60.0)])
    grid.play(parallel("easy"))
    assert began(grid) == {2: 0.0, 3: 100.0}
    assert {task for task, now in sweeps if now < 100.0} == {3}
