"""Parallel tasks that can start in no known window, whatever else ends: they are left out until that changes."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.need import Need, of_memory
from deskgrid.scheduler.parallel.composed import default_policy
from deskgrid.scheduler.parallel.possible import Possible, PossibleHost
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.state import jobs
from deskgrid.scheduler.state.jobs import JobQueue
from tests.scheduler.test_cost import cost
from tests.scheduler.test_gangs import PAIR, Lab
from tests.scheduler.test_many_gangs import apart, pass_of

NOBODY = Need(2, 2, labels=frozenset({"nobody"}))


def lab_with_default() -> Lab:
    lab = Lab()
    lab.grid.inside.policy.parallel = default_policy()  # type: ignore[attr-defined]
    return lab


def two_pcs() -> Lab:
    """Two PCs that are up for ten minutes."""
    lab = lab_with_default()
    lab.pcs("a", "b", uptime=600)
    return lab


@pytest.fixture
def lab() -> Lab:
    return two_pcs()


def few(patch: pytest.MonkeyPatch) -> None:
    """Small numbers instead of those of the scheduler."""
    patch.setattr(jobs, "MOST", 10)
    patch.setattr(jobs, "MOST_ASIDE", 50)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch)


def queue_of(lab: Lab) -> JobQueue:
    (queue,) = lab.grid.inside.gangs.queues.values()
    return queue


def seen(lab: Lab) -> list[int]:
    """The tasks that a policy would see."""
    lab.starts()
    return list(queue_of(lab).tasks)


# --- what is possible ------------------------------------------------------------------------------------------------


def longest(need: Need, *sites: Sequence[PossibleHost]) -> float:
    return Possible(sites).longest(need)


def of(lasts: float, slots: int = 1, memory: float = math.inf, *labels: str) -> PossibleHost:
    return PossibleHost(lasts, slots, of_memory(memory), frozenset(labels))


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        (PAIR, 50.0),
        (Need(3, 3), 20.0),
        (Need(2, 2, slots=2), -math.inf),
        (Need(1, 1, slots=2), 20.0),
        (Need(2, 2, amounts=of_memory(5)), 20.0),
        (Need(1, 1, labels=frozenset({"gpu"}), gang=True), 20.0),
        (NOBODY, -math.inf),
        (Need(2, 4), 50.0),
        # Of one, two and four ranks: 90, 50 * 2, 20 * 4.
        (Need(1, 4, speedup=Amdahl(0.0)), 100.0),
        (Need(4, 9, speedup=Amdahl(0.0)), 80.0),
        (Need(5, 9, speedup=Amdahl(0.0)), -math.inf),
    ],
)
def test_the_longest_runtime_is_that_of_the_best_size_at_the_best_site(need: Need, expected: float) -> None:
    site = [of(20.0, 2, 12.0, "gpu"), of(90.0, 1, 4.0), of(50.0)]
    assert longest(need, site, [of(10.0, 2)]) == pytest.approx(expected)


def test_nothing_is_known_before_a_pc_is_up() -> None:
    assert longest(NOBODY) == math.inf


# --- they do not hide others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "need", [PAIR, NOBODY, Need(3, 3), Need(2, 2, amounts=of_memory(9)), Need(2, 8, speedup=Amdahl(0.5))]
)
def test_a_gang_behind_many_that_can_never_start_starts_at_once(need: Need) -> None:
    lab = lab_with_default()
    lab.pcs("a", "b", uptime=600, amounts=of_memory(5))
    lab.submit(*[2000.0] * 30, need=need)
    lab.submit(*[2000.0 + number for number in range(30)], need=need, bag=1)
    (task,) = lab.submit(5.0, bag=2)
    assert pass_of(lab, 10) == 1
    assert task in lab.grid.inside.gangs.running
    assert seen(lab) == []
    assert len(queue_of(lab)) == 60


def test_a_gang_behind_many_of_which_only_a_policy_finds_that_they_cannot_start_starts_in_the_same_pass() -> None:
    lab = lab_with_default()
    apart(lab)
    lab.submit(*[100.0 + number for number in range(35)])
    (task,) = lab.submit(5.0)
    assert list(lab.starts()) == [task]


def test_those_do_not_become_more_and_more() -> None:
    lab = lab_with_default()
    apart(lab)
    lab.submit(*[100.0 + number for number in range(100)])
    assert len(seen(lab)) == 50
    assert len(queue_of(lab)) == 100


@pytest.mark.parametrize("need", [PAIR, NOBODY, Need(2, 8, speedup=Amdahl(0.5))])
def test_a_pass_costs_the_same_however_many_can_never_start(need: Need) -> None:
    costs = []
    for count in (20, 2_000):
        lab = two_pcs()
        lab.submit(*[2000.0 + number for number in range(count)], need=need)
        pass_of(lab, 100)
        assert not lab.grid.scheduler.unsettled
        lab.grid.inside.changes += 1
        scheduler = lab.grid.scheduler
        costs.append(cost(scheduler, partial(scheduler.handle, ev.PassDue(100), 0.0)))
        assert not lab.grid.scheduler.unsettled
    assert costs[1] <= costs[0] + 10


@pytest.mark.no_cover
def test_those_that_are_submitted_again_and_again_do_not_delay_others(lab: Lab) -> None:
    for bag in range(0, 60, 2):
        lab.submit(*[1.0] * 20, need=NOBODY, bag=bag)
        (task,) = lab.submit(1.0, bag=bag + 1)
        assert pass_of(lab, 10) == 1
        lab.grid.attempts[task] = lab.grid.inside.gangs.running[task].attempt
        lab.end(task)


# --- they come back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("need", "change"),
    [
        (PAIR, lambda lab: lab.pcs("c", "d")),
        (PAIR, lambda lab: lab.grid.predict({0: 5.0})),
        (Need(2, 2, labels=frozenset({"environment x"})), lambda lab: ready(lab, "x")),
        (Need(2, 2, labels=frozenset({"x"})), lambda lab: lab.pcs("c", "d", labels=frozenset({"x"}))),
    ],
)
def test_one_starts_as_soon_as_something_has_changed_that_lets_it(
    lab: Lab, need: Need, change: Callable[[Lab], Any]
) -> None:
    lab.submit(1000.0 if need is PAIR else 5.0, need=need)
    assert seen(lab) == []
    change(lab)
    assert list(lab.starts()) == [0]
    assert not queue_of(lab).waits


def test_one_starts_as_soon_as_a_window_is_longer(lab: Lab) -> None:
    lab.submit(1000.0)
    assert seen(lab) == []
    for name in "ab":
        lab.grid.refresh(name, 5000.0)
    assert list(lab.starts()) == [0]


def ready(lab: Lab, environment: str) -> None:
    """An environment is ready on both PCs."""
    for name in "ab":
        lab.grid.tell(ev.EnvironmentsReady(name, frozenset({environment})))


def test_one_starts_when_pcs_have_become_faster(lab: Lab) -> None:
    for name in "ab":
        lab.grid.tell(ev.WorkerMeasured(name, 0.5, 0.0))
    lab.submit(500.0)
    assert seen(lab) == []
    for name in "ab":
        lab.grid.tell(ev.WorkerMeasured(name, 1.0, 0.0))
    assert list(lab.starts()) == [0]


def test_windows_that_have_become_too_short_are_noticed_when_a_policy_finds_no_time(lab: Lab) -> None:
    lab.submit(1.0)
    lab.starts()
    lab.grid.wait(100.0)
    lab.submit(550.0, 560.0, 560.0)
    assert seen(lab) == []


def test_a_gang_that_comes_back_when_it_can_start_no_longer_is_left_out(lab: Lab) -> None:
    (task,) = lab.submit(500.0)
    lab.starts()
    lab.began(task)
    lab.grid.tell(ev.WorkerLeft("b", planned=True))
    assert seen(lab) == []
    lab.pcs("c")
    assert list(lab.starts()) == [task]


@pytest.mark.no_cover
def test_of_very_many_that_come_back_the_first_are_first_and_none_is_forgotten(lab: Lab) -> None:
    """Also those that came later, and never had to be left out."""
    long = lab.submit(*[1000.0 + number % 7 for number in range(40)])
    small = lab.submit(*[1000.0] * 40, bag=1)
    assert seen(lab) == []
    more = lab.submit(*[5.0] * 30, bag=2)
    begun = list(lab.starts())
    assert begun == more[:1]
    for name in "cdefgh":
        lab.pcs(name, slots=10)
    begun += lab.starts()
    assert seen(lab)[0] < 40
    for _ in range(100):
        running = list(lab.grid.inside.gangs.running)
        for task in running:
            lab.end(task)
        begun += lab.starts()
    assert sorted(begun) == [*long, *small, *more]
    assert not queue_of(lab).waits


def test_those_that_are_cancelled_leave_nothing(lab: Lab) -> None:
    mixed = lab.submit(1000.0, 5.0, 2000.0)
    alike = lab.submit(*[1000.0] * 3, bag=1)
    lab.starts()
    assert len(queue_of(lab)) == 5
    lab.grid.cancel(mixed[0], *alike)
    assert len(queue_of(lab)) == 1
    assert queue_of(lab).waits
    lab.grid.cancel(*mixed)
    lab.starts()
    assert not queue_of(lab).waits


def test_those_that_a_policy_puts_aside_do_not_keep_others_from_coming_back() -> None:
    """Of forty that come back, the first eight turn out to need PCs that are never up together."""
    lab = lab_with_default()
    lab.pcs("a", uptime=600)
    lab.pcs("b", uptime=10, windows=[(700, 600)])
    some = lab.submit(*[5000.0 - number for number in range(8)])
    others = lab.submit(*[2000.0] * 32, need=NOBODY, bag=1)
    assert seen(lab) == []
    lab.grid.predict(dict.fromkeys(some, 100.0))
    lab.pcs("c", "d", labels=frozenset({"nobody"}), uptime=50)
    lab.grid.predict(dict.fromkeys(others, 5.0))
    begun = list(lab.starts())
    for _ in range(40):
        for task in list(lab.grid.inside.gangs.running):
            lab.end(task)
        begun += lab.starts()
    assert sorted(begun) == others


def test_a_change_lets_only_those_start_for_which_it_is_enough(lab: Lab) -> None:
    some = lab.submit(2000.0, 1000.0)
    (alone,) = lab.submit(3000.0)
    assert seen(lab) == []
    lab.pcs("c", "d", uptime=1500)
    assert list(lab.starts()) == [some[1]]
    assert (seen(lab), len(queue_of(lab))) == ([], 2)
    lab.grid.cancel(alone)
    lab.pcs("e", "f", uptime=2500)
    assert list(lab.starts()) == [some[0]]
    assert not queue_of(lab).waits
