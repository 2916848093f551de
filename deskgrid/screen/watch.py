"""The status screen on a terminal: asks for snapshots, draws them, watches for keys and for changes of size.

Rules:

1. ``deskgrid.screen.screen`` decides what is drawn; this file decides only when.
2. The terminal is left as it was found, however this ends.
3. An answer may take as long as the broker is away. So a thread waits for it, and the screen stays up to date.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live

from deskgrid.screen.keyboard import Keyboard
from deskgrid.screen.screen import render
from deskgrid.wire.status import StatusDocument

# Seconds between two drawings, and between two questions: often enough to seem live, rarely enough to be read.
TICK_S = 0.5
# Seconds between two checks of the keyboard and of the terminal's size.
LOOK_S = 0.1

HINT = "q quits"

Fetch = Callable[[], StatusDocument]


class Keys(Protocol):
    """A source of keys: a `Keyboard`, or a test."""

    def pressed(self, seconds: float) -> str:
        """Return the keys pressed within ``seconds``; "" if there are none."""


class Poller:
    """Within its context, a thread asks for snapshots and keeps the newest.

    ``retry``: after these errors of ``fetch`` the thread asks again; `newest` raises any other error.
    """

    def __init__(self, fetch: Fetch, retry: type[Exception], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._retry = retry
        self._clock = clock
        self._stop = threading.Event()
        self._newest = fetch(), clock()
        self._error: BaseException | None = None

    def newest(self) -> tuple[StatusDocument, float]:
        """Return the newest snapshot, and how many seconds ago it came."""
        if self._error is not None:
            raise self._error
        snapshot, came = self._newest
        return snapshot, self._clock() - came

    def __enter__(self) -> "Poller":
        threading.Thread(target=self._run, name="status", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()  # without waiting: the thread may be waiting for an answer that never comes

    def _run(self) -> None:
        try:
            while not self._stop.wait(TICK_S):
                self._ask()
        except BaseException as error:
            self._error = error

    def _ask(self) -> None:
        try:
            self._newest = self._fetch(), self._clock()
        except self._retry:
            return  # the age of the last snapshot will show it


def watch(fetch: Fetch, retry: type[Exception], console: Console | None = None, keys: Keys | None = None) -> None:
    """Show what ``fetch`` returns, live, until q is pressed.

    ``retry``: the error of ``fetch`` that may go away by itself; for the first snapshot it is raised to the caller.
    ``console`` and ``keys``: replacements for this process's terminal.
    """
    console = console or Console()
    poller = Poller(fetch, retry)
    with Keyboard() as keyboard, _terminable(), poller, _screen(console) as live:
        _show(poller, live, keys or keyboard)


def _show(poller: Poller, live: Live, keys: Keys) -> None:
    while True:
        size = live.console.size
        snapshot, age_s = poller.newest()
        drawn = render(snapshot, size.width, size.height, age_s, hint=HINT, ascii_only=takes_ascii_only(live.console))
        live.update(drawn, refresh=True)
        due = time.monotonic() + TICK_S
        while (left := due - time.monotonic()) > 0 and live.console.size == size:
            if "q" in keys.pressed(min(left, LOOK_S)).lower():
                return


def takes_ascii_only(console: Console) -> bool:
    """Whether the console cannot show the glyphs of bars."""
    return console.legacy_windows or not console.encoding.startswith("utf")


def _screen(console: Console) -> Live:
    return Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


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
