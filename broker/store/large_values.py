"""Large values of the journal: rows that name files, and the files themselves.

Rule 1: a value is written to a file before the commit that records it. A value without a file is in the tables.
Rule 2: a file is removed when the commit that dropped it has been copied from the log into the tables. Before that, if
the log were lost, an earlier commit would count again and would need the file.
"""

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from deskgrid.broker.store.files import Files, StoredChunks, checksum_of
from deskgrid.broker.store.result_blocks import StoredValue
from deskgrid.broker.store.rows import FileRow
from deskgrid.wire import Chunks, Payload

# What a cell begins with that stands for the results of all ranks of a task, as one payload, or for that of its only
# rank. The task's number follows; each result has a cell of its own (`deskgrid.broker.store.ranks`).
OF_RANKS, OF_RANK = "ranks:", "rank:"


class LargeValues:
    """The files of a journal, and the table that names them."""

    def __init__(self, home: Path, flush: bool) -> None:
        """``flush``: writing a file waits for the disk, as a commit does. Raises OSError."""
        self._files = Files(home, flush)
        # Files that are not recorded yet; files dropped in this transaction; and files dropped in all transactions
        # since the log was last copied into the tables.
        self._kept: set[str] = set()
        self._dropped: list[str] = []
        self.gone: list[str] = []
        # Files that can be removed once nobody uses their values, for example in a message that waits to be sent.
        self._unneeded: list[str] = []
        self._in_hand: WeakValueDictionary[str, StoredChunks] = WeakValueDictionary()
        # Makes the payload of a cell that begins with `OF_RANKS` or `OF_RANK`.
        self.joined: Callable[[str], Payload]

    def open(self, db: sqlite3.Connection, write: Callable[[str, Sequence[tuple[object, ...]]], None]) -> str:
        """Check all files, and return what is wrong with them, or "". ``write(statement, rows)`` writes rows."""
        self._db, self._write = db, write
        rows = db.execute("SELECT name, bag, batch, size, checksum FROM files").fetchall()
        return self._files.wrong_with(map(FileRow._make, rows))

    def begin(self, epoch: int) -> None:
        """Remove files without a row; name new ones after ``epoch``, the number of this opening."""
        self._names = (f"{epoch:x}-{number:x}" for number in itertools.count())
        self._files.remove_others({name for (name,) in self._db.execute("SELECT name FROM files")})

    # --- keeping -----------------------------------------------------------------------------------------------------

    def keep(self, value: Chunks) -> None:
        """Write ``value`` to a file, before it is recorded. For any thread, one at a time. Raises OSError."""
        name = next(self._names)
        self._files.write(name, value)
        self._kept.add(name)
        value.file = name

    @staticmethod
    def sum_up(value: Chunks) -> None:
        """Compute its checksum. For any thread: this takes nearly as long as writing the file."""
        value.checksum = checksum_of(value)

    def release(self, values: Iterable[Chunks]) -> None:
        """Give up the files of those ``values`` that no commit has recorded by now: none will record them later."""
        names = {value.file for value in values} & self._kept
        self._kept -= names
        self._unneeded += [name for name in names if not self.size_of(name)]

    def cell(self, payload: Payload, bag: int | None, batch: int | None = None, *, summed: bool = True) -> StoredValue:
        """Record the file of a payload, if it has one, and return the cell that stands for the payload in a table.

        ``bag``: None for a template. ``batch``: for an argument, the first task of its batch; None for a result.
        ``summed``: its checksum was computed.
        """
        if isinstance(payload, bytes) or not payload.file:
            return bytes(payload)
        if payload.file.startswith((OF_RANKS, OF_RANK)):
            return payload.file  # its parts are recorded already
        row = FileRow(payload.file, bag, batch, len(payload), payload.checksum if summed else None)
        self._write("INSERT INTO files VALUES (?,?,?,?,?)", [row])
        return payload.file

    def payload(self, cell: StoredValue) -> Payload:
        """The payload that ``cell`` stands for."""
        if isinstance(cell, bytes):
            return cell
        if cell.startswith((OF_RANKS, OF_RANK)):
            return self.joined(cell)
        value = self._in_hand.get(cell)
        if value is None:
            value = self._in_hand[cell] = self._files.stored(cell, self.size_of(cell))
        return value

    def size_of(self, name: str) -> int:
        """The bytes of a recorded file; 0 for any other."""
        row = self._db.execute("SELECT size FROM files WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    # --- dropping ----------------------------------------------------------------------------------------------------

    def forget(self, bag: int, most: int) -> bool:
        """Drop some files of a bag, and return whether it had any."""
        found = self._db.execute("SELECT name FROM files WHERE bag = ? LIMIT ?", (bag, most)).fetchall()
        self.drop([name for (name,) in found])
        return bool(found)

    def drop(self, names: Sequence[str]) -> None:
        """Drop these files. They stay on the disk until `let_go`, and `undo` takes the drop back."""
        self._dropped += names
        self._write("DELETE FROM files WHERE name = ?", [(name,) for name in names])

    def undo(self) -> None:
        """The transaction was rolled back: the files that it dropped stay."""
        self._dropped.clear()

    def committed(self) -> None:
        """The transaction was committed."""
        self.gone += self._dropped
        self._dropped.clear()

    def let_go(self) -> None:
        """The log was copied into the tables: the files that the tables do not name any more can be removed."""
        self._unneeded += self.gone
        self.gone.clear()

    def take_unneeded(self) -> list[str]:
        """The files that can be removed now, with `remove`, on any thread."""
        names = self._unneeded
        self._unneeded = [name for name in names if name in self._in_hand]
        return [name for name in names if name not in self._in_hand]

    def remove(self, names: list[str]) -> None:
        """Remove those files."""
        self._files.remove(names)
