"""A worker whose PC somebody drains gets nothing new, and keeps what it runs."""

from collections.abc import Generator

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.forecast.look import Look
from deskgrid.scheduler.model import AttemptOutcome, State
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.policies import Policy
from deskgrid.scheduler.state.avoided import Person
from deskgrid.scheduler.state.failures import STREAK
from deskgrid.scheduler.views.explain import Explanation, explain
from tests.scheduler.builders import Grid, fcfs, packing, pgs
from tests.scheduler.test_gangs import Lab


def told(pieces: Generator[int, None, Explanation]) -> Explanation:
    """The explanation that is made in pieces."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            found: Explanation = end.value
            return found


@pytest.mark.parametrize("policy", [fcfs(), pgs(), packing()])
def test_a_drained_worker_keeps_what_runs_and_gets_nothing_new(policy: Policy) -> None:
    grid = Grid(policy)
    grid.pc("a")
    first, *others = grid.tasks(*[10.0] * 4)
    grid.expect(a=[first])
    grid.tell(ev.WorkerDrained("a", True))
    assert [grid.state(task) for task in others] == [State.WAITING] * 3
    grid.pc("b", 15.0)
    grid.expect(b=[others[0]])
    grid.end(first)
    grid.expect()
    grid.tell(ev.WorkerDrained("a", False))
    grid.expect(a=[others[1]])


def test_what_was_sent_ahead_is_recalled_and_what_is_said_again_or_of_others_changes_nothing() -> None:
    grid = Grid(fcfs(queue_s=5.0))
    grid.pc("a")
    tasks = grid.tasks(*[0.01] * 9)
    ahead = grid.tell_pass()["a"]
    assert ahead == tasks
    (recall,) = grid.tell(ev.WorkerDrained("a", True))
    assert isinstance(recall, cmd.Recall)
    assert [attempt.task for attempt in recall.attempts] == ahead[1:]
    assert grid.tell(ev.WorkerDrained("a", True)) == grid.tell(ev.WorkerDrained("none", True)) == []
    grid.give_back(*ahead[1:])
    grid.end(ahead[0])
    grid.expect()


def test_a_drained_worker_gets_no_ranks() -> None:
    lab = Lab()
    lab.pcs("a", "b")
    lab.grid.tell(ev.WorkerDrained("a", True))
    (first, second) = lab.submit(10, 10, need=Need(gang=True))
    assert lab.starts() == {first: "b"}
    lab.grid.tell(ev.WorkerDrained("a", False))
    assert lab.starts() == {second: "a"}


def test_a_task_says_that_a_slot_is_drained_and_forecasts_leave_it_out() -> None:
    grid = Grid(pgs())
    grid.pc("a", windows=[(1000.0, 50.0)])
    grid.tell(ev.WorkerDrained("a", True))
    (task,) = grid.tasks(10.0)
    grid.expect()
    why = told(explain(grid.inside, task, grid.now))
    assert [slot.shut for slot in why.slots] == ["drained"]
    look = Look(grid.inside, grid.now, lambda bag, elapsed: None)
    list(look.pieces())
    (pc,) = look.picture.pcs
    assert [span.opens for span in pc.spans] == [1000.0]


@pytest.mark.parametrize(("drained", "learned"), [(True, False), (False, True)])
def test_a_drain_says_nothing_of_how_a_pc_keeps_its_hours(drained: bool, learned: bool) -> None:
    grid = Grid(fcfs())
    grid.pc("a", 10_000.0)
    grid.tell(ev.WorkerDrained("a", drained))
    grid.wait(5_000.0)
    grid.leave("a", early=True)
    assert bool(grid.inside.hours.kept("a")) is learned


def test_a_failed_task_does_not_wait_for_a_drained_worker() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    (task,) = grid.tasks(5.0, retries=1)
    grid.expect(a=[task])
    grid.pc("b")
    grid.tell(ev.WorkerDrained("b", True))
    grid.end(task, outcome=AttemptOutcome.ERROR)
    grid.expect(a=[task])


def test_a_pc_in_quarantine_is_tried_when_no_other_gets_work() -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    grid.pc("b")
    for number in range(STREAK):
        grid.inside.quarantine.failed("a", 0, Person(str(number), ""), grid.now, alone=False)
    first, second = grid.tasks(5.0, 5.0)
    grid.expect(b=[first])
    grid.tell(ev.WorkerDrained("b", True))
    grid.expect(a=[second])


@pytest.mark.parametrize("event", [ev.WorkerDrained("b", True), ev.WorkerPaused("b", True)])
def test_why_a_pc_gets_no_work_is_said_and_such_a_pc_is_no_other_one(event: ev.Event) -> None:
    grid = Grid(fcfs())
    grid.pc("a")
    grid.pc("b")
    a, b = grid.inside.slots.workers.values()
    assert not grid.inside.is_alone("a")
    grid.tell(event)
    assert grid.inside.is_alone("a")
    assert grid.inside.shut(a) == ""
    assert grid.inside.shut(b) in ("drained", "paused")
    assert grid.inside.shuts(b.slots[0])
    assert grid.inside.shuts_out_gangs(b)
    grid.leave("b")
    assert not grid.inside.drained
    assert not grid.inside.paused
