"""The grace after a window: what runs may end, nothing begins, and the broker is told."""

import pytest

from deskgrid import wire
from deskgrid.wire.saving import ENDING_S
from deskgrid.worker.session import Identity, Session
from deskgrid.worker.windows.uptime import OpenEnded, Weekly, weekly_from_table
from tests.worker.test_stepping_aside import Noting, at

HOUR_S = 3600.0


class Pc:
    """A worker of one slot with a window from 1970-01-01 00:00 to 01:00 in UTC, and what else ``plan`` says."""

    def __init__(self, windows: str = "thu 00-01", **plan: object) -> None:
        self.processes = Noting()
        identity = Identity("pc", "session", "host", "", ("3.11",), 1)
        plans: Weekly = weekly_from_table({"zone": "UTC", "windows": windows.split(", "), **plan}, "test")
        self.session = Session(identity, plans, self.processes, follows_broker=False)
        self.says(0.0)
        self.session.receive(wire.Welcome(wire.VERSION, "b" * 8, "pc", 60.0, 60.0, None, 86_400.0), at(0.0))
        self.says(0.0)

    def assign(self, *tasks: int, now: float = 0.0, checkpoint: bool = False) -> None:
        options = wire.TaskOptions(checkpoint=checkpoint)
        rows = tuple(wire.Work(task, task, 0, "a", 1000.0, options, 0, b"") for task in tasks)
        self.session.receive(wire.Assign(1, 0.0, rows), at(now))
        self.says(now)

    def says(self, now: float) -> list[wire.Message]:
        return self.session.tick(at(now))

    def leave(self, now: float) -> wire.Leave | None:
        return next((each for each in self.says(now) if isinstance(each, wire.Leave)), None)


def returned(messages: list[wire.Message]) -> list[int]:
    return [ref.task for each in messages if isinstance(each, wire.Returned) for ref in each.attempts]


def test_without_a_grace_what_runs_is_stopped_when_the_window_closes() -> None:
    pc = Pc()
    pc.assign(1)
    leave = pc.leave(HOUR_S)
    assert leave is not None
    assert [held.task for held in leave.held] == [1]


def test_with_a_grace_what_runs_may_end_and_the_broker_is_told_at_once() -> None:
    pc = Pc(grace="30m")
    pc.assign(1)
    (beat,) = pc.says(HOUR_S)
    assert isinstance(beat, wire.Heartbeat)
    assert beat.uptime == ENDING_S
    assert pc.session.next_tick(at(HOUR_S)) <= 30 * 60.0
    assert pc.leave(HOUR_S + 600.0) is None
    pc.processes.ends = [1]
    said = pc.says(HOUR_S + 700.0)
    assert [type(each) for each in said][:2] == [wire.Finished, wire.Leave]


def test_when_the_grace_is_over_what_runs_is_stopped() -> None:
    pc = Pc(grace="30m")
    pc.assign(1)
    assert pc.leave(HOUR_S) is None
    assert pc.leave(1.5 * HOUR_S - 1.0) is None
    leave = pc.leave(1.5 * HOUR_S)
    assert leave is not None
    assert (leave.reason, leave.planned, [held.task for held in leave.held]) == ("its window closed", True, [1])


def test_a_worker_on_which_nothing_runs_needs_no_grace() -> None:
    pc = Pc(grace="30m")
    assert pc.leave(HOUR_S) is not None


def test_in_the_grace_nothing_begins() -> None:
    pc = Pc(grace="30m")
    pc.assign(1, 2, 3)
    assert pc.processes.given == [[1], [2]], "the process has one task ahead"
    assert returned(pc.says(HOUR_S)) == [3]
    pc.assign(4, now=HOUR_S + 1.0)
    assert pc.processes.given == [[1], [2]]
    pc.processes.ends = [1]
    said = pc.says(HOUR_S + 2.0)
    assert 2 in returned(said), "what the process began after it is handed back"
    assert any(isinstance(each, wire.Leave) for each in said)


def test_a_window_that_opens_in_the_grace_goes_on_as_if_there_had_been_no_gap() -> None:
    pc = Pc("thu 00-01, thu 01:10-02", grace="30m")
    pc.assign(1)
    assert pc.leave(HOUR_S) is None
    (beat,) = pc.says(HOUR_S + 600.0)
    assert isinstance(beat, wire.Heartbeat)
    assert beat.uptime == 50 * 60.0
    pc.assign(5, now=HOUR_S + 601.0)
    assert pc.processes.given == [[1], [5]]


def test_the_owner_of_the_pc_waits_for_no_grace() -> None:
    pc = Pc(grace="30m")
    pc.assign(1)
    pc.session.hand_back(at(HOUR_S - 1.0), at_once=True)
    assert pc.leave(HOUR_S - 1.0) is not None


def test_what_can_save_does_so_before_the_grace_is_over() -> None:
    pc = Pc(grace="30m")
    pc.assign(1, checkpoint=True)
    assert not pc.session.saves_now(at(HOUR_S - 1.0))
    pc.says(HOUR_S)
    assert not pc.session.saves_now(at(HOUR_S))
    assert pc.session.saves_now(at(1.5 * HOUR_S - 1.0))


def test_a_worker_that_is_stopped_lets_its_tasks_end() -> None:
    pc = Pc()
    pc.session.use_plan(OpenEnded())
    pc.assign(1)
    pc.session.wind_up(60.0, at(10.0))
    (join,) = [each for each in pc.says(10.0) if isinstance(each, wire.Join)]
    assert join.uptime == ENDING_S
    assert pc.session.runs_tasks()
    assert pc.leave(69.0) is None
    assert pc.leave(70.0) is not None
    assert not pc.session.runs_tasks()


@pytest.mark.parametrize("grace", ["soon", "25h", 30])
def test_a_grace_is_a_duration_of_at_most_a_day(grace: object) -> None:
    with pytest.raises(ValueError, match="grace: expected a duration of at most a day"):
        Pc(grace=grace)
