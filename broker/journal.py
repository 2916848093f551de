"""What the grid remembers, on disk: SQLite in WAL mode, one transaction per drained batch of messages.

Rule 1: nothing is acknowledged before `commit`; what was committed survives SIGKILL of the broker at any instant.
Rule 2: a bag is a template, stored once, and batches of packed arguments; a task has a row of its own when it ended.
Rule 3: every ended task has exactly one row in ``results``; the table's UNIQUE says so too.
Payloads are opaque. Arguments are read back on demand, so a waiting task costs the broker no memory for them.
"""

import sqlite3
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgpack

from broker.protocol import BATCH_BYTES, BATCH_ROWS, BagResult

FORMAT = 1
NAME = "journal.sqlite3"
# Unpacked batches kept in memory: enough for the batches that slots of a lab are working through, a few at most.
CACHED_BATCHES = 16

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE templates (digest TEXT PRIMARY KEY, kind TEXT, data BLOB);
CREATE TABLE bags (number INTEGER PRIMARY KEY, id TEXT UNIQUE, name TEXT, kind TEXT, owner TEXT, template TEXT,
                   timeout REAL, retries INTEGER, predicted INTEGER, closed INTEGER, created REAL);
CREATE TABLE batches (first INTEGER PRIMARY KEY, bag INTEGER, start INTEGER, count INTEGER,
                      payloads BLOB, runtimes BLOB);
CREATE TABLE results (seq INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER UNIQUE, bag INTEGER, item INTEGER,
                      outcome INTEGER, elapsed REAL, worker TEXT, number INTEGER,
                      payload BLOB, stdout BLOB, stderr BLOB);
CREATE INDEX results_of_bag ON results (bag, seq);
CREATE TABLE sent (task INTEGER PRIMARY KEY, number INTEGER);
"""
# The columns of a `ResultRow`.
_RESULT = "task, bag, item, outcome, elapsed, worker, number, payload, stdout, stderr"


class JournalError(Exception):
    """The home cannot be used; one line that says why."""


class JournalFull(JournalError):
    """The disk took no more: what was to be recorded is not."""


class ResultRow(NamedTuple):
    """One ended task, in the order of the table's columns (``seq`` is given by the table)."""

    task: int
    bag: int
    item: int
    outcome: int
    elapsed: float
    worker: str
    number: int
    payload: bytes
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class BagRow:
    """What is stored of a bag. ``created``: POSIX seconds. ``predicted``: somebody said how long its tasks take."""

    number: int
    id: str
    name: str
    kind: str
    owner: str
    template: str
    timeout: float | None
    retries: int
    predicted: bool
    closed: bool
    created: float


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Consecutive tasks ``first`` .. of bag ``bag``, whose items begin at ``start``; one runtime, or one for each."""

    first: int
    bag: int
    start: int
    count: int
    runtimes: Sequence[float]


class Journal:
    """The tables, opened for one broker alone."""

    def __init__(self, home: Path) -> None:
        """Open or create the journal in ``home``; raises `JournalError`."""
        self._cache: OrderedDict[int, list[bytes]] = OrderedDict()
        try:
            home.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(home / NAME, isolation_level=None, check_same_thread=False, timeout=0.5)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"cannot use {home}: {error}") from error
        try:
            self._open(home)
        except sqlite3.Error as error:
            self._db.close()
            if "locked" in str(error):
                raise JournalError(f"{home} is in use by another broker") from error
            raise JournalError(f"cannot use {home / NAME}: {error}") from error
        except JournalError:
            self._db.close()
            raise

    def _open(self, home: Path) -> None:
        # One broker per home: the lock is taken by the first statement and kept until the process ends, in any way.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this survives the death of the process; only a power cut can take the last commits.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("BEGIN IMMEDIATE")
        if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute("INSERT INTO meta VALUES ('format', ?), ('epoch', 0)", (FORMAT,))
        found = self._meta("format")
        if found != FORMAT:
            raise JournalError(f"{home} has a journal of format {found}; this deskgrid reads and writes {FORMAT}")
        self.epoch = self._meta("epoch") + 1
        self._db.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (self.epoch,))
        self._db.execute("COMMIT")

    def _meta(self, key: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Commit and let go of the home, the latter in any case; raises `JournalFull`."""
        try:
            self.commit()
        finally:
            self._db.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make everything written so far durable; raises `JournalFull` and undoes it when the disk does not take it."""
        if self._db.in_transaction:
            try:
                self._db.execute("COMMIT")
            except sqlite3.OperationalError as error:
                self._db.execute("ROLLBACK")
                raise JournalFull(str(error)) from error

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            if not self._db.in_transaction:
                self._db.execute("BEGIN")
            self._db.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            raise JournalFull(str(error)) from error

    def add_template(self, digest: str, kind: str, data: bytes) -> None:
        self._write("INSERT OR IGNORE INTO templates VALUES (?, ?, ?)", [(digest, kind, data)])

    def add_bag(self, bag: BagRow) -> None:
        row = (bag.number, bag.id, bag.name, bag.kind, bag.owner, bag.template, bag.timeout, bag.retries)
        self._write("INSERT INTO bags VALUES (?,?,?,?,?,?,?,?,?,?,?)", [(*row, bag.predicted, bag.closed, bag.created)])

    def close_bag(self, number: int) -> None:
        self._write("UPDATE bags SET closed = 1 WHERE number = ?", [(number,)])

    def add_batch(self, batch: BatchRow, payloads: Sequence[bytes]) -> None:
        runtimes = array("d", batch.runtimes).tobytes()
        packed = msgpack.packb(payloads)
        row = (batch.first, batch.bag, batch.start, batch.count, packed, runtimes)
        self._write("INSERT INTO batches VALUES (?,?,?,?,?,?)", [row])

    def add_results(self, rows: Sequence[ResultRow]) -> None:
        self._write(f"INSERT INTO results ({_RESULT}) VALUES (?,?,?,?,?,?,?,?,?,?)", rows)

    def add_sent(self, rows: Sequence[tuple[int, int]]) -> None:
        """These tasks are at a worker as these attempts; kept for those long enough to be worth waiting for."""
        self._write("INSERT OR REPLACE INTO sent VALUES (?, ?)", rows)

    def predict(self, first: int, runtimes: Sequence[float]) -> None:
        """New predictions for a batch."""
        self._write("UPDATE batches SET runtimes = ? WHERE first = ?", [(array("d", runtimes).tobytes(), first)])

    def forget(self, bag: int, first_tasks: Sequence[int]) -> None:
        """Drop a bag with its batches and results, and its template if no other bag uses it."""
        for first in first_tasks:
            self._cache.pop(first, None)
        self._write(
            "DELETE FROM sent WHERE EXISTS (SELECT 1 FROM batches b WHERE b.bag = ? "
            "AND sent.task >= b.first AND sent.task < b.first + b.count)",
            [(bag,)],
        )
        for table, column in (("results", "bag"), ("batches", "bag"), ("bags", "number")):
            self._write(f"DELETE FROM {table} WHERE {column} = ?", [(bag,)])
        self._write("DELETE FROM templates WHERE digest NOT IN (SELECT template FROM bags)", [()])

    # --- reading -----------------------------------------------------------------------------------------------------

    def template(self, digest: str) -> tuple[str, bytes] | None:
        """(kind, bytes), or None."""
        row = self._db.execute("SELECT kind, data FROM templates WHERE digest = ?", (digest,)).fetchone()
        return (row[0], row[1]) if row else None

    def payload(self, first: int, place: int) -> bytes:
        """The argument of the task at ``place`` of the batch that begins with task ``first``."""
        batch = self._cache.get(first)
        if batch is None:
            (packed,) = self._db.execute("SELECT payloads FROM batches WHERE first = ?", (first,)).fetchone()
            batch = self._cache[first] = msgpack.unpackb(packed)
            if len(self._cache) > CACHED_BATCHES:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(first)
        return batch[place]

    def results(self, bag: int, after: int) -> tuple[list[BagResult], int]:
        """Results recorded after ``after``, as many as make a batch, and the new ``after``."""
        found: list[BagResult] = []
        size = 0
        columns = "seq, item, outcome, elapsed, worker, payload"
        query = f"SELECT {columns} FROM results WHERE bag = ? AND seq > ? ORDER BY seq LIMIT ?"
        for seq, *fields in self._db.execute(query, (bag, after, BATCH_ROWS)):
            result = BagResult(*fields)
            size += len(result.payload)
            if found and size > BATCH_BYTES:
                break
            found.append(result)
            after = seq
        return found, after

    def result(self, task: int) -> ResultRow | None:
        """The row of one ended task."""
        row = self._db.execute(f"SELECT {_RESULT} FROM results WHERE task = ?", (task,)).fetchone()
        return ResultRow(*row) if row else None

    def bags(self) -> Iterator[BagRow]:
        """Every bag, oldest first."""
        for *fields, predicted, closed, created in self._db.execute("SELECT * FROM bags ORDER BY number"):
            number, id_, name, kind, owner, template, timeout, retries = fields
            yield BagRow(
                number, id_, name, kind, owner, template, timeout, retries, bool(predicted), bool(closed), created
            )

    def batches(self) -> Iterator[BatchRow]:
        """Every batch, in the order of its tasks."""
        for first, bag, start, count, packed in self._db.execute(
            "SELECT first, bag, start, count, runtimes FROM batches ORDER BY first"
        ):
            runtimes = array("d")
            runtimes.frombytes(packed)
            yield BatchRow(first, bag, start, count, runtimes)

    def outcomes(self, first: int, count: int) -> list[tuple[int, int]]:
        """(task, outcome) of every ended task from ``first`` on."""
        query = "SELECT task, outcome FROM results WHERE task >= ? AND task < ?"
        return self._db.execute(query, (first, first + count)).fetchall()

    def sent(self, first: int, count: int) -> list[tuple[int, int]]:
        """(task, attempt number) of those that were at a worker and have not ended."""
        query = (
            "SELECT task, number FROM sent WHERE task >= ? AND task < ? "
            "AND NOT EXISTS (SELECT 1 FROM results WHERE results.task = sent.task)"
        )
        return self._db.execute(query, (first, first + count)).fetchall()

    def next_task(self) -> int:
        """The smallest task number never used."""
        row = self._db.execute("SELECT max(first + count) FROM batches").fetchone()
        return int(row[0] or 0)
