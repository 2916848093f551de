"""The functions that every environment runs. They import nothing, so that all peers can have them in their workers."""

import os
import time
from functools import cache


def noop(item: int) -> int:
    """Do nothing. The result shows that the call was made, and for which item."""
    return item


def nap(seconds: float) -> float:
    """Sleep."""
    time.sleep(seconds)
    return seconds


def echo(data: bytes) -> bytes:
    """A result as large as the argument."""
    return data


def wait_for(file: str) -> str:
    """Hold the slot until ``file`` is gone."""
    while os.path.exists(file):
        time.sleep(0.05)
    return file


def size_of(data: bytes) -> int:
    """Take a large argument, and return almost nothing."""
    return len(data)


def produce(size: int) -> bytes:
    """Return a large result for a small argument: incompressible bytes, which are made once for each process."""
    return _random(size)


@cache
def _random(size: int) -> bytes:
    # Only the transfer is to be measured, and making 10 MB of random bytes takes about as long as transferring them.
    return os.urandom(size)
