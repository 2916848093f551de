"""How many processors a PC has for tasks."""

import os
import sys


def processors() -> set[int]:
    """Return the numbers of the cores that this process may use; on some systems, of all."""
    if sys.platform == "linux":
        return os.sched_getaffinity(0)
    else:
        return set(range(os.cpu_count() or 1))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(processors())
