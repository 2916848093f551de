"""Parts of stored files in the journal: what each is, who needs it, and when nobody does any more.

A part is known by its SHA-256 and stored once. A *holder* is a bag, or the uploads for a bag that was not submitted
yet, or the results of a bag; it belongs to an owner. A part stays while some holder holds it.

Rule 1: an owner has a part only if one of its holders holds it. Whether others have it too is nobody's business.
Rule 2: a part of a MiB or more is a file. It is not read when the broker starts: whoever gets it compares it with its
digest.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from deskgrid.broker.store.integrity import checksum
from deskgrid.broker.store.large_values import LargeValues
from deskgrid.wire import Payload

Write = Callable[[str, Sequence[tuple[object, ...]]], None]


class HolderRow(NamedTuple):
    """``bag``: its id. ``touched``: when it was last offered parts, POSIX seconds; 0 once its bag was forgotten.

    ``first``, ``each``: bytes that a task of the bag needs, as in `Offer`. ``results``: it holds what workers sent for
    the bag. That is kept apart, because a result may have the same parts as a library, which goes earlier.
    """

    number: int
    bag: str
    owner: str
    touched: float
    first: int
    each: int
    results: bool

    @property
    def key(self) -> "HolderKey":
        """What it is known by."""
        return self.bag, self.owner, self.results


# The bag, its owner, and whether these are its results.
HolderKey = tuple[str, str, bool]


class DroppedParts(NamedTuple):
    """What a holder has dropped: how many parts, and the bytes that its owner does not have any more."""

    rows: int
    size: int


class Parts:
    """``write(statement, rows)`` writes rows; ``values``: the files of large values."""

    def __init__(self, db: sqlite3.Connection, write: Write, values: LargeValues) -> None:
        self._db = db
        self._write = write
        self._values = values

    # --- holders -----------------------------------------------------------------------------------------------------

    def holders(self) -> Iterator[HolderRow]:
        """Every holder."""
        query = "SELECT number, bag, owner, touched, first, each, results FROM holders ORDER BY number"
        return map(HolderRow._make, self._db.execute(query))

    def put_holder(self, row: HolderRow) -> None:
        """Record a holder, or what has changed of it."""
        self._write("INSERT OR REPLACE INTO holders VALUES (?,?,?,?,?,?,?)", [row])

    def forget(self, bag: str, owner: str) -> None:
        """A bag of ``owner`` was forgotten: nobody needs its parts. Others may have uploads for a bag of that id."""
        self._write("UPDATE holders SET touched = 0 WHERE bag = ? AND owner = ?", [(bag, owner)])

    def sizes(self) -> list[tuple[str, int, int]]:
        """(owner, bytes of its parts, each part once, and how many times its holders hold a part)."""
        held = "SELECT owner, digest, count(*) AS times FROM holds GROUP BY owner, digest"
        query = f"SELECT owner, sum(size), sum(times) FROM ({held}) JOIN parts USING (digest) GROUP BY owner"
        return self._db.execute(query).fetchall()

    # --- holding -----------------------------------------------------------------------------------------------------

    def has(self, owner: str, digest: bytes) -> bool:
        """Whether some holder of ``owner`` holds a part."""
        query = "SELECT 1 FROM holds WHERE digest = ? AND owner = ? LIMIT 1"
        return self._db.execute(query, (digest, owner)).fetchone() is not None

    def lacked(self, owner: str, digests: Sequence[bytes]) -> list[bytes]:
        """Those of these parts that ``owner`` does not have."""
        return [digest for digest in digests if not self.has(owner, digest)]

    def held(self, holder: HolderRow, digests: Iterable[bytes]) -> list[bytes]:
        """Those of these parts that ``holder`` holds."""
        query = "SELECT 1 FROM holds WHERE digest = ? AND owner = ? AND holder = ?"
        mine = (holder.owner, holder.number)
        return [digest for digest in {*digests} if self._db.execute(query, (digest, *mine)).fetchone() is not None]

    def hold(self, holder: HolderRow, digests: Iterable[bytes]) -> int:
        """Let ``holder`` hold parts that its owner has; return how many of them it did not hold before."""
        before = self._db.total_changes
        rows = [(digest, holder.owner, holder.number) for digest in digests]
        self._write("INSERT OR IGNORE INTO holds VALUES (?,?,?)", rows)
        return self._db.total_changes - before

    def add(self, holder: HolderRow, digest: bytes, data: Payload) -> int:
        """Record a part, which is what its digest says, and let ``holder`` hold it; returns what `hold` does."""
        if self._row(digest) is None:
            cell = self._values.cell(data, None, summed=False)
            self._write("INSERT INTO parts VALUES (?,?,?,?)", [(digest, len(data), cell, checksum(cell))])
        return self.hold(holder, [digest])

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

    def drop_some(self, holder: HolderRow, most: int) -> "DroppedParts":
        """Let ``holder`` drop some parts, and return what its owner has less; the last call drops the holder itself."""
        query = "SELECT digest FROM holds WHERE holder = ? LIMIT ?"
        digests = [digest for (digest,) in self._db.execute(query, (holder.number, most)).fetchall()]
        if not digests:
            self._write("DELETE FROM holders WHERE number = ?", [(holder.number,)])
        return self.drop(holder, digests)

    def drop(self, holder: HolderRow, digests: Sequence[bytes]) -> "DroppedParts":
        """Let ``holder`` drop these parts, which it holds, and return what its owner has less."""
        rows = [(digest, holder.owner, holder.number) for digest in digests]
        self._write("DELETE FROM holds WHERE digest = ? AND owner = ? AND holder = ?", rows)
        return DroppedParts(len(digests), sum([self._let_go(holder.owner, digest) for digest in digests]))

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
