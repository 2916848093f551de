"""Large values in the journal: rows that name files, and files that come and go with them.

Rule 1: a value is kept as a file before the commit that records it. One that was not kept is in the tables.
Rule 2: a file that no commit names any more is removed when that commit is in the tables themselves, for a log can be
lost, and then an earlier commit is back.
"""

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from deskgrid.broker.store.files import Files, Stored, checksum_of
from deskgrid.broker.store.result_blocks import StoredValue
from deskgrid.broker.store.rows import FileRow
from deskgrid.wire import Chunks, Payload


class Values:
    """The files of a journal, and its table of them."""

    def __init__(self, home: Path, flush: bool) -> None:
        """``flush``: a file waits for the disk, as a commit does. Raises OSError."""
        self._files = Files(home, flush)
        # Files that are not recorded yet, and those that no commit names any more.
        self._kept: set[str] = set()
        self.dropped: list[str] = []
        # Files that can go, unless somebody has their values in hand, perhaps in a message that waits to be sent.
        self._unneeded: list[str] = []
        self._in_hand: WeakValueDictionary[str, Stored] = WeakValueDictionary()

    def open(self, db: sqlite3.Connection, write: Callable[[str, Sequence[tuple[object, ...]]], None]) -> str:
        """What is wrong with the files, or "": all are read. ``write(statement, rows)`` is how rows are written."""
        self._db, self._write = db, write
        rows = db.execute("SELECT name, bag, batch, size, checksum FROM files").fetchall()
        return self._files.wrong_with(map(FileRow._make, rows))

    def begin(self, epoch: int) -> None:
        """The journal was opened for the ``epoch``-th time: what an earlier life left unnamed goes."""
        self._names = (f"{epoch:x}-{number:x}" for number in itertools.count())
        self._files.remove_others({name for (name,) in self._db.execute("SELECT name FROM files")})

    # --- keeping -----------------------------------------------------------------------------------------------------

    def keep(self, value: Chunks) -> None:
        """Make a file of ``value``, before it is recorded. For any thread, but one at a time; raises OSError."""
        name = next(self._names)
        self._files.write(name, value)
        self._kept.add(name)
        value.file = name

    @staticmethod
    def sum_up(value: Chunks) -> None:
        """Find out its checksum, likewise: on another thread, for that takes nearly as long as to write it."""
        value.checksum = checksum_of(value)

    def release(self, values: Iterable[Chunks]) -> None:
        """These were kept; what has not been recorded by now, in a commit, will not be."""
        names = {value.file for value in values} & self._kept
        self._kept -= names
        self._unneeded += [name for name in names if not self.size_of(name)]

    def cell(self, payload: Payload, bag: int | None, batch: int | None = None) -> StoredValue:
        """Record a payload: of that bag, an argument of the batch that begins with task ``batch``, or a result.

        A template is of no bag.
        """
        if isinstance(payload, bytes) or not payload.file:
            return bytes(payload)
        row = FileRow(payload.file, bag, batch, len(payload), payload.checksum)
        self._write("INSERT INTO files VALUES (?,?,?,?,?)", [row])
        return payload.file

    def payload(self, cell: StoredValue) -> Payload:
        """What was recorded."""
        if isinstance(cell, bytes):
            return cell
        value = self._in_hand.get(cell)
        if value is None:
            value = self._in_hand[cell] = self._files.stored(cell, self.size_of(cell))
        return value

    def size_of(self, name: str) -> int:
        """The bytes of a file that was recorded; 0 of another."""
        row = self._db.execute("SELECT size FROM files WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    # --- dropping ----------------------------------------------------------------------------------------------------

    def forget(self, bag: int, most: int) -> bool:
        """Drop some of a bag, until `let_go`, or `undo`; whether there were any."""
        found = self._db.execute("SELECT name FROM files WHERE bag = ? LIMIT ?", (bag, most)).fetchall()
        self.drop([name for (name,) in found])
        return bool(found)

    def drop(self, names: Sequence[str]) -> None:
        """Drop these files, likewise."""
        self.dropped += names
        self._write("DELETE FROM files WHERE name = ?", [(name,) for name in names])

    def undo(self) -> None:
        """What was dropped is there."""
        self.dropped.clear()

    def let_go(self) -> None:
        """Nothing will name them any more."""
        self._unneeded += self.dropped
        self.dropped = []

    def take_unneeded(self) -> list[str]:
        """Files that can be removed by now, by any thread: with `remove`."""
        names = self._unneeded
        self._unneeded = [name for name in names if name in self._in_hand]
        return [name for name in names if name not in self._in_hand]

    def remove(self, names: list[str]) -> None:
        """Remove those files."""
        self._files.remove(names)
