"""Forgotten bags leave the journal's tables in slices: a large one has gigabytes there.

Nobody is told of such a bag any more, in this life of the broker or the next: it has no id, and there is an order to
forget it (`deskgrid.broker.store.journal`). Its row goes last, and the order with it.
"""

import sqlite3
from collections.abc import Callable, Sequence

from deskgrid.broker.store.large_values import Values

# Rows and bytes that one slice deletes at most, but for one row: some milliseconds.
ROWS = 500
BYTES = 2 * 2**20

Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class Purge:
    """``write(statement, rows)`` is how rows are written; ``values``: the files of large values."""

    def __init__(self, db: sqlite3.Connection, write: Write, values: Values) -> None:
        self._db = db
        self._write = write
        self._values = values

    def some(self, bag: int) -> bool:
        """Delete some of what a bag has; False when there was nothing left but its own row, which is gone, too."""
        return self._results(bag) or self._batches(bag) or self._values.forget(bag, ROWS) or self._row(bag)

    def _results(self, bag: int) -> bool:
        sizes = "length(tasks) + length(told) + ifnull(length(printed), 0)"
        query = f"SELECT seq, {sizes} FROM results WHERE bag = ? ORDER BY seq LIMIT ?"
        last = _within(self._db.execute(query, (bag, ROWS)).fetchall())
        if last is not None:
            self._write("DELETE FROM results WHERE bag = ? AND seq <= ?", [(bag, last)])
        return last is not None

    def _batches(self, bag: int) -> bool:
        query = "SELECT first, length(payloads) + length(runtimes) FROM batches WHERE bag = ? ORDER BY first LIMIT ?"
        last = _within(self._db.execute(query, (bag, ROWS)).fetchall())
        if last is None:
            return False
        query = "SELECT first, first + count FROM batches WHERE bag = ? AND first <= ?"
        tasks = self._db.execute(query, (bag, last)).fetchall()
        self._write("DELETE FROM sent WHERE task >= ? AND task < ?", tasks)
        self._write("DELETE FROM predictions WHERE first = ?", [(first,) for first, _ in tasks])
        self._write("DELETE FROM batches WHERE bag = ? AND first <= ?", [(bag, last)])
        return True

    def _row(self, bag: int) -> bool:
        """A template goes with the last bag that uses it."""
        found = self._db.execute("SELECT template FROM bags WHERE number = ?", (bag,)).fetchone()
        self._write("DELETE FROM bags WHERE number = ?", [(bag,)])
        self._write("DELETE FROM orders WHERE bag = ?", [(bag,)])
        if found:
            unused = "digest = ? AND NOT EXISTS (SELECT 1 FROM bags WHERE template = ?)"
            query = f"SELECT data FROM templates WHERE {unused} AND typeof(data) = 'text'"
            self._values.drop([name for (name,) in self._db.execute(query, found * 2)])
            self._write(f"DELETE FROM templates WHERE {unused}", [found * 2])
        return False


def _within(rows: Sequence[tuple[int, int]]) -> int | None:
    """The key of the last row up to which they are not too large; of the first one in any case; None for none."""
    last, total = None, 0
    for key, size in rows:
        total += size
        if last is not None and total > BYTES:
            break
        last = key
    return last
