"""The benchmark's task. It has a file of its own, so that the process that runs it loads nothing else of ours."""

import os
import time
from collections.abc import Sequence

# The environment variable that tells a worker and its child processes which PC of the benchmark they are.
PC = "DESKGRID_SLEEPBENCH_PC"
# And the one that tells them how fast that PC is to be.
SPEED = "DESKGRID_SLEEPBENCH_SPEED"


def nap(seconds: float) -> tuple[str, float, float]:
    """Sleep for ``seconds``; returns the PC's name, and start and end on the machine's monotonic clock."""
    started = time.monotonic()
    time.sleep(seconds)
    return os.environ[PC], started, time.monotonic()


def nap_together(seconds: Sequence[float]) -> tuple[str, float, float]:
    """As `nap`, for one rank of a gang that takes ``seconds[n - 1]`` on n ranks, on a PC of speed 1."""
    started = time.monotonic()
    ranks = int(os.environ["WORLD_SIZE"])
    time.sleep(seconds[min(ranks, len(seconds)) - 1] / float(os.environ[SPEED]))
    return os.environ[PC], started, time.monotonic()
