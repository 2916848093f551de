"""The memory of this process: how much it has, and how to keep freed memory."""

import math
from pathlib import Path

_STATUS = Path("/proc/self/status")
_KIB = 1024

# More than a frame of a large payload, and so little that it does not matter if a process keeps it.
KEPT_BYTES = 16 * 2**20


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
