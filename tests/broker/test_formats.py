"""A broker that opens a journal of an older format upgrades it to the newest, or refuses it and says why."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deskgrid.broker.store import schema
from deskgrid.broker.store.integrity import LONG_BYTES
from deskgrid.broker.store.journal import NAME, Journal, JournalError
from deskgrid.broker.store.result_blocks import blocks_of
from deskgrid.broker.store.schema import FORMAT, OLDEST
from tests.broker.records import bag_row, batch_row, result_row

# Steps as a later format has them.
STEPS = ("ALTER TABLE bags ADD COLUMN more TEXT; UPDATE bags SET more = name", "CREATE TABLE extra (a INTEGER)")


def later(patch: pytest.MonkeyPatch, *steps: str) -> None:
    """Make this deskgrid a later one."""
    patch.setattr(schema, "_STEPS", (*schema._STEPS, *steps))
    patch.setattr(schema, "FORMAT", FORMAT + len(steps))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a journal of today's format."""
    with closing(Journal(tmp_path)) as journal:
        journal.add_bag(bag_row(1))
        journal.add_batch(batch_row(0, 1, 0, 2), [b"p0", b"p1"], 1e9)
    return tmp_path


def tables(home: Path) -> dict[str, list[tuple[str, str]]]:
    """The columns of every table and index, in their order, with their types."""
    with closing(sqlite3.connect(home / NAME)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master ORDER BY name")]
        return {name: [row[1:3] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}


def test_an_older_journal_is_brought_up_to_the_tables_of_a_new_one_and_nothing_is_lost(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch, *STEPS)
    fresh = tmp_path_factory.mktemp("fresh")
    Journal(fresh).close()
    for _ in range(2):
        with closing(Journal(home)) as journal:
            assert [row.id for row in journal.recovery.bags()] == [bag_row(1).id]
            assert [journal.payload(0, place) for place in range(2)] == [b"p0", b"p1"]
            assert journal.db.execute("SELECT more = name FROM bags").fetchall() == [(1,)]
    assert tables(home) == tables(fresh)


def test_a_broker_killed_while_it_brings_a_journal_up_leaves_it_as_it_was(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables(home)
    # Killed after each statement, one after the other: what the process had not committed is gone with it.
    statements = [step.split(";") for step in STEPS]
    for step, whole in enumerate(statements):
        for place in range(len(whole) + 1):
            broken = ";".join([*whole[:place], "INSERT INTO nowhere VALUES (1)"])
            with monkeypatch.context() as patch:
                later(patch, *STEPS[:step], broken)
                with pytest.raises(JournalError):
                    Journal(home)
            assert tables(home) == before
    Journal(home).close()


def test_short_results_have_no_checksum(home: Path) -> None:
    with closing(Journal(home)) as journal:
        for task, short in ((0, True), (1, False)):
            (empty,) = blocks_of([result_row(task, bytes(256))], lambda *_: "")
            beside = sum(map(len, (empty.tasks, empty.told, empty.printed or b""))) - 256
            journal.add_results([result_row(task, bytes(LONG_BYTES - beside + (not short)))])
        query = "SELECT length(tasks) + length(told) + length(printed), checksum IS NULL FROM results"
        assert journal.db.execute(query).fetchall() == [(LONG_BYTES, 1), (LONG_BYTES + 1, 0)]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (FORMAT + 1, f"of a later deskgrid; this one reads and writes {FORMAT}"),
        (OLDEST - 1, f"of an early deskgrid; this one converts formats from {OLDEST} on"),
        (-3, f"of an early deskgrid; this one converts formats from {OLDEST} on"),
    ],
)
def test_a_format_that_is_not_known_is_refused(home: Path, found: int, why: str) -> None:
    with closing(sqlite3.connect(home / NAME)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (found,))
        db.commit()
    with pytest.raises(JournalError, match=f"it has format {found}, {why}"):
        Journal(home)
