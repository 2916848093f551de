"""The bar that shows how far a bag is."""

import io
import sys
import threading
from typing import Any

import pytest

from deskgrid.client import progress
from deskgrid.client.grid import Grid
from deskgrid.client.progress import Meter, Progress
from deskgrid.errors import GridUnreachable, RequestFailed
from tests.client.fakebroker import FakeGrid
from tests.waiting import eventually

PROGRESS = Progress(
    total=40, done=12, failed=2, cancelled=1, running=3, waiting=22, eta_s=500.0, left_s=99.0, eta_high_s=900.0
)


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def take_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """From now on stderr is a terminal, and calls take long at once.

    Not a fixture: between these and the test, pytest puts its own stderr back.
    """
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "LOOK_EVERY_S", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    return screen


def test_a_long_call_shows_how_far_the_bag_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = take_terminal(monkeypatch)
    with Meter("sweep", lambda: PROGRESS) as bar:
        bar.tick()
    shown = terminal.getvalue()
    for text in ("sweep", "15/40", "3 running", "2 failed", "done in 8 min 20 s, at the latest in 15 min"):
        assert text in shown


@pytest.mark.skipif(sys.platform == "win32", reason="an old console there gets a bar of ASCII")
def test_in_a_narrow_terminal_the_counts_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = take_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    with Meter("a sweep with a name that is too long", lambda: PROGRESS) as bar:
        bar.tick()
    shown = terminal.getvalue()
    for text in ("a sweep", "━", "15/40", "after", "0:00:00", "3 running, 2 failed, done in 8 min 20 s"):
        assert text in shown
    assert "at the latest" not in shown


def test_a_short_call_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = take_terminal(monkeypatch)
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 60.0)
    with Meter("sweep", lambda: PROGRESS) as bar:
        bar.tick()
    assert terminal.getvalue() == ""


def test_where_stderr_is_no_terminal_nothing_is_asked_or_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)

    def look() -> Progress:
        raise AssertionError("asked for nothing")

    with Meter("sweep", look) as bar:
        bar.tick()
    assert log.getvalue() == ""


def test_what_has_ended_is_shown_before_the_broker_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = take_terminal(monkeypatch)
    monkeypatch.setattr(progress, "LOOK_EVERY_S", 60.0)
    with Meter("sweep", lambda: PROGRESS) as bar:
        bar.tick()
        bar.has_ended(37)
        eventually(lambda: "37/40" in terminal.getvalue())


def test_a_broker_that_is_away_stops_no_call_and_the_bar_says_so_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = take_terminal(monkeypatch)
    away = True

    def look() -> Progress:
        if away:
            raise GridUnreachable("away")
        return PROGRESS

    with Meter("sweep", look) as bar:
        bar.tick()
        assert "broker away, retrying" in terminal.getvalue()
        away = False
        terminal.truncate(0)
        bar.tick()
    assert "15/40" in terminal.getvalue()
    assert "away" not in terminal.getvalue()


def test_an_answer_that_is_an_error_leaves_the_bar_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = take_terminal(monkeypatch)

    def look() -> Progress:
        raise RequestFailed("no bag 1")

    with Meter("sweep", look) as bar:
        bar.tick()
    assert terminal.getvalue() == ""


def test_what_the_program_prints_keeps_going_where_it_goes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = take_terminal(monkeypatch)
    with Meter("sweep", lambda: PROGRESS) as bar:
        bar.tick()
        print("a result")
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in terminal.getvalue()


@pytest.mark.parametrize("call", ["results", "wait", "as_completed"])
def test_waiting_for_a_bag_shows_the_bar(
    fake: FakeGrid, grid: Grid, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    terminal = take_terminal(monkeypatch)
    monkeypatch.setattr("deskgrid.client.bag.SLICE_S", 0.01)
    fake.memory.hold = True
    bag: Any = grid.bag(abs, [-1], name="sweep")
    threading.Timer(0.1, fake.broker.run, (bag.id, 0)).start()
    result = getattr(bag, call)()
    assert list(result) == [(-1, 1)] if call == "as_completed" else result in (True, [1])
    assert "sweep" in terminal.getvalue()
    assert "0/1" in terminal.getvalue()
