"""The functions that every environment runs. They import nothing, so that all peers can have them in their workers."""

import os
import time
from functools import cache


def noop(item: int) -> int:
    """Nothing; the answer shows that it was done, and for which item."""
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
    """A large argument, and next to no result."""
    return len(data)


def produce(size: int) -> bytes:
    """A large result of next to no argument: bytes that cannot be made smaller, and are made once for each process."""
    return _random(size)


@cache
def _random(size: int) -> bytes:
    # What a system carries is measured, and making 10 MB of these takes about as long as carrying them.
    return os.urandom(size)
