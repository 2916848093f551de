"""Idle time on Windows and macOS. Not run on a real one so far: `tests/worker/test_owner.py` plays them."""

import re
import subprocess
from collections.abc import Callable
from typing import Any

_IDLE = re.compile(r'"HIDIdleTime"\s*=\s*(\d+)')
# A counter of milliseconds of 32 bits.
_TICKS = 2**32


def windows_idle_s(user32: Any, kernel32: Any) -> float | None:
    """Return the seconds without input in the session of this process; None if Windows does not say.

    A service of the whole machine is in a session of its own, where nobody types: start the worker in that of the user.
    """
    import ctypes

    class LastInput(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint32), ("time", ctypes.c_uint32))

    last = LastInput(size=ctypes.sizeof(LastInput))
    if not user32.GetLastInputInfo(ctypes.byref(last)):
        return None
    return float(((kernel32.GetTickCount() & (_TICKS - 1)) - last.time) % _TICKS) / 1000.0


def macos_idle_s(run: Callable[..., Any] = subprocess.run) -> float | None:
    """Return the seconds without input, as the driver of keyboards and mice has it; None if it does not say."""
    try:
        done = run(["ioreg", "-c", "IOHIDSystem", "-d", "4"], capture_output=True, text=True, timeout=1.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _IDLE.search(done.stdout)
    return None if found is None else int(found[1]) / 1e9
