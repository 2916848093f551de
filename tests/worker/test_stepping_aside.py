"""A worker's session while the owner of its PC uses it: nothing begins, or all is handed back, and it says so."""

from collections.abc import Sequence

import pytest

from deskgrid import wire
from deskgrid.wire.saving import LEAD_LEAST_S
from deskgrid.worker.run.jobs import Job
from deskgrid.worker.session import Identity, Session
from deskgrid.worker.windows.uptime import Instant, OpenEnded
from tests.worker.test_feeding import Processes

WHY = "somebody uses it"


class Noting(Processes):
    """Also notes when a task is to save, and hands back what runs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Job] = []
        self.due: list[float] = []

    def run(self, slot: int, jobs: Sequence[Job]) -> None:
        super().run(slot, jobs)
        self.jobs += jobs

    def tell_times(self, slot: int, due: float, closes: float, save: bool) -> None:
        self.due.append(due)

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        stopped, self.jobs = self.jobs, []
        return [(job, now) for job in stopped]


def at(now: float) -> Instant:
    return Instant(now, now)


class Pc:
    """A worker that has joined, of one slot."""

    def __init__(self) -> None:
        self.processes = Noting()
        identity = Identity("pc", "session", "host", "", ("3.11",), 1)
        self.session = Session(identity, OpenEnded(), self.processes, follows_broker=False)
        self.session.tick(at(0.0))
        welcome = wire.Welcome(wire.VERSION, "b" * 8, "pc", 60.0, 60.0, None, 86_400.0)
        self.session.receive(welcome, at(0.0))
        self.session.tick(at(0.0))

    def assign(self, *, checkpoint: bool = False) -> None:
        options = wire.TaskOptions(checkpoint=checkpoint)
        self.session.receive(wire.Assign(1, 0.0, (wire.Work(1, 7, 0, "a", 1000.0, options, 0, b""),)), at(0.0))

    def says(self, now: float) -> list[wire.Message]:
        return self.session.tick(at(now))


def test_a_paused_worker_begins_nothing_until_it_goes_on_and_says_both_at_once() -> None:
    pc = Pc()
    assert pc.says(1.0) == []
    pc.session.pause(WHY, at(2.0))
    pc.assign()
    (beat,) = pc.says(2.0)
    assert isinstance(beat, wire.Heartbeat)
    assert (beat.paused, pc.processes.given) == (WHY, [])
    pc.session.pause("its battery", at(3.0))  # another reason can wait for the next heartbeat
    assert pc.says(3.0) == []
    pc.session.pause("", at(4.0))
    (beat,) = pc.says(4.0)
    assert isinstance(beat, wire.Heartbeat)
    assert (beat.paused, pc.processes.given) == ("", [[1]])


@pytest.mark.parametrize(("checkpoint", "at_once"), [(False, False), (False, True), (True, True)])
def test_what_cannot_save_or_is_not_to_is_handed_back_at_once_and_the_window_opens_again(
    checkpoint: bool, at_once: bool
) -> None:
    pc = Pc()
    pc.assign(checkpoint=checkpoint)
    pc.says(1.0)
    pc.session.hand_back(at(2.0), at_once)
    leave, *_ = pc.says(2.0)
    assert isinstance(leave, wire.Leave)
    assert (leave.reason, leave.planned, leave.stopping) == ("its owner uses it", False, False)
    assert [held.task for held in leave.held] == [1]
    assert not any(isinstance(message, wire.Join) and message.uptime for message in pc.says(100.0))
    pc.session.take_again()
    (join,) = [message for message in pc.says(101.0) if isinstance(message, wire.Join)]
    assert join.uptime is None


def test_what_can_save_has_the_time_to_do_so_before_it_is_handed_back() -> None:
    pc = Pc()
    pc.assign(checkpoint=True)
    pc.says(1.0)
    assert not pc.session.saves_now(at(1.0))
    pc.session.hand_back(at(2.0), at_once=False)
    assert not any(isinstance(message, wire.Leave) for message in pc.says(2.0))
    assert pc.session.saves_now(at(2.0))
    assert pc.processes.due[-1] <= 2.0
    leave, *_ = pc.says(2.0 + LEAD_LEAST_S)
    assert isinstance(leave, wire.Leave)
    assert not pc.session.saves_now(at(2.0 + LEAD_LEAST_S))


def test_an_owner_who_goes_while_tasks_save_gets_nothing_handed_back() -> None:
    pc = Pc()
    pc.assign(checkpoint=True)
    pc.says(1.0)
    pc.session.hand_back(at(2.0), at_once=False)
    pc.says(2.0)
    pc.session.take_again()
    assert not any(isinstance(message, wire.Leave) for message in pc.says(3.0 + LEAD_LEAST_S))
    assert not pc.session.saves_now(at(3.0 + LEAD_LEAST_S))
