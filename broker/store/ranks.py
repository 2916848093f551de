"""Parallel tasks in the journal: the ranks of each one's newest attempt, and what they said when they ended.

A row of ``gangs`` is an attempt that has begun and has not ended: a restart waits for its ranks. A row of ``ranks`` is
a rank of it. It stays until the bag is forgotten, because of what the rank printed, but it keeps the rank's result only
until the task ends, and afterwards if the results of all ranks are too long for one value in the tables.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgpack

from deskgrid.broker.store.integrity import checksum
from deskgrid.broker.store.large_values import OF_RANKS, LargeValues
from deskgrid.broker.store.parts import Write
from deskgrid.wire import Chunks, Payload, join_ranks


class GangAttemptRow(NamedTuple):
    """An attempt that has begun, at ``began``, POSIX seconds. ``met``: the last meeting of its ranks that was held."""

    task: int
    number: int
    bag: int
    began: float
    runtime: float
    port: int
    met: int


class RankAttemptRow(NamedTuple):
    """A rank, and the session that was given it. ``outcome``: None until it has ended. ``size``: of its result."""

    rank: int
    session: str
    worker: str
    slots: tuple[int, ...]
    outcome: int | None = None
    elapsed: float = 0.0
    size: int = 0


class RankOutput(NamedTuple):
    """What a rank printed, of the newest attempt of its task. ``outcome``: None: it had not ended when that did."""

    rank: int
    worker: str
    outcome: int | None
    elapsed: float
    stdout: bytes
    stderr: bytes


class RankTable:
    """``write(statement, rows)`` writes rows; ``values``: the files of large values."""

    def __init__(self, db: sqlite3.Connection, write: Write, values: LargeValues) -> None:
        self._db = db
        self._write = write
        self._values = values
        values.joined = self.joined

    # --- an attempt --------------------------------------------------------------------------------------------------

    def begin(self, gang: GangAttemptRow, ranks: Sequence[RankAttemptRow]) -> int:
        """Record an attempt that begins, in the place of earlier ones of its task; return the bytes of these."""
        printed = "SELECT ifnull(sum(length(stdout) + length(stderr)), 0) FROM ranks WHERE task = ?"
        before = self.drop(gang.task) + int(self._db.execute(printed, (gang.task,)).fetchone()[0])
        self._write("DELETE FROM ranks WHERE task = ?", [(gang.task,)])
        self._write("INSERT INTO gangs VALUES (?,?,?,?,?,?,?)", [gang])
        columns = "(task, rank, bag, session, worker, slots, elapsed, size)"
        rows = [(gang.task, r.rank, gang.bag, r.session, r.worker, msgpack.packb(r.slots), 0.0, 0) for r in ranks]
        self._write(f"INSERT INTO ranks {columns} VALUES (?,?,?,?,?,?,?,?)", rows)
        return before

    def end(self, task: int, bag: int, rank: int, ended: tuple[int, float], said: tuple[Payload, bytes, bytes]) -> None:
        """Record how a rank ended: its outcome and the seconds it took; what it returned and printed."""
        payload, stdout, stderr = said
        cell = self._values.cell(payload, bag)
        update = (
            "UPDATE ranks SET outcome = ?, elapsed = ?, size = ?, payload = ?, stdout = ?, stderr = ?, checksum = ? "
            "WHERE task = ? AND rank = ?"
        )
        row = (*ended, len(payload), cell, stdout, stderr, checksum(cell, stdout, stderr), task, rank)
        self._write(update, [row])

    def printed(self, task: int, rank: int, elapsed: float, stdout: bytes, stderr: bytes) -> None:
        """Record what a rank printed before it was stopped, after so many seconds."""
        update = (
            "UPDATE ranks SET elapsed = ?, stdout = ?, stderr = ?, checksum = checksum(payload, ?, ?) "
            "WHERE task = ? AND rank = ?"
        )
        self._write(update, [(elapsed, stdout, stderr, stdout, stderr, task, rank)])

    def met(self, task: int, serial: int) -> None:
        """Record that a meeting of the ranks was held."""
        self._write("UPDATE gangs SET met = ? WHERE task = ?", [(serial, task)])

    def keep_line(self, task: int, rank: int, ends: int, line: bytes) -> None:
        """Record a line that a rank said to MPI's process manager, and the position of its end."""
        self._write("INSERT INTO gang_lines (task, rank, ends, line) VALUES (?,?,?,?)", [(task, rank, ends, line)])

    def drop(self, task: int, *, keep_results: bool = False) -> int:
        """The attempt is over; return the bytes of the results that were deleted with it."""
        self._write("DELETE FROM gangs WHERE task = ?", [(task,)])
        self._write("DELETE FROM gang_lines WHERE task = ?", [(task,)])
        if keep_results:
            return 0
        where = "task = ? AND payload IS NOT NULL"
        found = self._db.execute(f"SELECT size, payload FROM ranks WHERE {where}", (task,)).fetchall()
        if found:
            self._values.drop([cell for _, cell in found if isinstance(cell, str)])
            update = "UPDATE ranks SET payload = NULL, checksum = checksum(NULL, stdout, stderr)"
            self._write(f"{update} WHERE {where}", [(task,)])
        return sum([size for size, _ in found])

    # --- results -----------------------------------------------------------------------------------------------------

    def payloads(self, task: int) -> list[Payload]:
        """The results of all ranks, by rank."""
        query = "SELECT payload FROM ranks WHERE task = ? ORDER BY rank"
        return [self._values.payload(cell) for (cell,) in self._db.execute(query, (task,))]

    def payload(self, task: int, rank: int) -> Payload:
        """The result of one rank."""
        query = "SELECT payload FROM ranks WHERE task = ? AND rank = ?"
        return self._values.payload(self._db.execute(query, (task, rank)).fetchone()[0])

    def joined(self, cell: str) -> Payload:
        """The results of ranks that a cell of another table stands for, as one payload."""
        kind, _, task = cell.partition(":")
        payloads = self.payloads(int(task))
        if not OF_RANKS.startswith(f"{kind}:"):
            return payloads[0]
        whole = join_ranks(payloads)
        return whole if isinstance(whole, bytes) else _Joined(whole, payloads)

    def outputs(self, task: int) -> list[RankOutput]:
        """What each rank printed, by rank; empty if it is no parallel task, or has not begun."""
        query = (
            "SELECT rank, worker, outcome, elapsed, ifnull(stdout, x''), ifnull(stderr, x'') "
            "FROM ranks WHERE task = ? ORDER BY rank"
        )
        return list(map(RankOutput._make, self._db.execute(query, (task,))))

    # --- after a restart ---------------------------------------------------------------------------------------------

    def begun(self) -> Iterator[tuple[GangAttemptRow, list[RankAttemptRow]]]:
        """Every attempt that has begun and has not ended."""
        for row in self._db.execute("SELECT task, number, bag, began, runtime, port, met FROM gangs").fetchall():
            columns = "rank, session, worker, slots, outcome, elapsed, size"
            found = self._db.execute(f"SELECT {columns} FROM ranks WHERE task = ? ORDER BY rank", row[:1])
            ranks = [
                RankAttemptRow(rank, session, worker, tuple(msgpack.unpackb(slots)), *ended)
                for rank, session, worker, slots, *ended in found
            ]
            yield GangAttemptRow._make(row), ranks

    def has_begun(self, task: int, number: int) -> bool:
        """Whether an attempt has begun and has not ended."""
        query = "SELECT 1 FROM gangs WHERE task = ? AND number = ?"
        return self._db.execute(query, (task, number)).fetchone() is not None

    def lines(self, task: int) -> list[tuple[int, int, bytes]]:
        """(rank, position, line): what the ranks said to MPI's process manager, in order."""
        return self._db.execute(
            "SELECT rank, ends, line FROM gang_lines WHERE task = ? ORDER BY number", (task,)
        ).fetchall()


class _Joined(Chunks):
    """The results of ranks as one payload. It keeps the files of the large ones from being removed."""

    __slots__ = ("_sources",)

    def __init__(self, whole: Chunks, sources: Sequence[Payload]) -> None:
        super().__init__(whole.frames())
        self._sources = sources
