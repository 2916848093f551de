"""How much memory this process has, and what becomes of what is freed."""

import math
from pathlib import Path

_STATUS = Path("/proc/self/status")
_KIB = 1024

# More than a frame of a large payload, and so little that it does not matter which process keeps it.
KEPT_BYTES = 16 * 2**20


def keep_freed() -> None:
    """Have memory that is freed stay with this process, some tens of MB, where the C library is glibc.

    It gives a free block back to the system at once, and takes it anew page by page, until one of that size has been
    freed: which for frames of large payloads costs as much time as to copy them.
    """
    bytearray(KEPT_BYTES)


def held() -> float:
    """Bytes of memory that this process has, swapped out or not, as Linux counts; infinite where nobody does."""
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return math.inf
    return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith(("VmRSS:", "VmSwap:"))) or math.inf
