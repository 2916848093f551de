"""Very many parallel tasks: a decision takes no longer the more categories wait, and hides nobody's tasks."""

import math
from collections import Counter
from collections.abc import Iterator

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler import gang_placing
from deskgrid.scheduler.parallel.base import Keep, ParallelView, Start
from deskgrid.scheduler.queues.categories import GANGS, CategoryKey
from tests.scheduler.test_gangs import First, Lab


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
    return sum([isinstance(command, ev.StartGang) for command in lab.grid.tell(ev.PassDue(most))])


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
    lab.pcs("a")  # a pair needs two slots
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
