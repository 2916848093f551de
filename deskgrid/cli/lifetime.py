"""Code that the broker's and the worker's processes share: they run until they are told to stop, and write a log.

Rule 1: the first Ctrl-C or SIGTERM (Ctrl-Break on Windows) stops them cleanly, with exit code 0; the second at once.
When the console of Windows is closed, and at log-off and shutdown, they stop cleanly, too.
Rule 2: stdout has only lines to be copied; the log goes to stderr, one line for each event.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from types import FrameType

import click

from deskgrid.unix_sockets import unix_socket

if sys.platform == "win32":
    import ctypes

    _Handler = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)
    _SetHandler = ctypes.windll.kernel32.SetConsoleCtrlHandler

# What Windows says to a console's programs before it ends them: it was closed, log-off, shutdown.
CLOSING = (2, 5, 6)
# It ends them after five seconds all the same.
_CLOSING_S = 4.5
LEVELS = ("debug", "info", "warning", "error")

level_option = click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="Log events of this level and above to stderr.",
)
# For a process that another process of deskgrid starts, and that has to end with it.
stdin_option = click.option("--until-stdin-closes", is_flag=True, hidden=True)


class Notifier:
    """Tells systemd that the service is ready and alive, over the socket that it names; without systemd, nothing.

    Call it again and again: the first call says ``READY=1``, and later ones, in time, ``WATCHDOG=1``.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "") if watched else ""
        # Twice as often as the watchdog demands. Seconds.
        self._every_s = int(usec) / 2e6 if usec.isdecimal() else float("inf")
        self._due = -float("inf")

    def __call__(self) -> None:
        if not self._address or time.monotonic() < self._due:
            return
        self._say(b"READY=1" if self._due < 0.0 else b"WATCHDOG=1")
        self._due = time.monotonic() + self._every_s

    def stopping(self) -> None:
        """Say that the service ends."""
        if self._address:
            self._say(b"STOPPING=1")

    def _say(self, text: bytes) -> None:
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), unix_socket(socket.SOCK_DGRAM) as told:
            told.sendto(text, address)


class Stopping:
    """Within its context, a call returns whether this process should stop.

    ``with_stdin``: the process should also stop when stdin closes.
    """

    SIGNALS = ("SIGINT", "SIGTERM", "SIGBREAK")

    def __init__(self, with_stdin: bool = False) -> None:
        self._asked = False  # no threading.Event: a second signal may come in the middle of its set()
        self._with_stdin = with_stdin
        self._over = threading.Event()
        self._notify = Notifier()
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __call__(self) -> bool:
        # Whoever asks is in its loop: ready, and alive.
        self._notify()
        return self._asked

    def __enter__(self) -> "Stopping":
        for name in self.SIGNALS:
            number = getattr(signal, name, None)  # SIGBREAK: Windows only
            if number is not None:
                self._before[number] = signal.signal(number, self._on_signal)
        if sys.platform == "win32":
            self._handler = _Handler(self.console_says)
            _SetHandler(self._handler, True)
        if self._with_stdin:
            threading.Thread(target=self._read_to_end, name="stdin", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._notify.stopping()
        self._restore()
        self._over.set()
        if sys.platform == "win32":
            _SetHandler(self._handler, False)

    def console_says(self, event: int) -> bool:
        """Handle an event of a console of Windows, in a thread of the system; return whether that is all.

        After an event of `CLOSING`, the system ends the process when this returns: so it waits until all has stopped.
        """
        if event not in CLOSING:
            return False
        self._asked = True
        self._over.wait(_CLOSING_S)
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self._restore()  # so the next signal has its default effect and ends the process

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _read_to_end(self) -> None:
        # Not through sys.stdin: this thread would hold its lock while waiting, which aborts the interpreter at exit.
        try:
            while os.read(0, 4096):
                pass
        except OSError:
            pass  # stdin was already closed
        self._asked = True


class LogFormat(logging.Formatter):
    """``2026-01-31T18:00:00.123+01:00 INFO event key=value``: local time with its offset, one line for each event."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Format the time of ``record`` in ISO 8601."""
        return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def log_to_stderr(level: str) -> None:
    """Log our events of at least ``level``, and the warnings of libraries, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormat("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("deskgrid").setLevel(level.upper())
