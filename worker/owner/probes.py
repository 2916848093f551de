"""What on this PC tells whether somebody uses it. Each probe answers seconds since the last input, or why it cannot.

Rule 1: a probe never blocks for longer than a second, and runs in a thread of its own (`deskgrid.worker.owner.watch`).
Rule 2: a time of the wall clock is compared only with what it was before, so nobody who sets the clock uses the PC.
"""

import ctypes
import ctypes.util
import os
import stat
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from deskgrid.worker.run.scope import with_descendants

# Consoles that somebody can switch to with the keyboard.
CONSOLES = 12
# What is opened to make a terminal.
MASTERS = ("/dev/ptmx", "/dev/pts/ptmx")


class Terminals:
    """Terminals of this PC: windows, logins from elsewhere, consoles. Linux notes when one was read, to 8 seconds.

    What a program reads from a terminal was typed there. So every terminal counts, also the one that the worker was
    started in, but not those of tasks: what they read from them, they have written themselves. One that has just been
    opened does not count before something is typed.
    """

    def __init__(self, dev: Path = Path("/dev"), wall: Callable[[], float] = time.time) -> None:
        self._dev = dev
        self._wall = wall
        self._read_at: dict[str, int] | None = None
        self._last: float | None = None

    def idle_s(self, now: float) -> float | None:
        """Return the seconds since something was typed; None if there is no terminal. ``now``: monotonic seconds."""
        before, self._read_at = self._read_at, dict(self._times())
        if before is None:
            newest = max(self._read_at.values(), default=None)
            self._last = None if newest is None else now - max(0.0, self._wall() - newest / 1e9)
        else:
            read = [path for path, at in self._read_at.items() if self._last is None or before.get(path, at) != at]
            if read and self._is_typed(read):
                self._last = now
        return None if self._last is None or not self._read_at else max(0.0, now - self._last)

    def _is_typed(self, read: Iterable[str]) -> bool:
        """Whether not all of these terminals are, or were, those of tasks."""
        of_tasks = terminals_below(os.getpid())
        return any(os.path.basename(path) not in of_tasks and os.path.exists(path) for path in read)

    def _times(self) -> Iterator[tuple[str, int]]:
        paths = [self._dev / f"tty{number}" for number in range(1, CONSOLES + 1)]
        with suppress(OSError):
            paths += [self._dev / "pts" / name for name in os.listdir(self._dev / "pts") if name.isdigit()]
        for path in paths:
            with suppress(OSError):
                found = os.stat(path)
                if stat.S_ISCHR(found.st_mode):
                    yield str(path), found.st_atime_ns


def terminals_below(pid: int) -> set[str]:
    """Return the numbers of the terminals that what descends from a process has made, such as with ``script``.

    Whoever makes a terminal holds its other end, a master. One of a container of a task has a number of its own there.
    """
    ours = set[tuple[int, int]]()
    for path in MASTERS:
        with suppress(OSError):
            ours.add(_node(path))
    found = set[str]()
    for each in with_descendants(pid)[1:]:
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{each}/fd"):
                with suppress(OSError):
                    if _is_master(f"/proc/{each}/fd/{descriptor}", ours):
                        text = Path(f"/proc/{each}/fdinfo/{descriptor}").read_text(encoding="ascii")
                        found.update(text.partition("tty-index:")[2].split()[:1])
    return found


def _is_master(path: str, ours: Container[tuple[int, int]]) -> bool:
    """Whether an open file is the master of a terminal of this PC. Only a name tells without touching a slow disk."""
    return os.readlink(path).endswith("ptmx") and _node(path) in ours


def _node(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


class Seat:
    """Whether a person is logged in at the screen of this PC, as logind has it: not a login screen, nor from elsewhere.

    How long he has been idle it does not say: some desktops never tell logind.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = _systemd() if library is None else library

    def somebody(self) -> bool | None:
        """Return whether somebody is logged in there; None if there is no logind."""
        if self._library is None:
            return None
        sessions = ctypes.POINTER(ctypes.c_char_p)()
        count = self._library.sd_get_sessions(ctypes.byref(sessions))
        if count < 0:
            return None
        return any(self._is_somebody(sessions[number] or b"") for number in range(count))

    def _is_somebody(self, session: bytes) -> bool:
        if self._library.sd_session_is_remote(session) > 0:
            return False
        kind, seat = self._text("class", session), self._text("seat", session)
        return kind == "user" and bool(seat) and self._text("type", session) in ("x11", "wayland", "mir")

    def _text(self, what: str, session: bytes) -> str:
        found = ctypes.c_char_p()
        code = getattr(self._library, f"sd_session_get_{what}")(session, ctypes.byref(found))
        return "" if code < 0 else (found.value or b"").decode("utf-8", "replace")


def _systemd() -> Any:
    if not os.path.isdir("/run/systemd/sessions"):
        return None
    with suppress(OSError):
        return ctypes.CDLL("libsystemd.so.0")
    return None


def on_battery(supplies: Path = Path("/sys/class/power_supply")) -> bool:
    """Whether this PC runs on its battery, as Linux says. Batteries of mice and keyboards do not count."""
    found: list[dict[str, str]] = []
    with suppress(OSError):
        for supply in supplies.iterdir():
            values = {}
            for name in ("type", "scope", "online", "status"):
                with suppress(OSError):
                    values[name] = (supply / name).read_text(encoding="ascii", errors="replace").strip()
            found.append(values)
    if any(each.get("online") == "1" and each.get("type") != "Battery" for each in found):
        return False
    return any(
        each.get("type") == "Battery" and each.get("scope") != "Device" and each.get("status") == "Discharging"
        for each in found
    )
