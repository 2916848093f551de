"""How many ranks can be together for long enough, and when; and what explanations say of it."""

import math

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.parallel.need import Need
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.views.together import Together, best_together
from tests.scheduler.test_views import explained

GIB = 2**30


def grid(*joined: ev.WorkerJoined) -> Scheduler:
    """A grid with these workers up, whose policy keeps no margin."""
    scheduler = Scheduler(make_policy("fcfs"))
    for event in joined:
        scheduler.handle(event, 0.0)
    return scheduler


def pc(name: str, slots: int = 2, uptime: float = 100.0, **has: object) -> ev.WorkerJoined:
    return ev.WorkerJoined(name, slots, uptime, **{"site": "lab", **has})  # type: ignore[arg-type]


def best(scheduler: Scheduler, need: Need, runtime: float = 50.0) -> tuple[int, str, float] | None:
    found = best_together(scheduler.grid, need, runtime, 0.0)
    margin = scheduler.grid.policy.requirement.margin
    return found and (found.ranks, found.site, round(found.starts_in_s, 6) if not margin else found.starts_in_s)


FOUR, SIX = Need(least=4, most=4, gang=True), Need(least=6, most=6, gang=True)


def test_slots_of_one_site_are_together_now() -> None:
    assert best(grid(pc("a"), pc("b"), pc("c", site="other")), FOUR) == (4, "lab", 0.0)


def test_without_a_pc_or_with_windows_that_are_too_short_nothing_is_together() -> None:
    assert best(grid(), FOUR) is None
    assert best(grid(pc("a")), FOUR, 100.0) is None


def test_the_most_that_are_together_are_told_if_there_are_never_enough() -> None:
    scheduler = grid(pc("a"), pc("b"), pc("c", uptime=20.0), pc("d", site="other", slots=5))
    assert best(scheduler, SIX) == (5, "other", 0.0)


def test_it_waits_for_the_window_in_which_there_are_enough() -> None:
    later = pc("c", uptime=20.0, windows=[(60.0, 10.0), (90.0, 200.0)])
    scheduler = grid(pc("a", uptime=math.inf), pc("b", uptime=math.inf), later)
    assert best(scheduler, SIX) == (6, "lab", 90.0)


def test_windows_that_do_not_overlap_for_long_enough_do_not_add_up() -> None:
    scheduler = grid(pc("a", uptime=100.0), pc("b", uptime=10.0, windows=[(60.0, 200.0)]))
    assert best(scheduler, FOUR) == (2, "lab", 0.0)


def test_a_pc_that_is_away_comes_back() -> None:
    scheduler = grid(pc("a", uptime=math.inf), pc("b"))
    scheduler.handle(ev.WorkerLeft("b", planned=True, windows=[(30.0, 100.0)]), 0.0)
    assert best(scheduler, FOUR) == (4, "lab", 30.0)


def test_a_pc_that_others_do_not_reach_is_a_site_of_its_own() -> None:
    scheduler = grid(pc("a", reachable=False), pc("b", reachable=False, slots=3))
    assert best(scheduler, FOUR) == (3, "b", 0.0)


def test_a_slow_pc_needs_more_time() -> None:
    scheduler = grid(pc("a", speed=0.4), pc("b"))
    assert best(scheduler, FOUR) == (2, "lab", 0.0)


def test_labels_and_memory_of_pcs_count() -> None:
    scheduler = grid(pc("a", labels=frozenset({"gpu"}), memory=3 * GIB), pc("b", memory=8 * GIB))
    assert best(scheduler, Need(2, 2, gang=True, labels=frozenset({"gpu"}))) == (2, "lab", 0.0)
    assert best(scheduler, Need(4, 4, gang=True, memory=2 * GIB)) == (3, "lab", 0.0)
    assert best(grid(pc("a")), Need(2, 2, gang=True, memory=GIB)) == (2, "lab", 0.0)
    assert best(scheduler, Need(2, 2, gang=True, labels=frozenset({"fpga"}))) is None


def test_several_slots_are_of_one_pc() -> None:
    assert best(grid(pc("a", slots=3), pc("b", slots=3)), Need(slots=4)) is None
    assert best(grid(pc("a", slots=5), pc("b", slots=3)), Need(2, 2, slots=2, gang=True)) == (3, "lab", 0.0)


def test_a_moldable_task_needs_the_time_of_its_least_ranks() -> None:
    need = Need(2, 8, gang=True, speedup=Amdahl(0.0))
    assert best(grid(pc("a")), need, 190.0) == (2, "lab", 0.0)
    assert best(grid(pc("a")), need, 210.0) is None


def submitted(scheduler: Scheduler, need: Need) -> int:
    scheduler.handle(ev.TasksSubmitted(bag=1, first=1, count=1, runtimes=(50.0,), need=need), 0.0)
    scheduler.handle(ev.PassDue(), 0.0)
    return 1


def test_a_parallel_task_is_explained_by_what_can_be_together() -> None:
    scheduler = grid(pc("a"), pc("b"))
    why = explained(scheduler, submitted(scheduler, SIX), 0.0)
    assert (why.need, why.together, why.slots, why.on) == (SIX, Together(4, "lab", 0.0), (), "")


def test_a_gang_that_has_slots_is_on_all_its_workers() -> None:
    scheduler = grid(pc("a"), pc("b"))
    assert explained(scheduler, submitted(scheduler, FOUR), 0.0).on == "a, b"


@pytest.mark.parametrize(
    ("need", "lacks", "memory"),
    [
        (Need(labels=frozenset({"gpu", "tpu"})), ("tpu",), None),
        (Need(memory=4 * GIB), (), float(2 * GIB)),
    ],
)
def test_slots_of_pcs_that_lack_something_come_last_and_say_what(
    need: Need, lacks: tuple[str, ...], memory: float | None
) -> None:
    scheduler = grid(pc("a", 1, labels=frozenset({"gpu"}), memory=2 * GIB))
    (slot,) = explained(scheduler, submitted(scheduler, need), 0.0).slots
    assert (slot.lacks, slot.memory) == (lacks, memory)
