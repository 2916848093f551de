"""The status screen on a terminal: asks for snapshots, draws them, watches for keys and for changes of size.

Rules:

1. What is drawn is decided in ``deskgrid.screen.screen``; here is only when.
2. The terminal is left as it was found, however this ends.
3. An answer may take as long as the broker is away. So a thread waits for it, and the screen goes on telling.
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

# Between two drawings, and between two questions: often enough to be called live, seldom enough to be read.
TICK_S = 0.5
# Between two looks at the keyboard and the size of the terminal.
LOOK_S = 0.1

HINT = "q quits"

Fetch = Callable[[], StatusDocument]


class Keys(Protocol):
    """Where keys come from: a `Keyboard`, or a test."""

    def pressed(self, seconds: float) -> str:
        """What is pressed within ``seconds``; empty if it is nothing."""


class Poller:
    """Within its context, a thread asks for snapshots and keeps the newest.

    ``retry``: the errors of ``fetch`` after which it is asked again; any other is raised by `newest`.
    """

    def __init__(self, fetch: Fetch, retry: type[Exception], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._retry = retry
        self._clock = clock
        self._stop = threading.Event()
        self._newest = fetch(), clock()
        self._error: BaseException | None = None

    def newest(self) -> tuple[StatusDocument, float]:
        """The newest snapshot, and how many seconds ago it came."""
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
        self._stop.set()  # without waiting: it may be in the middle of a question that nobody answers

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
            return  # the age of what we have will tell


def watch(fetch: Fetch, retry: type[Exception], console: Console | None = None, keys: Keys | None = None) -> None:
    """Show what ``fetch`` returns, live, until q is pressed.

    ``retry``: the error of ``fetch`` that may go away by itself; the first time it is raised to the caller.
    ``console`` and ``keys``: other ones than those of this process's terminal.
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
    """Whether the glyphs of bars would come out wrong, or not at all."""
    return console.legacy_windows or not console.encoding.startswith("utf")


def _screen(console: Console) -> Live:
    return Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends this program by an exception, so that the terminal is put in order first."""
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
