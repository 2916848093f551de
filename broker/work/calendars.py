"""Calendars that ``windows.toml`` names: when they are read, and what is kept of them. Pure: others read them.

Rule 1: what was read last stays in force while a calendar cannot be read, also across a restart: the journal has it.
Rule 2: until a calendar has been read, its PCs have the windows that they had before, or are closed: nobody's mistake
opens a room, and no change of the file stops what runs.
Rule 3: the tables for workers change only if the calendar does, and once a week.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deskgrid.broker.model.calendar_reader import CalendarTicket
from deskgrid.broker.model.state import BrokerState
from deskgrid.home_file import Stamp, stamp_of
from deskgrid.windows.from_calendar import CalendarAnswer, CalendarRequest, horizon, is_address, shown
from deskgrid.windows.weekly import reading
from deskgrid.windows.windows_file import WINDOWS, PlannedWindows

# Seconds between two looks at a calendar, and after one that failed.
FETCH_S = 3600.0
AGAIN_S = 600.0
# Calendars in one file; each may take some megabytes of the journal.
CALENDARS = 100
# Before the name of a calendar, in the journal's table of files.
PREFIX = "calendar "


@dataclass(slots=True)
class _Calendar:
    """What is known of one calendar. ``at``: when it was fetched; ``failed``: since when it fails. POSIX seconds."""

    text: str | None = None
    etag: str = ""
    modified: str = ""
    at: float = 0.0
    made: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    error: str = ""
    failed: float = 0.0
    due: float = 0.0
    asked: CalendarRequest | None = None
    stamp: Stamp | None = None
    ticket: CalendarTicket | None = None
    kept: bool = True


class Calendars:
    """The calendars of ``windows.toml``. ``known``, ``dropped``: if both are empty, there is nothing to do."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.known: dict[str, _Calendar] = {}
        # Those whose rows in the journal are not needed any more.
        self.dropped: list[str] = []

    def restore(self, files: dict[str, str | None]) -> None:
        """Begin with what was kept before a restart."""
        for name, text in files.items():
            if name.startswith(PREFIX) and text is not None:
                head, _, body = text.partition("\n")
                with suppress(ValueError, TypeError):  # another version has written it: the calendar is read anew
                    facts: dict[str, Any] = json.loads(head)
                    self.known[name.removeprefix(PREFIX)] = _Calendar(text=body, **facts)

    def look(self, now: float) -> bool:
        """Take what was read, and ask for what is due; return whether windows, or problems, are others now."""
        wanted = self._wanted()
        changed = False
        for source in [source for source in self.known if source not in wanted]:
            del self.known[source]
            self.dropped.append(source)
            changed = True
        for source, tables in wanted.items():
            calendar = self.known.setdefault(source, _Calendar())
            if calendar.ticket is not None and calendar.ticket.answer is not None:
                answer, calendar.ticket = calendar.ticket.answer, None
                changed |= self._take(source, calendar, answer, now)
            if calendar.ticket is None and self._is_due(source, calendar, tables, now):
                self._ask(source, calendar, tables)
        return changed

    def resolved(self, windows: PlannedWindows, before: PlannedWindows) -> PlannedWindows:
        """Return what the file says with the tables of its calendars; until there is one, what was so ``before``."""
        made = {whole: table for each in self.known.values() for whole, table in each.made.items()}
        return windows.with_calendars(made, before)

    def problems(self) -> Iterator[str]:
        """Yield, of each calendar that cannot be read, why, and what counts in its place."""
        for source, calendar in self.known.items():
            if calendar.error:
                counts = "until it can be read, its PCs have the windows that they had before, or are closed"
                counts = f"what was fetched on {_when(calendar.at)} counts" if calendar.at else counts
                since = f"{shown(source)} has failed since {_when(calendar.failed)}"
                patterns = self._state.windows_file.content.patterns_of(source)
                yield f"{WINDOWS}: {patterns} {since}: {calendar.error}; {counts}"
        if (over := len(self._sources()) - CALENDARS) > 0:
            yield f"{WINDOWS}: more than {CALENDARS} calendars: PCs of the last {over} are closed"

    def doubts(self) -> Iterator[str]:
        """Yield what is probably a mistake."""
        for source, calendar in self.known.items():
            patterns = self._state.windows_file.content.patterns_of(source)
            yield from [f"{WINDOWS}: {patterns} {doubt}" for doubt in calendar.doubts]

    def keep(self) -> None:
        """Record what is new."""
        journal = self._state.journal
        for source in self.dropped:
            journal.forget_file(PREFIX + source)
        self.dropped.clear()
        for source, calendar in self.known.items():
            if not calendar.kept:
                facts = {key: getattr(calendar, key) for key in ("etag", "modified", "at", "made", "doubts")}
                journal.keep_file(PREFIX + source, f"{json.dumps(facts)}\n{calendar.text}")
                calendar.kept = True

    def _sources(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for each in self._state.windows_file.content.every():
            if each.source and each.whole not in found.setdefault(each.source, []):
                found[each.source].append(each.whole)
        return found

    def _wanted(self) -> dict[str, list[str]]:
        """The tables that each calendar is for."""
        found = self._sources()
        return {source: found[source] for source in list(found)[:CALENDARS]}

    def _is_due(self, source: str, calendar: _Calendar, tables: list[str], now: float) -> bool:
        asked = calendar.asked
        if asked is None or asked.tables != tables or now >= calendar.due:
            return True
        return not is_address(source) and stamp_of(self._path(source)) != calendar.stamp

    def _ask(self, source: str, calendar: _Calendar, tables: list[str]) -> None:
        state = self._state
        if state.calendar_reader is None:
            return
        calendar.stamp = None if is_address(source) else stamp_of(self._path(source))
        span = horizon(state.wall.posix(state.now))
        home, etag, modified = str(state.journal.home), calendar.etag, calendar.modified
        calendar.asked = CalendarRequest(source, home, *span, tables, etag, modified, calendar.text)
        calendar.ticket = state.calendar_reader.read(calendar.asked)

    def _path(self, source: str) -> Path:
        return self._state.journal.home / source

    def _take(self, source: str, calendar: _Calendar, answer: CalendarAnswer, now: float) -> bool:
        before = calendar.made, calendar.doubts, calendar.error
        posix = self._state.wall.posix(now)
        calendar.due = now + (AGAIN_S if answer.error else FETCH_S)
        if answer.error and not calendar.error:
            calendar.failed = posix
        calendar.error = answer.error
        if answer.made:
            calendar.made, calendar.doubts = answer.made, answer.doubts
        if not answer.error:
            calendar.text = calendar.text if answer.text is None else answer.text
            calendar.etag, calendar.modified, calendar.at = answer.etag, answer.modified, posix
            calendar.kept = False
        return before != (calendar.made, calendar.doubts, calendar.error)


def _when(posix: float) -> str:
    return f"{reading(posix, None):%a %Y-%m-%d %H:%M}"
