"""When a broker or a worker is told to stop, and what its log looks like."""

import logging
import signal
import threading

import pytest

from deskgrid.cli.lifetime import CLOSING, LogFormat, Stopping
from tests.waiting import PATIENCE_S, eventually


def test_nothing_asks_to_stop_at_first() -> None:
    with Stopping() as stopping:
        assert not stopping()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_asks_to_stop_once_and_then_does_what_it_did_before(name: str) -> None:
    number = signal.Signals[name]
    before = signal.getsignal(number)
    with Stopping() as stopping:
        signal.raise_signal(number)
        assert stopping()
        assert signal.getsignal(number) == before


def test_afterwards_signals_do_what_they_did_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stopping():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_end_of_stdin_asks_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    chunks = iter([b"ignored", b""])

    def read(descriptor: int, size: int) -> bytes:
        assert descriptor == 0
        assert held.wait(PATIENCE_S)
        return next(chunks)

    monkeypatch.setattr("deskgrid.cli.lifetime.os.read", read)
    with Stopping(with_stdin=True) as stopping:
        assert not stopping()
        held.set()
        assert eventually(stopping)


def test_a_console_that_closes_ends_the_process_only_when_all_has_stopped() -> None:
    said: list[bool] = []
    with Stopping() as stopping:
        system = threading.Thread(target=lambda: said.append(stopping.console_says(CLOSING[0])))
        system.start()
        assert eventually(stopping)
        assert said == []
    system.join(10)
    assert said == [True]


def test_what_else_a_console_says_is_left_to_others() -> None:
    with Stopping() as stopping:
        assert not stopping.console_says(0), "Ctrl-C is a signal"
        assert not stopping()


def test_a_log_line_has_the_local_time_with_its_offset_the_level_and_the_event() -> None:
    record = logging.LogRecord("deskgrid.broker", logging.WARNING, "", 0, "turned-away address=%s", ("1.2.3.4",), None)
    line = LogFormat("%(asctime)s %(levelname)s %(message)s").format(record)
    date, level, event, address = line.split(" ")
    assert date[10] == "T"
    assert date[-6] in "+-"
    assert (level, event, address) == ("WARNING", "turned-away", "address=1.2.3.4")
