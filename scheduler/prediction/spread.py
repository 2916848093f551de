"""What a prediction is worth: the runtimes, and the closings of windows, that it leaves open. Pure.

A distribution is a few values of equal weight, ascending. So it is cheap to make, to condition and to draw from.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

# How many values a distribution has at most.
POINTS = 16
# With fewer results, predictions are trusted.
ENOUGH = 4
# Predictions are taken at their word while the quantile 0.9 is less than this many times the quantile 0.1.
NARROW = 1.3
# A task that has outlived all that was expected of it takes so many times as long as it has run.
LONGER = (1.02, 1.06, 1.1, 1.15, 1.2, 1.3, 1.45, 1.7)


class RatioSpread(NamedTuple):
    """Ratios of what was to what was predicted, of equal weight, ascending.

    ``longest``: no such task takes longer than so many seconds, as far as experience goes.
    """

    ratios: tuple[float, ...]
    longest: float = inf


# Predictions that are trusted.
EXACT = RatioSpread((1.0,))


def narrow(spread: RatioSpread) -> bool:
    """Whether predictions can be taken at their word, but for a common factor."""
    ratios = spread.ratios
    least, most = ratios[len(ratios) // 10], ratios[len(ratios) - 1 - len(ratios) // 10]
    return most < NARROW * least


def runtimes(predicted: float, spread: RatioSpread, elapsed: float = 0.0) -> list[float]:
    """Runtimes, in seconds, of equal weight, ascending, of a task that was predicted to take ``predicted`` seconds.

    What exceeds ``spread.longest`` is left out: were it moved there instead, a task that was predicted too long would
    look as if it needed all of that. ``elapsed``: how long it has run, now or in an attempt that was killed. It takes
    longer than that.
    """
    limit = spread.longest
    found = [seconds for ratio in spread.ratios if (seconds := predicted * ratio) <= limit]
    if elapsed > 0.0:
        found = [seconds for seconds in found if seconds > elapsed]
    if not found and elapsed < limit < predicted * spread.ratios[-1]:
        return [limit]
    return found or [elapsed * factor for factor in LONGER]


def longest(predicted: float, spread: RatioSpread, elapsed: float = 0.0) -> float:
    """A bound that `runtimes` do not exceed, found without making them."""
    seconds = most if (most := predicted * spread.ratios[-1]) < spread.longest else spread.longest
    return seconds if seconds > elapsed or not elapsed else elapsed * LONGER[-1]


def closings(opened: float, announced: float, lengths: Sequence[float], now: float) -> list[float]:
    """When a window may close, of equal weight, ascending: instants on the clock of ``now``, all after it.

    If it has outlasted all that, it is the announced instant, even if that has passed.

    ``lengths``: how many seconds such windows last, ascending (`deskgrid.scheduler.prediction.hours`); none: it closes
    as ``announced``. It has been open since ``opened``.
    """
    found = [closes for length in lengths if (closes := opened + length) > now]
    return found or [announced]
