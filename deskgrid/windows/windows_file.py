"""The broker's ``HOME/windows.toml``: weekly windows for workers, by patterns of their names.

With it, nobody has to edit a file on forty PCs. A worker without windows of its own gets, as JSON, the table of
the first pattern that matches its name. ``deskgrid.windows.weekly`` describes the tables::

    zone = "Europe/Brussels"       # for the tables that name none; without it, each worker's own zone
    ["lab3-*"]
    windows = ["mon-fri 18:00-08:00", "sat-sun all day"]
    ["lab3-*".dates]
    "2026-12-25" = "all day"
    ["lab4-*"]
    windows = "daily 20:00-07:00"
    owner = "leave"                # as deskgrid worker --owner, for workers to which nobody gave that
    wake = true                    # the broker wakes these PCs; or the address to which it sends what wakes them
    ["room7-*"]
    windows = "https://example.org/room7.ics"   # from a calendar: see deskgrid.windows.from_calendar
    invert = true
    [rest]                         # all others; without this table, they are always there
    closed = true

Patterns are those of ``fnmatch``, and are tried in the order of the file. As in names of hosts, case does not matter.
"""

import fnmatch
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from deskgrid.home_file import HomeFile
from deskgrid.windows.from_calendar import CALENDAR_KEYS, SAID, is_calendar, rule_of, shown
from deskgrid.wire.limits import TABLE_BYTES

if TYPE_CHECKING:
    from deskgrid.windows.weekly import Calendar

WINDOWS = "windows.toml"
# A table of 500 patterns with windows and exceptions of their own.
WINDOWS_BYTES = 2**20
# The table of all names that no pattern matches.
REST = "rest"
# What a table may say of tasks while the owner of the PC uses it, and its key.
Owner = Literal["pause", "nice", "leave", "ignore"]
OWNERS: tuple[Owner, ...] = ("pause", "nice", "leave", "ignore")
OWNER = "owner"
# Its key for PCs that the broker is to wake, and the port of the packets that do: they are for no program.
WAKE = "wake"
WAKE_PORT, MOST_PORT = 9, 65_535
# Names in one warning.
NAMED = 5
# Names that are tried at most, to see whether one pattern matches whatever another does.
SAMPLES = 1_000


class PatternTable(NamedTuple):
    """The windows of names that match ``pattern``: as JSON, and for people. ``wake``: as in `waking_address`.

    ``source``: the calendar that they are from, and ``whole``: what the file says of them, as JSON; empty: no calendar.
    """

    pattern: str
    table: str
    said: str
    expression: re.Pattern[str]
    wake: tuple[str, int] | None = None
    source: str = ""
    whole: str = ""

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches a name."""
        return self.expression.match(name.lower()) is not None


class PlannedWindows(NamedTuple):
    """What the file says. ``rest``: the table of all names that no pattern matches; None: they have no windows.

    ``shadowed``: patterns that are never used, each after the pattern that matches all its names before it does.
    """

    tables: tuple[PatternTable, ...] = ()
    rest: PatternTable | None = None
    shadowed: tuple[tuple[str, str], ...] = ()

    def table_for(self, name: str) -> str | None:
        """Return the table of the first pattern that matches a worker's ``name``, as JSON, or None."""
        found = self._first(name) or self.rest
        return None if found is None else found.table

    def said_for(self, name: str) -> str:
        """Return the windows of a worker for people; empty if it has none."""
        found = self._first(name) or self.rest
        return "" if found is None else found.said

    def every(self) -> list[PatternTable]:
        """Return all tables, in the order in which they count."""
        return [*self.tables, *([self.rest] if self.rest else [])]

    def patterns_of(self, source: str) -> str:
        """Return the patterns of a calendar, for people."""
        return _listed([f"[{each.pattern}]" for each in self.every() if each.source == source])

    def with_calendars(self, made: Mapping[str, str], before: "PlannedWindows") -> "PlannedWindows":
        """Return these windows with tables ``made`` from calendars, each in the place of what the file says.

        Where there is none yet, what was said ``before`` for the same pattern counts.
        """
        if not any(each.source for each in self.every()):
            return self
        earlier = {each.pattern: each for each in before.every()}
        tables = tuple(_from_calendar(each, made, earlier) for each in self.tables)
        return self._replace(tables=tables, rest=self.rest and _from_calendar(self.rest, made, earlier))

    def wake_for(self, name: str) -> tuple[str, int] | None:
        """Return the address to which a packet is sent that wakes this PC; None: it is not to be woken."""
        found = self._first(name) or self.rest
        return None if found is None else found.wake

    @property
    def wakes(self) -> bool:
        """Whether any PC is to be woken."""
        return any(each.wake for each in self.every())

    def describe(self) -> str:
        """Return what was read, in one line for people: ``[lab3-*] daily 20:00-07:00 (local time)``."""
        return " ".join(f"[{each.pattern}] {each.said}" for each in self.every()) or "no windows"

    def warnings(self, pcs: Iterable[str], unplanned: Collection[str]) -> list[str]:
        """Return what is probably a mistake, each in one sentence.

        ``pcs``: the names of all PCs that are known; while there are none, no pattern is said to match none.
        ``unplanned``: the workers that are taken to be always there, because nothing says when they are.
        """
        found = [
            f"{WINDOWS}: [{later}] is never used: [{first}] above it matches first" for first, later in self.shadowed
        ]
        if used := {table.pattern if (table := self._first(name)) else "" for name in pcs}:
            used |= {later for _, later in self.shadowed}
            unused = [each.pattern for each in self.tables if each.pattern not in used]
            found += [f"{WINDOWS}: no PC has a name like {_listed(unused)}"] if unused else []
        if self.tables and unplanned:
            hint = "add a pattern, or [rest] with closed = true"
            found.append(f"{WINDOWS} has no windows for {_listed(sorted(unplanned))}: taken to be always there; {hint}")
        return found

    def _first(self, name: str) -> PatternTable | None:
        return next((each for each in self.tables if each.matches(name)), None)


NOTHING = PlannedWindows()


def windows_file(home: Path) -> HomeFile[PlannedWindows]:
    """Return the file in the home of a broker. If it is wrong, and no earlier one is known, all PCs are closed."""
    expression = _expression("*")
    closed = PlannedWindows(rest=PatternTable(REST, '{"closed": true}', "closed", expression))
    means = "until it is right, PCs without windows of their own are closed"
    return HomeFile(home / WINDOWS, read_tables, unknown=(closed, means), limit=WINDOWS_BYTES)


def read_tables(top: Mapping[str, Any]) -> PlannedWindows:
    """Return what the table of the file says. Raises PlanError."""
    if not top:
        return NOTHING
    from deskgrid.windows.weekly import zone_named  # most grids have no such file

    zone = top.get("zone")
    zone_named(zone, "zone")
    tables = [_read(name, table, zone) for name, table in top.items() if name not in ("zone", REST)]
    rest = _read(REST, top[REST], zone) if REST in top else None
    return PlannedWindows(tuple(tables), rest, _shadowed(tables))


def _read(pattern: str, table: object, zone: object) -> PatternTable:
    from deskgrid.windows.weekly import BROKER_KEYS, KEYS, PlanError, calendar_from_table

    if not isinstance(table, Mapping):
        raise PlanError(f'{pattern!r:.80}: expected zone, or a table for a pattern such as ["lab3-*"]')
    whole = dict(table) if zone is None else {"zone": zone, **table}
    where = f"[{pattern!r:.80}]"
    wake = waking_address(whole.pop(WAKE, False), where)
    owner = whole.get(OWNER)
    if owner is not None and owner not in OWNERS:
        raise PlanError(f"{where}: {OWNER}: expected one of {', '.join(OWNERS)}, got {owner!r:.80}")
    from_calendar = is_calendar(whole.get("windows"))
    known = (*KEYS, *BROKER_KEYS)
    for key in whole:
        if key not in known:
            raise PlanError(f"{where}: unknown key {key!r:.80} (known: {', '.join(known)})")
        if key in CALENDAR_KEYS and not from_calendar:
            raise PlanError(f'{where}: {key} is for windows from a calendar, such as windows = "room.ics"')
    if from_calendar:
        rule_of(whole, where)
        said = f"closed until {shown(str(whole['windows']))} has been read"
    else:
        said = calendar_from_table(_without_owner(whole), where).describe() + _besides(owner, wake)
    text = json.dumps(whole)
    if len(text) > TABLE_BYTES:
        raise PlanError(f"{pattern!r:.80}: {len(text):,} bytes as JSON; the limit is {TABLE_BYTES:,}")
    if from_calendar:
        closed = json.dumps({"closed": True} | ({} if owner is None else {OWNER: owner}))
        return PatternTable(pattern, closed, said, _expression(pattern), wake, whole["windows"], text)
    return PatternTable(pattern, text, said, _expression(pattern), wake)


def waking_address(value: object, where: str) -> tuple[str, int] | None:
    """Return where a packet is sent that wakes PCs: true is their own network. Raises PlanError."""
    from deskgrid.windows.weekly import PlanError

    if value is False:
        return None
    if value is True:
        return "255.255.255.255", WAKE_PORT
    host, _, port = value.partition(":") if isinstance(value, str) else ("", "", "")
    try:
        address, number = str(IPv4Address(host)), int(port or WAKE_PORT)
    except ValueError:
        address, number = "", 0
    if not 0 < number <= MOST_PORT:
        forms = "true, or an IPv4 address such as 10.3.255.255 or 10.3.255.255:9"
        raise PlanError(f"{where}: {WAKE}: expected {forms}, got {value!r:.80}")
    return address, number


def _besides(owner: object, wake: object) -> str:
    """Return what a table says besides its windows, for people."""
    return ("" if owner is None else f", owner {owner}") + (", woken" if wake else "")


def _from_calendar(known: PatternTable, made: Mapping[str, str], earlier: Mapping[str, PatternTable]) -> PatternTable:
    table = made.get(known.whole)
    if table is None:
        before = earlier.get(known.pattern) if known.source else None
        return known if before is None else known._replace(table=before.table, said=before.said)
    return known._replace(table=table, said=str(json.loads(table)[SAID]) + _besides(owner_of(table), known.wake))


def calendar_of(text: str, where: str) -> "Calendar":
    """Return the windows in a table as JSON, as it comes from the broker. Raises PlanError, which names ``where``."""
    from deskgrid.windows.weekly import PlanError, calendar_from_table

    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{where}: not JSON: {error}") from error
    if not isinstance(table, dict):
        raise PlanError(f"{where}: expected a table, got {type(table).__name__}")
    said = table.pop(SAID, "")
    if not isinstance(said, str):
        raise PlanError(f"{where}: {SAID}: expected text, got {said!r:.80}")
    return replace(calendar_from_table(_without_owner(table), where), said=said)


def owner_of(text: str) -> Owner | None:
    """Return what a table as JSON says of the owner; None if nothing that is known."""
    try:
        owner = json.loads(text)[OWNER]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return next((each for each in OWNERS if each == owner), None)


def _without_owner(table: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in table.items() if key != OWNER}


def pattern_matches(pattern: str, name: str) -> bool:
    """Return whether a pattern matches a name; case does not matter."""
    return _expression(pattern).match(name.lower()) is not None


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern.lower()))


def _shadowed(tables: Iterable[PatternTable]) -> tuple[tuple[str, str], ...]:
    found = list[tuple[str, str]]()
    before = list[PatternTable]()
    for later in tables:
        names = _samples(later.pattern.lower())
        first = next((each for each in before if names and all(map(each.matches, names))), None)
        found += [(first.pattern, later.pattern)] if first else []
        before.append(later)
    return tuple(found)


def _samples(pattern: str) -> list[str]:
    """Return names that ``pattern`` matches, such that what matches all of them matches all that it matches.

    They have nothing, one and many odd characters in the place of a star, and each character that brackets can stand
    for. Without a result, they would be too many.
    """
    found = [""]
    for part in re.findall(r"\*|\[!?\]?[^]]*\]|.", pattern, re.DOTALL):
        if part == "*":
            each = ["", "\x01", "\x02" * 300]
        elif part == "?":
            each = ["\x01"]
        elif len(part) > 1:
            each = [character for character in map(chr, range(1, 128)) if fnmatch.fnmatchcase(character, part)]
        else:
            each = [part]
        if len(found) * len(each) > SAMPLES:
            return []
        found = [name + more for name in found for more in each]
    return found


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
