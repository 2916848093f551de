"""Deletes forgotten bags from the journal in slices, because a large bag has gigabytes there.

Clients cannot see a forgotten bag any more, even after a restart: it has no id, and the journal has an order to forget
it. The row of the bag is deleted last, together with the order.
"""

import sqlite3
from collections.abc import Callable, Sequence

from deskgrid.broker.store.large_values import LargeValues

# The most rows and bytes that one slice deletes, but always at least one row. A slice takes some milliseconds.
ROWS = 500
BYTES = 2 * 2**20

Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class Purge:
    """``write(statement, rows)`` writes rows; ``values``: the files of large values."""

    def __init__(self, db: sqlite3.Connection, write: Write, values: LargeValues) -> None:
        self._db = db
        self._write = write
        self._values = values

    def some(self, bag: int) -> bool:
        """Delete some rows of a bag; False when all of them are gone."""
        return (
            self._results(bag)
            or self._ranks(bag)
            or self._batches(bag)
            or self._values.forget(bag, ROWS)
            or self._row(bag)
        )

    def _results(self, bag: int) -> bool:
        sizes = "length(tasks) + length(told) + ifnull(length(printed), 0)"
        query = f"SELECT seq, {sizes} FROM results WHERE bag = ? ORDER BY seq LIMIT ?"
        last = _within(self._db.execute(query, (bag, ROWS)).fetchall())
        if last is not None:
            self._write("DELETE FROM results WHERE bag = ? AND seq <= ?", [(bag, last)])
        return last is not None

    def _ranks(self, bag: int) -> bool:
        size = "ifnull(length(payload), 0) + ifnull(length(stdout), 0) + ifnull(length(stderr), 0)"
        query = f"SELECT rowid, {size} FROM ranks WHERE bag = ? ORDER BY rowid LIMIT ?"
        last = _within(self._db.execute(query, (bag, ROWS)).fetchall())
        if last is not None:
            self._write("DELETE FROM ranks WHERE bag = ? AND rowid <= ?", [(bag, last)])
        return last is not None

    def _batches(self, bag: int) -> bool:
        query = "SELECT first, length(payloads) + length(runtimes) FROM batches WHERE bag = ? ORDER BY first LIMIT ?"
        last = _within(self._db.execute(query, (bag, ROWS)).fetchall())
        if last is None:
            return False
        query = "SELECT first, first + count FROM batches WHERE bag = ? AND first <= ?"
        tasks = self._db.execute(query, (bag, last)).fetchall()
        self._write("DELETE FROM sent WHERE task >= ? AND task < ?", tasks)
        self._write("DELETE FROM copies WHERE task >= ? AND task < ?", tasks)
        self._write("DELETE FROM predictions WHERE first = ?", [(first,) for first, _ in tasks])
        self._write("DELETE FROM batches WHERE bag = ? AND first <= ?", [(bag, last)])
        return True

    def _row(self, bag: int) -> bool:
        """Delete the bag's own row, and its template if no other bag uses that."""
        found = self._db.execute("SELECT template FROM bags WHERE number = ?", (bag,)).fetchone()
        self._write("DELETE FROM bags WHERE number = ?", [(bag,)])
        self._write("DELETE FROM orders WHERE bag = ?", [(bag,)])
        self._write("DELETE FROM etas WHERE bag = ?", [(bag,)])
        if found:
            unused = "digest = ? AND NOT EXISTS (SELECT 1 FROM bags WHERE template = ?)"
            query = f"SELECT data FROM templates WHERE {unused} AND typeof(data) = 'text'"
            self._values.drop([name for (name,) in self._db.execute(query, found * 2)])
            self._write(f"DELETE FROM templates WHERE {unused}", [found * 2])
        return False


def _within(rows: Sequence[tuple[int, int]]) -> int | None:
    """The key of the last (key, size) that fits into one slice, at least that of the first; None for no rows."""
    last, total = None, 0
    for key, size in rows:
        total += size
        if last is not None and total > BYTES:
            break
        last = key
    return last
