"""The broker's journal on disk: SQLite in WAL mode, one transaction for each batch of messages.

Rule 1: nothing is acknowledged before `commit`; every commit survives SIGKILL of the broker at any instant.
Rule 2: a bag is a template, stored once, and batches of packed arguments; results are in blocks
(`deskgrid.broker.store.result_blocks`).
Rule 3: every ended task is in exactly one block. If a task is in two blocks, the scheduler refuses it at a restart.
Rule 4: a large payload is a file (`deskgrid.broker.store.large_values`); the tables only have the file's name.
Payloads are opaque. Arguments are read back on demand, so the arguments of a waiting task take no memory. The queries
of a restart are in `deskgrid.broker.store.recovery`.
"""

import logging
import os
import shutil
import sqlite3
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgpack

from deskgrid.broker.store.checkpoints import CheckpointTable
from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.integrity import (
    checksum,
    checksum_of_block,
    drop_damaged_checkpoints,
    had_begun,
    teach_checksums,
    why_unusable,
    wrong_with_files,
    wrong_with_pages,
    wrong_with_values,
)
from deskgrid.broker.store.large_values import LargeValues
from deskgrid.broker.store.parts import Parts
from deskgrid.broker.store.purge import Purge
from deskgrid.broker.store.ranks import RankTable
from deskgrid.broker.store.recovery import Recovery
from deskgrid.broker.store.result_blocks import (
    COLUMNS,
    AnswerPiece,
    Block,
    StoredValue,
    blocks_of,
    cancelled_block,
    names_in,
)
from deskgrid.broker.store.rows import BagRow, BatchRow, DrainRow, Order, ResultRow, UsageRow
from deskgrid.broker.store.schema import FORMAT, bring_up, format_of, refusal
from deskgrid.broker.store.tables import EtaTable, LearnedTable, WindowTable
from deskgrid.private_files import make_private
from deskgrid.wire import BATCH_BYTES, BATCH_ROWS, Kind, Payload, payload_of

log = logging.getLogger("deskgrid.broker")

NAME = "journal.sqlite3"
# Unpacked batches kept in memory: more than the few that the slots of a lab are working through.
CACHED_BATCHES = 16
# A batch smaller than this when packed is kept in memory from the start, because idle slots may be waiting for it.
SMALL_BATCH_BYTES = 64 * 1024
# What a commit survives. "process": SIGKILL of the broker at any instant. A power cut may lose the last commits, or a
# file that a commit names; in the second case the home is refused. "power": a power cut, too, because each commit waits
# for the disk. Measured on the ext4 of a virtual machine, the round trip of a single task takes 1.8 ms with "process"
# and 2.0 ms with "power", 3.0 and 5.1 ms on a busy disk. 100,000 no-ops take equally long, because everything that
# arrives together shares a commit. So the broker's default is "power".
Durability = Literal["process", "power"]
_SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}
# The log of commits is copied into the tables and truncated when it is this long. Everybody waits some twenty
# milliseconds for that. SQLite by itself would copy the log but not truncate it. If the log were damaged later, a
# restart could find a mixture of states.
LOG_BYTES = 4 * 1024 * 1024
# A disk that was full has to take this much before anything else is written to it.
TRIAL_BYTES = 1024 * 1024


class JournalError(Exception):
    """The home cannot be used; one line that says why."""


class JournalFull(JournalError):
    """The disk is full, or failed: nothing of the transaction was recorded."""


class Journal:
    """The tables, opened for one broker alone. ``db``: the connection; only the journal writes through it."""

    def __init__(self, home: Path, durability: Durability = "process") -> None:
        """Open or create the journal in ``home``; raises `JournalError`."""
        self.home = home
        self._durability = durability
        self.waits = durability == "power"
        self._log = home / f"{NAME}-wal"
        self._shorten_at = LOG_BYTES
        self.log_is_long = False
        self._cache: OrderedDict[int, list[StoredValue]] = OrderedDict()
        # For bags with results recorded by this object: the last committed block, and the blocks of the next commit.
        self._newest: dict[int, int] = {}
        self._blocks: dict[int, list[AnswerPiece]] = {}
        # Why the number of this opening could not be recorded yet; empty once it is recorded.
        self.full = ""
        try:
            make_private(home, NAME)
            self.values = LargeValues(home, flush=durability == "power")
            self._refuse(wrong_with_files(home / NAME, self._log))
            self.db = sqlite3.connect(home / NAME, isolation_level=None, check_same_thread=False, timeout=0.5)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"cannot use {home}: {error}") from error
        try:
            self._open(home)
        except BaseException as error:
            self.db.close()
            if isinstance(error, sqlite3.Error):
                raise JournalError(why_unusable(home / NAME, error)) from error
            raise

    def _open(self, home: Path) -> None:
        # One broker per home: the first statement takes the lock, and the process keeps it until it ends in any way.
        self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self._durability]}")
        self.db.execute("PRAGMA wal_autocheckpoint = 0")
        self.recovery = Recovery(self.db)
        teach_checksums(self.db)
        self.db.execute("BEGIN IMMEDIATE")
        self._refuse(wrong_with_pages(self.db))
        found = format_of(self.db)
        if why := refusal(found):
            raise JournalError(f"{home} has a journal that cannot be opened: {why}")
        try:
            bring_up(self.db, found)
            if dropped := drop_damaged_checkpoints(self.db):
                log.warning("damaged checkpoints: %d are left out, and their tasks go on from earlier ones", dropped)
            self._refuse(wrong_with_values(self.db))
            self._refuse(self.values.open(self.db, self._write))
            self.purge = Purge(self.db, self._write, self.values)
            self.parts = Parts(self.db, self._write, self.values)
            self.learned = LearnedTable(self.db, self._write)
            self.etas = EtaTable(self.db, self._write)
            self.windows = WindowTable(self.db, self._write)
            self.ranks = RankTable(self.db, self._write, self.values)
            self.checkpoints = CheckpointTable(self.db, self._write, self._insert, self.values)
            # Delete templates that no bag uses: after a restart nothing else would ever delete them.
            unused = "templates WHERE digest NOT IN (SELECT template FROM bags)"
            self.db.execute(f"DELETE FROM files WHERE name IN (SELECT data FROM {unused} AND typeof(data) = 'text')")
            self.db.execute(f"DELETE FROM {unused}")
            # Workers send a checkpoint again, from its start, to a broker that was started again.
            begun = "checkpoint_parts WHERE checkpoint IS NULL"
            self.db.execute(f"DELETE FROM files WHERE name IN (SELECT data FROM {begun} AND typeof(data) = 'text')")
            self.db.execute(f"DELETE FROM {begun}")
            self._begin()
        except sqlite3.OperationalError as error:
            if found < FORMAT or error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            self.rollback()
            self.full = str(error)
        self.values.begin(self.epoch)
        with suppress(OSError):  # on a full disk; the next opening makes up for it
            had_begun(home / NAME).touch(mode=0o600)

    def _begin(self) -> None:
        """Record one more opening: the numbers of attempts depend on it."""
        row = self.db.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        self.epoch = int(row[0]) + 1 if row else 1
        self.windows.forget_old(self.recovery.last_known())
        self._write_epoch()
        self.db.execute("COMMIT")

    def _write_epoch(self) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (self.epoch,))

    def _refuse(self, wrong: str) -> None:
        """Raise `JournalError` if something is ``wrong``: half a journal would be worse than none."""
        if wrong:
            raise JournalError(f"{self.home / NAME} is damaged: {wrong}; put a copy of the home in its place")

    def close(self) -> None:
        """Commit, and release the home in any case; raises `JournalFull`."""
        try:
            self.commit()
        finally:
            self.db.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make everything written so far durable. Raises `JournalFull` when the disk is full, after a rollback."""
        if self.db.in_transaction:
            try:
                self.db.execute("COMMIT")
            except sqlite3.OperationalError as error:
                self.rollback()
                raise JournalFull(str(error)) from error
            self.full = ""
            for bag, blocks in self._blocks.items():
                self._newest[bag] = blocks[-1].seq
            self._blocks.clear()
            self.values.committed()
            self.log_is_long = bool(self.values.gone) or self._log_size() >= self._shorten_at

    def rollback(self) -> None:
        """Undo what has been written since the last commit."""
        self._cache.clear()  # it may hold batches that are undone
        self._blocks.clear()
        self.values.undo()
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def shorten_log(self) -> None:
        """Copy the log of commits into the tables, if it is long. That takes about as long as the commits did."""
        if self.log_is_long:
            self.log_is_long = False
            # On a full disk the tables may have no room to grow: the commits then stay in the log.
            self._shorten_at = self._log_size() + LOG_BYTES
            with suppress(sqlite3.OperationalError):
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._shorten_at = LOG_BYTES
                self.values.let_go()

    def _log_size(self) -> int:
        """The bytes of the log of commits. Raises `Damaged` if somebody has removed it: what follows would be lost."""
        try:
            return os.stat(self._log).st_size
        except FileNotFoundError as error:
            raise Damaged(f"{self._log.name} was removed while the broker ran") from error

    def free(self) -> tuple[int, int]:
        """Bytes on the disk: (free, in all)."""
        usage = shutil.disk_usage(self.home)
        return usage.free, usage.total

    def trial(self) -> None:
        """Write something large and delete it again; raises `JournalFull`."""
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
            self.db.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            raise JournalFull(str(error)) from error

    def _insert(self, statement: str, row: tuple[object, ...]) -> int:
        """Write a row, and return its key."""
        try:
            self._begin_writing()
            return self.db.execute(statement, row).lastrowid or 0
        except sqlite3.OperationalError as error:
            raise JournalFull(str(error)) from error

    def _begin_writing(self) -> None:
        if not self.db.in_transaction:
            self.db.execute("BEGIN")
            if self.full:
                self._write_epoch()

    def add_template(self, digest: str, kind: Kind, data: Payload) -> None:
        """Record a new template."""
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
        """Record tasks that ended, and return the bytes of these results, by bag."""
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
        """Record (task, attempt number, session) of attempts that a restart should wait for."""
        self._write("INSERT OR REPLACE INTO sent VALUES (?, ?, ?)", rows)

    def add_copies(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Record (task, attempt number, session) of copies that a restart should wait for, beside their originals."""
        self._write("INSERT OR REPLACE INTO copies VALUES (?, ?, ?)", rows)

    def add_cancelled(self, bag: int, tasks: Sequence[int], items: Sequence[int], ended: float) -> None:
        """Record that these tasks, ascending, were cancelled. ``ended``: POSIX seconds."""
        self._add_block(cancelled_block(bag, tasks, items, ended))

    def predict(self, first: int, runtimes: Sequence[float]) -> None:
        """Record new predictions for a batch; its first predictions are kept, too."""
        packed = array("d", runtimes).tobytes()
        self._write("INSERT OR REPLACE INTO predictions VALUES (?, ?, ?)", [(first, packed, checksum(packed))])

    def seen(self, time: float) -> None:
        """Record that the broker runs at this time, POSIX seconds."""
        self._write("INSERT OR REPLACE INTO meta VALUES ('seen', ?)", [(time,)])

    def order(self, bag: int, what: Order | str) -> None:
        """Record an order that is carried out in slices, so that a restart goes on with it."""
        self._write("INSERT OR REPLACE INTO orders VALUES (?, ?)", [(bag, what)])

    def carried_out(self, bag: int, what: Order | str) -> None:
        """Record that an order is finished."""
        self._write("DELETE FROM orders WHERE bag = ? AND what = ?", [(bag, what)])

    def keep_file(self, name: str, text: str | None) -> None:
        """Record what a file in the home said when it was last right; None: it was not there."""
        self._write("INSERT OR REPLACE INTO home_files VALUES (?, ?)", [(name, text)])

    def forget_file(self, name: str) -> None:
        """Record that a file counts no longer."""
        self._write("DELETE FROM home_files WHERE name = ?", [(name,)])

    def keep_mac(self, pc: str, mac: str) -> None:
        """Record the network card of a PC."""
        self._write("INSERT OR REPLACE INTO macs VALUES (?, ?)", [(pc, mac)])

    def forget_mac(self, pc: str) -> None:
        """Delete the network card of a PC."""
        self._write("DELETE FROM macs WHERE pc = ?", [(pc,)])

    def drain(self, row: DrainRow) -> None:
        """Record that a PC is drained, in the place of an earlier drain of it."""
        self._write("INSERT OR REPLACE INTO drains VALUES (?, ?, ?)", [row])

    def undrain(self, pc: str) -> None:
        """Record that a PC is drained no longer."""
        self._write("DELETE FROM drains WHERE pc = ?", [(pc,)])

    def use(self, rows: Sequence[UsageRow]) -> None:
        """Record what owners have used."""
        self._write("INSERT OR REPLACE INTO usage VALUES (?, ?, ?)", rows)

    def forget(self, bag: int) -> None:
        """Free the id of a bag, so that nobody can ask for the bag any more; `purge` deletes its rows."""
        self.order(bag, "forget")
        self._write("UPDATE bags SET id = NULL WHERE number = ?", [(bag,)])
        self._newest.pop(bag, None)
        self._blocks.pop(bag, None)

    # --- reading -----------------------------------------------------------------------------------------------------

    def template_kind(self, digest: str) -> Kind | None:
        """The kind of a template; None when the journal does not have it."""
        row = self.db.execute("SELECT kind FROM templates WHERE digest = ?", (digest,)).fetchone()
        return row[0] if row else None

    def template(self, digest: str) -> Payload | None:
        """A template; None when the journal does not have it."""
        row = self.db.execute("SELECT data FROM templates WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            return None
        # A journal that was begun by an older version may have large templates in the table.
        return payload_of(row[0]) if isinstance(row[0], bytes) else self.values.payload(row[0])

    def payload(self, first: int, place: int) -> Payload:
        """The argument of the task at ``place`` of the batch that begins with task ``first``."""
        batch = self._cache.get(first)
        if batch is None:
            (packed,) = self.db.execute("SELECT payloads FROM batches WHERE first = ?", (first,)).fetchone()
            batch = msgpack.unpackb(packed)
            self._keep_at_hand(first, batch)
        else:
            self._cache.move_to_end(first)
        return self.values.payload(batch[place])

    def results(self, bag: int, after: int) -> tuple[tuple[bytes, ...], tuple[Payload, ...], int]:
        """Results after block ``after``, at most a batch: pieces and large payloads for `Outcomes`, new ``after``."""
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
        """The next blocks of a bag after ``after``, in order."""
        if bag in self._newest and self._newest[bag] <= after:
            return [block for block in self._blocks.get(bag, ()) if block.seq > after]
        query = "SELECT seq, size, told, large FROM results WHERE bag = ? AND seq > ? ORDER BY seq LIMIT ?"
        return map(AnswerPiece._make, self.db.execute(query, (bag, after, BATCH_ROWS)))
