"""The live screen: when it draws, what ends it, and what it leaves behind."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from deskgrid.errors import GridUnreachable
from deskgrid.screen.watch import watch
from tests.screen.builders import asked, lab


class Script:
    """Keys for as long as there are any; each may be a function that is called in its place and returns the key."""

    def __init__(self, *keys: str | Callable[[], str]) -> None:
        self._keys = iter(keys)

    def pressed(self, seconds: float) -> str:
        key = next(self._keys)
        return key if isinstance(key, str) else key()


def screen(width: int = 80, height: int = 24) -> Console:
    """A terminal that writes into a string."""
    return Console(file=StringIO(), force_terminal=True, width=width, height=height, legacy_windows=False)


def written(console: Console) -> str:
    """All that was sent to it."""
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_q_ends_it_and_the_terminal_is_left_as_it_was() -> None:
    console = screen()
    watch(asked(lab(3)), console, Script("", "x", "Q"))
    text = written(console)
    assert text.index("\x1b[?1049h") < text.index("lab-server.example") < text.index("\x1b[?1049l")
    assert text.rindex("\x1b[?25l") < text.rindex("\x1b[?25h")
    assert text.index("\x1b[?7l") < text.index("lab-server.example") < text.index("\x1b[?7h")


def test_ctrl_c_ends_it_and_the_terminal_is_left_as_it_was() -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    console = screen()
    with pytest.raises(KeyboardInterrupt):
        watch(asked(lab(3)), console, Script(interrupted))
    text = written(console)
    assert "\x1b[?1049l" in text
    assert text.rindex("\x1b[?7l") < text.rindex("\x1b[?7h")
    assert text.rindex("\x1b[?25l") < text.rindex("\x1b[?25h")


def test_a_broker_that_was_never_there_is_an_error_before_anything_is_drawn() -> None:
    def never(what: str, args: dict[str, Any]) -> dict[str, Any]:
        raise GridUnreachable("nobody is there")

    console = screen()
    with pytest.raises(GridUnreachable):
        watch(never, console, Script())
    assert written(console) == ""


def test_another_size_is_drawn_without_waiting_for_the_next_snapshot() -> None:
    console = screen(width=80)

    def resized() -> str:
        console.width = 120
        return ""

    watch(asked(lab(3)), console, Script(resized, "q"))
    assert written(console).count("lab-server.example") == 2


def test_a_question_that_nobody_answers_holds_up_neither_the_screen_nor_its_end() -> None:
    hangs, released = threading.Event(), threading.Event()

    def stuck(what: str, args: dict[str, Any]) -> dict[str, Any]:
        if threading.current_thread() is not threading.main_thread():
            hangs.set()
            released.wait(30)
        return asked(lab(3))(what, args)

    def once_it_hangs() -> str:
        assert hangs.wait(30)
        return "q"

    try:
        watch(stuck, screen(), Script(once_it_hangs))
    finally:
        released.set()


# --- on a real terminal ----------------------------------------------------------------------------------------------

PROGRAM = """
from deskgrid.screen.watch import watch
from tests.screen.builders import asked, lab
watch(asked(lab(3)))
print("over")
"""

if sys.platform != "win32":
    import termios

    from tests.screen.terminal import Terminal

    @pytest.fixture
    def terminal() -> Iterator[Terminal]:
        one = Terminal(["-c", PROGRAM])
        yield one
        one.close()

    def assert_left_clean(terminal: Terminal) -> None:
        assert terminal.shows("\x1b[?1049l")
        assert terminal.shows("\x1b[?25h")
        assert termios.tcgetattr(terminal.its) == terminal.before

    def test_on_a_terminal_the_key_q_needs_no_enter(terminal: Terminal) -> None:
        assert terminal.shows("q quit")
        terminal.type("q")
        assert terminal.shows("over")
        assert terminal.process.wait(30) == 0
        assert_left_clean(terminal)

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
    def test_a_signal_leaves_the_terminal_clean(terminal: Terminal, number: signal.Signals, code: int) -> None:
        assert terminal.shows("q quit")
        terminal.process.send_signal(number)
        assert terminal.process.wait(30) == code
        assert_left_clean(terminal)
