"""The cost of a pass with very many waiting tasks: counted, not timed, so that a busy machine does not matter.

The tests count calls of Python and C functions, and accesses to the arrays that have an entry for each waiting task.
They also print times (``pytest -s``).
"""

import sys
import time
from array import array
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import AttemptOutcome, State
from deskgrid.scheduler.policies import Policy
from deskgrid.scheduler.queues.by_arrival import OldestFirst
from deskgrid.scheduler.queues.waiting import WaitingQueue
from tests.scheduler.builders import fcfs, only, packing, pgs

FEW, MANY = 1_000, 100_000
PCS = 100


class Looks:
    """How often arrays were looked at."""

    def __init__(self) -> None:
        self.count = 0

    def at(self, values: "array[Any]") -> "array[Any]":
        """A copy of ``values`` that counts."""
        looks = self

        class Watched(array):  # type: ignore[type-arg]  # the class is made anew for each array
            def __getitem__(self, place: Any) -> Any:
                looks.count += 1
                return super().__getitem__(place)

            def __iter__(self) -> Iterator[Any]:
                looks.count += len(self)
                return super().__iter__()

        return Watched(values.typecode, values)

    def into(self, queue: WaitingQueue) -> None:
        """Watch all that ``queue`` has for each task."""
        if isinstance(queue, OldestFirst):
            queue._firsts, queue._counts = self.at(queue._firsts), self.at(queue._counts)
            queue._tree.levels = [self.at(level) for level in queue._tree.levels]


def cost(scheduler: Scheduler, work: Callable[[], object]) -> int:
    """Calls and looks that ``work`` takes."""
    looks, calls = Looks(), 0
    for category in scheduler.grid.categories.by_key.values():
        looks.into(category.regular)
        looks.into(category.priority)

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls + looks.count


def grid(policy: Policy, waiting: int, runtime: float, uptime: float = 1000.0) -> Scheduler:
    """PCs that all run something (and hold what their queues take), and behind that ``waiting`` tasks."""
    scheduler = Scheduler(policy)
    for number in range(PCS):
        scheduler.handle(ev.WorkerJoined(f"pc{number}", 1, uptime), 0.0)
    filling = PCS * (1 + policy.queue_length)
    scheduler.handle(ev.TasksSubmitted(0, 0, filling, [10.0]), 0.0)
    scheduler.handle(ev.PassDue(), 0.0)
    scheduler.handle(ev.TasksSubmitted(1, filling, waiting, [runtime]), 0.0)
    scheduler.handle(ev.PassDue(), 0.0)
    assert len(scheduler.grid.categories) == waiting
    return scheduler


def end_one(scheduler: Scheduler, now: float) -> None:
    """A task ends, and the slot takes what comes next."""
    slot = next(iter(scheduler.grid.slots.slots.values()))
    ended = ev.EndedAttempt(slot.sent[0].attempt, AttemptOutcome.DONE, 10.0)
    scheduler.handle(ev.AttemptsEnded(slot.worker.name, [ended]), now)
    scheduler.handle(ev.PassDue(), now)
    assert slot.sent


def passing(scheduler: Scheduler, now: float) -> Callable[[], object]:
    return lambda: scheduler.handle(ev.PassDue(), now)


def ending(scheduler: Scheduler, now: float) -> Callable[[], object]:
    return lambda: end_one(scheduler, now)


def tell(what: str, costs: list[int], work: Callable[[], object] | None = None) -> None:
    """Print what was counted and, when it can be done over and over, the least of some measured times."""
    took = ""
    if work is not None:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        took = f", {min(times) * 1e6:.0f} us"
    print(f"\n{what}: {costs[0]} calls and looks with {FEW} tasks, {costs[1]} with {MANY}{took}")


POLICIES = [fcfs(), pgs(order="fifo"), pgs(order="newest-first"), pgs(order="longest-first"), pgs(queue_length=0)]
NAMES = ["fcfs", "pgs-fifo", "pgs-newest-first", "pgs-longest-first", "pgs-no-queue"]


@pytest.mark.parametrize("policy", POLICIES, ids=NAMES)
def test_a_pass_with_every_slot_busy_does_not_depend_on_how_many_tasks_wait(policy: Policy) -> None:
    costs, work = [], None
    for waiting in (FEW, MANY):
        scheduler = grid(policy, waiting, runtime=10.0)
        work = passing(scheduler, 1.0)
        costs.append(cost(scheduler, work))
    tell("every slot busy", costs, work)
    assert costs[1] == costs[0] < 100


@pytest.mark.parametrize("order", ["fifo", "newest-first", "longest-first"])
@pytest.mark.parametrize("queue_length", [1, 3])
def test_tasks_that_are_too_long_for_every_slot_are_not_looked_at_one_by_one(order: str, queue_length: int) -> None:
    costs, work = [], None
    for waiting in (FEW, MANY):
        scheduler = grid(pgs(queue_length, order), waiting, runtime=5000.0)
        end_one(scheduler, 10.0)
        assert (len(only(scheduler.grid).regular), len(only(scheduler.grid).priority)) == (0, waiting)
        assert scheduler.grid.slots.with_room > 0
        work = passing(scheduler, 11.0)
        costs.append(cost(scheduler, work))
    tell("nothing fits", costs, work)
    assert costs[1] <= 1.5 * costs[0] < 600


@pytest.mark.parametrize("policy", POLICIES, ids=NAMES)
def test_giving_a_free_slot_its_next_task_costs_little_more_with_many_tasks_waiting(policy: Policy) -> None:
    costs = []
    for waiting in (FEW, MANY):
        scheduler = grid(policy, waiting, runtime=10.0)
        end_one(scheduler, 5.0)
        costs.append(cost(scheduler, ending(scheduler, 9.0)))
    tell("the next task", costs)
    assert costs[1] <= 2 * costs[0] < 5000


def test_the_one_task_that_fits_is_found_among_very_many_that_do_not() -> None:
    costs = []
    for waiting in (FEW, MANY):
        scheduler = grid(pgs(0), waiting, runtime=5000.0)
        scheduler.handle(ev.TasksSubmitted(2, PCS + waiting, 1, [10.0]), 0.0)
        costs.append(cost(scheduler, ending(scheduler, 9.0)))
        assert scheduler.grid.tasks.state(PCS + waiting) == State.SENT
    tell("the one that fits", costs)
    assert costs[1] <= 2 * costs[0]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_many_cancelled_tasks_do_not_hold_up_the_first_free_slot(share: float) -> None:
    """A thousand discarded tasks may be dropped one by one, as they are met; of more, most are before, all at once."""
    costs = []
    for waiting in (FEW, MANY):
        scheduler = grid(pgs(0), waiting, runtime=10.0)
        scheduler.handle(ev.TasksCancelled([(PCS, int(share * waiting))]), 1.0)
        scheduler.handle(ev.PassDue(), 1.0)
        costs.append(cost(scheduler, ending(scheduler, 9.0)))
    tell("the next task after many were cancelled", costs)
    assert costs[0] < 30 * FEW
    assert costs[1] < 1000


def test_a_window_refreshed_with_every_heartbeat_leaves_nothing_behind() -> None:
    scheduler = grid(pgs(), 10, runtime=10.0)
    for beat in range(1000):
        now = beat / 1000
        scheduler.handle(ev.UptimeRefreshed("pc0", 1000.0 - 2 * now), now)
        scheduler.handle(ev.PassDue(), now)
    assert len(scheduler.grid.slots._due) < 3 * PCS


@pytest.mark.parametrize("policy", [*POLICIES, packing()], ids=[*NAMES, "packing"])
def test_a_new_prediction_costs_no_more_with_many_tasks_of_the_bag_waiting(policy: Policy) -> None:
    costs = []
    for waiting in (FEW, MANY):
        scheduler = grid(policy, waiting, runtime=10.0)
        costs.append(cost(scheduler, lambda s=scheduler: s.handle(ev.BagPredicted(1, 7.0), 1.0)))  # type: ignore[misc]
        assert scheduler.grid.tasks.bags[1].longest == 7.0
    tell("a new prediction for a bag", costs)
    assert costs[1] == costs[0] < 300


@pytest.mark.parametrize("policy", [pgs(0), packing()], ids=["pgs", "packing"])
def test_so_does_one_for_a_single_task_of_them(policy: Policy) -> None:
    costs = []
    for waiting in (FEW, MANY):
        scheduler = grid(policy, waiting, runtime=10.0)
        event = ev.RuntimesUpdated([PCS * 2 + 7], [7.0])
        costs.append(cost(scheduler, lambda s=scheduler, e=event: s.handle(e, 1.0)))  # type: ignore[misc]
    tell("a new prediction for a task", costs)
    assert costs[1] <= 1.5 * costs[0] < 600


def test_a_bag_of_one_runtime_that_fits_nowhere_yet_is_put_aside_as_one() -> None:
    costs = []
    for waiting in (10 * FEW, 10 * MANY):
        scheduler = grid(packing(), waiting, runtime=10.0)
        costs.append(cost(scheduler, ending(scheduler, 9.0)))
        assert (len(only(scheduler.grid).regular), len(only(scheduler.grid).priority)) == (0, waiting - 1)
    tell("put aside", costs)
    assert costs[1] <= 1.5 * costs[0] < 20_000
