"""A description of the machine: without it, figures mean nothing."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

GIB = 2**30
# What deskgrid's own speed depends on.
PACKAGES = ("pyzmq", "msgpack", "cloudpickle", "apscheduler")


def machine() -> dict[str, Any]:
    """Processor, memory, kernel, Python, and the versions of the packages that deskgrid uses."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {package: metadata.version(package) for package in PACKAGES},
    }


def _processor() -> str:
    """The processor's name, as the kernel reports it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
