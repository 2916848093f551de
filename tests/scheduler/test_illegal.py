"""An event that contradicts the state raises `IllegalEvent`, and does not change a single attribute."""

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import MethodType
from typing import Any

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, IllegalEvent
from deskgrid.scheduler.queues.task_ranges import TaskRanges
from tests.scheduler.builders import Grid, fcfs, only, pgs

NAN = float("nan")


def picture(thing: Any, known: dict[int, int] | None = None) -> Any:
    """All that can be reached from ``thing``, as values that can be compared. What was met before is its number."""
    known = {} if known is None else known
    if thing is None or isinstance(thing, (int, float, str)):
        return repr(thing)
    if id(thing) in known:
        return known[id(thing)]
    if not isinstance(thing, tuple):
        known[id(thing)] = len(known)
    return (type(thing).__name__, [picture(part, known) for part in parts(thing)])


def parts(thing: Any) -> Iterable[Any]:
    """What ``thing`` consists of."""
    match thing:
        case Random():
            found = list(thing.getstate())
        case Mapping():
            found = [part for pair in thing.items() for part in pair]
        case set() | frozenset():
            found = sorted(thing)
        case list() | tuple() | deque() | bytearray() | array():
            found = list(thing)
        case type() | MethodType():
            found = [thing.__qualname__]
        case _:
            names = [*getattr(thing, "__dict__", ()), *getattr(type(thing), "__slots__", ())]
            assert names or type(thing).__module__.startswith("deskgrid."), f"cannot look into {thing}"
            found = [part for name in names for part in (name, getattr(thing, name))]
    return found


def busy_grid() -> Grid:
    """Something in every state: ended, sent, sent ahead, queued, in both queues, held, expected from a lost worker."""
    grid = Grid(pgs(queue_length=2), first_attempt=50)
    grid.pc("a", 100, windows=[(200, 50)])
    grid.pc("b", slots=2)
    grid.tasks(3, 0.2, 0.1, 30, 40, 5000, 20, 8, bag=1, retries=1, held=[Attempt(6, 42)], done=[7])
    grid.tell_pass()
    grid.pc("lost", 1000)
    grid.tasks(*[900.0] * 8, bag=2)
    grid.tell_pass()
    grid.leave("lost", planned=False)
    grid.cancel(3)
    grid.wait(1)
    grid.tasks(11, bag=2)
    return grid


ILLEGAL: dict[str, Callable[[], ev.Event]] = {
    "an unknown task is predicted": lambda: ev.RuntimesUpdated([0, 99], [1.0, 1.0]),
    "a prediction is negative": lambda: ev.RuntimesUpdated([0, 1], [1.0, -1.0]),
    "a prediction is infinite": lambda: ev.RuntimesUpdated([0, 1], [1.0, math.inf]),
    "a prediction is not a number": lambda: ev.RuntimesUpdated([0, 1], [1.0, NAN]),
    "predictions are missing": lambda: ev.RuntimesUpdated([0, 1], [1.0]),
    "an unknown bag is predicted": lambda: ev.BagPredicted(9, 1.0),
    "a bag's prediction is negative": lambda: ev.BagPredicted(1, -1.0),
    "an unknown task is cancelled": lambda: ev.TasksCancelled([(0, 2), (99, 1)]),
    "a task from before the first is cancelled": lambda: ev.TasksCancelled([(-1, 1)]),
    "an unknown bag is forgotten": lambda: ev.BagForgotten(9),
    "a bag with work is forgotten": lambda: ev.BagForgotten(1),
    "a batch continues one of another bag": lambda: ev.TasksSubmitted(99, 100, 1, [1.0], grows=True),
    "a batch continues one that ended before": lambda: ev.TasksSubmitted(1, 100, 1, [1.0], grows=True),
    "a batch has no tasks": lambda: ev.TasksSubmitted(1, 100, 0, []),
    "a batch has too few runtimes": lambda: ev.TasksSubmitted(1, 100, 3, [1.0, 2.0]),
    "a batch has no runtimes": lambda: ev.TasksSubmitted(1, 100, 3, []),
    "a runtime is negative": lambda: ev.TasksSubmitted(3, 100, 2, [1.0, -1.0]),
    "a runtime is infinite": lambda: ev.TasksSubmitted(3, 100, 2, [math.inf]),
    "a runtime is not a number": lambda: ev.TasksSubmitted(3, 100, 2, [NAN]),
    "task numbers are used again": lambda: ev.TasksSubmitted(3, 15, 2, [1.0]),
    "what is restored as done is of another batch": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], done=[102]),
    "what is restored as failed is unknown": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], failed=[99]),
    "what is restored is so twice": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], done=[100], cancelled=[100]),
    "a probe is not of the batch": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], probes=[102]),
    "a task is a probe twice": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], probes=[100, 100]),
    "what is held is done": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], done=[100], held=[Attempt(100, 1)]),
    "what is held is not of the batch": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], held=[Attempt(0, 1)]),
    "an attempt is held from the future": lambda: ev.TasksSubmitted(3, 100, 2, [1.0], held=[Attempt(100, 900)]),
    "a worker joins without slots": lambda: ev.WorkerJoined("a", 0, 100.0),
    "a worker joins when it is gone": lambda: ev.WorkerJoined("a", 1, 0.0),
    "a worker joins for less than nothing": lambda: ev.WorkerJoined("a", 1, -1.0),
    "a worker joins for no number of seconds": lambda: ev.WorkerJoined("a", 1, NAN),
    "an uptime is negative": lambda: ev.UptimeRefreshed("a", -1.0, [(1.0, 2.0)]),
    "an uptime is not a number": lambda: ev.UptimeRefreshed("elsewhere", NAN, [(1.0, 2.0)]),
    "a policy has an order that there is not": lambda: ev.PolicyChanged(disordered()),
}


def disordered() -> Any:
    policy = fcfs()
    policy.order = "by-name"
    return policy


@pytest.mark.parametrize("what", ILLEGAL)
def test_nothing_changes_when(what: str) -> None:
    grid = busy_grid()
    before = picture(grid.scheduler)
    with pytest.raises(IllegalEvent):
        grid.tell(ILLEGAL[what]())
    assert picture(grid.scheduler) == before
    grid.tell_pass()


@pytest.mark.parametrize("now", [0.5, -1.0, math.inf, NAN])
def test_time_does_not_run_backwards_or_out(now: float) -> None:
    grid = busy_grid()
    before = picture(grid.scheduler)
    with pytest.raises(IllegalEvent, match="time"):
        grid.scheduler.handle(ev.PassDue(), now)
    assert picture(grid.scheduler) == before


def test_the_picture_shows_every_change() -> None:
    """The tests above are worth what `picture` sees: each of these changes one thing."""
    grid = busy_grid()
    scheduler = grid.scheduler
    slot = next(slot for slot in scheduler.grid.slots.slots.values() if slot.sent)
    seen = [picture(scheduler)]
    changes: list[Callable[[], object]] = [
        lambda: scheduler.grid.tasks.bags[1].batches[0].states.__setitem__(0, 1),
        lambda: scheduler.grid.tasks.bags[1].batches[0].runtimes.__setitem__(0, 77.0),
        lambda: setattr(slot, "started", 0.125),
        slot.sent.clear,
        scheduler.grid.bound.popitem,
        scheduler.grid.lost.clear,
        lambda: only(scheduler.grid).regular.add(TaskRanges([777], [1], [1.0])),
        lambda: only(scheduler.grid).priority.discard(12),
        lambda: setattr(scheduler.counters, "done", 99),
        scheduler.grid.away.clear,
        lambda: scheduler.grid.slots.index(slot, grid.now),
    ]
    for change in changes:
        change()
        seen.append(picture(scheduler))
        assert seen[-1] != seen[-2]
    assert picture(busy_grid().scheduler) == seen[0]
