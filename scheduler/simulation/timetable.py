"""When a simulated PC is there: its windows as they are, and as they are announced. Seconds from the start of a run.

Rule 1: a timetable is a function, so that every run gets a fresh iterator; it may be endless.
Rule 2: spans come in order and do not overlap. Their announced closings may be wrong; the actual ones are not.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from deskgrid.scheduler.model import ANNOUNCED, OPEN_ENDED, SchedulerError

# How many windows of a PC are searched, before a run begins, for one that is long enough.
LOOKED_THROUGH = 1000


class IllegalSpan(SchedulerError):
    """An impossible window, or one that opens before the last one closes."""


@dataclass(frozen=True, slots=True)
class RealWindow:
    """One window of a PC as it really is. ``announced``: the closing that the scheduler is told.

    ``again``: closings that it is told later, each when the closing before has come and the PC is still there.
    """

    opens: float
    closes: float
    announced: float
    again: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.opens < min(self.closes, self.announced):
            raise IllegalSpan(f"a window opens at 0 or later, and closes after that: {self}")
        if self.again and any(not (before < self.closes and before < after) for before, after in self.refreshes()):
            raise IllegalSpan(f"another closing is announced when one has come, while the window is open: {self}")

    @property
    def closings(self) -> tuple[float, ...]:
        """Every closing that is announced, in order."""
        return (self.announced, *self.again)

    def refreshes(self) -> Iterator[tuple[float, float]]:
        """When another closing is announced, and which."""
        return pairwise(self.closings)

    def longest(self) -> float:
        """The longest uptime that is announced."""
        return max(later - at for at, later in pairwise((self.opens, *self.closings)))


Timetable = Callable[[], Iterator[RealWindow]]


def always() -> Iterator[RealWindow]:
    """One window that never closes."""
    yield RealWindow(0.0, OPEN_ENDED, OPEN_ENDED)


@dataclass(frozen=True, slots=True)
class UpDownCycle:
    """``up`` seconds available, ``down`` seconds not, from 0 on for ever."""

    up: float
    down: float

    def __call__(self) -> Iterator[RealWindow]:
        opens = 0.0
        while True:
            closes = opens + self.up
            yield RealWindow(opens, closes, closes)
            opens = closes + self.down


def cycle(up: float, down: float) -> Timetable:
    """A PC that comes and goes in the same cycle for ever; for an infinite ``up`` that is `always`."""
    return always if up == OPEN_ENDED else UpDownCycle(up, down)


def kinds_of_spans(timetable: Timetable) -> list[RealWindow] | None:
    """Spans that stand for all of ``timetable``; None if it has too many to search."""
    if isinstance(timetable, UpDownCycle):
        return [next(timetable())]
    spans = list(islice(timetable(), LOOKED_THROUGH + 1))
    return spans if len(spans) <= LOOKED_THROUGH else None


class SpanCalendar:
    """The spans of one PC as a run comes to them, with a look ahead."""

    def __init__(self, timetable: Timetable) -> None:
        self._rest = timetable()
        self._ahead: deque[RealWindow] = deque()
        # How long each of these lasts as announced, cut so that none reaches into the next.
        self._lasts: deque[float] = deque()
        self._last = 0.0  # the closing of the last span that was looked at

    def take(self) -> RealWindow | None:
        """Take the next span, which then no longer counts as coming; None if the PC stays away for ever."""
        self._look(1)
        if not self._ahead:
            return None
        self._lasts.popleft()
        return self._ahead.popleft()

    def coming(self, now: float) -> tuple[tuple[float, float], ...]:
        """The windows to come as a worker announces them, (starts in, lasts)."""
        self._look(ANNOUNCED + 1)
        pairs = islice(zip(self._ahead, self._lasts, strict=True), ANNOUNCED)
        return tuple([(span.opens - now, lasts) for span, lasts in pairs])

    def _look(self, count: int) -> None:
        ahead = self._ahead
        while len(ahead) < count and (span := next(self._rest, None)) is not None:
            if span.opens < self._last:
                raise IllegalSpan(f"a window opens before the last one closes: {span}")
            self._last = span.closes
            if ahead:
                self._lasts[-1] = min(ahead[-1].announced, span.opens) - ahead[-1].opens
            ahead.append(span)
            self._lasts.append(span.announced - span.opens)
