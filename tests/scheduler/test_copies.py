"""The tail of a bag: when a running task gets a copy, and where."""

import math
from collections import Counter
from typing import Any

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import AttemptOutcome, State
from deskgrid.scheduler.placing.copying import AGAIN_S, LEAST_S, LOOKS, SOONER
from deskgrid.scheduler.state.avoided import Person
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.scheduler.state.slots import ENOUGH
from deskgrid.scheduler.state.timers import ENTRIES
from tests.scheduler.builders import fcfs, packing, pgs
from tests.scheduler.tails import DUE_S, RUNTIME, Tail, running

# --- when and where --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [pgs(), packing(), fcfs()])
def test_a_task_that_is_behind_is_copied_to_an_idle_slot_of_another_worker(policy: Any) -> None:
    grid = running("b", policy=policy)
    grid.pc("a2", slots=1)
    grid.wait(DUE_S - 0.1)
    assert grid.decide() == ({}, {})
    assert grid.scheduler.wakes_at == DUE_S
    grid.wait(0.1)
    _, handed = grid.decide()
    assert handed in ({"b": [0]}, {"a2": [0]})
    assert grid.state(0) == State.SENT
    assert grid.scheduler.wakes_at == math.inf
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {})


def test_a_short_task_is_not_copied_within_a_second() -> None:
    grid = running("b", task=0.001)
    grid.wait(LEAST_S - 0.01)
    assert grid.decide() == ({}, {})
    grid.wait(0.01)
    assert grid.decide() == ({}, {"b": [0]})


def test_a_bag_that_does_not_allow_copies_gets_none() -> None:
    grid = running()
    grid.tasks(RUNTIME, bag=1)
    grid.pc("b")
    grid.expect(b=[1])
    grid.end(0)
    grid.pc("c")
    grid.wait(10 * DUE_S)
    assert grid.decide() == ({}, {})


def test_nothing_is_copied_while_a_task_that_fits_waits_for_a_pass() -> None:
    grid = running("b")
    grid.wait(DUE_S)
    grid.tasks(RUNTIME, RUNTIME, bag=1)
    assert grid.decide(1) == ({}, {"b": [1]})
    assert grid.decide() == ({}, {})


def test_a_copy_is_not_started_beside_its_original_nor_where_it_does_not_fit() -> None:
    grid = Tail()
    grid.pc("a", slots=2)
    grid.tasks(RUNTIME, copies=True)
    grid.decide()
    grid.pc("short", DUE_S + RUNTIME)
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {})
    assert grid.scheduler.wakes_at == DUE_S + AGAIN_S
    grid.pc("long", RUNTIME + 1.0)
    assert grid.decide() == ({}, {})
    grid.wait(AGAIN_S)
    grid.refresh("long", RUNTIME + 1.0)
    assert grid.decide() == ({}, {"long": [0]})


def test_a_copy_is_not_started_on_a_worker_in_quarantine() -> None:
    grid = running("b", "c")
    grid.inside.quarantine.workers["b"] = Quarantined(1e6, 1e6, 0, 100, silent=False)
    grid.inside.quarantine._streaks["b"] = Counter({Person("ann", ""): 50, Person("bob", ""): 50})
    grid.inside.change_all(grid.inside.slots.workers["b"])
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {"c": [0]})


@pytest.mark.parametrize(("slots", "copies"), [(1, 1), (9, 1), (10, 2), (25, 3)])
def test_one_slot_in_ten_may_run_a_copy_but_at_least_one(slots: int, copies: int) -> None:
    """``slots`` idle ones, beside as many as there are tasks."""
    grid = Tail()
    grid.pc("a", slots=10)
    grid.tasks(*[RUNTIME] * 10, copies=True)
    grid.decide()
    grid.pc("b", slots=slots)
    grid.wait(DUE_S)
    _, handed = grid.decide()
    assert len(handed["b"]) == copies
    assert grid.scheduler.wakes_at == math.inf
    assert grid.decide() == ({}, {})
    assert grid.scheduler.counters.copies == copies


def test_a_task_that_has_a_copy_gets_no_other_one_although_there_is_room() -> None:
    grid = running()
    grid.pc("b", slots=30)
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {"b": [0]})
    grid.wait(AGAIN_S)
    assert grid.decide() == ({}, {})


def test_a_pass_looks_at_some_attempts_and_the_next_at_the_others() -> None:
    grid = Tail()
    grid.pc("a", slots=LOOKS + 1)
    grid.tasks(*[RUNTIME] * (LOOKS + 1), copies=True)
    grid.decide()
    grid.pc("short", DUE_S + 1.0)
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {})
    assert grid.scheduler.wakes_at == DUE_S
    assert grid.decide() == ({}, {})
    assert grid.scheduler.wakes_at == DUE_S + AGAIN_S


@pytest.mark.no_cover
def test_looks_that_are_out_of_date_do_not_pile_up() -> None:
    grid = Tail()
    grid.pc("a", slots=2)
    grid.pc("b")
    heap = grid.scheduler._placing.copying
    for _ in range(ENTRIES * (LOOKS + 3) + 10):
        task = grid._next
        grid.tasks(0.0, copies=True)
        grid.decide()
        grid.inside.slots.slots[0].copy_look_at = math.inf
        grid.wait(0.001)
        grid.end(task)
    assert len(heap._looks) <= ENTRIES * (LOOKS + 3) + 2


# --- fast and slow PCs -----------------------------------------------------------------------------------------------


def paced(slow: float, fast: float, done: int = ENOUGH) -> Tail:
    """Two PCs that have done tasks of a bag with copies: these took ``slow`` and ``fast`` times their predictions."""
    grid = Tail()
    grid.pc("slow")
    grid.pc("fast")
    for _ in range(done):
        first = grid.tasks(RUNTIME, RUNTIME, copies=True)[0]
        _, handed = grid.decide()
        for name, factor in (("slow", slow), ("fast", fast)):
            (task,) = handed[name]
            ended = ev.EndedAttempt(grid.attempts[task], AttemptOutcome.DONE, factor * RUNTIME)
            grid.tell(ev.AttemptsEnded(name, [ended]))
        assert first + 2 == grid._next
    return grid


def begin_on_slow(grid: Tail) -> int:
    """A task runs on the slow PC; the fast one is idle."""
    (task, other) = grid.tasks(RUNTIME, RUNTIME, copies=True)
    _, handed = grid.decide()
    grid.tell(ev.AttemptsEnded("fast", [ev.EndedAttempt(grid.attempts[handed["fast"][0]], AttemptOutcome.DONE, 1.0)]))
    return task + other - handed["fast"][0]


def test_a_task_on_a_slow_pc_is_copied_to_a_fast_one_before_it_is_behind() -> None:
    grid = paced(2.0, 1.0)
    task = begin_on_slow(grid)
    assert grid.decide() == ({}, {})
    grid.wait(AGAIN_S)
    assert grid.decide() == ({}, {"fast": [task]})


def test_a_copy_that_would_hardly_end_sooner_is_not_started() -> None:
    grid = paced(1.0 / SOONER - 0.02, 1.0)
    begin_on_slow(grid)
    assert grid.decide() == ({}, {})
    assert grid.scheduler.wakes_at == AGAIN_S
    grid.wait(DUE_S - AGAIN_S + 1.0)
    assert grid.decide() == ({}, {})
    assert grid.scheduler.wakes_at == DUE_S
    grid.wait(AGAIN_S)
    assert len(grid.decide()[1]["fast"]) == 1


def test_few_tasks_say_nothing_about_a_pc() -> None:
    grid = paced(3.0, 1.0, ENOUGH - 1)
    begin_on_slow(grid)
    grid.decide()
    grid.wait(AGAIN_S)
    assert grid.decide() == ({}, {})


def test_tasks_of_bags_without_copies_say_nothing_about_a_pc() -> None:
    grid = paced(3.0, 1.0, ENOUGH - 1)
    (task,) = grid.tasks(RUNTIME, bag=1)
    _, handed = grid.decide()
    (name,) = handed
    grid.end(task)
    assert grid.inside.slots.workers[name].done == ENOUGH - 1


def test_the_fastest_pc_gets_the_copy() -> None:
    grid = paced(1.0, 0.5)
    grid.pc("third")
    (task,) = grid.tasks(RUNTIME, copies=True)
    _, handed = grid.decide()
    (holder,) = handed
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {"fast" if holder != "fast" else "slow": [task]})


def test_bags_without_copies_are_not_watched() -> None:
    grid = running()
    grid.end(0)
    grid.tell(ev.BagForgotten(0))
    assert not grid.inside.tasks.copied
    assert grid.inside.slots.workers["a"].pace == 1.0
