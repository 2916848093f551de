"""How many processors a PC has for tasks."""

import os
import sys


def cores() -> int:
    """Return the number of cores that this process may use."""
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return count
