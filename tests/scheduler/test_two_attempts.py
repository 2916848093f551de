"""A task with two attempts that count: what becomes of them, whatever happens to either."""

from collections.abc import Sequence
from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.placing.copying import AGAIN_S
from deskgrid.scheduler.state.deadlines import GRACE_S
from tests.scheduler.tails import DUE_S, RUNTIME, Tail, copied, stop

# --- which answer counts ---------------------------------------------------------------------------------------------


def test_the_copy_ends_first_and_the_original_is_stopped() -> None:
    grid, original, copy = copied()
    assert grid.ends(copy) == [stop("a", original), cmd.Settle([copy])]
    assert grid.state(0) == State.DONE
    assert grid.ends(original, worker="a") == []
    assert (grid.scheduler.counters.done, grid.scheduler.counters.stale) == (1, 1)
    grid.tasks(1.0, 1.0, bag=1)
    assert grid.decide() == ({}, {"a": [1], "b": [2]})


def test_the_original_ends_first_and_the_copy_is_stopped() -> None:
    grid, original, copy = copied()
    assert grid.ends(original) == [stop("b", copy), cmd.Settle([original])]
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
    ended = [ev.EndedAttempt(attempt, AttemptOutcome.DONE, 1.0) for attempt in originals.values()]
    commands = grid.tell(ev.AttemptsEnded("a", ended))
    assert commands[:-1] == [stop("b", grid.attempts[0]), stop("b", grid.attempts[1])]
    assert not grid.inside.copies


@pytest.mark.parametrize("outcome", [AttemptOutcome.ERROR, AttemptOutcome.CRASH, AttemptOutcome.TIMEOUT])
def test_a_copy_that_fails_leaves_the_original_which_gets_no_other_copy(outcome: AttemptOutcome) -> None:
    grid, original, copy = copied()
    assert grid.ends(copy, outcome) == []
    assert grid.state(0) == State.SENT
    assert not grid.scheduler.crashes(0)
    grid.refresh("a", 1e6)
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {})
    assert grid.ends(original) == [cmd.Settle([original])]


@pytest.mark.parametrize("outcome", [AttemptOutcome.ERROR, AttemptOutcome.CRASH, AttemptOutcome.TIMEOUT])
def test_an_original_that_fails_leaves_the_copy_alone_and_the_failure_does_not_count(outcome: AttemptOutcome) -> None:
    grid, original, copy = copied()
    assert grid.ends(original, outcome) == []
    assert (grid.state(0), grid.inside.bound[0].slot.worker.name) == (State.SENT, "b")
    assert not grid.scheduler.crashes(0)
    assert (grid.scheduler.counters.errors, grid.scheduler.counters.crashes) == (0, 0)
    grid.refresh("b", 1e6)
    grid.wait(DUE_S)
    assert grid.decide() == ({}, {})
    assert grid.ends(copy, AttemptOutcome.ERROR) == [cmd.Settle([copy])]
    assert grid.state(0) == State.FAILED


# --- workers that go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planned", [True, False])
def test_the_copy_goes_on_when_the_worker_of_the_original_goes(planned: bool) -> None:
    grid, original, copy = copied()
    grid.leave("a", planned)
    assert grid.state(0) == State.SENT
    assert grid.decide() == ({}, {})
    assert grid.inside.bound[0].slot.worker.name == "b"
    assert grid.ends(original, worker="a") == [stop("b", copy), cmd.Settle([original])]


@pytest.mark.parametrize("planned", [True, False])
def test_the_original_goes_on_when_the_worker_of_the_copy_goes(planned: bool) -> None:
    grid, original, copy = copied()
    grid.leave("b", planned)
    assert grid.inside.bound[0].slot.worker.name == "a"
    assert grid.ends(copy, worker="b") == [stop("a", original), cmd.Settle([copy])]


def test_the_answer_of_a_lost_copy_that_failed_changes_nothing() -> None:
    grid, original, copy = copied()
    grid.leave("b", planned=False)
    assert grid.ends(copy, AttemptOutcome.ERROR, worker="b") == []
    assert not grid.inside.copies
    assert grid.ends(original) == [cmd.Settle([original])]


@pytest.mark.parametrize("first", [True, False])
def test_when_both_workers_are_lost_each_answer_counts_until_the_task_begins_anew(first: bool) -> None:
    grid, original, copy = copied()
    grid.leave("a", planned=False)
    grid.leave("b", planned=False)
    assert grid.state(0) == State.WAITING
    assert grid.scheduler.is_orphan(original)
    assert grid.scheduler.is_orphan(copy)
    attempt = original if first else copy
    assert grid.ends(attempt, worker="a") == [cmd.Settle([attempt])]
    assert (grid.inside.copies, grid.inside.lost) == ({}, {})


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
    assert grid.ends(original, AttemptOutcome.ERROR, worker="a") == []
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
    assert grid.inside.bound[0].slot.worker.name == ("a" if first else "b")
    assert grid.ends(copy)[-1] == cmd.Settle([copy])


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
    assert grid.inside.bound[0].slot.worker.name == "b"
    assert not grid.inside.copies
    assert grid.ends(copy) == [cmd.Settle([copy])]


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
    assert commands == [cmd.GiveUp("a", [original], stop=True)]
    assert grid.inside.bound[0].slot.worker.name == "b"
    assert grid.scheduler.owed_by("a")
    assert grid.ends(original, worker="a") == [stop("b", copy), cmd.Settle([original])]
    assert not grid.scheduler.owed_by("a")


# --- giving way ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"min_piece": 60.0}], ids=["single", "checkpointable"])
def test_a_copy_gives_way_to_any_task_that_its_slot_is_sent(options: dict[str, Any]) -> None:
    grid, original, copy = copied()
    (other,) = grid.tasks(1.0, bag=1, **options)
    assert grid.decide() == ({"b": [0]}, {"b": [other]})
    assert grid.ends(copy, worker="b") == []
    assert grid.ends(original) == [cmd.Settle([original])]


def test_a_copy_does_not_give_way_to_a_task_that_does_not_fit() -> None:
    grid, _, copy = copied(uptime=DUE_S + RUNTIME + 1.0)
    grid.tasks(1e6, bag=1)
    assert grid.decide() == ({}, {})
    assert grid.ends(copy)[-1] == cmd.Settle([copy])


def test_a_cancelled_task_is_stopped_in_both_places() -> None:
    grid, _, _ = copied()
    assert grid.cancel(0) == {"a": [0], "b": [0]}
    assert not grid.inside.copies


def test_a_better_prediction_reaches_a_copy_that_goes_on_alone() -> None:
    grid, _, _ = copied()
    grid.predict({0: 7.0})
    grid.leave("a", planned=False)
    assert [sent.runtime for sent in grid.inside.bound[0].slot.sent] == [7.0]


# --- restored --------------------------------------------------------------------------------------------------------


def restored(copies: bool = True, held: Sequence[Attempt] = (Attempt(0, 3),), *more: Attempt) -> Tail:
    grid = Tail(first_attempt=10)
    grid.tasks(RUNTIME, RUNTIME, copies=copies, held=held, held_copies=more)
    return grid


@pytest.mark.parametrize("number", [3, 4])
def test_both_attempts_count_after_a_restore(number: int) -> None:
    grid = restored(True, [Attempt(0, 3)], Attempt(0, 4))
    grid.tell(ev.HoldExpired())
    assert grid.ends(Attempt(0, number), worker="b") == [cmd.Settle([Attempt(0, number)])]
    assert (grid.inside.copies, grid.inside.lost) == ({}, {})


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
