"""Small tables of the journal: what was learned, when bags should end, and when workers were there.

Each class has the statements that write and read one table; the journal's ``write(statement, rows)`` writes.
"""

import json
import sqlite3
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence

from deskgrid.broker.store.rows import LearnedRow, ToldEtaRow, WindowEnd, WindowRow

# Windows that closed longer ago are deleted at the next opening, so that the table does not grow for ever: a year, and
# a month to look back at it.
KEPT_S = 400 * 86_400.0
Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class LearnedTable:
    """What was learned about runtimes: a row for each function and program that was used last."""

    def __init__(self, db: sqlite3.Connection, write: Write) -> None:
        self._db = db
        self._write = write

    def rows(self) -> list[LearnedRow]:
        """All rows, those that were written last at the end."""
        found = self._db.execute("SELECT kind, name, learned FROM learned ORDER BY number").fetchall()
        return [LearnedRow(*row) for row in found if len(row[2]) % array("d").itemsize == 0]

    def add(self, rows: Sequence[LearnedRow], known: Mapping[str, Collection[str]]) -> None:
        """Write rows in the place of older ones, and of the kinds in ``known`` keep only the names there."""
        self._write("INSERT OR REPLACE INTO learned VALUES (NULL, ?, ?, ?)", rows)
        kept = [(kind, json.dumps(list(names))) for kind, names in known.items()]
        self._write("DELETE FROM learned WHERE kind = ? AND name NOT IN (SELECT value FROM json_each(?))", kept)

    def forget(self) -> None:
        """Delete all rows."""
        self._write("DELETE FROM learned", [()])


class EtaTable:
    """Estimates of when bags end: they are written when they are told, and deleted with their bags."""

    def __init__(self, db: sqlite3.Connection, write: Write) -> None:
        self._db = db
        self._write = write

    def add(self, rows: Sequence[ToldEtaRow]) -> None:
        """Write estimates."""
        self._write("INSERT INTO etas VALUES (NULL, ?, ?, ?, ?, ?, ?)", rows)

    def rows(self) -> list[ToldEtaRow]:
        """All estimates, in the order in which they were told."""
        return estimates_in(self._db)


def estimates_in(db: sqlite3.Connection) -> list[ToldEtaRow]:
    """All estimates in a journal, in the order in which they were told."""
    return [
        ToldEtaRow(*row) for row in db.execute("SELECT bag, made, ended, median, low, high FROM etas ORDER BY number")
    ]


class WindowTable:
    """The windows of workers, written when they open and when they close."""

    def __init__(self, db: sqlite3.Connection, write: Write) -> None:
        self._db = db
        self._write = write

    def add(self, rows: Sequence[WindowRow]) -> None:
        """Record windows that opened."""
        values = [(r.number, r.worker, r.session, r.site, r.slots, r.opened, r.planned) for r in rows]
        self._write("INSERT INTO windows VALUES (?,?,?,?,?,?,?,NULL,NULL,NULL,NULL)", values)

    def end(self, rows: Sequence[WindowEnd]) -> None:
        """Record windows that closed."""
        self._write("UPDATE windows SET closed = ?, how = ?, kills = ?, wasted_s = ? WHERE number = ?", rows)

    def end_all(self, closed: float) -> None:
        """Close the windows that an earlier broker left open, at ``closed``, but never before they opened."""
        update = "UPDATE windows SET closed = max(opened, ?), how = 'broker', kills = 0, wasted_s = 0"
        self._write(f"{update} WHERE closed IS NULL", [(closed,)])

    def last_seen(self) -> dict[str, float]:
        """When each worker was there last: its last window closed, or opened if none has closed. POSIX seconds."""
        query = "SELECT worker, max(max(opened, coalesce(closed, 0))) FROM windows GROUP BY worker"
        return dict(self._db.execute(query))

    def forget_old(self, now: float) -> None:
        """Delete windows that closed long before ``now``, POSIX seconds."""
        self._db.execute("DELETE FROM windows WHERE closed < ?", (now - KEPT_S,))
