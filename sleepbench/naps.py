"""The benchmark's task. Alone in its file, so that the process that runs it loads nothing else of ours."""

import os
import time

# In the environment of a worker, and of what it starts: which PC of the benchmark it is.
PC = "DESKGRID_SLEEPBENCH_PC"


def nap(seconds: float) -> tuple[str, float, float]:
    """Sleep for ``seconds``; returns on which PC, and from when to when by the machine's monotonic clock."""
    started = time.monotonic()
    time.sleep(seconds)
    return os.environ[PC], started, time.monotonic()
