"""The windows of workers, in the journal: written when they open and when they close."""

import sqlite3
from collections.abc import Callable, Sequence

from deskgrid.broker.store.rows import WindowEnd, WindowRow

# Windows that closed longer ago are deleted at the next opening, so that the table does not grow for ever: a year, and
# a month to look back at it.
KEPT_S = 400 * 86_400.0
Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class WindowTable:
    """``write(statement, rows)`` writes rows."""

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

    def forget_old(self, now: float) -> None:
        """Delete windows that closed long before ``now``, POSIX seconds."""
        self._db.execute("DELETE FROM windows WHERE closed < ?", (now - KEPT_S,))
