"""The memory of this process: how much it has, how to keep freed memory, when Python looks for garbage in cycles."""

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATUS = Path("/proc/self/status")
_KIB = 1024

# More than a frame of a large payload, and so little that it does not matter if a process keeps it.
KEPT_BYTES = 16 * 2**20
# A full collection is due so long after the last one, and is done when nothing but heartbeats has come for a while. It
# is done anyway when it is overdue, or when so many partial ones have left young objects: of about 7,000 each. Seconds.
DUE_S = 60.0
OVERDUE_S = 900.0
OVERDUE_PARTIAL = 150
# Python begins a full collection after so many partial ones: never.
_NEVER = 2**31 - 1


def keep_freed() -> None:
    """Make glibc keep some tens of MB of freed memory in this process; other C libraries are not affected.

    By default glibc returns a freed large block to the system at once, and gets new memory page by page. For frames of
    large payloads this costs as much time as copying them. Once a block of KEPT_BYTES has been freed, glibc keeps
    blocks up to that size.
    """
    bytearray(KEPT_BYTES)


def held() -> float:
    """Return the bytes of memory of this process, including swapped ones, on Linux; infinite on other systems."""
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return math.inf
    return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith(("VmRSS:", "VmSwap:"))) or math.inf


class Garbage:
    """Has Python look for garbage in cycles while nobody waits. ``now`` is monotonic seconds.

    A full collection looks at every object of the broker, which takes 90 ms with 10,000 bags. Young objects are looked
    at as usual, and nearly all garbage is among them.
    """

    def __init__(self) -> None:
        self._collected_at = 0.0

    @contextmanager
    def full_collections_deferred(self) -> Iterator[None]:
        """Keep Python from full collections in the meantime."""
        before = gc.get_threshold()
        gc.set_threshold(*before[:2], _NEVER)
        try:
            yield
        finally:
            gc.set_threshold(*before)

    def collect(self, now: float, *, idle: bool) -> None:
        """Collect all garbage, if it is time; ``idle``: nobody waits."""
        overdue = gc.get_count()[2] >= OVERDUE_PARTIAL
        if overdue or now >= self._collected_at + (DUE_S if idle else OVERDUE_S):
            gc.collect()
            self._collected_at = now
