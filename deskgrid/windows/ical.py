"""What is in a calendar: its events as times, by way of the libraries of the extra ``ical``.

Rule 1: one wrong event costs that event, not the calendar; people are told.
Rule 2: events that are cancelled, or transparent (they block no time), do not count.
Rule 3: a time without a zone, or of a zone that nobody knows, is a time in the zone of the reader.
"""

import fnmatch
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta
from types import FrameType
from typing import Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from deskgrid.windows.weekly import Window, first_instant, instant_of

# Of icalendar, whose own types say little: a calendar, and an event in one.
Calendar: TypeAlias = Any
Component: TypeAlias = Any

# What one event with all its repetitions may take. Seconds of processor time.
EVENT_S = 2.0
# Events, with their repetitions.
OCCURRENCES = 50_000
# What may repeat, and how often: a class every minute is a mistake.
FREQUENCIES = ("HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
# What makes an event repeat, or tells of another one that does.
REPEATS = ("RRULE", "RDATE", "EXRULE", "EXDATE", "RECURRENCE-ID")
# Events that are named in one doubt, and characters of a title.
NAMED, TITLE = 3, 40
MISSING = "calendars need two libraries: pip install icalendar recurring-ical-events, where the broker runs"


class CalendarError(ValueError):
    """What was read is no calendar that can be used; one line that says why."""


class Occurrence(NamedTuple):
    """An event at one time. ``start``, ``end``: dates, times without a zone, or times with one."""

    title: str
    start: date
    end: date


class CalendarEvents(NamedTuple):
    """The events of a calendar in some time, and what is doubtful, each in one sentence."""

    occurrences: Sequence[Occurrence]
    doubts: Sequence[str]

    def times(self, patterns: Sequence[str], zone: ZoneInfo | None) -> list[Window]:
        """Return when events are whose titles match a pattern, or all without patterns; case does not matter."""
        expression = re.compile("|".join(fnmatch.translate(each.lower()) for each in patterns or ["*"]))
        every = [each for each in self.occurrences if expression.match(each.title.lower())]
        return [(_instant(each.start, zone), _instant(each.end, zone)) for each in every]


def read_calendar(text: str, begin: float, end: float) -> CalendarEvents:
    """Return the events between two POSIX seconds, and some around them. Raises `CalendarError`."""
    if text.lstrip("\ufeff \r\n\t")[:15].upper() != "BEGIN:VCALENDAR":
        page = "; it is a page for a browser, maybe one to log in" if "<html" in text[:2_000].lower() else ""
        if not text.strip():
            raise CalendarError("it is empty")
        raise CalendarError(f"not a calendar: it begins with {text.strip()[:30]!r}{page}")
    if text.rstrip()[-13:].upper() != "END:VCALENDAR":
        raise CalendarError("not a whole calendar: its end is missing")
    try:
        import icalendar
        import recurring_ical_events  # noqa: F401
    except ImportError as error:
        raise CalendarError(MISSING) from error
    try:
        calendars = icalendar.Calendar.from_ical(text.lstrip("\ufeff \r\n\t"), multiple=True)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CalendarError(f"not a calendar that can be read: {error!s:.200}") from error
    reader = _EventReader(begin, end)
    for calendar in calendars:
        for series in _series(calendar):
            reader.read(calendar, series)
    return CalendarEvents(reader.found, list(reader.doubts()))


def _series(calendar: Calendar) -> Iterable[list[Component]]:
    """Return the events of a calendar: each with the changes of its repetitions."""
    by_uid: defaultdict[str, list[Component]] = defaultdict(list)
    for number, event in enumerate(calendar.walk("VEVENT")):
        by_uid[str(event.get("UID") or number)].append(event)
    return by_uid.values()


class _EventReader:
    """Reads one event after the other, and remembers what was wrong."""

    def __init__(self, begin: float, end: float) -> None:
        # A day more on either side: a time without a zone may be up to 14 hours away.
        self._begin = datetime.fromtimestamp(begin, UTC) - timedelta(2)
        self._end = datetime.fromtimestamp(end, UTC) + timedelta(2)
        self.found: list[Occurrence] = []
        self._repeated, self._left_out = list[str](), list[str]()
        self._zones: set[str] = set()

    def read(self, calendar: Calendar, series: list[Component]) -> None:
        """Add the times of an event, or remember why there are none."""
        self._note_zones(series)
        try:
            with _limited_time():
                for event in series:
                    _check_rule(event)
                self._add(calendar, series)
            return
        except CalendarError:
            raise
        except Exception:  # whatever the libraries raise, it is one event that is wrong
            self._repeated.append(_name(series))
        for event in series:
            for key in REPEATS:
                event.pop(key, None)
        try:
            with _limited_time():
                self._add(calendar, series)
        except CalendarError:
            raise
        except Exception:
            self._left_out.append(self._repeated.pop())

    def _add(self, calendar: Calendar, series: Sequence[Component]) -> None:
        if len(series) == 1 and not any(key in series[0] for key in REPEATS):
            self._add_times(series)  # most events of most calendars, which take some 20 times longer otherwise
            return
        import icalendar
        import recurring_ical_events

        alone = icalendar.Calendar()
        if "X-WR-TIMEZONE" in calendar:
            alone["X-WR-TIMEZONE"] = calendar["X-WR-TIMEZONE"]
        alone.subcomponents = [*calendar.walk("VTIMEZONE"), *series]
        self._add_times(recurring_ical_events.of(alone).between(self._begin, self._end))

    def _add_times(self, events: Iterable[Component]) -> None:
        found = list[Occurrence]()
        for event in events:
            start, end = event.start, event.end
            if _day(end) < self._begin.date() or _day(start) > self._end.date():
                continue
            if str(event.get("STATUS", "")).upper() == "CANCELLED":
                continue
            if str(event.get("TRANSP", "")).upper() == "TRANSPARENT":
                continue
            found.append(Occurrence(str(event.get("SUMMARY", "")), start, end))
        if len(self.found) + len(found) > OCCURRENCES:
            raise CalendarError(f"more than {OCCURRENCES:,} events in the coming weeks")
        self.found += found

    def _note_zones(self, series: Sequence[Component]) -> None:
        for event in series:
            with suppress(Exception):
                start = event["DTSTART"]
                if "TZID" in start.params and start.dt.tzinfo is None:
                    self._zones.add(str(start.params["TZID"])[:TITLE])

    def doubts(self) -> Iterator[str]:
        """Yield what is doubtful."""
        if self._zones:
            yield f"unknown zone {', '.join(sorted(self._zones)[:NAMED])}: taken for the zone of the table"
        if self._repeated:
            yield f"only the first time counts of {_listed(self._repeated)}: nobody can say when it repeats"
        if self._left_out:
            yield f"left out, because its times are wrong: {_listed(self._left_out)}"


def _check_rule(event: Component) -> None:
    """Refuse rules that repeat too often or never come to an end; a last day as a date counts to its end."""
    found: Any = event.get("RRULE")
    for rule in found if isinstance(found, list) else [] if found is None else [found]:
        (frequency,) = rule["FREQ"]
        (interval,) = rule.get("INTERVAL", [1])
        if str(frequency).upper() not in FREQUENCIES or not 1 <= int(interval) <= 10_000:
            raise ValueError("a rule that repeats too often, or never")
        start = event["DTSTART"].dt
        until = rule.get("UNTIL", [None])[0]
        if isinstance(start, datetime) and until is not None and not isinstance(until, datetime):
            last = datetime.combine(until, time(23, 59, 59), start.tzinfo)
            rule["UNTIL"] = [last if start.tzinfo is None else last.astimezone(UTC)]


def _day(value: date) -> date:
    return value.date() if isinstance(value, datetime) else value


def _instant(value: date, zone: ZoneInfo | None) -> float:
    if not isinstance(value, datetime):
        return first_instant(value, 0, zone)
    if value.tzinfo is None:
        return instant_of(value, zone)
    if isinstance(value.tzinfo, ZoneInfo):
        return instant_of(value.replace(tzinfo=None), value.tzinfo)
    return value.timestamp()


def _name(series: Sequence[Component]) -> str:
    for event in series:
        with suppress(Exception):
            return repr(str(event["SUMMARY"])[:TITLE])
    return "an event without a title"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


@contextmanager
def _limited_time() -> Iterator[None]:
    """Raises TimeoutError when the block has taken `EVENT_S`, where there are such timers."""
    if sys.platform == "win32":
        yield
    else:
        before = signal.signal(signal.SIGPROF, _too_long)
        signal.setitimer(signal.ITIMER_PROF, EVENT_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            signal.signal(signal.SIGPROF, before)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
