"""What a PC has for tasks: processors, memory, and graphics cards that programs can compute on."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deskgrid.resources import GPU
from deskgrid.wire import RESOURCE_UNIT, RESOURCES_LIMIT, counted

# Where Linux says how much a container may use: "max", or bytes.
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
# A driver that does not answer is as good as none. Seconds.
PATIENCE_S = 20.0
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")


def processors() -> set[int]:
    """Return the numbers of the cores that this process may use; on some systems, of all."""
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    else:
        return set(range(os.cpu_count() or 1))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(processors())


class MemoryUnknown(Exception):
    """The system does not say how much memory this PC has; one line that says why."""


def memory_of_this_pc() -> int:
    """Return the bytes of memory that programs here can use. Raises `MemoryUnknown`."""
    try:
        found = _windows_memory() if sys.platform == "win32" else _posix_memory()
    except (OSError, ValueError) as error:
        raise MemoryUnknown(f"the system does not say how much memory this PC has: {error}") from error
    with suppress(OSError, ValueError):
        found = min(found, int(_CONTAINER.read_text(encoding="ascii")))
    return found


def _posix_memory() -> int:
    """As sysconf says. Raises OSError and ValueError."""
    if sys.platform == "win32":
        raise ValueError("Windows is asked in another way")
    else:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if min(pages, size) <= 0:
            raise ValueError(f"{pages} pages of {size} bytes")
        return pages * size


def _windows_memory() -> int:
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


def graphics_cards(resources: tuple[str, ...], *, find: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the resources of this PC with its graphics cards, and what the driver calls these.

    ``find``: they count if there are any. Otherwise they do if ``resources`` say how many there are.
    """
    given = dict(counted(resources)).get(GPU, 0)
    if not (find or given):
        return resources, ()
    names = gpus()
    if given:
        many = -(-given // RESOURCE_UNIT)
        return resources, names[:many] if len(names) >= many else _numbered(many)
    if names and len(resources) < RESOURCES_LIMIT:
        resources = tuple(sorted([*resources, f"{GPU}={len(names)}"]))
    return resources, names


def gpus(variables: Mapping[str, str] = os.environ, kfd: Path = _KFD) -> tuple[str, ...]:
    """Return what the driver calls them: NVIDIA's by ``nvidia-smi``, else AMD's by what the kernel says.

    If somebody has said in the worker's ``variables`` which to use, it is these.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in variables:
            return tuple([each.strip() for each in variables[name].split(",") if each.strip() not in ("", "-1")])
    return _numbered(_nvidia() or _amd(kfd))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _nvidia() -> int:
    try:
        found = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in found.stdout.splitlines())


def _amd(kfd: Path) -> int:
    """A node of the kernel that has SIMD units is a graphics card; the others are processors."""
    count = 0
    for node in kfd.glob("*/properties"):
        try:
            rows = node.read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            continue
        count += any(row.split()[:1] == ["simd_count"] and row.split()[-1] != "0" for row in rows)
    return count
