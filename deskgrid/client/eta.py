"""When a bag will be done, as seconds and as times of this machine's clock."""

import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from deskgrid.durations import MINUTE_S, duration

# Shorter times are told as durations, longer ones as times of the clock. Seconds.
CLOCK_S = 10 * MINUTE_S
# Within so many days, the day of the week tells which day it is.
DAYS = 7


def _now() -> datetime:
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class Eta:
    """When a bag will be done, in seconds from the time when you asked.

    The bag ends between ``low`` and ``high`` with this ``confidence``, and is as likely to end before ``median`` as
    after it. If there is no estimate, these are None, and ``why`` says why. If only ``high`` is None, the bag may never
    end unless something changes. ``asked``: the time of the question, by this machine's clock.
    """

    median: float | None
    low: float | None
    high: float | None
    confidence: float = 0.9
    why: str = ""
    asked: datetime = field(default_factory=_now, compare=False)

    @classmethod
    def of(cls, answer: dict[str, Any]) -> "Eta":
        """Make it from a broker's answer."""
        seconds = (answer["median_s"], answer["low_s"], answer["high_s"])
        return cls(*seconds, float(answer["confidence"]), str(answer["why"]))

    @property
    def known(self) -> bool:
        """Whether there is an estimate."""
        return self.median is not None

    @property
    def ended(self) -> bool:
        """Whether the bag has ended."""
        return self.high == 0.0

    @property
    def done_at(self) -> datetime | None:
        """The time at which the bag should be done: the median."""
        return _after(self.asked, self.median)

    @property
    def earliest(self) -> datetime | None:
        """The earliest time at which the bag should be done."""
        return _after(self.asked, self.low)

    @property
    def latest(self) -> datetime | None:
        """The latest time at which the bag should be done."""
        return _after(self.asked, self.high)

    def __str__(self) -> str:
        """In words: done Mon 07:40, at the latest 09:15."""
        if self.median is None:
            return f"unknown: {self.why}"
        if self.ended:
            return "it has ended"
        return when_done(self.median, self.high, self.asked)


def when_done(median: float, high: float | None, now: datetime) -> str:
    """Say when something is done, by seconds from ``now``; ``high``: at the latest, None for nobody knows."""
    point, limit = _after(now, median), _after(now, high)
    if median < CLOCK_S or point is None:
        latest = "the latest end is unknown" if high is None else f"at the latest in {duration(high)}"
        return f"done in {duration(median)}, {latest}"
    if limit is None:
        return f"done {clock(point, now)}, the latest end is unknown"
    return f"done {clock(point, now)}, at the latest {clock(limit, point)}"


def _after(now: datetime, seconds: float | None) -> datetime | None:
    if seconds is None or not math.isfinite(seconds):
        return None
    try:
        return (now + timedelta(seconds=seconds)).astimezone()
    except OverflowError:
        return None


def clock(time: datetime, beside: datetime) -> str:
    """Format a time of the clock, with as much of the date as is needed beside another time."""
    if time.date() == beside.date():
        return f"{time:%H:%M}"
    if (time.date() - beside.date()).days < DAYS:
        return f"{time:%a %H:%M}"
    return f"{time:%d %b %Y %H:%M}"
