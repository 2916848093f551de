"""Choose the tasks that fill a window best. Pure arithmetic over runtimes in seconds.

The subset sum over whole steps of the window is a dynamic program. Its row of reachable sums is one big integer, and
adding a task shifts that integer (Python's integers do 1,024 steps at once). Runtimes are rounded up to steps, so the
chosen tasks fit strictly. The room that is lost by rounding is then filled once more.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

# Steps that a window is cut into. Rounding up loses at most a thousandth of the window for each task.
STEPS = 1024
_REACHABLE = (1 << STEPS) - 1
# A subset is chosen from this many of the longest tasks that fit, and this many spread over the shorter ones. Fewer
# leave gaps; more cost time in each window of a plan.
LONGEST = 24
SPREAD = 24
# A window that still has room for this many of the longest tasks can be filled exactly later. For now it gets the
# longest.
MANY = 12


def best_subset(runtimes: Sequence[float], capacity: float) -> list[int]:
    """Places in the ascending ``runtimes`` with the largest sum below ``capacity``, longest first.

    Of equal sums, the one with longer tasks wins. Each task may add an error of ``capacity / STEPS``: a subset that
    leaves less room than that may be taken not to fit.
    """
    step = capacity / STEPS
    sizes = [math.ceil(runtime / step) for runtime in runtimes]
    reach, sums = [], 1
    for size in sizes:
        reach.append(sums)
        sums |= (sums << size) & _REACHABLE
    left = sums.bit_length() - 1
    chosen = []
    for place in range(len(sizes) - 1, -1, -1):
        size = sizes[place]
        if size <= left and reach[place] >> (left - size) & 1:
            chosen.append(place)
            left -= size
    return chosen


def candidates(fitting: int) -> list[int]:
    """Ascending places among the first ``fitting`` ones that a subset is chosen from."""
    if fitting <= LONGEST + SPREAD:
        return list(range(fitting))
    shorter = fitting - LONGEST
    return [shorter * number // SPREAD for number in range(SPREAD)] + list(range(shorter, fitting))


def fill(runtimes: list[float], capacity: float, *, force: bool = False) -> list[float]:
    """Take the tasks that fill ``capacity`` best out of the ascending ``runtimes``, and return them, longest first.

    ``force``: the longest task that fits is among them, whatever gap that leaves.
    """
    taken: list[float] = []
    while (fitting := bisect_left(runtimes, capacity)) and (force or capacity > MANY * runtimes[fitting - 1]):
        force = False
        taken.append(runtimes.pop(fitting - 1))
        capacity -= taken[-1]
    if fitting:
        places = candidates(fitting)
        for place in best_subset([runtimes[place] for place in places], capacity):
            taken.append(runtimes.pop(places[place]))
            capacity -= taken[-1]
        while fitting := bisect_left(runtimes, capacity):
            taken.append(runtimes.pop(fitting - 1))
            capacity -= taken[-1]
    return taken
