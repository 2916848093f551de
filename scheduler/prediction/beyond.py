"""What comes after the windows that a worker has announced: plans, forecasts and trials of policies expect the same.

Rule 1: a worker announces the windows of the next seven days. They come again every week.
Rule 2: if it announces as many as it may, they are only the first ones of its week. Then the last one comes again and
again, always as long after it as it comes after the one before. So do windows that are expected by habit.
Rule 3: nothing is expected beyond `HORIZON_S`, nor more than `MOST` windows of a worker: who looks for one that is long
enough gives up after that.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from deskgrid.scheduler.model import ANNOUNCED, WEEK_S

HORIZON_S, MOST = 8 * WEEK_S, 8 * ANNOUNCED

Known = TypeVar("Known")


def place_of(number: int, known: int, period_s: float) -> tuple[int, float] | None:
    """Which of ``known`` windows window ``number`` is like, and how many seconds later it comes; None: not expected.

    ``period_s``: after how long windows come again (`deskgrid.scheduler.model.Windows.period_s`); 0: they do not.
    """
    if number < known:
        return number, 0.0
    if not known or not period_s or number >= MOST:
        return None
    times, place = divmod(number, known) if period_s == WEEK_S else (number - known + 1, known - 1)
    return (place, times * period_s) if times * period_s < HORIZON_S else None


def beyond(known: Sequence[Known], period_s: float) -> Iterator[tuple[Known, float]]:
    """The windows after the ``known`` ones, in order: each as the known one that it is like, and how much later."""
    number = len(known)
    while (found := place_of(number, len(known), period_s)) is not None:
        place, later = found
        yield known[place], later
        number += 1
