"""A damaged journal is read as of one of its commits, or refused in one line; it is never half-read.

The output (``pytest -s``) counts the cases.
"""

import marshal
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from deskgrid.broker.store import journal as journal_module
from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.integrity import wrong_with_files
from deskgrid.broker.store.journal import NAME, Journal, JournalError
from tests.broker.records import bag_row, batch_row, dropped, result_row

LOG = f"{NAME}-wal"
# Commits in the log; each adds a batch and results, some of them larger than a page.
COMMITS = 8
PAGE = 4096
FRAME_HEADER, LOG_HEADER = 24, 32
SEED = 4


@dataclass(frozen=True)
class Made:
    """A journal as the broker's death leaves it: the files, and what it held after each of its commits."""

    home: Path
    states: list[bytes]


def state(journal: Journal) -> bytes:
    """A digest of all that a journal holds, but for the count of its openings."""
    db = journal.db
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    rows = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    rows["meta"] = [row for row in rows["meta"] if row[0] != "epoch"]
    return sha256(marshal.dumps(rows)).digest()


def work(journal: Journal, dice: random.Random, number: int) -> None:
    """What one commit records."""
    size = dice.choice([10, 200, 4500, 9000])
    first = 10 * number
    journal.add_batch(batch_row(first, 1, first, 10), [dice.randbytes(size // 10) for _ in range(10)], 1e9)
    journal.add_results([result_row(task, dice.randbytes(size)) for task in range(first, first + dice.randint(1, 4))])
    journal.add_sent([(first, number, "s")])


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """The damage is done to the files by the test; whether the disk had them before does not matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(journal_module._SYNCHRONOUS, "process", "OFF")
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Half of it in the tables, half in the log."""
    home, left = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("left")
    dice = random.Random(SEED)
    with closing(Journal(home)) as journal:
        journal.add_template("digest", "python", dice.randbytes(50_000))
        journal.add_bag(bag_row(1))
        for number in range(COMMITS):
            work(journal, dice, number)
            journal.commit()
    journal = Journal(home)
    states = [state(journal)]
    for number in range(COMMITS, 2 * COMMITS):
        work(journal, dice, number)
        journal.commit()
        states.append(state(journal))
    for name in (NAME, LOG):
        shutil.copy(home / name, left / name)
    journal.close()
    assert (left / LOG).stat().st_size > 20 * PAGE
    return Made(left, states)


def test_a_log_without_its_tables_is_refused_and_kept(made: Made, copy: Callable[[], Path]) -> None:
    home = copy()
    (home / NAME).unlink()
    assert opened(home) is None
    assert (home / LOG).read_bytes() == (made.home / LOG).read_bytes()


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Callable[[], Path]:
    """A fresh copy of its home, each time."""

    def again() -> Path:
        for name in (NAME, LOG):
            shutil.copy(made.home / name, tmp_path / name)
        return tmp_path

    return again


def opened(home: Path) -> bytes | None:
    """What a journal holds, or None when it is refused; fails when anything else happens."""
    try:
        journal = Journal(home)
    except JournalError as error:
        said = str(error)
    else:
        with closing(journal):
            return state(journal)
    assert str(home) in said
    assert said.isprintable(), "more than a line"
    return None


def cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def overwrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def cuts(size: int, unit: int, start: int, dice: random.Random, more: int) -> Iterator[int]:
    """Each boundary and the bytes beside it, and as many more anywhere."""
    boundaries = range(start, size + 1, unit)
    near = {place + by for place in boundaries for by in (-1, 0, 1)}
    anywhere = {dice.randrange(size) for _ in range(more)}
    return iter(sorted(place for place in near | anywhere if 0 <= place <= size))


def test_it_is_whole_when_nothing_happened_to_it(made: Made, copy: Callable[[], Path]) -> None:
    assert opened(copy()) == made.states[-1]


@pytest.mark.slow
def test_a_log_that_is_cut_at_any_byte_gives_the_last_commit_before_that(
    made: Made, copy: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    size = (made.home / LOG).stat().st_size
    seen, count = -1, 0
    for place in cuts(size, PAGE + FRAME_HEADER, LOG_HEADER, random.Random(SEED), 100):
        home = copy()
        cut(home / LOG, place)
        found = opened(home)
        assert found in made.states, f"cut at {place}: refused, or never committed"
        assert made.states.index(found) >= seen, f"cut at {place}: less than what a shorter log gave"
        seen, count = made.states.index(found), count + 1
    assert seen == COMMITS, "the whole log gives everything"
    with capsys.disabled():
        print(f"\njournal: log cut at {count} places, each one of its {COMMITS + 1} commits")


@pytest.mark.slow
def test_a_log_with_a_page_of_garbage_gives_the_last_commit_before_that(
    made: Made, copy: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    size, dice = (made.home / LOG).stat().st_size, random.Random(SEED)
    count = 0
    for place in range(0, size, PAGE + FRAME_HEADER):
        for garbage in (dice.randbytes(PAGE), bytes(PAGE)):
            home = copy()
            overwrite(home / LOG, place, garbage)
            assert opened(home) in made.states, f"garbage at {place}"
            count += 1
    with capsys.disabled():
        print(f"\njournal: log overwritten at {count} places, each one of its commits")


@pytest.mark.slow
def test_tables_that_are_cut_at_any_byte_are_refused(
    made: Made, copy: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    size = (made.home / NAME).stat().st_size
    refused = whole = 0
    for place in cuts(size, PAGE, 0, random.Random(SEED), 100):
        home = copy()
        cut(home / NAME, place)
        found = opened(home)
        # What the log holds of every page that is missing makes it whole.
        assert found in (None, made.states[-1]), f"cut at {place}"
        refused, whole = refused + (found is None), whole + (found is not None)
    assert refused > whole
    with capsys.disabled():
        print(f"\njournal: tables cut at {refused + whole} places, {refused} refused, {whole} whole from the log")


def test_a_broker_that_died_while_the_log_was_worked_into_the_tables_loses_nothing(
    made: Made, copy: Callable[[], Path]
) -> None:
    """Page 1 says how many there are to be, and is copied first."""
    home = copy()
    with closing(Journal(home)) as journal:
        (pages,) = journal.db.execute("PRAGMA page_count").fetchone()
    home = copy()
    assert pages * PAGE > (home / NAME).stat().st_size
    overwrite(home / NAME, 28, pages.to_bytes(4, "big"))
    assert opened(home) == made.states[-1]


def test_what_an_earlier_log_left_behind_the_end_of_this_one_makes_nothing_whole(tmp_path: Path) -> None:
    """SQLite writes a log over the one before it, and so its last pages may be older than all others."""
    tables, log = tmp_path / NAME, tmp_path / LOG
    tables.write_bytes(b"SQLite format 3\0".ljust(28, b"x") + (3).to_bytes(4, "big") + bytes(PAGE - 32))
    now, before = b"saltsalt", b"saltpast"

    def frame(page: int, salt: bytes) -> bytes:
        return page.to_bytes(4, "big") + bytes(4) + salt + bytes(8) + bytes(PAGE)

    log.write_bytes(bytes(16) + now + bytes(8) + frame(2, now) + frame(3, now))
    assert wrong_with_files(tables, log) == ""
    log.write_bytes(bytes(16) + now + bytes(8) + frame(2, now) + frame(3, before))
    assert "was cut" in wrong_with_files(tables, log)


def test_tables_with_a_page_of_garbage_are_refused(
    made: Made, copy: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    size, dice = (made.home / NAME).stat().st_size, random.Random(SEED)
    refused = whole = 0
    for place in range(0, size, PAGE):
        home = copy()
        overwrite(home / NAME, place, dice.randbytes(PAGE))
        found = opened(home)
        assert found in (None, made.states[-1]), f"garbage at page {place // PAGE}"
        refused, whole = refused + (found is None), whole + (found is not None)
    assert refused > whole
    with capsys.disabled():
        print(
            f"\njournal: {refused + whole} pages of the tables overwritten, {refused} refused, {whole} in the log, too"
        )


@pytest.fixture(scope="module")
def settled(made: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """The same with everything in the tables, more than one commit old; and what it holds."""
    home = tmp_path_factory.mktemp("settled")
    for name in (NAME, LOG):
        shutil.copy(made.home / name, home / name)
    with closing(Journal(home)) as journal:
        journal.add_batch(batch_row(1000, 2, 0, 10), [bytes(2000)] * 10, 1e9)
        journal.predict(30, [1.0] * 900)
        journal.commit()
        dropped(journal, 2)  # and so there are pages that are free
    with closing(Journal(home)) as journal:
        return home / NAME, state(journal)


ZEROS = bytes(PAGE)
GARBAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "zeros": lambda page, dice: ZEROS,
    "garbage": lambda page, dice: dice.randbytes(PAGE),
    "garbage behind the pointer to the next page": lambda page, dice: page[:4] + dice.randbytes(PAGE - 4),
    "zeros behind the pointer to the next page": lambda page, dice: page[:4] + ZEROS[4:],
}


@pytest.mark.parametrize("how", GARBAGE)
def test_a_page_that_was_overwritten_never_gives_half_a_value(
    settled: tuple[Path, bytes], tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite itself looks only at the first bytes of a page in the middle of a long value."""
    path, whole = settled
    dice, before = random.Random(SEED), path.read_bytes()
    assert not path.with_name(LOG).exists()
    refused = unchanged = 0
    for place in range(0, len(before), PAGE):
        page = before[place : place + PAGE]
        (tmp_path / LOG).unlink(missing_ok=True)
        (tmp_path / NAME).write_bytes(before[:place] + GARBAGE[how](page, dice) + before[place + PAGE :])
        found = opened(tmp_path)
        assert found in (None, whole), f"{how} in page {place // PAGE}"
        refused, unchanged = refused + (found is None), unchanged + (found is not None)
    with capsys.disabled():
        print(f"\njournal: {how} in {refused + unchanged} pages: {refused} refused, {unchanged} of no account")


@pytest.mark.parametrize("left", [0, 100, PAGE - 1])
def test_an_emptied_journal_is_not_taken_for_a_new_home(tmp_path: Path, left: int) -> None:
    Journal(tmp_path).close()
    cut(tmp_path / NAME, left)
    assert opened(tmp_path) is None
    (tmp_path / NAME).unlink()
    with pytest.raises(JournalError, match=r"nothing is left of it .*remove .*-begun") as refusal:
        Journal(tmp_path)
    Path(str(refusal.value).partition("remove ")[2].partition(")")[0]).unlink()
    Journal(tmp_path).close()


def test_a_log_that_is_removed_while_the_broker_runs_ends_the_broker(tmp_path: Path) -> None:
    """Nobody's message is to blame; and nothing may be acknowledged that a restart would not find."""
    with closing(Journal(tmp_path)) as journal:
        (tmp_path / LOG).unlink()
        journal.add_bag(bag_row(1))
        with pytest.raises(Damaged, match=f"{LOG} was removed while the broker ran"):
            journal.commit()


def test_damage_while_the_broker_runs_is_one_line(made: Made, copy: Callable[[], Path]) -> None:
    home = copy()
    with closing(Journal(home)) as journal:
        journal.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        journal.db.execute("PRAGMA shrink_memory")
        pages = (home / NAME).stat().st_size // PAGE
        for page in range(1, pages):
            overwrite(home / NAME, page * PAGE, b"\xff" * PAGE)
        with pytest.raises(sqlite3.DatabaseError, match="malformed"):
            journal.results(1, 0)


def test_the_log_never_keeps_what_is_in_the_tables_already(tmp_path: Path) -> None:
    """Or a log that is damaged later would take back a part of what the tables have."""
    dice = random.Random(SEED)
    with closing(Journal(tmp_path)) as journal:
        journal.add_bag(bag_row(1))
        sizes = []
        for number in range(100):
            journal.add_batch(batch_row(10 * number, 1, 10 * number, 10), [dice.randbytes(30_000)] * 10, 1e9)
            journal.commit()
            journal.shorten_log()
            sizes.append((tmp_path / LOG).stat().st_size)
        assert max(sizes) < journal_module.LOG_BYTES + 1_000_000
        assert 0 in sizes
        assert journal.db.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("power", 2)])
def test_a_commit_waits_for_the_disk_when_it_is_to_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: journal_module.Durability, level: int
) -> None:
    monkeypatch.setitem(journal_module._SYNCHRONOUS, "process", "NORMAL")
    with closing(Journal(tmp_path, durability)) as journal:
        assert journal.db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert journal.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
