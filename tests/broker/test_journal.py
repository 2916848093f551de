"""The journal: committed rows survive anything, uncommitted ones leave no trace, and an unusable one is reported."""

import os
import sqlite3
import subprocess
import sys
import tracemalloc
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from deskgrid.broker.store import journal as journal_module
from deskgrid.broker.store.journal import NAME, Journal, JournalError, JournalFull
from deskgrid.broker.store.rows import BagRow, BatchRow, ResultRow
from deskgrid.broker.store.schema import FORMAT
from deskgrid.wire import BATCH_BYTES, BagResult, Outcome, Outcomes, TaskOptions, results_in
from deskgrid.wire import payload as payload_module
from tests.broker.records import dropped, result_of
from tests.live import ROOT
from tests.waiting import PATIENCE_S

BAG = BagRow(
    1, "a1", "sweep", "python", "ada", "digest", TaskOptions(30.0, 2), predicted=True, closed=False, created=1e9
)
OTHER = BagRow(2, "b2", "", "command", "", "other", TaskOptions(), predicted=False, closed=True, created=2e9)
BATCH = BatchRow(0, 1, 0, 3, [1.0, 2.0, 3.0])
MORE = BatchRow(3, 1, 3, 2, [7.0])


def result(task: int, payload: bytes = b"", bag: int = 1) -> ResultRow:
    return ResultRow(task, bag, task, Outcome.DONE, 0.5, "pc1", 9, payload, b"out", b"err", 3e9)


def fill(journal: Journal) -> None:
    """Two bags; five tasks of the first, two of which have ended and one is at a worker."""
    journal.add_template("digest", "python", b"function")
    journal.add_template("other", "command", b"argv")
    journal.add_bag(BAG)
    journal.add_batch(BATCH, [b"p0", b"p1", b"p2"], 1e9)
    journal.add_batch(MORE, [b"p3", b"p4"], 1e9)
    journal.add_bag(OTHER)
    journal.add_batch(BatchRow(5, 2, 0, 1, [4.0]), [b"q0"], 2e9)
    journal.add_results([result(1, b"r1"), result(0, b"r0")])
    journal.add_sent([(2, 11, "s1"), (1, 10, "s2")])


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(tmp_path)
    yield opened
    with suppress(sqlite3.ProgrammingError):  # a test may have closed it
        opened.close()


def reopened(journal: Journal, home: Path) -> Journal:
    journal.close()
    return Journal(home)


def test_what_was_committed_is_there_when_it_is_opened_again(journal: Journal, tmp_path: Path) -> None:
    fill(journal)
    with closing(reopened(journal, tmp_path)) as again:
        assert list(again.recovery.bags()) == [BAG, OTHER]
        found = [(row.first, row.bag, row.start, row.count, list(row.runtimes)) for row in again.recovery.batches()]
        assert found == [(0, 1, 0, 3, [1.0, 2.0, 3.0]), (3, 1, 3, 2, [7.0]), (5, 2, 0, 1, [4.0])]
        assert [again.payload(0, place) for place in range(3)] == [b"p0", b"p1", b"p2"]
        assert again.payload(3, 1) == b"p4"
        assert (again.template_kind("digest"), again.template("digest")) == ("python", b"function")
        assert (again.template_kind("none"), again.template("none")) == (None, None)
        assert result_of(again, 1) == result(1, b"r1")
        assert result_of(again, 2) is None
        assert again.recovery.outcomes(1) == {Outcome.DONE: array("q", [0, 1])}
        assert again.recovery.outcomes(2) == {}
        assert again.recovery.sent(0, 3) == [(1, 10, "s2"), (2, 11, "s1")]
        assert again.recovery.next_task() == 6


def test_an_empty_home_is_made_with_the_folders_above_it(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "some" / "where")) as journal:
        assert journal.recovery.next_task() == 0
        assert list(journal.recovery.bags()) == []


def test_each_opening_is_a_later_epoch(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        with closing(Journal(tmp_path)) as journal:
            epochs.append(journal.epoch)
    assert epochs == [1, 2, 3]


def test_a_bag_that_is_closed_stays_closed(journal: Journal, tmp_path: Path) -> None:
    fill(journal)
    journal.close_bag(1)
    with closing(reopened(journal, tmp_path)) as again:
        assert [bag.closed for bag in again.recovery.bags()] == [True, True]


def test_new_predictions_replace_old_ones(journal: Journal) -> None:
    fill(journal)
    journal.predict(3, [1.5, 2.5])
    assert [list(row.runtimes) for row in journal.recovery.batches()] == [[1.0, 2.0, 3.0, 1.5, 2.5], [4.0]]


def test_payloads_are_read_again_when_more_batches_are_used_than_are_kept(journal: Journal) -> None:
    count = journal_module.CACHED_BATCHES + 3
    journal.add_bag(BAG)
    for first in range(count):
        journal.add_batch(BatchRow(first, 1, first, 1, [1.0]), [str(first).encode()], 1e9)
    for _ in range(2):
        assert [journal.payload(first, 0) for first in range(count)] == [str(n).encode() for n in range(count)]


# --- results in pages ------------------------------------------------------------------------------------------------


def pages(journal: Journal, bag: int = 1) -> list[list[BagResult]]:
    """All results of a bag as a watcher gets them."""
    found: list[list[BagResult]] = []
    outcomes = Outcomes(1, "bag", *journal.results(bag, 0), 0, 0, closed=False)
    while outcomes.results:
        found.append([*results_in(outcomes)])
        outcomes = Outcomes(1, "bag", *journal.results(bag, outcomes.after), 0, 0, closed=False)
    return found


def test_results_come_in_the_order_they_were_recorded(journal: Journal) -> None:
    fill(journal)
    assert pages(journal) == [
        [BagResult(1, Outcome.DONE, 0.5, "pc1", b"r1"), BagResult(0, Outcome.DONE, 0.5, "pc1", b"r0")]
    ]
    assert pages(journal, 2) == []
    assert journal.results(1, 77) == ((), (), 77)


def test_a_page_holds_so_many_results(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (journal_module, payload_module):
        monkeypatch.setattr(module, "BATCH_ROWS", 4)
    journal.add_results([result(task) for task in range(10)])
    journal.add_results([result(task) for task in range(10, 12)])
    assert [[row.item for row in page] for page in pages(journal)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_page_holds_so_many_bytes_and_a_larger_result_travels_alone(journal: Journal) -> None:
    half = bytes(BATCH_BYTES // 2)
    sizes = [half, half, b"", half, bytes(BATCH_BYTES + 1), b"", half]
    journal.add_results([result(task, payload) for task, payload in enumerate(sizes)])
    assert [[row.item for row in page] for page in pages(journal)] == [[0, 1, 2], [3], [4], [5, 6]]


def test_what_is_told_before_its_commit_is_what_is_read_later(journal: Journal) -> None:
    journal.add_results([result(0)])
    journal.commit()
    _, _, after = journal.results(1, 0)
    journal.add_results([result(1), result(5, bag=2)])
    journal.add_results([result(2, b"more")])
    told = [journal.results(1, seen) for seen in (0, after, after + 1)]
    assert [len(pieces) for pieces, _, _ in told] == [3, 2, 1]
    journal.commit()
    assert [journal.results(1, seen) for seen in (0, after, after + 1)] == told
    _, _, last = told[0]
    assert journal.results(1, last) == ((), (), last)


def test_results_that_are_committed_are_not_kept_in_memory(journal: Journal) -> None:
    tracemalloc.start()
    try:
        for task in range(40):
            journal.add_results([result(task, bytes(100_000))])
            journal.commit()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 500_000


def test_what_was_undone_is_not_told_any_more(journal: Journal) -> None:
    journal.add_results([result(0)])
    journal.commit()
    _, _, after = journal.results(1, 0)
    journal.add_results([result(1)])
    journal.rollback()
    assert journal.results(1, after) == ((), (), after)
    journal.add_results([result(2)])
    journal.commit()
    assert [[row.item for row in page] for page in pages(journal)] == [[0, 2]]


# --- forgetting ------------------------------------------------------------------------------------------------------


def rows_in(home: Path) -> dict[str, int]:
    """How many rows each table has."""
    with closing(sqlite3.connect(home / NAME)) as db:
        tables = ("bags", "batches", "results", "sent", "templates")
        return {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def test_a_forgotten_bag_leaves_nothing(journal: Journal, tmp_path: Path) -> None:
    fill(journal)
    dropped(journal, 1)
    journal.close()
    assert rows_in(tmp_path) == {"bags": 1, "batches": 1, "results": 0, "sent": 0, "templates": 1}


def test_a_forgotten_bag_leaves_others_with_the_same_template_alone(journal: Journal) -> None:
    fill(journal)
    journal.add_bag(
        BagRow(3, "c3", "", "python", "", "digest", TaskOptions(), predicted=True, closed=True, created=0.0)
    )
    journal.add_batch(BatchRow(6, 3, 0, 1, [1.0]), [b"s0"], 1e9)
    journal.add_sent([(6, 12, "s1")])
    dropped(journal, 1)
    assert journal.template("digest") == b"function"
    assert journal.payload(6, 0) == b"s0"
    assert journal.recovery.sent(6, 1) == [(6, 12, "s1")]


def test_the_payloads_of_a_forgotten_bag_are_not_kept_in_memory(journal: Journal) -> None:
    fill(journal)
    assert journal.payload(0, 0) == b"p0"
    dropped(journal, 1)
    journal.add_batch(BatchRow(0, 2, 1, 1, [1.0]), [b"new"], 1e9)
    assert journal.payload(0, 0) == b"new"


def test_task_numbers_of_a_forgotten_bag_may_be_used_again_only_if_nothing_came_after_it(journal: Journal) -> None:
    fill(journal)
    dropped(journal, 1)
    assert journal.recovery.next_task() == 6


# --- a writer that is killed -----------------------------------------------------------------------------------------

# Commits two results at a time; when it has written `argv[2]` of them it says so and waits to be killed.
WRITER = """
import sys
from pathlib import Path
from typing import Any
from deskgrid.broker.store.journal import *
from deskgrid.wire import TaskOptions
journal = Journal(Path(sys.argv[1]))
journal.add_bag(BagRow(1, "a1", "", "python", "", "d", TaskOptions(), True, False, 0.0))
journal.commit()
wanted, written = int(sys.argv[2]), 0
while True:
    journal.add_results([ResultRow(written, 1, written, 0, 0.5, "pc1", 1, b"x" * 1000, b"", b"", 1.0)])
    written += 1
    if written == wanted:
        print("written", flush=True)
        if sys.argv[3] == "wait":
            sys.stdin.read()
    if written % 2 == 0:
        journal.commit()
        if written % 100 == 0:
            print(written, flush=True)
"""


def writer(home: Path, wanted: int, then: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home), str(wanted), then],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(process: "subprocess.Popen[str]") -> list[int]:
    """Kill it; the numbers of results that it had said were committed."""
    process.kill()
    stdout, _ = process.communicate(timeout=PATIENCE_S)
    return [int(line) for line in stdout.split("\n")[:-1] if line.isdigit()]


# 4: right after a commit, 5: inside a transaction.
@pytest.mark.parametrize(("written", "kept"), [(4, 2), (5, 4)])
def test_what_a_killed_writer_had_not_committed_is_not_there(tmp_path: Path, written: int, kept: int) -> None:
    process = writer(tmp_path, written, "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    killed(process)
    with closing(Journal(tmp_path)) as journal:
        assert [row.item for page in pages(journal) for row in page] == list(range(kept))
        journal.add_results([result(kept)])
        journal.commit()
        assert [row.item for page in pages(journal) for row in page] == list(range(kept + 1))


def test_a_writer_killed_at_any_moment_loses_nothing_it_had_committed(tmp_path: Path) -> None:
    process = writer(tmp_path, 100, "go on")
    assert process.stdout is not None
    process.stdout.readline()
    said = max(killed(process), default=0)
    with closing(Journal(tmp_path)) as journal:
        found = [row.item for page in pages(journal) for row in page]
    assert found == list(range(len(found)))
    assert len(found) >= said
    assert len(found) % 2 == 0


# --- homes that cannot be used ---------------------------------------------------------------------------------------


def refusal(home: Path) -> str:
    with pytest.raises(JournalError) as error:
        Journal(home)
    reason = str(error.value)
    assert "\n" not in reason
    assert str(home) in reason
    return reason


def test_a_second_broker_on_the_same_home_is_refused(journal: Journal, tmp_path: Path) -> None:
    assert "in use by another broker" in refusal(tmp_path)


def test_a_home_is_free_again_when_its_broker_has_closed_it(journal: Journal, tmp_path: Path) -> None:
    journal.close()
    Journal(tmp_path).close()


def test_a_journal_of_a_newer_format_is_refused_and_left_as_it_was(journal: Journal, tmp_path: Path) -> None:
    journal.close()
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT + 1,))
        db.commit()
    assert f"format {FORMAT + 1}, of a later deskgrid; this one reads and writes {FORMAT}" in refusal(tmp_path)
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        assert db.execute("SELECT * FROM meta ORDER BY key").fetchall() == [("epoch", 1), ("format", FORMAT + 1)]


def test_a_file_in_place_of_the_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("not a folder")
    assert "cannot use" in refusal(home)


def test_a_home_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "cannot use" in refusal(tmp_path / "file" / "home")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    assert "cannot use" in refusal(home)


def test_a_folder_in_place_of_the_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    assert "cannot use" in refusal(tmp_path)


@pytest.mark.parametrize("content", [b"neither empty nor a database" * 100, b"SQLite format 3\0"])
def test_a_journal_that_is_garbage_is_refused_and_left_as_it_was(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert "cannot use" in refusal(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_a_database_of_something_else_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    assert "cannot use" in refusal(tmp_path)
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_a_full_disk_is_said_and_undoes_what_was_not_committed(journal: Journal) -> None:
    fill(journal)
    journal.commit()
    pages_now = journal.db.execute("PRAGMA page_count").fetchone()[0]
    journal.db.execute(f"PRAGMA max_page_count = {pages_now}")

    def write() -> None:
        journal.add_results([result(2, bytes(1_000_000))])
        journal.commit()

    with pytest.raises(JournalFull, match="full"):
        write()
    assert [row.item for page in pages(journal) for row in page] == [1, 0]


class FullAtCommit:
    """A connection to a disk that has room for everything but the commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.execute(statement, *values)


def test_a_commit_that_fails_undoes_what_was_to_be_committed(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(journal)
    journal.commit()
    journal.add_results([result(2)])
    with monkeypatch.context() as patch:
        patch.setattr(journal, "db", FullAtCommit(journal.db))
        with pytest.raises(JournalFull, match="full"):
            journal.commit()
    journal.add_results([result(3)])
    journal.commit()
    assert [row.item for page in pages(journal) for row in page] == [1, 0, 3]
