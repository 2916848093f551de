"""How fast this machine is at the moment. Bounds of time in tests are so many beats; none is a number of seconds.

A beat is the time that a certain piece of work takes, about two milliseconds on a PC of 2024 that is otherwise idle.
On a slower or busier machine, it takes longer, as what a test measures does.
"""

import time
from collections.abc import Callable, Sequence

_WORK = 20_000
# How many beats say how long one is.
TIMES = 15


def beat(clock: Callable[[], float] = time.perf_counter) -> float:
    """The seconds that the piece of work takes now."""
    began, kept = clock(), dict[int, int]()
    for number in range(_WORK):
        kept[number % 97] = kept.get(number % 89, 0) + number
    return clock() - began


def typical(beats: Sequence[float]) -> float:
    """The one in the middle."""
    return sorted(beats)[len(beats) // 2]


def pace(clock: Callable[[], float] = time.perf_counter) -> float:
    """The seconds of a beat, of some that are taken now."""
    return typical([beat(clock) for _ in range(TIMES)])
