"""The broker's ``HOME/windows.toml``: weekly windows for workers, by patterns of their names.

With it, nobody has to edit a file on forty PCs. A worker without windows of its own gets, as JSON, the table of
the first pattern that matches its name. ``deskgrid.worker.windows.weekly`` describes the tables::

    zone = "Europe/Brussels"       # for the tables that name none; without it, each worker's own zone
    ["lab3-*"]
    windows = ["mon-fri 18:00-08:00", "sat-sun all day"]
    ["lab3-*".dates]
    "2026-12-25" = "all day"
    ["*"]
    windows = ["daily 20:00-07:00"]

Patterns are those of ``fnmatch``, and are tried in the order of the file. As in names of hosts, case does not matter.
"""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from deskgrid.file_stamp import Stamp, stamp_of
from deskgrid.wire import TABLE_BYTES
from deskgrid.worker.windows.weekly import PlanError, calendar_from_table, read_text, toml_table, zone_named

# (pattern, its table as JSON, its windows for people)
_Tables = tuple[tuple[str, str, str], ...]


class WindowsFile:
    """The tables of the file at ``path``, as last read. The file may be absent, come, change and go.

    Nothing is read before the first ``refresh()``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        self._tables: _Tables = ()

    def refresh(self) -> bool:
        """Read the file if its time or size changed, or it came or went; return whether its content changed.

        Raises PlanError once for each change to a file that is malformed or cannot be read; the previous content
        then stays in force.
        """
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp  # before reading: a change while we read has another stamp and is seen next time
        tables = () if stamp is None else self._read()
        changed = tables != self._tables
        self._tables = tables
        return changed

    def table_for(self, name: str) -> str | None:
        """Return the table of the first pattern that matches a worker's ``name``, as JSON, or None."""
        name = name.lower()
        return next((text for pattern, text, _ in self._tables if fnmatchcase(name, pattern.lower())), None)

    def describe(self) -> str:
        """Return what was read, in one line for people: ``[lab3-*] daily 20:00-07:00 (local time)``."""
        return " ".join(f"[{pattern}] {said}" for pattern, _, said in self._tables) or "no windows"

    def _read(self) -> _Tables:
        where = str(self._path)
        top = toml_table(read_text(self._path), where)
        zone = top.pop("zone", None)
        zone_named(zone, where)
        return tuple((pattern, *_read_table(pattern, table, zone, where)) for pattern, table in top.items())


def _read_table(pattern: str, table: object, zone: object, where: str) -> tuple[str, str]:
    """Return the table as JSON, and its windows for people."""
    if not isinstance(table, Mapping):
        raise PlanError(f'{where}: {pattern!r}: expected zone, or a table for a pattern such as ["lab3-*"]')
    whole = dict(table) if zone is None else {"zone": zone, **table}
    calendar = calendar_from_table(whole, f"{where}: [{pattern!r}]")
    text = json.dumps(whole)
    if len(text) > TABLE_BYTES:
        raise PlanError(f"{where}: {pattern!r:.80}: {len(text):,} bytes as JSON; the limit is {TABLE_BYTES:,}")
    return text, calendar.describe()
