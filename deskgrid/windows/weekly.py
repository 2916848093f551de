"""Weekly calendars: the windows of a PC in local wall time, and the instants that they stand for.

A calendar is a table, read from a TOML file or received as JSON::

    zone = "Europe/Brussels"       # IANA name; without it, the zone of the machine that reads it
    windows = ["mon-fri 18:00-08:00", "sat-sun all day"]
    except = ["tue 20-22"]         # not then, every week
    [dates]                        # exceptions: they replace the windows that start on that local date
    "2026-12-24..2027-01-03" = "all day"
    "2026-12-24" = ["08:00-12:00", "13:00-20:00"]
    "2027-01-04" = "closed"
    # before [dates]: grace = "30m", for which tasks that run when a window ends may go on

Rules:

1. A window belongs to the day it starts on. A window that ends at or before its start time passes midnight:
   ``mon 18:00-08:00`` ends on Tuesday. Windows of one day may touch but not overlap. A window whose tail runs
   into the next day's windows is merged with them.
2. Days are ``mon`` to ``sun``, lists (``mon,wed``), ranges, which may wrap (``fri-mon``), or ``daily``. Times
   are ``HH:MM`` or ``HH``; ``24:00`` may end a window. What ``except`` lists is cut out of the windows of every
   week. ``closed = true`` in the place of ``windows``: no week has any.
3. A dated exception replaces the windows that start on its date, and leaves the tail of the day before. Only
   ``closed`` does more: that whole local date is closed, so a tail from the day before ends at its midnight.
   Where dates and ranges of dates meet, the shorter one counts.
4. A local time means the first instant at which the wall clock shows that time *or a later one*. So if clocks
   are set back, a time that comes twice is the first of the two. If clocks are set forward, a skipped time is
   the moment of the change, and a window wholly inside the skipped time does not take place. So
   ``01:00-05:00`` is three hours of uptime in the night that loses an hour, and five in the night that gains
   one.
5. Nothing here reads a clock. Windows are half-open, ``[opening, closing)``, in POSIX seconds.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from zoneinfo import ZoneInfo

from deskgrid.durations import precise, read_duration
from deskgrid.home_file import read_toml

DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN = 24 * 60

# At least two of every weekday: if the change of clocks skips a window in one week, it takes place in the other.
CHUNK_DAYS = 15

# The years that Windows' own calendar functions can compute; nobody plans a lab outside them.
YEARS = range(2000, 3000)

# The dates of all exceptions of one table: ten years.
DATES = 3_660

# What a table may have.
KEYS = ("zone", "windows", "except", "closed", "dates", "grace")
# What it may have besides, if it is one of the broker's windows.toml.
BROKER_KEYS = ("invert", "lead", "events", "owner", "wake")
# The longest time that running tasks may have after a window: a day. Seconds.
GRACE_LIMIT_S = 86_400.0
_TIME = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

# Minutes after the local midnight of the day it starts on: 0 <= start < 1440, start < end <= start + 1440.
Span = tuple[int, int]
# POSIX seconds: (opening, closing).
Window = tuple[float, float]


class PlanError(ValueError):
    """An impossible or malformed plan. The message is one line: file, line or entry, and cause."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The windows on the days around some instant. All times are POSIX seconds."""

    begin: float  # the timeline is valid for instants from here
    until: float  # to here
    windows: tuple[Window, ...]  # the windows that are open or start in ``[begin, finish)``
    closings: tuple[float, ...]  # their ends, for searching
    finish: float  # where the last window is cut, if it is longer
    change: float | None  # the first opening or closing from ``finish`` on; None: never


@dataclass(frozen=True, slots=True)
class Calendar:
    """The windows of a week, its exceptions, and the arithmetic on both."""

    zone: ZoneInfo | None  # None: the zone of this machine
    week: tuple[tuple[Span, ...], ...]  # seven days, Monday first, each sorted and without overlap
    dates: Mapping[date, tuple[Span, ...]]  # exceptions; no span: closed
    text: str  # the weekly windows as people wrote them
    grace_s: float = 0.0  # for how long tasks that run when a window ends may go on
    said: str = ""  # what it says, for people, if its windows are made from something else

    def describe(self) -> str:
        """Return the windows as they were written, how many dates are exceptions, the grace, and the zone."""
        if self.said:
            return self.said
        count = len(self.dates)
        dated = f"{count} dated exception{'s' * (count > 1)}" if count else ""
        zone = self.zone.key if self.zone else "local time"
        grace = f"grace {precise(self.grace_s)}" if self.grace_s else ""
        return f"{'; '.join(filter(None, (self.text, dated, grace)))} ({zone})"

    def day_of(self, wall: float) -> date:
        """Return the local date at POSIX second ``wall``."""
        return reading(wall, self.zone).date()

    def midnight(self, day: date) -> float:
        """Return the POSIX second at which the local ``day`` begins."""
        return first_instant(day, 0, self.zone)

    def timeline(self, wall: float, days: int) -> Timeline:
        """Return the windows of ``days`` local dates, from the date of ``wall``; valid while that date lasts."""
        first = self.day_of(wall)
        after = first + timedelta(days)
        finish = self.midnight(after)
        windows = tuple(self.windows(first, days))
        closings = tuple(closing for _, closing in windows)
        change = self.change(after, bool(closings) and closings[-1] == finish)
        tomorrow = self.midnight(first + timedelta(1))
        return Timeline(self.midnight(first), tomorrow, windows, closings, finish, change)

    def windows(self, first: date, days: int) -> list[Window]:
        """Return the windows of ``days`` local dates from ``first``: merged, sorted, cut to these dates."""
        begin, finish = self.midnight(first), self.midnight(first + timedelta(days))
        found: list[Window] = []
        for number in range(-1, days):  # from the day before, whose tail may run in
            day = first + timedelta(number)
            for start, end in self._spans(day):
                opening = max(first_instant(day, start, self.zone), begin)
                found.append((opening, min(first_instant(day, end, self.zone), finish)))
        merged: list[Window] = []
        for opening, closing in sorted(found):  # the last part of a tail may open after the next day's first window
            if opening >= closing:
                continue
            if merged and opening <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(closing, merged[-1][1]))
            else:
                merged.append((opening, closing))
        return merged

    def change(self, day: date, is_open: bool) -> float | None:
        """Return the first POSIX second, from the midnight of ``day`` on, of a change; None if never.

        ``is_open`` is the state just before that midnight.
        """
        while True:
            found = self._change_within(day, is_open)
            if found is not None:
                return found
            after = day + timedelta(CHUNK_DAYS)
            if not any(day <= exception < after for exception in self.dates):
                # CHUNK_DAYS ordinary days without a change: only an exception can bring one.
                later = [exception for exception in self.dates if exception >= after]
                if not later:
                    return None
                after = max(after, min(later) - timedelta(1))
            day = after

    def _change_within(self, day: date, is_open: bool) -> float | None:
        begin, finish = self.midnight(day), self.midnight(day + timedelta(CHUNK_DAYS))
        windows = self.windows(day, CHUNK_DAYS)
        if not is_open:
            return windows[0][0] if windows else None
        if not windows or windows[0][0] > begin:
            return begin
        closing = windows[0][1]
        return closing if closing < finish else None

    def _spans(self, day: date) -> list[Span]:
        spans = self.dates.get(day)
        if spans is None:
            spans = self.week[day.weekday()]
        limit = DAY_MIN if self.dates.get(day + timedelta(1)) == () else 2 * DAY_MIN
        return [(start, min(end, limit)) for start, end in spans]


def reading(wall: float, zone: ZoneInfo | None) -> datetime:
    """Return the local time that a wall clock shows at POSIX second ``wall``: a datetime without a zone."""
    return datetime.fromtimestamp(wall, zone).replace(tzinfo=None)


def first_instant(day: date, minutes: int, zone: ZoneInfo | None) -> float:
    """Return the first POSIX second at which clocks show ``minutes`` into ``day``, or later (rule 4)."""
    return instant_of(datetime.combine(day, time()) + timedelta(minutes=minutes), zone)


def instant_of(local: datetime, zone: ZoneInfo | None) -> float:
    """Return the first POSIX second at which clocks show ``local``, which has no zone, or later (rule 4)."""
    instant = local.replace(tzinfo=zone).timestamp()
    if reading(instant, zone) == local:
        return instant
    # Skipped (PEP 495): fold=1 counts with the offset after the change and lands before it, fold=0 the other
    # way round.
    before, after = int(local.replace(tzinfo=zone, fold=1).timestamp()), int(instant)
    while after - before > 1:
        middle = (before + after) // 2
        if reading(middle, zone) < local:
            before = middle
        else:
            after = middle
    return float(after)


def calendar_from_table(table: Mapping[str, object], where: str) -> Calendar:
    """Return the calendar that ``table`` describes; ``where`` names its source in errors.

    Raises PlanError for anything that the module's rules do not allow, and for a calendar that never opens.
    """
    for key in table:
        if key in BROKER_KEYS:
            raise PlanError(f'{where}: {key} is for the broker\'s windows.toml, below a pattern such as ["lab3-*"]')
        if key not in KEYS:
            raise PlanError(f"{where}: unknown key {key!r} (known: {', '.join(KEYS)})")
    entries = texts_of(table.get("windows", []), f"{where}: windows")
    if any(text.lower().endswith(".ics") or "://" in text for text in entries):
        raise PlanError(
            f"{where}: windows: a calendar stands alone, as one text, and only in the broker's windows.toml"
        )
    cuts = texts_of(table.get("except", []), f"{where}: except")
    closed = table.get("closed", False)
    if type(closed) is not bool:
        raise PlanError(f"{where}: closed: expected true or false, got {closed!r}")
    if closed and (entries or cuts):
        raise PlanError(f"{where}: closed = true leaves nothing for windows and except: remove it, or these")
    week = _without(_week(entries, where), _named_spans(cuts, f"{where}: except"))
    dates = _dates(table.get("dates", {}), where)
    if not closed and not any(week) and not any(dates.values()):
        raise PlanError(f"{where}: no windows, and no dates that open: if it is never to be up, write closed = true")
    text = "closed" if closed else ", ".join(map(_tidy, entries))
    text += f", except {', '.join(map(_tidy, cuts))}" if cuts else ""
    return Calendar(zone_named(table.get("zone"), where), week, dates, text, _grace(table.get("grace", "0s"), where))


def _grace(value: object, where: str) -> float:
    """Return the seconds for which running tasks may go on after a window."""
    try:
        seconds = read_duration(value) if isinstance(value, str) else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= GRACE_LIMIT_S:
        raise PlanError(f'{where}: grace: expected a duration of at most a day, such as "30m", got {value!r:.80}')
    return seconds


def read_text(path: Path) -> str:
    """Return the text of a plan's file, in UTF-8 with or without a BOM; PlanError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: is not text in UTF-8: {error}") from error


def toml_table(text: str, where: str) -> dict[str, object]:
    """Return the table that TOML ``text`` holds; PlanError, with line and column, when it is not TOML."""
    try:
        return read_toml(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{where}: {error}") from error


def zone_named(name: object, where: str) -> ZoneInfo | None:
    """Return the zone of an IANA ``name``, None for None; PlanError when there is no such zone."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise PlanError(f'{where}: zone: expected a name such as "Europe/Brussels", got {name!r}')
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # not found; not a name, or no zone's file; a folder
        raise PlanError(f"{where}: unknown zone {name!r}") from error


def minute_of_day(text: str) -> int:
    """Return the minutes after midnight of ``HH:MM``, 0 to 1440 (``24:00``); PlanError if malformed."""
    match = _TIME.fullmatch(text.strip())
    if match:
        hours, minutes = int(match[1]), int(match[2] or 0)
        if minutes < 60 and hours * 60 + minutes <= DAY_MIN:
            return hours * 60 + minutes
    raise PlanError(f"malformed time {text.strip()!r}, expected HH:MM from 00:00 to 24:00")


def _named_spans(entries: Iterable[str], where: str) -> list[list[tuple[Span, str]]]:
    """Return the spans of seven days, Monday first, each with the entry that it comes from."""
    days: list[list[tuple[Span, str]]] = [[] for _ in DAY_NAMES]
    for entry in entries:
        numbers, span = _entry(entry, f"{where} {entry!r}")
        for number in numbers:
            days[number].append((span, entry))
    return days


def _week(entries: Iterable[str], where: str) -> list[tuple[Span, ...]]:
    days = _named_spans(entries, f"{where}: window")
    return [_sorted_spans(day, f"{where}: {name}") for name, day in zip(DAY_NAMES, days, strict=True)]


def _without(week: Sequence[Sequence[Span]], cuts: Sequence[list[tuple[Span, str]]]) -> tuple[tuple[Span, ...], ...]:
    """Return the windows of a week without what is cut out of it, also of the tails that reach the next day."""
    found = list[tuple[Span, ...]]()
    for number, spans in enumerate(week):
        left = list(spans)
        for later in (-1, 0, 1):
            for (start, end), _ in cuts[(number + later) % 7]:
                cut = start + later * DAY_MIN, end + later * DAY_MIN
                left = [part for span in left for part in _parts(span, cut)]
        found.append(tuple(left))
    return tuple(found)


def _parts(span: Span, cut: Span) -> list[Span]:
    """Return what is left of ``span`` without ``cut``. What begins after midnight still belongs to its day."""
    parts = (span[0], min(span[1], cut[0])), (max(span[0], cut[1]), span[1])
    return [part for part in parts if part[0] < part[1]]


def _entry(entry: str, where: str) -> tuple[set[int], Span]:
    words = _tidy(entry).split()
    last = 2 if words[-2:] == ["all", "day"] else 1
    days, times = " ".join(words[:-last]), " ".join(words[-last:])
    if not days:
        raise PlanError(f'{where}: expected days and times, such as "mon-fri 18:00-08:00"')
    return _day_numbers(days, where), _span(times, where)


def _day_numbers(text: str, where: str) -> set[int]:
    if text == "daily":
        return set(range(len(DAY_NAMES)))
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start = _day_number(first, where)
        end = _day_number(last, where) if dash else start
        numbers.update((start + n) % 7 for n in range((end - start) % 7 + 1))
    return numbers


def _day_number(name: str, where: str) -> int:
    if name not in DAY_NAMES:
        raise PlanError(f"{where}: unknown day {name!r} (days: {', '.join(DAY_NAMES)}, daily)")
    return DAY_NAMES.index(name)


def _span(text: str, where: str) -> Span:
    if text == "all day":
        return 0, DAY_MIN
    first, dash, last = text.partition("-")
    if not dash:
        raise PlanError(f'{where}: malformed times {text!r}, expected HH:MM-HH:MM or "all day"')
    try:
        start, end = minute_of_day(first), minute_of_day(last)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from error
    if start == DAY_MIN:
        raise PlanError(f"{where}: 24:00 can end a window, not start one")
    if start == end:
        raise PlanError(f'{where}: a window of no length (for a whole day, write "all day")')
    return start, end if end > start else end + DAY_MIN


def _sorted_spans(named: Iterable[tuple[Span, str]], where: str) -> tuple[Span, ...]:
    ordered = sorted(named)
    for ((_, end), earlier), ((start, _), later) in pairwise(ordered):
        if start < end:
            raise PlanError(f"{where}: windows {earlier!r} and {later!r} overlap")
    return tuple(span for span, _ in ordered)


def _dates(table: object, where: str) -> dict[date, tuple[Span, ...]]:
    if not isinstance(table, Mapping):
        raise PlanError(f"{where}: dates: expected a table of dates, got {table!r}")
    ranges = []
    for key, value in table.items():
        first, last = _range(key, f"{where}: dates")
        ranges.append(((last - first).days + 1, first, key, _date_spans(value, f"{where}: date {key!r}")))
    if sum(length for length, *_ in ranges) > DATES:
        raise PlanError(f"{where}: dates: more than {DATES:,} days")
    found: dict[date, tuple[Span, ...]] = {}
    by: dict[date, tuple[int, str]] = {}
    for length, first, key, spans in sorted(ranges, key=itemgetter(0)):
        for day in (first + timedelta(number) for number in range(length)):
            if day not in by:
                by[day], found[day] = (length, key), spans
            elif by[day][0] == length:
                raise PlanError(f"{where}: dates: {day} is both in {by[day][1]!r} and in {key!r}, which is as long")
    return found


def _range(key: str, where: str) -> tuple[date, date]:
    """Return the first and the last day of a date or of ``DATE..DATE``."""
    start, dots, end = key.partition("..")
    first = _date(start.strip(), where)
    last = _date(end.strip(), where) if dots else first
    if last < first:
        raise PlanError(f"{where}: {key!r} ends before it starts")
    return first, last


def _date(key: str, where: str) -> date:
    try:
        day = date.fromisoformat(key) if _DATE.fullmatch(key) else None
    except ValueError as error:
        raise PlanError(f"{where}: no such date as {key!r} ({error})") from error
    if day is None or day.year not in YEARS:
        years = f"{YEARS[0]} to {YEARS[-1]}"
        raise PlanError(f"{where}: malformed date {key!r}, expected YYYY-MM-DD, years {years}")
    return day


def _date_spans(value: object, where: str) -> tuple[Span, ...]:
    texts = texts_of(value, where)
    if [_tidy(text) for text in texts] == ["closed"]:
        return ()
    if not texts:
        raise PlanError(f'{where}: no windows (to keep it shut, write "closed")')
    return _sorted_spans([(_span(_tidy(text), where), text) for text in texts], where)


def _tidy(text: str) -> str:
    """Return ``text`` in lower case with single spaces, and none around dashes and commas."""
    return re.sub(r"\s*([-,])\s*", r"\1", " ".join(text.lower().split()))


def texts_of(value: object, where: str) -> list[str]:
    """Return a text, or a list of them, as a list; PlanError for anything else."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise PlanError(f"{where}: expected text or a list of texts, got {value!r}")
    return texts
