"""The benchmark's task. It has a file of its own, so that the process that runs it loads nothing else of ours."""

import os
import time

# The environment variable that tells a worker and its child processes which PC of the benchmark they are.
PC = "DESKGRID_SLEEPBENCH_PC"


def nap(seconds: float) -> tuple[str, float, float]:
    """Sleep for ``seconds``; returns the PC's name, and start and end on the machine's monotonic clock."""
    started = time.monotonic()
    time.sleep(seconds)
    return os.environ[PC], started, time.monotonic()
