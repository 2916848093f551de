"""What was learned about runtimes, in the journal: a row for each function and program that was used last."""

import json
import sqlite3
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence

from deskgrid.broker.store.rows import LearnedRow

Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class Learned:
    """``write(statement, rows)`` writes rows."""

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
