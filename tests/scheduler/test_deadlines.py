"""Overdue attempts are taken back; honest workers with long tasks do not suffer."""

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers import trust
from deskgrid.scheduler.handlers.trust import FIRST_SLOTS, WIDER_S
from deskgrid.scheduler.model import State
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.avoided import FIRST_REST_S
from deskgrid.scheduler.state.deadlines import FACTOR, GRACE_S, GROWTH, UNPROVEN
from deskgrid.scheduler.state.failures import STREAK
from deskgrid.scheduler.state.quarantine import FIRST_QUARANTINE_S
from deskgrid.scheduler.state.timers import ENTRIES
from tests.scheduler.builders import Grid, fcfs

LONG = 10_000.0


def passed(grid: Grid) -> list[cmd.Command]:
    """What a pass now decides, but for what it hands out."""
    found: list[cmd.Command] = []
    grid.say_alive()
    for command in grid.tell(ev.PassDue()):
        if isinstance(command, cmd.Assign):
            for work in command.work:
                grid.attempts[work.attempt.task] = work.attempt
        else:
            found.append(command)
    return found


def doubted(grid: Grid, bag: int = 1) -> tuple[int, ev.HeldAttempt]:
    """A new worker "new" from which a task of 1 s was taken back, while another worker is busy."""
    grid.pc("busy")
    (other,) = grid.tasks(LONG)
    grid.expect(busy=[other])
    grid.pc("new", new=True)
    (task,) = grid.tasks(1.0, bag=bag)
    grid.expect(new=[task])
    attempt = grid.attempts[task]
    grid.wait((FACTOR + GRACE_S) * GROWTH**UNPROVEN)
    passed(grid)
    grid.wait(GRACE_S * GROWTH**UNPROVEN)
    passed(grid)
    assert grid.state(task) == State.WAITING
    return task, ev.HeldAttempt(attempt, 0, None)


def test_an_attempt_over_its_timeout_is_stopped_and_its_slot_waits_for_an_answer() -> None:
    grid = Grid()
    grid.pc("a")
    (task,) = grid.tasks(1.0, timeout=2.0)
    grid.expect(a=[task])
    attempt = grid.attempts[task]
    grid.wait(2.0 + GRACE_S - 0.1)
    assert passed(grid) == []
    grid.wait(0.2)
    assert passed(grid) == [cmd.GiveUp("a", [attempt], True)]
    grid.expect()
    grid.tell(ev.AttemptsReturned("a", [attempt]))
    grid.expect(a=[task])


def test_a_fast_worker_is_looked_at_as_soon_as_its_task_may_be_late() -> None:
    grid = Grid(fcfs())
    grid.pc("fast", speed=100.0)
    (first,) = grid.tasks(1.0, bag=1, timeout=500.0)
    grid.expect(fast=[first])
    grid.end(first, worker="fast")
    grid.wait(1.0)
    (task,) = grid.tasks(100.0)
    grid.expect(fast=[task])
    assert grid.inside.deadlines.looks.next <= 1.0 + FACTOR + GRACE_S


def test_what_was_sent_ahead_comes_back_with_it() -> None:
    grid = Grid()
    grid.pc("a")
    first, ahead = grid.tasks(0.1, 0.1, timeout=2.0)
    grid.expect(a=[first, ahead])
    attempts = [grid.attempts[first], grid.attempts[ahead]]
    grid.wait(2.0 + GRACE_S)
    assert passed(grid) == [cmd.GiveUp("a", attempts, True)]
    assert {grid.state(first), grid.state(ahead)} == {State.WAITING}


def test_a_worker_that_does_not_answer_for_one_persons_tasks_gets_none_of_these() -> None:
    grid = Grid()
    grid.pc("good")
    (busy,) = grid.tasks(LONG)
    grid.expect(good=[busy])
    grid.pc("hole", slots=STREAK + 1)
    grid.tasks(*[1.0] * STREAK, bag=1, timeout=2.0)
    assert len(grid.tell_pass()) == STREAK
    grid.wait(2.0 + GRACE_S)
    passed(grid)
    assert not grid.inside.quarantine.workers
    grid.expect()
    (other,) = grid.tasks(1.0, bag=2, key=CategoryKey("bob"))
    grid.expect(**{f"hole_{STREAK}": [other]})
    grid.end(other, worker="hole")
    grid.expect()
    grid.wait(FIRST_REST_S)
    assert len(grid.tell_pass()) == 1


def test_a_worker_that_answers_nothing_rests() -> None:
    grid = Grid()
    grid.pc("good")
    (busy,) = grid.tasks(LONG)
    grid.expect(good=[busy])
    grid.pc("hole", slots=STREAK + 1)
    tasks = [*grid.tasks(1.0, bag=1, timeout=2.0), *grid.tasks(1.0, 1.0, bag=2, timeout=2.0, key=CategoryKey("bob"))]
    assert len(grid.tell_pass()) == STREAK
    attempts = [grid.attempts[task] for task in tasks]
    grid.wait(2.0 + GRACE_S)
    passed(grid)
    rest = grid.inside.quarantine.workers["hole"]
    assert (rest.lasts, rest.why) == (FIRST_QUARANTINE_S, f"{STREAK} tasks not answered in a row")
    grid.expect()
    grid.wait(FIRST_QUARANTINE_S)
    # One is tried, on the slot that owes nothing.
    ((slot, (tried,)),) = grid.tell_pass().items()
    assert slot == f"hole_{STREAK}"
    late = next(attempt for attempt in attempts if attempt.task != tried)
    assert grid.answer([late], worker="hole") == [late.task]
    assert grid.inside.quarantine.workers == {}


def test_a_long_task_of_a_worker_that_answers_others_is_never_taken_back() -> None:
    grid = Grid(fcfs())
    grid.pc("a", slots=2)
    grid.pc("b", slots=2)
    grid.tasks(*[1.0] * 4)
    for _ in range(100):
        handed = grid.tell_pass()
        assert not any(isinstance(command, cmd.GiveUp) for command in passed(grid))
        grid.wait(100.0)
        for name in ("a_1", "b_1"):
            for task in handed.get(name, []):
                grid.end(task, elapsed=0.5)
    assert grid.scheduler.counters.overdue == 0


def test_nobody_is_doubted_for_a_long_task_while_no_other_worker_is_there() -> None:
    grid = Grid()
    grid.pc("only", new=True)
    (task,) = grid.tasks(1.0)
    grid.expect(only=[task])
    for _ in range(20):
        grid.wait(1000.0)
        assert passed(grid) == []
    assert grid.end(task) == [task]


def test_what_was_taken_back_without_a_timeout_goes_on_and_counts() -> None:
    grid = Grid(fcfs())
    task, held = doubted(grid)
    assert grid.answer([held.attempt], elapsed=80.0, worker="new") == [task]


def test_a_worker_that_answers_has_its_other_tasks_again() -> None:
    grid = Grid()
    grid.pc("busy")
    (other,) = grid.tasks(LONG)
    grid.expect(busy=[other])
    grid.pc("new", new=True, slots=2)
    one, two = grid.tasks(1.0, 1.0, bag=1)
    assert len(grid.tell_pass()) == 2
    attempts = [grid.attempts[one], grid.attempts[two]]
    grid.wait((FACTOR + GRACE_S) * GROWTH**UNPROVEN * 2)
    assert passed(grid) == [cmd.GiveUp("new", attempts, False)]
    assert grid.answer(attempts[:1], elapsed=1.0, worker="new") == [one]
    assert grid.state(two) == State.SENT
    assert grid.inside.bound[two].slot.worker.name == "new"


def test_when_others_of_the_bag_take_as_long_it_was_taken_back_too_soon() -> None:
    grid = Grid(fcfs())
    task, _ = doubted(grid, bag=0)
    grid.end(0, elapsed=LONG)
    passed(grid)
    assert grid.inside.bound[task].slot.worker.name == "new"


def test_when_others_of_the_bag_take_longer_but_not_as_long_it_still_waits() -> None:
    grid = Grid(fcfs())
    task, held = doubted(grid, bag=0)
    grid.end(0, elapsed=2.0)
    assert passed(grid) == [cmd.Stop("new", [held.attempt])]
    assert grid.inside.bound[task].slot.worker.name == "busy"


def test_what_somebody_else_has_done_is_owed_still_and_not_given_back() -> None:
    """Nobody asks any more how long it may take: even its bag may be forgotten."""
    grid = Grid(fcfs())
    task, held = doubted(grid, bag=1)
    grid.pc("c")
    passed(grid)
    assert grid.end(task, worker="c") == [task]
    grid.tell(ev.BagForgotten(1))
    grid.end(0, elapsed=LONG)
    assert passed(grid) == []
    assert held.attempt in grid.inside.owed["new"]


def test_only_what_has_no_timeout_is_late_beside_it() -> None:
    """What has one is overdue when that is over, however long its worker has been silent."""
    grid = Grid(fcfs())
    grid.pc("busy")
    (other,) = grid.tasks(LONG)
    grid.expect(busy=[other])
    grid.pc("new", slots=2, new=True)
    (timed,) = grid.tasks(1.0, bag=1, timeout=LONG)
    (task,) = grid.tasks(1.0, bag=2)
    assert len(grid.tell_pass()) == 2
    attempt = grid.attempts[task]
    grid.wait((FACTOR + GRACE_S) * GROWTH**UNPROVEN * 2)
    assert passed(grid) == [cmd.GiveUp("new", [attempt], False)]
    assert (grid.state(timed), grid.state(task)) == (State.SENT, State.WAITING)


def test_nobody_is_told_to_stop_what_was_lost_with_its_worker() -> None:
    grid = Grid(fcfs())
    task, held = doubted(grid)
    grid.leave("busy", planned=False)
    grid.pc("c", slots=2)
    assert passed(grid) == [cmd.Stop("new", [held.attempt])]
    assert {grid.inside.bound[number].slot.worker.name for number in (0, task)} == {"c"}


def test_when_somebody_else_begins_the_first_is_told_to_stop() -> None:
    grid = Grid(fcfs())
    task, held = doubted(grid)
    grid.pc("c")
    assert passed(grid) == [cmd.Stop("new", [held.attempt])]
    assert grid.inside.bound[task].slot.worker.name == "c"
    assert grid.answer([held.attempt], worker="new") == []
    assert not grid.inside.owed


@pytest.mark.parametrize("slots", [FIRST_SLOTS, 64])
def test_a_new_worker_is_full_after_seconds_though_its_tasks_are_long(slots: int) -> None:
    grid = Grid(fcfs())
    grid.pc("new", slots=slots, new=True)
    grid.tasks(*[LONG] * 100)
    assert len(grid.tell_pass()) == FIRST_SLOTS
    for _ in range(4):
        grid.wait(WIDER_S)
        grid.tell_pass()
    assert len(grid.inside.bound) == slots


def test_the_first_answer_opens_all_slots_at_once() -> None:
    grid = Grid(fcfs())
    grid.pc("new", slots=64, new=True)
    grid.tasks(*[LONG] * 100)
    grid.tell_pass()
    grid.end(0)
    grid.tell_pass()
    assert len(grid.inside.bound) == 64


def test_a_pass_looks_at_some_slots_and_the_next_ones_at_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "LOOKS", 20)
    grid = Grid(fcfs())
    count = 30
    for number in range(count):
        grid.pc(f"pc{number}")
    tasks = grid.tasks(*[1.0] * count, timeout=1.0)
    grid.tell_pass()
    grid.wait(1.0 + GRACE_S)
    passed(grid)
    assert grid.scheduler.counters.overdue == 20
    passed(grid)
    assert grid.scheduler.counters.overdue == count == len(tasks)


def test_workers_that_come_and_go_are_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they leave behind is thrown away in time. Slots that are still at work are looked at when they are due."""
    monkeypatch.setattr(trust, "LOOKS", 2)
    grid = Grid()
    grid.pc("stays")
    (kept,) = grid.tasks(1.0, timeout=LONG)
    grid.expect(stays=[kept])
    attempt = grid.attempts[kept]
    (moved,) = grid.tasks(1.0, bag=1, timeout=LONG / 2)
    most = ENTRIES * (2 + 2)
    for number in range(2 * most):
        grid.pc(f"pc{number}")
        grid.expect(**{f"pc{number}": [moved]})
        grid.leave(f"pc{number}")
        assert len(grid.inside.deadlines.looks) <= most + 1
    grid.wait(LONG + GRACE_S)
    assert passed(grid) == [cmd.GiveUp("stays", [attempt], True)]


@pytest.mark.parametrize("runtime", [1.0, 1e10])
def test_a_worker_that_is_heard_of_after_an_answer_was_due_is_looked_at_again_in_time(runtime: float) -> None:
    grid = Grid(fcfs())
    grid.pc("a", slots=2)
    short, long = grid.tasks(1.0, runtime)
    assert len(grid.tell_pass()) == 2
    grid.wait(100.0)
    grid.end(short)
    (other,) = grid.tasks(runtime)
    assert len(grid.tell_pass()) == 1
    grid.wait(FACTOR * runtime + GRACE_S)
    assert passed(grid) == []
    grid.wait(1.0)
    grid.end(other, worker="a")
    slot = grid.inside.bound[long].slot
    assert slot.look_at <= grid.inside.deadlines.due(slot) == grid.now + FACTOR * runtime + GRACE_S
