"""``deskgrid windows``: what a file of windows says, and the coming weeks as bars."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import click

from deskgrid.cli.base import default_home, expanded, join_option, open_grid, say
from deskgrid.lazy_commands import LazyGroup
from deskgrid.option_types import Refusal

if TYPE_CHECKING:
    from deskgrid.windows.weekly import Calendar
    from deskgrid.windows.windows_file import PlannedWindows
    from deskgrid.wire.status import WorkerState

# A cell of a bar is half an hour.
CELL_MIN = 30
# Full, in part, and closed; for what takes only ASCII, too.
GLYPHS, ASCII = "█▄·", "#+."
WEEK_DAYS = 7
# PCs that are named before a bar.
NAMED = 8


class ReadTable(NamedTuple):
    """One table of a file: its pattern (empty: a file for one PC), its windows, and the zone of what people wrote."""

    pattern: str
    calendar: "Calendar"
    zone: ZoneInfo | None


class WindowBars(NamedTuple):
    """Whose windows, what they are in words, and when they are open: POSIX seconds, before ``until``."""

    whose: str
    said: str
    zone: ZoneInfo | None
    spans: Sequence[tuple[float, float]]
    until: float


@click.group(cls=LazyGroup)
def windows() -> None:
    """Check a file of windows, or show the coming weeks.

    The page "Plan weekly windows" says what a file may say.
    """


@windows.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
def check(*, file: Path | None) -> None:
    """Check FILE: the broker's windows.toml, or a file for one PC [default: windows.toml in this machine's home].

    It prints what the file means. What is probably a mistake follows on stderr. The broker checks its file in the same
    way when you save it, and also says which patterns match no PC.
    """
    tables, doubts = _read(file)
    for table in tables:
        say(f"{_whose(table.pattern)}{table.calendar.describe()}")
    for doubt in doubts:
        say(f"deskgrid: {doubt}", err=True)


@windows.command(short_help="Show the coming weeks as bars.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--week", is_flag=True, help="Show one week [default: two, if you name FILE].")
@click.option("--on", "pc", metavar="PC", help="Show only this PC's windows.")
@join_option
def show(*, file: Path | None, week: bool, pc: str | None, join: str | None) -> None:
    """Show when PCs are there: from FILE, or without it from the grid, where PCs announce the coming week.

    Each line is a day, and each cell half an hour of it.
    """
    if file is not None:
        if join is not None:
            raise click.UsageError("give FILE or --join, not both", click.get_current_context())
        found = list(_from_file(file, pc, WEEK_DAYS if week else 2 * WEEK_DAYS))
    else:
        with open_grid(join) as grid:
            found = list(_from_grid(grid.status()["workers"], pc))
        if not found:
            raise Refusal(f"no PC is called {pc}" if pc else "the grid has no PCs yet")
    for number, planned in enumerate(found):
        if number:
            say("")
        for line in _bars(planned):
            say(line)


def _read(file: Path | None) -> tuple[list[ReadTable], list[str]]:
    """Return the tables of a file, and what is probably a mistake. Raises `Refusal`."""
    from deskgrid.home_file import HomeFile
    from deskgrid.windows.weekly import KEYS, calendar_from_table, zone_named
    from deskgrid.windows.windows_file import WINDOWS, WINDOWS_BYTES, calendar_of, read_tables

    path = expanded(default_home() / WINDOWS if file is None else file)
    if not path.exists():
        raise Refusal(f"{path}: there is no such file")

    def read(top: dict[str, Any]) -> tuple[list[ReadTable], list[str]]:
        if any(not isinstance(top.get(key, {}), dict) for key in KEYS if key != "zone") or "dates" in top:
            calendar = calendar_from_table(top, "this PC")
            return [ReadTable("", calendar, calendar.zone)], []
        planned, doubts = _with_calendars(read_tables(top), path.parent)
        tables = list[ReadTable]()
        for each in planned.every():
            calendar = calendar_of(each.table, each.pattern)
            zone = zone_named(json.loads(each.whole).get("zone"), each.pattern) if each.whole else calendar.zone
            tables.append(ReadTable(each.pattern, calendar, zone))
        return tables, planned.warnings([], []) + doubts

    home_file = HomeFile(path, lambda top: read(top) if top else ([], []), limit=WINDOWS_BYTES)
    home_file.refresh()
    if home_file.error:
        raise Refusal(f"{path}: {home_file.error}")
    tables, doubts = home_file.content
    return tables, doubts if tables else [f"{path}: it names no PCs: they are taken to be always there"]


def _with_calendars(planned: "PlannedWindows", folder: Path) -> tuple["PlannedWindows", list[str]]:
    """Read the calendars that a file names, as the broker does; return what they say, and what is doubtful in them."""
    from deskgrid.windows.calendar_process import read_in_process
    from deskgrid.windows.from_calendar import CalendarRequest, horizon, shown
    from deskgrid.windows.weekly import PlanError

    made, doubts = dict[str, str](), list[str]()
    for source in dict.fromkeys([each.source for each in planned.every() if each.source]):
        tables = [each.whole for each in planned.every() if each.source == source]
        told = read_in_process(CalendarRequest(source, str(folder.absolute()), *horizon(time.time()), tables))
        if told.error:
            raise PlanError(f"{planned.patterns_of(source)} {shown(source)}: {told.error}")
        made |= told.made
        doubts += [f"{planned.patterns_of(source)} {doubt}" for doubt in told.doubts]
    return planned.with_calendars(made, planned), doubts


def _whose(pattern: str) -> str:
    """Return what stands before the windows of a pattern; there is none in a file for one PC."""
    return f"[{pattern}] " if pattern else ""


def _from_file(file: Path, pc: str | None, days: int) -> Iterator[WindowBars]:
    from deskgrid.windows.weekly import first_instant, reading
    from deskgrid.windows.windows_file import REST, pattern_matches

    tables, doubts = _read(file)
    if pc is not None:
        every = [each for each in tables if not each.pattern or pattern_matches(each.pattern, pc)]
        every = every[:1] or [each for each in tables if each.pattern == REST]
        if not every:
            raise Refusal(f"{file}: no pattern matches {pc}: it is taken to be always there")
        tables = every
    if not tables:
        raise Refusal(*doubts)
    now = time.time()
    for pattern, calendar, zone in tables:
        first = reading(now, zone).date()
        until = first_instant(first + timedelta(days), 0, zone)
        spans = calendar.windows(first - timedelta(1), days + 2)  # more, because of the zone
        yield WindowBars(_whose(pattern), calendar.describe(), zone, spans, until)


def _from_grid(workers: Iterable["WorkerState"], pc: str | None) -> Iterator[WindowBars]:
    """Yield the windows that PCs have announced, those that are the same together."""
    now = time.time()
    same: dict[tuple[str, tuple[tuple[int, int], ...]], list[WorkerState]] = {}
    for worker in workers:
        if pc is None or pc.lower() in (worker["name"].lower(), worker["pc"].lower()):
            spans = tuple((round(starts / 60), round((starts + lasts) / 60)) for starts, lasts in worker["windows"])
            same.setdefault((worker["plan"], spans), []).append(worker)
    for (plan, _), some in same.items():
        names = [worker["name"] for worker in some]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        left_s = some[0]["uptime_s"]
        open_now = [(now, now + min(left_s, WEEK_DAYS * 86_400.0))] if left_s else []
        coming = [(now + starts, now + starts + lasts) for starts, lasts in some[0]["windows"]]
        until = now + WEEK_DAYS * 86_400.0 if left_s is not None else 0.0
        yield WindowBars(f"{', '.join(names[:NAMED])}{more}: ", plan, None, open_now + coming, until)


def _bars(planned: WindowBars) -> Iterator[str]:
    """Yield the lines of one plan: a title, the hours, and a bar for each day that begins before its end."""
    from deskgrid.windows.weekly import first_instant, reading

    yield f"{planned.whose}{planned.said}"
    day = reading(time.time(), planned.zone).date()
    glyphs = GLYPHS if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else ASCII
    if first_instant(day, 0, planned.zone) >= planned.until:
        return
    yield (" " * 18 + "".join([f"{hour:<6}" for hour in range(0, 24, 3)])).rstrip()
    while (begins := first_instant(day, 0, planned.zone)) < planned.until:
        edges = [first_instant(day, minute, planned.zone) for minute in range(0, 24 * 60 + 1, CELL_MIN)]
        cells = ""
        for start, end in pairwise(edges):
            open_s = _overlap(planned.spans, start, end)
            cells += glyphs[2 if not open_s else 0 if open_s >= end - start - 1.0 else 1]
        hours = _overlap(planned.spans, begins, edges[-1]) / 3600
        yield f"  {_named(day)}  {cells}  {hours:.3g} h"
        day += timedelta(1)


def _overlap(spans: Iterable[tuple[float, float]], start: float, end: float) -> float:
    return sum(max(0.0, min(closing, end) - max(opening, start)) for opening, closing in spans)


def _named(day: date) -> str:
    from deskgrid.windows.weekly import DAY_NAMES

    return f"{DAY_NAMES[day.weekday()]} {day.isoformat()}"
