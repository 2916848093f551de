"""What the grid remembers, on disk: SQLite in WAL mode, one transaction per drained batch of messages.

Rule 1: nothing is acknowledged before `commit`; what was committed survives SIGKILL of the broker at any instant.
Rule 2: a bag is a template, stored once, and batches of packed arguments; results are in blocks
(`deskgrid.broker.store.result_blocks`).
Rule 3: every ended task is in exactly one block; who restores a bag in which one is twice is told so by the scheduler.
Rule 4: a large payload is a file beside the tables (`deskgrid.broker.store.large_values`), and in them is its name.
Payloads are opaque. Arguments are read back on demand, so a waiting task costs the broker no memory for them.
"""

import os
import shutil
import sqlite3
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from typing import Literal

import msgpack

from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.integrity import (
    checksum,
    checksum_of_block,
    had_begun,
    teach_checksums,
    wrong_with_files,
    wrong_with_pages,
    wrong_with_values,
)
from deskgrid.broker.store.large_values import Values
from deskgrid.broker.store.purge import Purge
from deskgrid.broker.store.result_blocks import (
    COLUMNS,
    AnswerPiece,
    Block,
    StoredValue,
    blocks_of,
    cancelled_block,
    columns_in,
    names_in,
    rows_in,
)
from deskgrid.broker.store.rows import BagRow, BatchRow, ResultRow, WindowEnd, WindowRow
from deskgrid.broker.store.schema import FORMAT, bring_up, format_of
from deskgrid.private_files import make_private
from deskgrid.wire import BATCH_BYTES, BATCH_ROWS, Kind, Payload, payload_of, read_task_options

NAME = "journal.sqlite3"
# Unpacked batches kept in memory: enough for the batches that slots of a lab are working through, a few at most.
CACHED_BATCHES = 16
# A batch that is packed in less is one of them from the start: it may be what idle slots wait for.
SMALL_BATCH_BYTES = 64 * 1024
# What a commit survives. "process": the broker killed at any instant; a power cut may take the last commits, whole and
# from the end. "power": also that, because each commit waits for the disk. Measured on a virtual machine's ext4: 1.8
# and 2.0 ms for a task on its own there and back, and 3.0 and 5.1 when the disk was busy. 100,000 no-ops take as long
# either way, because everything that arrives together shares a commit. Hence the broker's default, which is "power".
# Files likewise; with "process" a power cut may take one that a commit names, and then the home is refused.
Durability = Literal["process", "power"]
# What may be under way with a bag: all of it that has not ended is cancelled, or what is at no worker; it is forgotten.
Order = Literal["cancel", "cancel waiting", "forget"]
_SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}
# The log of commits is worked into the tables, and cut to nothing, when it is as long as this. That takes some twenty
# milliseconds, for which everybody waits. SQLite would do it by itself, but keeps what it has worked in: a log that is
# damaged later could then give a mixture of states.
LOG_BYTES = 4 * 1024 * 1024
# What a disk that was full has to take before it is written to again.
TRIAL_BYTES = 1024 * 1024
# Windows of workers that closed so long ago are dropped at the next opening, so that the table does not grow for ever:
# a year, and a month to look back at it.
WINDOWS_KEPT_S = 400 * 86_400.0


class JournalError(Exception):
    """The home cannot be used; one line that says why."""


class JournalFull(JournalError):
    """The disk took no more: what was to be recorded is not."""


def _why_unusable(home: Path, error: sqlite3.Error) -> str:
    if "locked" in str(error):
        return f"{home} is in use by another broker"
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        what = "a journal can neither be made nor brought up from an earlier format"
        return f"the disk of {home} is full: {what}; make some room"
    return f"cannot use {home / NAME}: {error}"


class Journal:
    """The tables, opened for one broker alone."""

    def __init__(self, home: Path, durability: Durability = "process") -> None:
        """Open or create the journal in ``home``; raises `JournalError`."""
        self.home = home
        self._durability = durability
        # Whether each commit takes as long as the disk does.
        self.waits = durability == "power"
        self._log = home / f"{NAME}-wal"
        self._shorten_at = LOG_BYTES
        # Whether `shorten_log` has something to do.
        self.log_is_long = False
        self._cache: OrderedDict[int, list[StoredValue]] = OrderedDict()
        # Of bags of which results were recorded by this object: the last of their blocks that was committed, and those
        # that will be with the next commit. They are told before that, and so without being read.
        self._newest: dict[int, int] = {}
        self._blocks: dict[int, list[AnswerPiece]] = {}
        # Why the number of this opening is not written down yet; empty when it is.
        self.full = ""
        try:
            make_private(home, NAME)
            self.values = Values(home, flush=durability == "power")
            self._refuse(wrong_with_files(home / NAME, self._log))
            self._db = sqlite3.connect(home / NAME, isolation_level=None, check_same_thread=False, timeout=0.5)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"cannot use {home}: {error}") from error
        try:
            self._open(home)
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.Error):
                raise JournalError(_why_unusable(home, error)) from error
            raise

    def _open(self, home: Path) -> None:
        # One broker per home: the lock is taken by the first statement and kept until the process ends, in any way.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self._durability]}")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        teach_checksums(self._db)
        self._db.execute("BEGIN IMMEDIATE")
        self._refuse(wrong_with_pages(self._db))
        found = format_of(self._db)
        if not 0 <= found <= FORMAT:
            raise JournalError(f"{home} has a journal of format {found}; this deskgrid reads and writes {FORMAT}")
        try:
            bring_up(self._db, found)
            self._refuse(wrong_with_values(self._db))
            self._refuse(self.values.open(self._db, self._write))
            self.purge = Purge(self._db, self._write, self.values)
            # Of templates of which no bag came, nobody keeps account in the next life of the broker.
            unused = "templates WHERE digest NOT IN (SELECT template FROM bags)"
            self._db.execute(f"DELETE FROM files WHERE name IN (SELECT data FROM {unused} AND typeof(data) = 'text')")
            self._db.execute(f"DELETE FROM {unused}")
            self._begin()
        except sqlite3.OperationalError as error:
            if found < FORMAT or error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            self.rollback()
            self.full = str(error)
        self.values.begin(self.epoch)
        with suppress(OSError):  # on a full disk; then the next opening does it
            had_begun(home / NAME).touch(mode=0o600)

    def _begin(self) -> None:
        """Write down that the journal was opened once more: attempts are numbered by that."""
        self.epoch = int(self._meta("epoch")) + 1
        self._drop_old_windows()
        self._set_meta("epoch", self.epoch)
        self._db.execute("COMMIT")

    def _drop_old_windows(self) -> None:
        limit = self.last_known() - WINDOWS_KEPT_S
        self._db.execute("DELETE FROM windows WHERE closed < ?", (limit,))

    def _refuse(self, wrong: str) -> None:
        """Raise `JournalError` if something is wrong: rather nothing than half of it."""
        if wrong:
            raise JournalError(f"{self.home / NAME} is damaged: {wrong}; put a copy of the home in its place")

    def _meta(self, key: str) -> float:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return float(row[0]) if row else 0.0

    def _set_meta(self, key: str, value: float) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

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
                self.rollback()
                raise JournalFull(str(error)) from error
            self.full = ""
            for bag, blocks in self._blocks.items():
                self._newest[bag] = blocks[-1].seq
            self._blocks.clear()
            self.log_is_long = bool(self.values.dropped) or os.stat(self._log).st_size >= self._shorten_at

    def rollback(self) -> None:
        """Undo what has been written since the last commit."""
        self._cache.clear()  # it may hold batches that are undone
        self._blocks.clear()
        self.values.undo()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def shorten_log(self) -> None:
        """Work the log of commits into the tables, if it is long. That takes about as long as the commits did."""
        if self.log_is_long:
            self.log_is_long = False
            # On a full disk there may be no room for the tables to grow: the commits stay where they are, in the log.
            self._shorten_at = os.stat(self._log).st_size + LOG_BYTES
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._shorten_at = LOG_BYTES
                self.values.let_go()

    def free(self) -> tuple[int, int]:
        """Bytes that are free on the disk, and all that it has."""
        usage = shutil.disk_usage(self.home)
        return usage.free, usage.total

    def trial(self) -> None:
        """Write something large, and take it back; raises `JournalFull`."""
        try:
            self._write("INSERT OR REPLACE INTO meta VALUES ('trial', zeroblob(?))", [(TRIAL_BYTES,)])
            self.commit()
            self._write("DELETE FROM meta WHERE key = 'trial'", [()])
            self.commit()
        except JournalFull:
            self.rollback()
            raise

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            self._begin_writing()
            self._db.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            raise JournalFull(str(error)) from error

    def _insert(self, statement: str, row: tuple[object, ...]) -> int:
        """Write a row, and what its key is."""
        try:
            self._begin_writing()
            return self._db.execute(statement, row).lastrowid or 0
        except sqlite3.OperationalError as error:
            raise JournalFull(str(error)) from error

    def _begin_writing(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
            if self.full:
                self._set_meta("epoch", self.epoch)

    def add_template(self, digest: str, kind: Kind, data: Payload) -> None:
        """Record a template that is not there yet."""
        cell = self.values.cell(data, None)
        self._write("INSERT INTO templates VALUES (?, ?, ?, ?)", [(digest, kind, cell, checksum(cell))])

    def add_bag(self, bag: BagRow) -> None:
        row = (bag.number, bag.id, bag.name, bag.kind, bag.owner, bag.template, bag.options.packed())
        more = (bag.predicted, bag.closed, bag.created, bag.session)
        self._write("INSERT INTO bags VALUES (?,?,?,?,?,?,?,?,?,?,?)", [(*row, *more)])

    def close_bag(self, number: int) -> None:
        self._write("UPDATE bags SET closed = 1 WHERE number = ?", [(number,)])

    def add_batch(self, batch: BatchRow, payloads: Sequence[Payload], arrived: float) -> None:
        """``arrived``: POSIX seconds."""
        runtimes = array("d", batch.runtimes).tobytes()
        cells: list[StoredValue] = [
            each if type(each) is bytes else self.values.cell(each, batch.bag, batch.first) for each in payloads
        ]
        packed = msgpack.packb(cells)
        row = (batch.first, batch.bag, batch.start, batch.count, packed, runtimes, arrived)
        self._write("INSERT INTO batches VALUES (?,?,?,?,?,?,?,NULL,?)", [(*row, checksum(packed, runtimes))])
        if len(packed) < SMALL_BATCH_BYTES:
            self._keep_at_hand(batch.first, cells)

    def _keep_at_hand(self, first: int, cells: list[StoredValue]) -> None:
        self._cache[first] = cells
        if len(self._cache) > CACHED_BATCHES:
            self._cache.popitem(last=False)

    def add_results(self, rows: Sequence[ResultRow]) -> Counter[int]:
        """These tasks ended; how many bytes that takes, by bag."""
        sizes = Counter[int]()
        for block in blocks_of(rows, self.values.cell):
            self._add_block(block)
            sizes[block.bag] += block.weight + sum(map(self.values.size_of, names_in(block.large)))
        return sizes

    def _add_block(self, block: Block) -> None:
        insert = f"INSERT INTO results ({COLUMNS}, checksum) VALUES (?,?,?,?,?,?,?,?,?,?)"
        seq = self._insert(insert, (*block, checksum_of_block(block)))
        self._blocks.setdefault(block.bag, []).append(AnswerPiece(seq, block.size, block.told, block.large))

    def add_sent(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """These tasks are at workers as these attempts: number and session; for those that are worth waiting for."""
        self._write("INSERT OR REPLACE INTO sent VALUES (?, ?, ?)", rows)

    def add_cancelled(self, bag: int, tasks: Sequence[int], items: Sequence[int], ended: float) -> None:
        """These tasks, ascending, were cancelled. ``ended``: POSIX seconds."""
        self._add_block(cancelled_block(bag, tasks, items, ended))

    def predict(self, first: int, runtimes: Sequence[float]) -> None:
        """New predictions for a batch; those it came with stay as they are."""
        packed = array("d", runtimes).tobytes()
        self._write("INSERT OR REPLACE INTO predictions VALUES (?, ?, ?)", [(first, packed, checksum(packed))])

    def add_windows(self, rows: Sequence[WindowRow]) -> None:
        """Windows that opened."""
        values = [(r.number, r.worker, r.session, r.site, r.slots, r.opened, r.planned) for r in rows]
        self._write("INSERT INTO windows VALUES (?,?,?,?,?,?,?,NULL,NULL,NULL,NULL)", values)

    def end_windows(self, rows: Sequence[WindowEnd]) -> None:
        """Windows that closed."""
        self._write("UPDATE windows SET closed = ?, how = ?, kills = ?, wasted_s = ? WHERE number = ?", rows)

    def end_all_windows(self, closed: float) -> None:
        """Close what an earlier life of the broker left open; a window that opened later than ``closed`` was empty."""
        update = "UPDATE windows SET closed = max(opened, ?), how = 'broker', kills = 0, wasted_s = 0"
        self._write(f"{update} WHERE closed IS NULL", [(closed,)])

    def seen(self, time: float) -> None:
        """The broker is there at this time, POSIX seconds, though nothing may happen."""
        self._write("INSERT OR REPLACE INTO meta VALUES ('seen', ?)", [(time,)])

    def order(self, bag: int, what: Order) -> None:
        """This is done to a bag from now on, in slices; after a restart it is gone on with."""
        self._write("INSERT OR REPLACE INTO orders VALUES (?, ?)", [(bag, what)])

    def carried_out(self, bag: int, what: Order) -> None:
        self._write("DELETE FROM orders WHERE bag = ? AND what = ?", [(bag, what)])

    def forget(self, bag: int) -> None:
        """Nobody will ask for a bag again, and its id can be another's; what it has here goes by `purge`."""
        self.order(bag, "forget")
        self._write("UPDATE bags SET id = NULL WHERE number = ?", [(bag,)])
        self._newest.pop(bag, None)
        self._blocks.pop(bag, None)

    # --- reading -----------------------------------------------------------------------------------------------------

    def template_kind(self, digest: str) -> Kind | None:
        """Its kind, if it is there."""
        row = self._db.execute("SELECT kind FROM templates WHERE digest = ?", (digest,)).fetchone()
        return row[0] if row else None

    def template(self, digest: str) -> Payload | None:
        """The template itself."""
        row = self._db.execute("SELECT data FROM templates WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            return None
        # Before format 6 a large one stood in the table.
        return payload_of(row[0]) if isinstance(row[0], bytes) else self.values.payload(row[0])

    def payload(self, first: int, place: int) -> Payload:
        """The argument of the task at ``place`` of the batch that begins with task ``first``."""
        batch = self._cache.get(first)
        if batch is None:
            (packed,) = self._db.execute("SELECT payloads FROM batches WHERE first = ?", (first,)).fetchone()
            batch = msgpack.unpackb(packed)
            self._keep_at_hand(first, batch)
        else:
            self._cache.move_to_end(first)
        return self.values.payload(batch[place])

    def results(self, bag: int, after: int) -> tuple[tuple[bytes, ...], tuple[Payload, ...], int]:
        """What was recorded after ``after``, as much as makes a batch, and the new ``after``.

        Pieces, and large payloads, of an `Outcomes`.
        """
        pieces: list[bytes] = []
        large: list[Payload] = []
        rows = size = 0
        for seq, count, told, names in self._told_after(bag, after):
            values = [self.values.payload(name) for name in names_in(names)]
            rows += count
            size += len(told) + sum(map(len, values))
            if pieces and (rows > BATCH_ROWS or size > BATCH_BYTES):
                break
            pieces.append(told)
            large += values
            after = seq
        return tuple(pieces), tuple(large), after

    def _told_after(self, bag: int, after: int) -> Iterable[AnswerPiece]:
        """The blocks of a bag after ``after``, in order; perhaps not all."""
        if bag in self._newest and self._newest[bag] <= after:
            return [block for block in self._blocks.get(bag, ()) if block.seq > after]
        query = "SELECT seq, size, told, large FROM results WHERE bag = ? AND seq > ? ORDER BY seq LIMIT ?"
        return map(AnswerPiece._make, self._db.execute(query, (bag, after, BATCH_ROWS)))

    def blocks_around(self, task: int) -> list[tuple[int, int]]:
        """(number, tasks) of the blocks that may have the result of a task: they overlap, as tasks end in any order."""
        query = "SELECT seq, size FROM results WHERE high >= ? AND low <= ? ORDER BY high"
        return self._db.execute(query, (task, task)).fetchall()

    def result_in(self, seq: int, size: int, task: int) -> ResultRow | None:
        """The row of an ended task, if it is in that block; of many, only the numbers of their tasks are read."""
        found = self._db.execute("SELECT tasks FROM results WHERE seq = ?", (seq,)).fetchone()
        if found is None or task not in columns_in(found[0], size)[0]:
            return None
        (block,) = self._db.execute(f"SELECT {COLUMNS} FROM results WHERE seq = ?", (seq,))
        return next(row for row in rows_in(Block(*block), self.values.payload) if row.task == task)

    def last_ended(self, bag: int) -> float | None:
        """When the last task of a bag ended, POSIX seconds; None when that was not recorded."""
        row = self._db.execute("SELECT ended FROM results WHERE bag = ? ORDER BY seq DESC LIMIT 1", (bag,)).fetchone()
        return row[0] if row else None

    def orders(self) -> list[tuple[int, Order]]:
        """What is to be gone on with: (bag, what)."""
        return self._db.execute("SELECT bag, what FROM orders ORDER BY bag").fetchall()

    def bags(self) -> Iterator[BagRow]:
        """Every bag that is not forgotten, oldest first. Raises `Damaged` for options that no task has."""
        columns = "number, id, name, kind, owner, template, options, predicted, closed, created, session"
        for row in self._db.execute(f"SELECT {columns} FROM bags WHERE id IS NOT NULL ORDER BY number"):
            number, id_, name, kind, owner, template, packed, predicted, closed, created, session = row
            try:
                options = read_task_options(packed)
            except ValueError as error:
                raise Damaged(f"the options of the tasks of bag {id_} cannot be read: {error}") from error
            known = (number, id_, name, kind, owner, template, options)
            yield BagRow(*known, bool(predicted), bool(closed), created, session or "")

    def batches(self) -> Iterator[BatchRow]:
        """Every batch of bags that are not forgotten, in the order of its tasks."""
        for first, bag, start, count, packed, size in self._db.execute(
            "SELECT first, bag, start, count, coalesce(p.runtimes, b.runtimes), length(payloads) + "
            "(SELECT coalesce(sum(size), 0) FROM files WHERE batch = first) "
            "FROM batches b LEFT JOIN predictions p USING (first) "
            "WHERE bag NOT IN (SELECT bag FROM orders WHERE what = 'forget') ORDER BY first"
        ):
            runtimes = array("d")
            runtimes.frombytes(packed)
            yield BatchRow(first, bag, start, count, runtimes, size)

    def result_sizes(self) -> Counter[int]:
        """Bytes of the results of each bag."""
        sizes = Counter[int]()
        for query in (
            "SELECT bag, sum(length(tasks) + length(told) + ifnull(length(printed), 0)) FROM results GROUP BY bag",
            "SELECT bag, sum(size) FROM files WHERE batch IS NULL AND bag IS NOT NULL GROUP BY bag",
        ):
            sizes.update(dict(self._db.execute(query)))
        return sizes

    def outcomes(self, bag: int) -> dict[int, "array[int]"]:
        """The tasks of a bag that have ended, ascending, by outcome."""
        found: dict[int, array[int]] = {}
        for count, packed in self._db.execute("SELECT size, tasks FROM results WHERE bag = ?", (bag,)):
            tasks, _, outcomes = columns_in(packed, count)
            if isinstance(outcomes, repeat):  # all ended alike
                found.setdefault(next(outcomes), array("q")).extend(tasks)
                continue
            for outcome, some in groupby(zip(outcomes, tasks, strict=True), itemgetter(0)):
                found.setdefault(outcome, array("q")).extend(map(itemgetter(1), some))
        return {outcome: array("q", sorted(tasks)) for outcome, tasks in found.items()}

    def sent(self, first: int, count: int) -> list[tuple[int, int, str | None]]:
        """(task, attempt number, session) of those that were at a worker; they may have ended there.

        The session is None when it was not recorded, in formats 1 and 2.
        """
        query = "SELECT task, number, session FROM sent WHERE task >= ? AND task < ?"
        return self._db.execute(query, (first, first + count)).fetchall()

    def next_task(self) -> int:
        """The smallest task number never used."""
        row = self._db.execute("SELECT max(first + count) FROM batches").fetchone()
        return int(row[0] or 0)

    def next_bag(self) -> int:
        """The smallest number for a bag that is of none here, not of one that is being forgotten either."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM bags").fetchone()[0])

    def next_window(self) -> int:
        """The smallest number for a window that was never used, but for windows that were dropped."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM windows").fetchone()[0])

    def last_known(self) -> float:
        """The last time, POSIX seconds, at which the broker is known to have been there; 0 for a new journal."""
        newest = (
            "SELECT created FROM bags ORDER BY number DESC LIMIT 1",
            "SELECT arrived FROM batches ORDER BY first DESC LIMIT 1",
            "SELECT ended FROM results ORDER BY seq DESC LIMIT 1",
            "SELECT max(max(opened), max(coalesce(closed, 0))) FROM windows",
        )
        found = [self._db.execute(query).fetchone() for query in newest]
        return max([self._meta("seen"), *(row[0] or 0.0 for row in found if row)])
