"""A broker that opens a journal of an older format upgrades it to the newest, and nothing is lost."""

import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgpack
import pytest

from deskgrid.broker.store import schema
from deskgrid.broker.store.integrity import LONG_BYTES
from deskgrid.broker.store.journal import NAME, Journal, JournalError
from deskgrid.broker.store.result_blocks import blocks_of
from deskgrid.broker.store.rows import BatchRow, WindowRow
from deskgrid.broker.store.schema import FORMAT
from deskgrid.wire import BagResult, Outcome, Outcomes, TaskOptions, results_in
from tests.broker.records import result_of, result_row

# The tables of format 1 as the first release made them, with two bags in them: one that has ended and is closed, and an
# open one with a failure, a cancelled task, one at a worker and one that waits.
FORMAT_1 = """
PRAGMA journal_mode = WAL;
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
INSERT INTO meta VALUES ('format', 1), ('epoch', 7);
INSERT INTO templates VALUES ('digest', 'python', x'66');
INSERT INTO bags VALUES (1, 'a1', 'sweep', 'python', 'ada', 'digest', 30.0, 2, 1, 1, 1000.0),
                        (3, 'b2', '', 'command', 'bob', 'other', NULL, 0, 0, 0, 2000.0);
INSERT INTO results VALUES (1, 0, 1, 0, 0, 0.5, 'pc1', 77, x'7230', x'6f', x''),
                           (2, 4, 3, 2, 4, 0.0, '', 0, x'', x'', x''),
                           (5, 2, 3, 0, 1, 1.5, 'pc2', 78, x'7232', x'', x'65');
INSERT INTO sent VALUES (3, 79);
"""
BATCHES = (
    (0, 1, 0, 2, msgpack.packb([b"p0", b"p1"]), array("d", [1.0, 2.0]).tobytes()),
    (2, 3, 0, 4, msgpack.packb([b"q0", b"q1", b"q2", b"q3"]), array("d", [60.0]).tobytes()),
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a journal of format 1."""
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.executescript(FORMAT_1)
        db.executemany("INSERT INTO batches VALUES (?,?,?,?,?,?)", BATCHES)
        db.commit()
    return tmp_path


def tables(home: Path) -> dict[str, list[tuple[str, str]]]:
    """The columns of every table and index, in their order, with their types."""
    with closing(sqlite3.connect(home / NAME)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master ORDER BY name")]
        return {name: [row[1:3] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}


def test_nothing_is_lost_of_a_journal_of_format_1(home: Path) -> None:
    with closing(Journal(home)) as journal:
        first, second = journal.recovery.bags()
        assert (first.id, first.name, first.owner, first.options) == ("a1", "sweep", "client", TaskOptions(30.0, 2))
        assert (first.predicted, first.closed, first.created, first.session) == (True, True, 1000.0, "")
        assert (second.number, second.kind, second.options, second.predicted) == (3, "command", TaskOptions(), False)
        found = [(row.first, row.bag, row.start, row.count, list(row.runtimes)) for row in journal.recovery.batches()]
        assert found == [(0, 1, 0, 2, [1.0, 2.0]), (2, 3, 0, 4, [60.0])]
        assert [journal.payload(2, place) for place in range(4)] == [b"q0", b"q1", b"q2", b"q3"]
        told = Outcomes(1, "b2", *journal.results(3, 0), 2, 4, closed=False)
        assert results_in(told) == (
            BagResult(2, Outcome.CANCELLED, 0.0, "", b""),
            BagResult(0, Outcome.ERROR, 1.5, "pc2", b"r2"),
        )
        row = result_of(journal, 0)
        assert row is not None
        assert (row.payload, row.stdout, row.number, row.ended) == (b"r0", b"o", 77, None)
        assert journal.recovery.sent(2, 4) == [(3, 79, None)]
        assert (journal.template_kind("digest"), journal.template("digest")) == ("python", b"f")
        assert (journal.epoch, journal.recovery.next_task(), journal.recovery.next_window()) == (8, 6, 1)
        assert journal.recovery.last_known() == 2000.0


def test_what_was_brought_up_has_the_tables_of_a_new_one(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    fresh = tmp_path_factory.mktemp("fresh")
    Journal(home).close()
    Journal(fresh).close()
    assert tables(home) == tables(fresh)


@pytest.mark.parametrize("table", ["templates", "batches", "results"])
def test_long_values_of_an_earlier_format_are_given_their_checksums(home: Path, table: str) -> None:
    size = {"templates": 5000, "batches": 5000, "results": schema_limit() + 1}[table]
    column = {"templates": "data", "batches": "payloads", "results": "payload"}[table]
    with closing(sqlite3.connect(home / NAME)) as db:
        db.execute(f"UPDATE {table} SET {column} = zeroblob({size})")
        db.commit()
    Journal(home).close()
    with closing(sqlite3.connect(home / NAME)) as db:
        found = db.execute(f"SELECT checksum FROM {table}").fetchall()
        assert all(value is not None for (value,) in found)
        db.execute(f"UPDATE {table} SET checksum = checksum + 1")
        db.commit()
    with pytest.raises(JournalError, match=r"is damaged: .* is not what was written"):
        Journal(home)


def schema_limit() -> int:
    """The number in the formats' statements is the one by which results are given a checksum."""
    assert f"> {LONG_BYTES};" in schema._FORMATS[2]
    assert f"> {LONG_BYTES};" in schema._FORMATS[4]
    return LONG_BYTES


def test_short_results_have_no_checksum(home: Path) -> None:
    with closing(Journal(home)) as journal:
        for task, short in ((3, True), (1, False)):
            (empty,) = blocks_of([result_row(task, bytes(256))], lambda *_: "")
            beside = sum(map(len, (empty.tasks, empty.told, empty.printed or b""))) - 256
            journal.add_results([result_row(task, bytes(LONG_BYTES - beside + (not short)))])
        query = (
            "SELECT length(tasks) + length(told) + length(printed), checksum IS NULL FROM results WHERE low IN (1, 3)"
        )
        assert journal.db.execute(query).fetchall() == [(LONG_BYTES, 1), (LONG_BYTES + 1, 0)]


def test_what_was_brought_up_takes_what_is_new_and_is_opened_again_as_it_is(home: Path) -> None:
    with closing(Journal(home)) as journal:
        journal.add_batch(BatchRow(6, 3, 4, 1, [5.0]), [b"q4"], 3000.0)
        journal.predict(0, [1.5, 2.5])
        journal.predict(0, [1.7, 2.7])
        journal.windows.add([WindowRow(1, "pc1", "s", "lab", 2, 3000.0, None)])
    with closing(Journal(home)) as journal:
        assert journal.recovery.next_window() == 2
        query = (
            "SELECT p.runtimes, b.runtimes, arrived FROM batches b LEFT JOIN predictions p USING (first) ORDER BY first"
        )
        rows = [
            ([*array("d", a)] if a else None, [*array("d", b)], at) for a, b, at in journal.db.execute(query).fetchall()
        ]
        assert rows == [([1.7, 2.7], [1.0, 2.0], None), (None, [60.0], None), (None, [5.0], 3000.0)]
        assert journal.epoch == 9


def test_a_broker_killed_while_it_brings_a_journal_up_leaves_it_as_it_was(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables(home)
    # Killed after each statement, one after the other: what the process had not committed is gone with it.
    for step in range(1, FORMAT):
        for place in range(len(schema._FORMATS[step].split(";"))):
            with monkeypatch.context() as patch:
                patch.setattr(schema, "_FORMATS", (*schema._FORMATS[:step], broken_after(step, place)))
                with pytest.raises(JournalError):
                    Journal(home)
            assert tables(home) == before
    Journal(home).close()


def broken_after(step: int, place: int) -> str:
    """A format's statements, with one that fails after the first few."""
    statements = schema._FORMATS[step].split(";")
    return ";".join([*statements[:place], "INSERT INTO nowhere VALUES (1)"])


@pytest.mark.parametrize("change", [lambda found: found + 1, lambda found: -3])
def test_a_format_that_is_not_known_is_refused(home: Path, change: Callable[[int], int]) -> None:
    wrong = change(FORMAT)
    with closing(sqlite3.connect(home / NAME)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (wrong,))
        db.commit()
    with pytest.raises(JournalError, match=f"format {wrong}; this deskgrid reads and writes {FORMAT}"):
        Journal(home)
