"""What comes after the windows that a worker has announced. Plans, forecasts and trials of policies expect the same.

Rule 1: a worker announces the windows of the next seven days. They come again every week.
Rule 2: if it announces as many as it may, these are only the first of the week. Then the last one comes again, always
as long after it as it comes after the one before. So do windows that are expected by habit.
Rule 3: nothing is expected beyond `HORIZON_S`.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

from deskgrid.scheduler.model import WEEK_S, Windows

HORIZON_S = 8 * WEEK_S

Each = TypeVar("Each")


def place_of(number: int, known: int, period_s: float) -> tuple[int, float] | None:
    """Which of the ``known`` windows window ``number`` is, and how many seconds later it comes; None: beyond the horizon.

    ``period_s``: as `Windows.period_s`.
    """
    if number < known:
        return number, 0.0
    if not known:
        return None
    times, place = divmod(number, known) if period_s == WEEK_S else (number - known + 1, known - 1)
    return (place, times * period_s) if period_s and times * period_s < HORIZON_S else None


def recurring(known: Sequence[Each], period_s: float) -> Iterator[tuple[Each, float]]:
    """The ``known`` windows, and those expected after them: each as a known one, and how many seconds later it comes."""
    for number in count():
        found = place_of(number, len(known), period_s)
        if found is None:
            return
        yield known[found[0]], found[1]


def repeated(windows: Windows) -> Sequence[Windows]:
    ...
