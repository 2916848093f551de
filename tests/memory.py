"""The memory of a process, and whether it stays flat."""

from collections.abc import Sequence
from pathlib import Path

# The least samples of which it can be said whether they are flat: three of each third.
LEAST = 9


def resident(pid: int) -> int:
    """The resident memory of a process, bytes."""
    return _status(pid, "VmRSS:")


def most_resident(pid: int) -> int:
    """The most that a process has had resident so far, bytes."""
    return _status(pid, "VmHWM:")


def swapped(pid: int) -> int:
    """What of a process's memory is not resident because others needed the room, bytes."""
    return _status(pid, "VmSwap:")


def _status(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has ended")


def growth(samples: Sequence[float]) -> float:
    """By which part the most of the last third of ``samples`` is above the most of the middle third.

    The first third is the warm-up, and does not count. Raises `ValueError` for fewer than `LEAST` samples.
    """
    if len(samples) < LEAST:
        raise ValueError(f"{len(samples)} samples are too few")
    third = len(samples) // 3
    return max(samples[-third:]) / max(samples[-2 * third : -third]) - 1.0
