"""The status screen on a terminal: shows what the broker tells, watches for keys and for changes of size.

Rules:

1. `deskgrid.screen.frame` decides what is drawn; this file decides only when.
2. The terminal is left as it was found, however this ends.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from rich.console import Console
from rich.live import Live

from deskgrid.screen.frame import draw, listing, room_for
from deskgrid.screen.keyboard import Keyboard
from deskgrid.screen.keys import Context, press, split
from deskgrid.screen.questions import TICK_S, wanted
from deskgrid.screen.source import AnswerSource, Ask
from deskgrid.screen.view import ScreenView

# Seconds between two checks of the keyboard and of the terminal's size.
LOOK_S = 0.1
# Terminals differ in how many cells some characters take, and names may have any of them. A line that is too wide for
# the terminal must be cut there: if it were wrapped, the first lines would leave the screen.
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"


class KeySource(Protocol):
    """A source of keys: a `Keyboard`, or a test."""

    def pressed(self, seconds: float) -> str:
        """Return the keys pressed within ``seconds``; "" if there are none."""


def watch(ask: Ask, console: Console | None = None, keys: KeySource | None = None) -> None:
    """Show the grid, live, until q is pressed.

    ``ask``: asks the broker; its error about the first question is raised to the caller. ``console`` and ``keys``:
    replacements for this process's terminal.
    """
    console = console or Console()
    source, view = AnswerSource(ask), ScreenView()
    with Keyboard() as keyboard, _terminable(), source, _screen(console) as live:
        view.message = "" if _says_its_size(console) else "this terminal does not say its size: 80x25 is assumed"
        while not view.quit:
            _show(source, view, live, keys or keyboard)


def _show(source: AnswerSource, view: ScreenView, live: Live, keys: KeySource) -> None:
    """Draw the screen once, and do what is typed until it is time to draw again."""
    size, seen = live.console.size, source.seen()
    source.news.clear()
    view.message = source.said() or view.message
    source.want(wanted(view, seen))
    rows = listing(view, seen, size.width)
    live.update(draw(view, seen, rows, *size, ascii_only=takes_ascii_only(live.console)), refresh=True)
    due = time.monotonic() + TICK_S
    while (left := due - time.monotonic()) > 0 and live.console.size == size and not source.news.is_set():
        typed = split(keys.pressed(min(left, LOOK_S)))
        for key in typed:
            context = Context(seen, listing(view, seen, size.width), 1)
            context = context._replace(room=room_for(context.listing, *size))
            if (order := press(view, key, context)) is not None:
                source.order(order)
        if typed:
            return


def _says_its_size(console: Console) -> bool:
    """Whether the terminal has a size; rich assumes one for those that have none."""
    try:
        return all(os.get_terminal_size(console.file.fileno()))
    except (OSError, ValueError):
        return True  # not a terminal of this machine: the console knows its size


def takes_ascii_only(console: Console) -> bool:
    """Whether the console cannot show the glyphs of bars."""
    return console.legacy_windows or not console.encoding.startswith("utf")


@contextmanager
def _screen(console: Console) -> Iterator[Live]:
    """The whole terminal, which wraps no lines meanwhile."""
    try:
        _say(console, NO_WRAP)
        with Live(
            console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        ) as live:
            yield live
    finally:
        _say(console, WRAP)


def _say(console: Console, sequence: str) -> None:
    if not console.legacy_windows:
        console.file.write(sequence)
        console.file.flush()


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end this program with an exception, so that the terminal is restored first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
