"""When a worker has processes for tasks: in its windows, in short gaps between them, and a while before one opens."""

from collections.abc import Collection, Sequence

import pytest

from deskgrid.worker.run.jobs import Job, JobEnded
from deskgrid.worker.session import REST_S, Identity, Session
from deskgrid.worker.windows.uptime import Cycle, Instant
from tests.without_files import WithoutCheckpoints, WithoutFiles


class Processes(WithoutCheckpoints, WithoutFiles):
    """An executor that only notes whether it has processes, and since when."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def know(self, digest: str, blob: bytes, needed: Collection[str] = ()) -> None: ...

    def knows(self, digest: str) -> bool:
        return True

    def start(self) -> None:
        self.calls.append("start")

    def rest(self) -> None:
        self.calls.append("rest")

    def run(self, slot: int, jobs: Sequence[Job]) -> None: ...

    def poll(self, now: float) -> list[JobEnded]:
        return []

    def running(self, now: float) -> list[tuple[int, int, int, float]]:
        return []

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        return []


def told(pairs: list[tuple[float, float]], *moments: float) -> list[list[str]]:
    """What a worker that follows this cycle told its executor until each of these moments, at which it looks."""
    processes = Processes()
    identity = Identity("pc", "session", "host", "", ("3.11",), 1)
    session = Session(identity, Cycle(pairs, Instant(0.0, 0.0)), processes, follows_broker=False)
    found = []
    for moment in moments:
        processes.calls.clear()
        session.tick(Instant(moment, moment))
        found.append(list(processes.calls))
    return found


def test_processes_end_with_a_window_and_are_there_again_before_the_next_one_opens() -> None:
    away = 10 * REST_S
    opens = 100.0 + away
    moments = 0.0, 100.0, opens - REST_S - 1.0, opens - REST_S, opens - 1.0, opens
    assert told([(100.0, away)], *moments) == [["start"], ["rest"], [], ["start"], [], []]


def test_in_a_short_gap_processes_stay() -> None:
    assert told([(100.0, REST_S)], 0.0, 100.0, 130.0, 100.0 + REST_S) == [["start"], [], [], []]


@pytest.mark.parametrize(("opens", "calls"), [(REST_S / 2, ["start"]), (REST_S * 2, [])])
def test_a_worker_that_is_started_between_windows_gets_ready_if_one_opens_soon(opens: float, calls: list[str]) -> None:
    assert told([(1e-6, opens), (100.0, 1.0)], 1.0) == [calls]
