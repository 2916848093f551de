"""Very many parallel tasks: decisions take no longer if there are more categories, or more tasks that cannot start."""

import math
from collections import Counter
from collections.abc import Iterator

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.aside import RETRY_S
from deskgrid.scheduler.parallel.base import Keep, ParallelView, Start
from deskgrid.scheduler.parallel.composed import default_policy
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.placing import gangs as gang_placing
from deskgrid.scheduler.queues.categories import GANGS, CategoryKey
from tests.scheduler.test_cost import cost
from tests.scheduler.test_gangs import PAIR, First, Lab


class Counting(First):
    """As `First`, and counts the jobs that it sees: of each hundred tasks, in each decision."""

    def __init__(self) -> None:
        self.seen: list[Counter[int]] = []

    def decide(self, view: ParallelView) -> Iterator[Start | Keep]:
        self.seen.append(Counter([job.task // 100 for job in view.waiting]))
        return super().decide(view)


def crowd() -> tuple[Lab, Counting]:
    """Ten pairs of ann's wait, and of eve's three bags with a limit ten each: tasks 100, 200 and 300 on."""
    lab, policy = Lab(), Counting()
    lab.grid.inside.policy.parallel = policy  # type: ignore[attr-defined]
    for bag, owner in enumerate(("ann", "eve", "eve", "eve")):
        lab.grid._next = 100 * bag
        key = CategoryKey(owner, limit=10 if bag else 0, bag=bag if bag else None, need=GANGS)
        lab.submit(*[10.0] * 10, bag=bag, key=key)
    return lab, policy


def pass_of(lab: Lab, most: float) -> int:
    """How many begin in a bounded pass."""
    return sum([isinstance(command, cmd.StartGang) for command in lab.grid.tell(ev.PassDue(most))])


def few(patch: pytest.MonkeyPatch) -> None:
    """Small numbers instead of those of the scheduler."""
    patch.setattr(gang_placing, "SEEN", 8)
    patch.setattr(gang_placing, "SEEN_OF_EACH", 2)
    patch.setattr(gang_placing, "JOBS_A_START", 4)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch)


def test_a_policy_sees_some_jobs_of_each_category_and_as_many_of_each_share() -> None:
    lab, policy = crowd()
    apart(lab)
    lab.grid.wait(5)
    assert lab.starts() == {}
    assert policy.seen == [Counter({0: 4, 1: 2, 2: 2, 3: 2})]


def test_what_a_policy_did_not_see_begins_in_the_same_pass_if_there_is_room() -> None:
    lab, policy = crowd()
    lab.pcs("a", "b", slots=100)
    assert len(lab.starts()) == 40
    assert max([seen.total() for seen in policy.seen[:-1]]) <= 10


def test_to_ask_again_counts_in_a_bounded_pass_and_the_next_pass_goes_on() -> None:
    lab, policy = crowd()
    lab.pcs("a", "b", slots=100)
    begun = []
    while lab.grid.scheduler.unsettled:
        asked = len(policy.seen)
        begun.append(pass_of(lab, 10))
        assert begun[-1] + 2 * (len(policy.seen) - asked - 1) <= 10
    assert sum(begun) == 40
    assert pass_of(lab, math.inf) == 0


# --- tasks that can start in no known window -------------------------------------------------------------------


def apart(lab: Lab) -> None:
    """Two PCs of one slot whose long windows do not overlap: ten seconds are all that they have in common."""
    lab.pcs("a", uptime=600)
    lab.pcs("b", uptime=10, windows=[(700, 600)])


def hopeless(count: int, need: Need = PAIR) -> Lab:
    """Gangs for which no PCs are up together for long enough, each with another runtime: only a policy finds that."""
    lab = Lab()
    lab.grid.inside.policy.parallel = default_policy()  # type: ignore[attr-defined]
    apart(lab)
    lab.submit(*[100.0 + number for number in range(count)], need=need)
    return lab


def settled(lab: Lab) -> int:
    """How many bounded passes it takes until there is nothing to decide."""
    for passes in range(300):
        if not lab.grid.scheduler.unsettled:
            return passes
        pass_of(lab, 100)
    raise AssertionError("there is always something to decide")


@pytest.mark.parametrize("need", [PAIR, Need(2, 8, speedup=Amdahl(0.5))])
def test_a_pass_costs_no_more_if_more_gangs_can_start_at_no_known_time(need: Need) -> None:
    costs = []
    for count in (20, 200):
        lab = hopeless(count, need)
        assert settled(lab) > 1
        lab.grid.inside.changes += 1
        costs.append(cost(lab.grid.scheduler, lambda lab=lab: pass_of(lab, 100)))  # type: ignore[misc]
        assert not lab.grid.scheduler.unsettled
    assert costs[1] < 5 * costs[0]


def asides(lab: Lab) -> dict[int, int]:
    """When it turned out last of each task that it can start at no known time."""
    return {job.task: job.aside for queue in lab.grid.inside.gangs.queues.values() for job in queue.jobs}


def test_after_a_change_each_is_asked_about_once_in_turn_even_if_nothing_more_changes() -> None:
    lab = hopeless(20)
    settled(lab)
    assert lab.grid.scheduler.wakes_at > lab.grid.now + RETRY_S
    before = asides(lab)
    assert sorted(before.values()) == list(range(1, 21))
    lab.grid.inside.changes += 1
    pass_of(lab, 100)
    passes = 1
    while lab.grid.scheduler.wakes_at <= lab.grid.now + RETRY_S:
        lab.grid.wait(RETRY_S)
        pass_of(lab, 100)
        passes += 1
    assert passes == 7
    assert sorted(asides(lab).values()) == list(range(21, 41))


def test_when_one_of_them_can_start_all_that_need_the_same_can() -> None:
    lab = hopeless(20)
    settled(lab)
    lab.pcs("c", "d", slots=20)
    assert pass_of(lab, 1000) == 20


def test_nobody_else_waits_for_them() -> None:
    lab = hopeless(100)
    settled(lab)
    (task,) = lab.submit(5.0, bag=1)
    pass_of(lab, 100)
    assert task in lab.grid.inside.gangs.running


def test_an_unbounded_pass_asks_about_all() -> None:
    lab = hopeless(20)
    lab.starts()
    lab.pcs("c", "d", slots=20)
    assert len(lab.starts()) == 20
