"""Windows from a calendar: what a table of ``windows.toml`` says of it, and the table that it stands for. Pure.

Instead of weekly windows, a table may name a calendar, which ``deskgrid.windows.ical`` reads::

    windows = "room.ics"           # a file in the broker's home, or an address: https://...
    invert = true                  # PCs are there when nothing is in the calendar; without it, while something is
    lead = "10m"                   # closed so long before each event
    events = ["lecture*"]          # only events with such titles count
    except = "tue 20-22"           # these two as in any table
    dates."2026-12-24..2027-01-03" = "all day"

Rule 1: workers get an ordinary table: ``closed``, with windows in UTC on the dates of the coming weeks. After the last
of them, they are closed.
Rule 2: windows are whole minutes; what is in doubt is closed.
Rule 3: an address may have a secret in it: people are shown only its host.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import PurePath
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from deskgrid.durations import precise, read_duration
from deskgrid.windows.weekly import Calendar, PlanError, Window, calendar_from_table, texts_of
from deskgrid.wire.limits import TABLE_BYTES

# What a table with a calendar may have besides.
CALENDAR_KEYS = ("invert", "lead", "events")
# In a table for a worker: its windows for people.
SAID = "said"
# The dates in such a table: the rest of this week, and eight more. It changes once a week.
WEEKS = 9
DAY_S = 86_400
# A lead is shorter than this. Seconds.
LEAD_LIMIT_S = DAY_S
# Characters of an address.
ADDRESS_LIMIT = 2_000
# Bytes of a table besides its dates.
_ROOM = 2_000


@dataclass(frozen=True, slots=True)
class CalendarRequest:
    """Which calendar to read, and for what: ``tables`` as JSON. ``text``: what is kept of it, if it cannot be read.

    ``fresh``: false: only what is kept is read.
    """

    source: str
    folder: str
    begin: float
    end: float
    tables: list[str]
    etag: str = ""
    modified: str = ""
    text: str | None = None
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class CalendarAnswer:
    """What came of it. ``error``: why the calendar could not be read now; then ``made`` is from what was kept.

    ``made``: for each table, the one for workers. ``doubts``: what is probably a mistake. ``text``: None: as before.
    """

    error: str = ""
    made: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    etag: str = ""
    modified: str = ""
    text: str | None = None


@dataclass(frozen=True, slots=True)
class CalendarRule:
    """What a table says. ``events``: patterns of titles; none: all events count."""

    source: str
    invert: bool
    lead_s: float
    events: tuple[str, ...]
    cuts: Calendar | None  # the windows of ``except``
    dates: Calendar  # dated exceptions, without weekly windows

    @property
    def zone(self) -> ZoneInfo | None:
        """The zone of times that name none."""
        return self.dates.zone

    def describe(self) -> str:
        """Return when PCs are there, for people."""
        titles = " or ".join(map(repr, self.events))
        what = f"no {titles}" if titles and self.invert else titles or ("nothing" if self.invert else "something")
        lead = f", until {precise(self.lead_s)} before" if self.lead_s else ""
        cut = f", except {self.cuts.text}" if self.cuts else ""
        told = self.dates.describe().removeprefix("closed")  # its dates, grace and zone
        return f"when {what} is in {shown(self.source)}{lead}{cut}{told}"

    def windows(self, events: Iterable[Window], begin: float, end: float) -> list[Window]:
        """Return the windows from ``begin`` to ``end``, both midnights in UTC, if ``events`` are in the calendar."""
        busy = _union([(start - self.lead_s, finish) for start, finish in events if start < finish])
        found = _minus([(begin, end)], busy) if self.invert else _union(busy)
        first = self.dates.day_of(begin) - timedelta(1)
        days = round((end - begin) / DAY_S) + 3
        if self.cuts:
            found = _minus(found, self.cuts.windows(first, days))
        midnight = self.dates.midnight
        found = _minus(found, _union([(midnight(day), midnight(day + timedelta(1))) for day in self.dates.dates]))
        whole = _union([*found, *self.dates.windows(first, days)])
        return [
            (max(opening, begin), min(closing, end)) for opening, closing in whole if opening < end and closing > begin
        ]


def is_calendar(windows: object) -> bool:
    """Return whether ``windows`` of a table names a calendar, rather than times."""
    return isinstance(windows, str) and (is_address(windows) or windows.lower().endswith(".ics"))


def is_address(source: str) -> bool:
    """Return whether a calendar is fetched from a server."""
    return source.lower().startswith(("http://", "https://", "webcal://"))


def shown(source: str) -> str:
    """Return the name of a calendar for people."""
    if not is_address(source):
        return PurePath(source).name
    return f"the calendar at {urlsplit(source).hostname or '?'}"


def rule_of(table: Mapping[str, object], where: str) -> CalendarRule:
    """Return what a table with a calendar says. Raises PlanError, which names ``where``."""
    source, invert, lead = table["windows"], table.get("invert", False), table.get("lead", "0s")
    assert isinstance(source, str)
    if is_address(source):
        _check_address(source, where)
    if type(invert) is not bool:
        raise PlanError(f"{where}: invert: expected true or false, got {invert!r:.80}")
    try:
        lead_s = read_duration(lead) if isinstance(lead, str) else math.nan
    except ValueError:
        lead_s = math.nan
    if not 0 <= lead_s < LEAD_LIMIT_S:
        raise PlanError(f'{where}: lead: expected a duration below a day, such as "10m", got {lead!r:.80}')
    if lead_s and not invert:
        raise PlanError(f"{where}: lead needs invert = true: it is the time before an event in which PCs are closed")
    if table.get("closed", False) is not False:
        raise PlanError(f"{where}: closed = true leaves nothing for windows: remove one of them")
    events = tuple(texts_of(table.get("events", []), f"{where}: events"))
    kept = {key: table[key] for key in ("zone", "dates", "grace") if key in table}
    dates = calendar_from_table({**kept, "closed": True}, where)
    cuts = None
    if table.get("except", []) != []:
        zone = {"zone": table["zone"]} if "zone" in table else {}
        cuts = calendar_from_table({**zone, "windows": table["except"]}, f"{where}: except")
    return CalendarRule(source, invert, lead_s, events, cuts, dates)


def _check_address(source: str, where: str) -> None:
    try:
        parts = urlsplit(source)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise PlanError(f"{where}: windows: no address of a calendar: {error}") from error
    if not host or len(source) > ADDRESS_LIMIT or not source.isascii() or not source.isprintable() or " " in source:
        raise PlanError(f"{where}: windows: no address of a calendar, such as https://example.org/room.ics")
    if parts.username is not None or parts.password is not None:
        raise PlanError(f"{where}: windows: an address with a name or a password in it: use one that needs none")


def horizon(posix: float) -> tuple[float, float]:
    """Return the midnights in UTC from which and to which a table has dates: from the Sunday before on."""
    today = datetime.fromtimestamp(posix, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin = today - timedelta(today.weekday() + 1)
    return begin.timestamp(), (begin + timedelta(7 * WEEKS + 1)).timestamp()


def table_of(whole: Mapping[str, object], rule: CalendarRule, windows: Iterable[Window]) -> tuple[str, str]:
    """Return the table for workers, as JSON, and for people, what is doubtful in it; empty: nothing.

    ``whole``: the table in the file, whose other keys stay.
    """
    made = ("zone", "windows", "except", "dates", "closed", *CALENDAR_KEYS)
    table: dict[str, object] = {key: value for key, value in whole.items() if key not in made}
    by_date: dict[str, list[str]] = {}
    size, doubt = 0, ""
    for day, span in _by_day(windows):
        size += len(span) + (4 if day in by_date else 20)
        if size > TABLE_BYTES - _ROOM:
            doubt = f"too many windows: closed from {day} on"
            by_date.pop(day, None)
            break
        by_date.setdefault(day, []).append(span)
    table |= {"zone": "UTC", "closed": True, "dates": by_date, SAID: rule.describe()}
    return json.dumps(table), doubt


def _by_day(windows: Iterable[Window]) -> Iterator[tuple[str, str]]:
    """Yield windows as dates and times in UTC, cut at midnight and to whole minutes."""
    for opening, closing in windows:
        start, end = math.ceil(opening / 60), math.floor(closing / 60)
        while start < end:
            midnight = start - start % 1440 + 1440
            last = min(end, midnight)
            day = datetime.fromtimestamp(start * 60, UTC)
            until = "24:00" if last == midnight else f"{datetime.fromtimestamp(last * 60, UTC):%H:%M}"
            yield f"{day:%Y-%m-%d}", f"{day:%H:%M}-{until}"
            start = last


def _union(windows: Iterable[Window]) -> list[Window]:
    merged: list[Window] = []
    for opening, closing in sorted(windows):
        if merged and opening <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(closing, merged[-1][1]))
        else:
            merged.append((opening, closing))
    return merged


def _minus(windows: Sequence[Window], cuts: Iterable[Window]) -> list[Window]:
    """Return sorted ``windows`` without ``cuts``."""
    events = sorted(
        [
            *(edge for opening, closing in windows for edge in ((opening, 1), (closing, -1))),
            *(edge for opening, closing in cuts for edge in ((opening, -2), (closing, 2))),
        ],
        key=itemgetter(0),
    )
    found, depth, since = list[Window](), 0, 0.0
    for at, step in events:
        if depth == 1 and since < at:
            found.append((since, at))
        depth, since = depth + step, at
    return _union(found)
