"""Checkpoints in the journal, of tasks that have not ended. A large one is added in parts, the last of them last."""

import sqlite3
from collections.abc import Callable, Sequence

from deskgrid.broker.store.integrity import checksum
from deskgrid.broker.store.large_values import LargeValues
from deskgrid.broker.store.parts import Write
from deskgrid.wire import Payload

Insert = Callable[[str, tuple[object, ...]], int]


class CheckpointTable:
    """``write(statement, rows)`` writes rows; ``insert`` writes one, and returns its number."""

    def __init__(self, db: sqlite3.Connection, write: Write, insert: Insert, values: LargeValues) -> None:
        self._db = db
        self._write = write
        self._insert = insert
        self._values = values

    def add_part(self, task: int, bag: int, start: int, data: Payload) -> None:
        """Record a part of a checkpoint, which is not the last; ``start``: bytes before it."""
        cell = self._values.cell(data, bag)
        columns = "(task, bag, start, data, checksum)"
        self._insert(
            f"INSERT INTO checkpoint_parts {columns} VALUES (?,?,?,?,?)", (task, bag, start, cell, checksum(cell))
        )

    def add(self, task: int, bag: int, progress: float | None, left_s: float, data: Payload, *, before: int = 0) -> int:
        """Record a checkpoint of a task that has not ended, and return its number.

        ``data``: all of it, or what follows after the parts that were added before; ``before``: bytes of these.
        """
        cell = self._values.cell(data, bag)
        columns = "(task, bag, progress, left_s, size, data, checksum)"
        row = (task, bag, progress, left_s, before + len(data), cell, checksum(cell))
        number = self._insert(f"INSERT INTO checkpoints {columns} VALUES (?,?,?,?,?,?,?)", row)
        if before:
            update = "UPDATE checkpoint_parts SET checkpoint = ? WHERE task = ? AND checkpoint IS NULL"
            self._write(update, [(number, task)])
        return number

    def drop(self, numbers: Sequence[int]) -> None:
        """Delete checkpoints."""
        for table, column in (("checkpoints", "number"), ("checkpoint_parts", "checkpoint")):
            self._drop_values(table, f"{column} = ?", [(number,) for number in numbers])

    def drop_begun(self, task: int) -> None:
        """Delete what came of a checkpoint whose end has not come."""
        self._drop_values("checkpoint_parts", "task = ? AND checkpoint IS NULL", [(task,)])

    def _drop_values(self, table: str, where: str, rows: Sequence[tuple[int, ...]]) -> None:
        """Delete rows of a table with values, and the files of these."""
        query = f"SELECT data FROM {table} WHERE {where} AND typeof(data) = 'text'"
        self._values.drop([name for row in rows for (name,) in self._db.execute(query, row)])
        self._write(f"DELETE FROM {table} WHERE {where}", rows)

    def data(self, number: int, start: int) -> Payload:
        """The part of a checkpoint, which must be there, that begins after ``start`` bytes; empty if none does."""
        query = "SELECT data FROM checkpoint_parts WHERE checkpoint = ? AND start = ?"
        if (row := self._db.execute(query, (number, start)).fetchone()) is not None:
            return self._values.payload(row[0])
        size, cell = self._db.execute("SELECT size, data FROM checkpoints WHERE number = ?", (number,)).fetchone()
        last = self._values.payload(cell)
        return last if start == size - len(last) else b""
