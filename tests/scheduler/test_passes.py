"""A bounded pass hands out no more than it may; the following passes decide as one unbounded pass would."""

import math
from itertools import chain

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.placing.placing import AHEAD_TASKS, POSTPONED_RUNS
from deskgrid.scheduler.policies import Requirement, make_policy, policy_names
from deskgrid.scheduler.queues import longest_first
from deskgrid.scheduler.queues.longest_first import PASSES
from tests.scheduler.builders import Grid, only, packing, pgs

# Tasks that take no time, some like each other and some that are sent ahead, and some that are not.
RUNTIMES = [0.0] * 40 + [0.001 * number for number in range(40)] + [0.2] * 20 + [3.0, 1.0, 2.0, 5.0]


def handed_out(policy: str, most: float) -> list[list[tuple[str, int, int]]]:
    """What is handed out at once: worker, slot and task, by worker and slot; then once more when some has ended."""
    grid = Grid(make_policy(policy))
    for number, uptime in enumerate((20.0, 40.0, math.inf)):
        grid.pc(f"pc{number}", uptime, slots=2)
    grid.tasks(*RUNTIMES)
    found = [_passes(grid, most)]
    grid.wait(1.0)
    grid.end(*(task for _, _, task in found[0][::2]))
    return [*found, _passes(grid, most)]


def _passes(grid: Grid, most: float) -> list[tuple[str, int, int]]:
    """As many passes as it takes."""
    handed: list[tuple[str, int, int]] = []
    while True:
        for command in grid.tell(ev.PassDue(most)):
            assert isinstance(command, cmd.Assign)
            for work in command.work:
                grid.attempts[work.attempt.task] = work.attempt
                handed.append((command.worker, work.slot, work.attempt.task))
        if not grid.scheduler.unfinished:
            return sorted(handed, key=lambda row: row[:2])


@pytest.mark.parametrize("policy", policy_names())
def test_bounded_passes_hand_out_what_one_without_a_bound_does(policy: str) -> None:
    assert handed_out(policy, 1) == handed_out(policy, 7) == handed_out(policy, math.inf)


def test_a_pass_hands_out_no_more_than_it_may_and_what_takes_the_place_of_others() -> None:
    grid = Grid(packing(queue_s=1.0))
    grid.pc("pc0")
    grid.tasks(*[0.0] * AHEAD_TASKS)
    first = grid.tell_pass(most=30)["pc0"]
    assert (len(first), grid.scheduler.unfinished, grid.scheduler.unsettled) == (30, True, True)
    view = grid.view
    assert (view.slots_with_room(), view.longest_fit(Requirement())) == (0, -math.inf)
    assert (view.tightest(0.0, Requirement()), view.tightest_empty(0.0, Requirement())) == (None, None)
    grid.end(*first[:20], outcome=AttemptOutcome.DONE)
    assert len(grid.tell_pass(most=30)["pc0"]) == 50
    assert len(grid.tell_pass()["pc0"]) == AHEAD_TASKS - 80
    assert (grid.scheduler.unfinished, grid.scheduler.unsettled) == (False, False)


def test_decisions_that_hand_nothing_out_are_bounded_with_the_others() -> None:
    grid = Grid(make_policy("pgs", queue_length=10))
    grid.pc("pc0")
    grid.tasks(*range(10, 20))
    assert grid.tell_pass(most=4) == {"pc0": [0]}
    assert len(grid.queues()["pc0"]) == 3


def test_what_is_queued_and_may_be_sent_waits_for_the_next_pass() -> None:
    grid = Grid(make_policy("pgs", queue_length=10))
    grid.pc("pc0")
    grid.tasks(10.0, *[0.0] * 8)
    grid.expect(pc0=[0])
    grid.end(0)
    assert grid.tell_pass(most=3) == {"pc0": [1, 2, 3, 4]}
    assert grid.queues() == {"pc0": [5, 6, 7, 8]}
    assert grid.tell_pass() == {"pc0": [5, 6, 7, 8]}


@pytest.mark.parametrize("most", [0, -1, math.nan])
def test_a_pass_may_decide_something(most: float) -> None:
    grid = Grid()
    with pytest.raises(IllegalEvent, match="a pass that decides"):
        grid.tell(ev.PassDue(most))


@pytest.mark.no_cover
def test_a_bounded_pass_postpones_some_of_many_tasks_and_the_next_ones_the_others() -> None:
    grid, count = Grid(packing()), 2 * POSTPONED_RUNS + 10
    grid.pc("pc0", slots=5)
    grid.tasks(*(1.0 + 0.001 * number for number in range(count)))
    handed = grid.tell_pass(most=1000)
    assert sorted(chain(*handed.values())) == list(range(POSTPONED_RUNS - 5, POSTPONED_RUNS))
    assert (grid.scheduler.unfinished, len(only(grid.inside).regular)) == (True, count - POSTPONED_RUNS)
    assert grid.tell_pass(most=1000) == {}
    assert not grid.scheduler.unfinished  # no slot has room
    grid.end(POSTPONED_RUNS - 1)
    assert [*chain(*grid.tell_pass(most=1000).values())] == [2 * POSTPONED_RUNS - 1]
    grid.end(POSTPONED_RUNS - 2)
    assert [*chain(*grid.tell_pass(most=1000).values())] == [count - 1]
    assert (grid.scheduler.unfinished, len(only(grid.inside).regular)) == (False, 0)


@pytest.mark.parametrize("most", [1000, math.inf])
def test_tasks_are_placed_when_those_that_were_cancelled_are_sifted_out(
    monkeypatch: pytest.MonkeyPatch, most: float
) -> None:
    monkeypatch.setattr(longest_first, "GHOSTS_MOST", 1_000)
    grid, count = Grid(packing()), 20_000
    grid.pc("pc0")
    grid.tasks(*(1.0 + 0.001 * number for number in range(count)))
    grid.expect(pc0=[count - 1])
    grid.tell(ev.TasksCancelled([(1, count - 2)]))
    grid.end(count - 1)
    passes = 1
    while not (handed := grid.tell_pass(most)):
        assert grid.scheduler.unfinished
        passes += 1
    assert handed == {"pc0": [0]}
    assert 1 <= passes <= 2 * PASSES
    assert (passes > 1) == (most < math.inf)


def test_predictions_of_many_runs_go_on_over_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longest_first, "PREDICTED_RUNS", 1)
    grid = Grid(packing())
    grid.pc("pc", 5.0)
    tasks = grid.tasks(*[60.0 + number for number in range(6)])
    grid.tell(ev.PassDue(100))
    grid.tell(ev.RuntimesUpdated(tasks, [3.0] * 6))
    passes = 0
    while grid.scheduler.predicting:
        grid.scheduler.check(grid.now)
        grid.tell(ev.PassDue(100))
        passes += 1
    assert passes > 3
    grid.scheduler.check(grid.now)
    assert grid.scheduler.counters.attempts == 1


def test_a_worker_that_has_never_answered_is_sent_nothing_ahead_of_what_its_slot_holds() -> None:
    grid = Grid(pgs(queue_length=2))
    grid.pc("a", new=True)
    tasks = grid.tasks(0.1, 0.1)
    grid.expect(a=tasks[:1])
    assert grid.state(tasks[1]) is State.QUEUED


def test_waiting_tasks_of_one_runtime_may_each_take_another_one() -> None:
    grid = Grid(pgs())
    grid.tasks(*[5.0] * 12)
    grid.predict({task: 10.0 + task for task in range(10)})
    grid.pc("a", 9.0)
    grid.expect(a=[10])
