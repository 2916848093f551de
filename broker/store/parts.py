"""Parts of stored files in the journal: what each is, who needs it, and when nobody does any more.

A part is known by its SHA-256 and stored once. A *holder* is a bag, or the uploads for a bag that was not submitted yet;
it belongs to an owner. A part stays while some holder holds it.

Rule 1: an owner has a part only if one of its holders holds it. Whether others have it too is nobody's business.
Rule 2: a part of a MiB or more is a file. It is not read when the broker starts: whoever gets it compares it with its digest.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from deskgrid.broker.store.integrity import checksum
from deskgrid.broker.store.large_values import LargeValues
from deskgrid.wire import Payload

Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class HolderRow(NamedTuple):
    """``bag``: its id. ``touched``: when it was last offered parts, POSIX seconds; 0 once its bag was forgotten.

    ``needs``: the most bytes of files that one task of the bag needs.
    """

    number: int
    bag: str
    owner: str
    touched: float
    needs: int


class Parts:
    """``write(statement, rows)`` writes rows; ``values``: the files of large values."""

    def __init__(self, db: sqlite3.Connection, write: Write, values: LargeValues) -> None:
        self._db = db
        self._write = write
        self._values = values

    # --- holders -----------------------------------------------------------------------------------------------------

    def holders(self) -> Iterator[HolderRow]:
        """Every holder."""
        query = "SELECT number, bag, owner, touched, needs FROM holders ORDER BY number"
        return map(HolderRow._make, self._db.execute(query))

    def put_holder(self, row: HolderRow) -> None:
        """Record a holder, or what has changed of it."""
        self._write("INSERT OR REPLACE INTO holders VALUES (?,?,?,?,?)", [row])

    def forget(self, bag: str) -> None:
        """A bag was forgotten: nobody needs its parts."""
        self._write("UPDATE holders SET touched = 0 WHERE bag = ?", [(bag,)])

    def sizes(self) -> list[tuple[str, int]]:
        """The bytes of the parts of each owner, each part once."""
        held = "SELECT DISTINCT owner, digest FROM holds"
        return self._db.execute(
            f"SELECT owner, sum(size) FROM ({held}) JOIN parts USING (digest) GROUP BY owner"
        ).fetchall()

    # --- holding -----------------------------------------------------------------------------------------------------

    def has(self, owner: str, digest: bytes) -> bool:
        """Whether some holder of ``owner`` holds a part."""
        query = "SELECT 1 FROM holds WHERE digest = ? AND owner = ? LIMIT 1"
        return self._db.execute(query, (digest, owner)).fetchone() is not None

    def hold(self, holder: HolderRow, digests: Sequence[bytes]) -> list[bytes]:
        """Let ``holder`` hold those of these parts that its owner has; return the others."""
        have = [digest for digest in digests if self.has(holder.owner, digest)]
        self._hold(holder, have)
        known = set(have)
        return [digest for digest in digests if digest not in known]

    def _hold(self, holder: HolderRow, digests: Sequence[bytes]) -> None:
        rows = [(digest, holder.owner, holder.number) for digest in digests]
        self._write("INSERT OR IGNORE INTO holds VALUES (?,?,?)", rows)

    def add(self, holder: HolderRow, digest: bytes, data: Payload) -> None:
        """Record a part, which is what its digest says, and let ``holder`` hold it."""
        if self._row(digest) is None:
            cell = self._values.cell(data, None, summed=False)
            self._write("INSERT INTO parts VALUES (?,?,?,?)", [(digest, len(data), cell, checksum(cell))])
        self._hold(holder, [digest])

    def part(self, digest: bytes) -> Payload | None:
        """The bytes of a part; None when there is no such part."""
        row = self._row(digest)
        return None if row is None else self._values.payload(row[1])

    def _row(self, digest: bytes) -> tuple[int, bytes | str] | None:
        row: tuple[int, bytes | str] | None = self._db.execute(
            "SELECT size, data FROM parts WHERE digest = ?", (digest,)
        ).fetchone()
        return row

    # --- letting go --------------------------------------------------------------------------------------------------

    def drop_some(self, holder: HolderRow, most: int) -> int | None:
        """Let ``holder`` drop some parts; return the bytes that its owner has less. None: it held nothing any more."""
        query = "SELECT digest FROM holds WHERE holder = ? LIMIT ?"
        digests = [digest for (digest,) in self._db.execute(query, (holder.number, most)).fetchall()]
        self._write(
            "DELETE FROM holds WHERE digest = ? AND holder = ?", [(digest, holder.number) for digest in digests]
        )
        if not digests:
            self._write("DELETE FROM holders WHERE number = ?", [(holder.number,)])
            return None
        return sum([self._let_go(holder.owner, digest) for digest in digests])

    def _let_go(self, owner: str, digest: bytes) -> int:
        """Delete a part that nobody holds; return its bytes if ``owner`` does not hold it any more."""
        row = self._row(digest)
        if row is None or self.has(owner, digest):
            return 0
        size, cell = row
        if self._db.execute("SELECT 1 FROM holds WHERE digest = ? LIMIT 1", (digest,)).fetchone() is None:
            self._values.drop([cell] if isinstance(cell, str) else [])
            self._write("DELETE FROM parts WHERE digest = ?", [(digest,)])
        return size
