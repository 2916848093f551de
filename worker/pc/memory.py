"""How much memory a PC has."""

import os
import sys
from contextlib import suppress
from pathlib import Path

# Where Linux says how much a container may use: "max", or bytes.
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


class MemoryUnknown(Exception):
    """The system does not say how much memory this PC has; one line that says why."""


def memory_of_this_pc() -> int:
    """Return the bytes of memory that programs here can use. Raises `MemoryUnknown`."""
    try:
        found = _windows() if sys.platform == "win32" else _posix()
    except (OSError, ValueError) as error:
        raise MemoryUnknown(f"the system does not say how much memory this PC has: {error}") from error
    with suppress(OSError, ValueError):
        found = min(found, int(_CONTAINER.read_text(encoding="ascii")))
    return found


def _posix() -> int:
    """As sysconf says. Raises OSError and ValueError."""
    if sys.platform == "win32":
        raise ValueError("Windows is asked in another way")
    else:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if min(pages, size) <= 0:
            raise ValueError(f"{pages} pages of {size} bytes")
        return pages * size


def _windows() -> int:
    """As GlobalMemoryStatusEx says. Raises OSError."""
    import ctypes

    class Status(ctypes.Structure):
        """MEMORYSTATUSEX."""

        _fields_ = (
            ("length", ctypes.c_ulong),
            ("load", ctypes.c_ulong),
            *[(name, ctypes.c_ulonglong) for name in ("physical", "free", "paged", "left", "virtual", "idle", "more")],
        )

    status = Status(length=ctypes.sizeof(Status))
    if sys.platform == "win32" and not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise ctypes.WinError()
    return int(status.physical)
