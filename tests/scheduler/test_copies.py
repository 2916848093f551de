"""The tail of a bag: when a running task gets a copy, where, and what becomes of the two attempts."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from deskgrid.scheduler import copying
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.copying import AGAIN_S, BEHIND, ENOUGH, ENTRIES, LEAST_S, LOOKS, SOONER
from deskgrid.scheduler.model import OPEN_ENDED, Attempt, IllegalEvent, Outcome, State
from deskgrid.scheduler.state.deadlines import GRACE_S
from deskgrid.scheduler.state.quarantine import Quarantined
from tests.scheduler.builders import Grid, fcfs, packing, pgs

RUNTIME = 100.0
# A copy is due this long after its original began.
DUE_S = BEHIND * RUNTIME


class Tail(Grid):
    """A grid with events of copies. ``attempts`` has the newest attempt of each task, ``originals`` those before."""

    def decide(self, most: float = math.inf) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """A pass; which tasks each worker has to stop, and which it is handed."""
        stopped: dict[str, list[int]] = {}
        handed: dict[str, list[int]] = {}
        for command in self.tell(ev.PassDue(most)):
            if isinstance(command, ev.Stop):
                stopped.setdefault(command.worker, []).extend(attempt.task for attempt in command.attempts)
            elif isinstance(command, ev.Assign):
                for work in command.work:
                    self.attempts[work.attempt.task] = work.attempt
                    handed.setdefault(command.worker, []).append(work.attempt.task)
        return stopped, handed

    def ends(self, attempt: Attempt, outcome: Outcome = Outcome.DONE, worker: str = "?") -> list[ev.Command]:
        """An attempt ends."""
        return self.tell(ev.AttemptsEnded(worker, [ev.EndedAttempt(attempt, outcome, 1.0)]))


def running(*pcs: str, policy: Any = None, task: float = RUNTIME, uptime: float = OPEN_ENDED, **more: Any) -> Tail:
    """The task 0 of a bag with copies runs on ``a``; then the PCs ``pcs`` join, and are idle."""
    grid = Tail(policy or pgs())
    grid.pc("a")
    grid.tasks(task, copies=True, **more)
    assert grid.decide() == ({}, {"a": [0]})
    for pc in pcs:
        grid.pc(pc, uptime)
    return grid


def copied(**more: Any) -> tuple[Tail, Attempt, Attempt]:
    """The task 0 runs on ``a``, and a copy of it on ``b``. Also the two attempts."""
    grid = running("b", **more)
    original = grid.attempts[0]
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {"b": [0]})
    return grid, original, grid.attempts[0]


def stop(worker: str, *attempts: Attempt) -> ev.Stop:
    return ev.Stop(worker, list(attempts))


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
    grid.inside.quarantine._streaks["b"] = 100
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
            ended = ev.EndedAttempt(grid.attempts[task], Outcome.DONE, factor * RUNTIME)
            grid.tell(ev.AttemptsEnded(name, [ended]))
        assert first + 2 == grid._next
    return grid


def begin_on_slow(grid: Tail) -> int:
    """A task runs on the slow PC; the fast one is idle."""
    (task, other) = grid.tasks(RUNTIME, RUNTIME, copies=True)
    _, handed = grid.decide()
    grid.tell(ev.AttemptsEnded("fast", [ev.EndedAttempt(grid.attempts[handed["fast"][0]], Outcome.DONE, 1.0)]))
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


def test_the_fastest_pc_gets_the_copy() -> None:
    grid = paced(1.0, 0.5)
    grid.pc("third")
    (task,) = grid.tasks(RUNTIME, copies=True)
    _, handed = grid.decide()
    (holder,) = handed
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {"fast" if holder != "fast" else "slow": [task]})


def test_what_is_usual_is_learned_anew_with_another_prediction() -> None:
    grid = paced(2.0, 2.0)
    bag = grid.inside.tasks.bags[0]
    assert bag.usual_ratio == 2.0
    grid.tell(ev.BagPredicted(0, 2 * RUNTIME))
    assert bag.usual_ratio == 1.0


# --- which answer counts ---------------------------------------------------------------------------------------------


def test_the_copy_ends_first_and_the_original_is_stopped() -> None:
    grid, original, copy = copied()
    assert grid.ends(copy) == [stop("a", original), ev.Settle([copy])]
    assert grid.state(0) == State.DONE
    assert grid.ends(original, worker="a") == []
    assert (grid.scheduler.counters.done, grid.scheduler.counters.stale) == (1, 1)
    grid.tasks(1.0, 1.0, bag=1)
    assert grid.decide() == ({}, {"a": [1], "b": [2]})


def test_the_original_ends_first_and_the_copy_is_stopped() -> None:
    grid, original, copy = copied()
    assert grid.ends(original) == [stop("b", copy), ev.Settle([original])]
    assert grid.ends(copy, worker="b") == []


def test_several_originals_end_together_and_their_copies_are_stopped() -> None:
    grid = Tail()
    grid.pc("a", slots=2)
    grid.tasks(RUNTIME, RUNTIME, copies=True)
    grid.decide()
    originals = dict(grid.attempts)
    grid.pc("b", slots=20)
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {"b": [0, 1]})
    ended = [ev.EndedAttempt(attempt, Outcome.DONE, 1.0) for attempt in originals.values()]
    commands = grid.tell(ev.AttemptsEnded("a", ended))
    assert commands[:-1] == [stop("b", grid.attempts[0]), stop("b", grid.attempts[1])]
    assert not grid.inside.copies


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT])
def test_a_copy_that_fails_leaves_the_original_which_gets_no_other_copy(outcome: Outcome) -> None:
    grid, original, copy = copied()
    assert grid.ends(copy, outcome) == []
    assert grid.state(0) == State.SENT
    assert not grid.scheduler.crashes(0)
    grid.refresh("a", 1e6)
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {})
    assert grid.ends(original) == [ev.Settle([original])]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT])
def test_an_original_that_fails_leaves_the_copy_and_the_failure_does_not_count(outcome: Outcome) -> None:
    grid, original, copy = copied()
    assert grid.ends(original, outcome) == []
    assert (grid.state(0), grid.inside.bound[0].worker.name) == (State.SENT, "b")
    assert not grid.scheduler.crashes(0)
    assert (grid.scheduler.counters.errors, grid.scheduler.counters.crashes) == (0, 0)
    assert grid.ends(copy, Outcome.ERROR) == [ev.Settle([copy])]
    assert grid.state(0) == State.FAILED


# --- workers that go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planned", [True, False])
def test_the_copy_goes_on_when_the_worker_of_the_original_goes(planned: bool) -> None:
    grid, original, copy = copied()
    grid.leave("a", planned)
    assert grid.state(0) == State.SENT
    assert grid.decide() == ({}, {})
    assert grid.inside.bound[0].worker.name == "b"
    assert grid.ends(original, worker="a") == [stop("b", copy), ev.Settle([original])]


@pytest.mark.parametrize("planned", [True, False])
def test_the_original_goes_on_when_the_worker_of_the_copy_goes(planned: bool) -> None:
    grid, original, copy = copied()
    grid.leave("b", planned)
    assert grid.inside.bound[0].worker.name == "a"
    assert grid.ends(copy, worker="b") == [stop("a", original), ev.Settle([copy])]


def test_the_answer_of_a_lost_copy_that_failed_changes_nothing() -> None:
    grid, original, copy = copied()
    grid.leave("b", planned=False)
    assert grid.ends(copy, Outcome.ERROR, worker="b") == []
    assert not grid.inside.copies
    assert grid.ends(original) == [ev.Settle([original])]


@pytest.mark.parametrize("first", [True, False])
def test_when_both_workers_are_lost_each_answer_counts_until_the_task_begins_anew(first: bool) -> None:
    grid, original, copy = copied()
    grid.leave("a", planned=False)
    grid.leave("b", planned=False)
    assert grid.state(0) == State.WAITING
    assert grid.scheduler.is_orphan(original)
    assert grid.scheduler.is_orphan(copy)
    attempt = original if first else copy
    assert grid.ends(attempt, worker="a") == [ev.Settle([attempt])]
    assert (grid.inside.copies, grid.inside.orphans) == ({}, {})


def test_when_the_task_begins_anew_neither_lost_attempt_counts() -> None:
    grid, original, copy = copied()
    grid.leave("a", planned=False)
    grid.leave("b", planned=False)
    grid.pc("c")
    assert grid.decide() == ({}, {"c": [0]})
    assert grid.ends(original, worker="a") == grid.ends(copy, worker="b") == []
    assert grid.state(0) == State.SENT


def test_an_original_that_fails_after_both_were_lost_is_tried_again() -> None:
    grid, original, copy = copied(retries=1)
    grid.leave("a", planned=False)
    grid.leave("b", planned=False)
    assert grid.ends(original, Outcome.ERROR, worker="a") == []
    assert grid.state(0) == State.WAITING
    assert grid.ends(copy, worker="b") == []


@pytest.mark.parametrize("first", [True, False])
def test_both_attempts_are_kept_by_workers_that_come_back(first: bool) -> None:
    grid, original, copy = copied()
    grid.leave("a", planned=False)
    grid.leave("b", planned=False)
    for name, attempt in [("a", original), ("b", copy)][:: 1 if first else -1]:
        assert grid.pc(name, holds=[ev.HeldAttempt(attempt, 0, 160.0)]) == {}
    assert grid.decide() == ({}, {})
    assert sorted(grid.scheduler.attempts_at("a") + grid.scheduler.attempts_at("b")) == [original, copy]
    assert grid.inside.bound[0].worker.name == ("a" if first else "b")
    assert grid.ends(copy)[-1] == ev.Settle([copy])


def test_a_copy_that_comes_back_to_a_slot_that_is_taken_is_stopped() -> None:
    grid, _, copy = copied()
    (other,) = grid.tasks(RUNTIME, bag=1)
    grid.leave("b", planned=False)
    assert grid.pc("b", holds=[ev.HeldAttempt(copy, 7, 1.0)]) == {"b": [0]}
    assert grid.decide() == ({}, {"b": [other]})
    held = [ev.HeldAttempt(grid.attempts[other], 0, 1.0), ev.HeldAttempt(copy, 0, None)]
    assert grid.pc("b", holds=held) == {"b": [0]}


def test_a_lost_copy_makes_room_for_another_one() -> None:
    grid, _, copy = copied()
    grid.leave("b", planned=False)
    grid.pc("c")
    grid.wait(AGAIN_S)
    assert grid.decide() == ({}, {"c": [0]})
    assert grid.ends(copy, worker="b") == []


def test_the_copy_goes_on_when_the_original_is_handed_back() -> None:
    grid, original, copy = copied()
    grid.tell(ev.AttemptsReturned("a", [original]))
    assert grid.inside.bound[0].worker.name == "b"
    assert not grid.inside.copies
    assert grid.ends(copy) == [ev.Settle([copy])]


def test_a_copy_that_is_handed_back_may_be_started_again() -> None:
    grid, _, copy = copied()
    assert grid.tell(ev.AttemptsReturned("b", [copy])) == []
    assert not grid.inside.copies
    grid.wait(AGAIN_S)
    assert grid.decide() == ({}, {"b": [0]})


def test_a_task_whose_original_is_handed_back_and_whose_copy_is_lost_waits() -> None:
    grid, original, copy = copied()
    grid.leave("b", planned=False)
    grid.tell(ev.AttemptsReturned("a", [original]))
    assert grid.state(0) == State.WAITING
    assert grid.ends(copy, worker="b") == []


def test_a_silent_worker_keeps_its_attempt_while_the_copy_goes_on() -> None:
    grid, original, copy = copied(timeout=2 * DUE_S)
    grid.wait(DUE_S + GRACE_S)
    grid.say_alive()
    commands = grid.tell(ev.PassDue())
    assert commands == [ev.GiveUp("a", [original], stop=True)]
    assert grid.inside.bound[0].worker.name == "b"
    assert grid.scheduler.owed_by("a")
    assert grid.ends(original, worker="a") == [stop("b", copy), ev.Settle([original])]
    assert not grid.scheduler.owed_by("a")


# --- giving way ------------------------------------------------------------------------------------------------------


def test_a_copy_gives_way_to_any_task_that_its_slot_is_sent() -> None:
    grid, original, copy = copied()
    (other,) = grid.tasks(1.0, bag=1)
    assert grid.decide() == ({"b": [0]}, {"b": [other]})
    assert grid.ends(copy, worker="b") == []
    assert grid.ends(original) == [ev.Settle([original])]


def test_a_copy_does_not_give_way_to_a_task_that_does_not_fit() -> None:
    grid, _, copy = copied(uptime=DUE_S + RUNTIME + 1.0)
    grid.tasks(1e6, bag=1)
    assert grid.decide() == ({}, {})
    assert grid.ends(copy)[-1] == ev.Settle([copy])


def test_a_cancelled_task_is_stopped_in_both_places() -> None:
    grid, _, _ = copied()
    assert grid.cancel(0) == {"a": [0], "b": [0]}
    assert not grid.inside.copies


def test_a_better_prediction_reaches_a_copy_that_goes_on_alone() -> None:
    grid, _, _ = copied()
    grid.predict({0: 7.0})
    grid.leave("a", planned=False)
    assert [sent.runtime for sent in grid.inside.bound[0].sent] == [7.0]


# --- restored --------------------------------------------------------------------------------------------------------


def restored(copies: bool = True, held: Sequence[Attempt] = (Attempt(0, 3),), *more: Attempt) -> Tail:
    grid = Tail(first_attempt=10)
    grid.tasks(RUNTIME, RUNTIME, copies=copies, held=held, held_copies=more)
    return grid


@pytest.mark.parametrize("number", [3, 4])
def test_both_attempts_count_after_a_restore(number: int) -> None:
    grid = restored(True, [Attempt(0, 3)], Attempt(0, 4))
    grid.tell(ev.HoldExpired())
    assert grid.ends(Attempt(0, number), worker="b") == [ev.Settle([Attempt(0, number)])]
    assert (grid.inside.copies, grid.inside.orphans) == ({}, {})


@pytest.mark.parametrize(
    ("copies", "held", "more"),
    [
        (False, [Attempt(0, 3)], [Attempt(0, 4)]),
        (True, [], [Attempt(0, 4)]),
        (True, [Attempt(0, 3)], [Attempt(0, 4), Attempt(0, 5)]),
        (True, [Attempt(0, 3)], [Attempt(0, 10)]),
    ],
)
def test_impossible_copies_are_not_restored(copies: bool, held: list[Attempt], more: list[Attempt]) -> None:
    with pytest.raises(IllegalEvent):
        restored(copies, held, *more)


def test_the_original_of_a_copy_is_known() -> None:
    grid, original, copy = copied()
    assert grid.scheduler.original_of(copy) == (original, "a")
    assert grid.scheduler.original_of(original) is None
    grid.leave("a", planned=False)
    grid.leave("b", planned=False)
    assert grid.scheduler.original_of(original) is None


def test_bags_without_copies_are_not_watched() -> None:
    grid = running()
    grid.end(0)
    grid.tell(ev.BagForgotten(0))
    assert not grid.inside.tasks.copied
    assert copying.pace(grid.inside.slots.workers["a"]) == 1.0
