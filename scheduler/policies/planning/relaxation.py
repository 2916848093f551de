"""When some work would be done if tasks could be cut into any pieces: no schedule ends earlier."""

import math
from collections.abc import Iterable


def done_at(steps: Iterable[tuple[float, int]], work_s: float) -> float:
    """When ``work_s`` slot seconds have passed; infinite when they never do.

    ``steps``: (time, change in the number of slots), in order of time; there may be infinitely many.
    """
    done, slots, at = 0.0, 0, 0.0
    for time, change in steps:
        if slots:
            if done + slots * (time - at) >= work_s:
                break
            done += slots * (time - at)
        at, slots = time, slots + change
    return at + (work_s - done) / slots if slots else math.inf
