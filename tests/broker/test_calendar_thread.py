"""The thread that reads calendars: the broker never waits for it, and it ends with the broker."""

import os
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from deskgrid.broker import calendar_thread
from deskgrid.broker.calendar_thread import CalendarThread
from deskgrid.windows.calendar_process import Process, read_in_process
from deskgrid.windows.from_calendar import CalendarAnswer, CalendarRequest
from tests.waiting import PATIENCE_S, eventually


def request(folder: Path, name: str = "room.ics") -> CalendarRequest:
    return CalendarRequest(name, str(folder), 0.0, 1.0, [])


def test_it_reads_one_calendar_after_the_other(tmp_path: Path) -> None:
    with closing(CalendarThread()) as thread:
        tickets = [thread.read(request(tmp_path, f"{number}.ics")) for number in range(2)]
        assert eventually(lambda: all(each.answer is not None for each in tickets), PATIENCE_S)
        assert [each.answer and each.answer.error for each in tickets] == [
            f"there is no file {tmp_path / '0.ics'}",
            f"there is no file {tmp_path / '1.ics'}",
        ]


def test_a_process_that_cannot_be_started_costs_one_calendar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with closing(CalendarThread()) as thread:
        ticket = thread.read(request(tmp_path))
        assert eventually(lambda: ticket.answer is not None, PATIENCE_S)
        assert ticket.answer is not None
        assert ticket.answer.error.startswith("no process to read it could be started: FileNotFoundError")
        monkeypatch.undo()
        ticket = thread.read(request(tmp_path))
        assert eventually(lambda: ticket.answer is not None, PATIENCE_S)
        assert ticket.answer is not None
        assert "there is no file" in ticket.answer.error


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes like these")
def test_the_end_of_the_broker_ends_a_process_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()
    found: list[Process] = []

    def note(request: CalendarRequest, tell: object) -> CalendarAnswer:
        def begun(process: Process) -> None:
            tell(process)  # type: ignore[operator]
            found.append(process)
            os.kill(process.pid, 19)  # SIGSTOP: it never answers
            started.set()

        return read_in_process(request, begun)

    monkeypatch.setattr(calendar_thread, "read_in_process", note)
    thread = CalendarThread()
    ticket = thread.read(request(tmp_path))
    waiting = thread.read(request(tmp_path))
    assert started.wait(PATIENCE_S)
    thread.close()
    assert found[0].returncode == -9
    assert ticket.answer is not None
    assert waiting.answer is None
    assert len(found) == 1


def test_without_a_calendar_there_is_no_thread() -> None:
    before = threading.active_count()
    CalendarThread().close()
    assert threading.active_count() == before
