"""How fast a PC is: the time of a short, fixed computation, in a thread that gives way to everything else.

The computation is the compression of a fixed text: branches, integers and small tables, as in most programs, and it
needs no library. Its time is that of the processor, not of the clock on the wall, so it does not matter what else runs.
Windows counts that in ticks which are longer than the computation; there, the least of some tries is hardly disturbed.
"""

import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress

# What the computation takes on a PC of speed 1. Only ratios matter, so any constant would do: this is that of a fast
# desktop of 2024, so that few PCs are faster than 1. Seconds.
REFERENCE_S = 0.006
# The least of so many tries counts: the others met a cold cache, or a processor that had not woken up. All of them take
# less than 0.1 s.
TRIES = 5
_clock = time.perf_counter if sys.platform == "win32" else time.thread_time
# The text: so many numbers, each from the one before (the constants are those of a classic generator).
_NUMBERS = 32 * 1024


def _text() -> bytes:
    number, found = 1, bytearray()
    for _ in range(_NUMBERS):
        number = (number * 1_103_515_245 + 12_345) % 2**31
        found += b"%x " % (number >> 16)
    return bytes(found)


def seconds_of_computation(tries: int = TRIES) -> float:
    """Return the time for the computation, the least of some tries. Seconds."""
    text, least = _text(), float("inf")
    for _ in range(tries):
        start = _clock()
        zlib.compress(text, 6)
        least = min(least, _clock() - start)
    return least


class SpeedMeasurement:
    """Measures in a thread, from the start; ``done`` is called by it at the end."""

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="deskgrid-speed", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        _give_way()
        self._seconds = seconds_of_computation()
        self._done()

    def speed(self, wait_s: float) -> float | None:
        """Return the speed; None if it is not known after ``wait_s`` seconds."""
        self._thread.join(wait_s)
        return None if self._thread.is_alive() or self._seconds <= 0.0 else round(REFERENCE_S / self._seconds, 3)


def _give_way() -> None:
    """Give this thread the lowest priority, where a thread can have one of its own."""
    if sys.platform == "linux":
        import os

        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    elif sys.platform == "win32":
        import ctypes

        idle = -15
        ctypes.windll.kernel32.SetThreadPriority(ctypes.windll.kernel32.GetCurrentThread(), idle)
