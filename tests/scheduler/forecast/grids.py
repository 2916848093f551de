"""Pictures of small grids."""

from math import inf

from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureTask,
    PictureWindow,
)

HOUR = 3600.0
DAY = 24 * HOUR
# Tasks take about five minutes: from four to six.
FIVE_MINUTES = Durations(tuple(240.0 + 2.5 * n for n in range(49)), 64.0)


def lab(name: str, pcs: int, hours: float, days: int = 7) -> tuple[PicturePC, ...]:
    """A lab that is open now, for so many hours, and again each day."""
    spans = tuple([PictureWindow(day * DAY, day * DAY + hours * HOUR) for day in range(days)])
    return tuple([PicturePC(f"{name}-{number}", spans, site=name) for number in range(pcs)])


def bag(tasks: int, number: int = 1, durations: Durations = FIVE_MINUTES) -> PictureBag:
    """A bag of like tasks that wait."""
    typical = durations.points[len(durations.points) // 2]
    return PictureBag(number, (Group(tasks, durations, typical, typical + 1.0),), tasks)


__all__ = [
    "DAY",
    "FIVE_MINUTES",
    "HOUR",
    "Durations",
    "Group",
    "Picture",
    "PictureBag",
    "PicturePC",
    "PictureTask",
    "PictureWindow",
    "inf",
]
