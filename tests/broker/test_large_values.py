"""Large values are files beside the journal. While a commit names one, it exists undamaged, or the home is refused."""

import errno
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from deskgrid.broker.store import files, result_blocks
from deskgrid.broker.store.files import FOLDER, Damaged
from deskgrid.broker.store.journal import Journal, JournalError
from deskgrid.broker.store.parts import HolderRow
from deskgrid.broker.store.rows import ResultRow
from deskgrid.wire import BATCH_BYTES, LARGE_BYTES, Chunks, Payload
from tests.broker.records import bag_row, batch_row, dropped, result_of, result_row

VALUE = os.urandom(LARGE_BYTES + 7)


def kept(journal: Journal, data: bytes = VALUE) -> Chunks:
    """A large payload that is a file, as the loop has it before the sessions hear of it."""
    value = Chunks([memoryview(data)[:1000], memoryview(data)[1000:]])
    journal.values.keep(value)
    journal.values.sum_up(value)
    return value


def on_disk(home: Path) -> set[str]:
    return {path.name for path in (home / FOLDER).iterdir()}


def content(payload: Payload | None) -> bytes:
    assert payload is not None
    return bytes(payload)


def record(journal: Journal, argument: Chunks, result: Chunks) -> None:
    """A bag of two tasks: one with a large argument, which ended with a large result, and a small one."""
    journal.add_bag(bag_row(1))
    journal.add_batch(batch_row(0, 1, 0, 2), [b"small", argument], 1e9)
    journal.add_results([result_row(0, b"short"), result_row(1, b"")._replace(payload=result)])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of a broker that was killed after the commit that records two large values."""
    journal = Journal(tmp_path)
    record(journal, kept(journal), kept(journal, VALUE[::-1]))
    journal.commit()
    journal.db.close()
    return tmp_path


def recorded(journal: Journal) -> list[ResultRow]:
    return [row for _, row in result_blocks.recorded(journal.db, journal.values.payload)]


def test_they_are_there_after_a_restart_and_count_as_what_they_are(home: Path) -> None:
    with closing(Journal(home)) as journal:
        assert [content(journal.payload(0, place)) for place in (0, 1)] == [b"small", VALUE]
        assert [content(result.payload) for result in recorded(journal)] == [b"short", VALUE[::-1]]
        found = result_of(journal, 1)
        assert found is not None
        assert content(found.payload) == VALUE[::-1]
        assert len(VALUE) <= next(iter(journal.recovery.batches())).size < len(VALUE) + 1000
        assert on_disk(home) == {name for (name,) in journal.db.execute("SELECT name FROM files")}


def test_a_large_template_is_a_file_and_goes_with_its_last_bag(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.add_template("digest", "python", kept(journal))
    for number in (1, 2):
        journal.add_bag(replace(bag_row(number), template="digest"))
    dropped(journal, 1)
    journal.close()
    with closing(Journal(tmp_path)) as again:
        assert (again.template_kind("digest"), content(again.template("digest"))) == ("python", VALUE)
        dropped(again, 2)
        again.commit()
        again.shorten_log()
        assert again.template("digest") is None
        again.values.remove(again.values.take_unneeded())
        assert not on_disk(tmp_path)


def test_a_large_template_of_which_no_bag_came_is_gone_after_a_restart(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.add_template("digest", "python", kept(journal))
    assert len(on_disk(tmp_path)) == 1
    with closing(Journal(tmp_path)) as again:
        assert again.template_kind("digest") is None
        assert not on_disk(tmp_path)
        assert not again.db.execute("SELECT * FROM files").fetchall()


def test_a_large_template_of_an_earlier_format_travels_behind_its_message(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        journal.add_template("digest", "python", VALUE)
        assert isinstance(journal.template("digest"), Chunks)


def test_only_their_owner_can_read_them(home: Path) -> None:
    if os.name == "posix":
        assert (home / FOLDER).stat().st_mode & 0o777 == 0o700
        assert {(home / FOLDER / name).stat().st_mode & 0o777 for name in on_disk(home)} == {0o600}


@pytest.mark.parametrize("size", [LARGE_BYTES, BATCH_BYTES + 1])
def test_a_value_is_read_or_mapped_in_the_frames_it_came_in(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    with closing(Journal(tmp_path, "power")) as journal:
        value = kept(journal, data)
        journal.add_bag(bag_row(1))
        journal.add_batch(batch_row(0, 1, 0, 1), [value], 1e9)
        journal.commit()
        stored = journal.payload(0, 0)
        assert isinstance(stored, Chunks)
        assert stored is journal.payload(0, 0)
        assert (len(stored), b"".join(stored.frames())) == (size, data)


@pytest.mark.parametrize("killed_after", ["keep", "record", "commit", "release"])
def test_killed_at_any_step_a_value_is_recorded_and_there_or_neither(tmp_path: Path, killed_after: str) -> None:
    journal = Journal(tmp_path)
    values = [kept(journal), kept(journal)]
    if killed_after != "keep":
        record(journal, *values)
        if killed_after != "record":
            journal.commit()
            if killed_after != "commit":
                journal.values.release(values)
    journal.db.close()
    with closing(Journal(tmp_path)) as journal:
        recorded = {name for (name,) in journal.db.execute("SELECT name FROM files")}
        assert on_disk(tmp_path) == recorded
        assert bool(recorded) == (killed_after in ("commit", "release"))
        assert (result_of(journal, 1) is not None) == bool(recorded)
        # Nobody's name is given a second time.
        assert {kept(journal).file for _ in range(3)}.isdisjoint({value.file for value in values})


def cut(path: Path) -> None:
    os.truncate(path, LARGE_BYTES)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(LARGE_BYTES // 2)
        file.write(b"other")


@pytest.mark.parametrize("harm", [cut, overwrite, Path.unlink])
@pytest.mark.parametrize("which", [0, 1])
def test_a_home_in_which_one_is_cut_or_overwritten_or_gone_is_refused(
    home: Path, harm: Callable[[Path], None], which: int
) -> None:
    name = sorted(on_disk(home))[which]
    harm(home / FOLDER / name)
    with pytest.raises(JournalError, match=rf"is damaged: file {FOLDER}/{name}.*; put a copy") as error:
        Journal(home)
    assert str(error.value).isprintable()


def test_one_that_is_harmed_while_it_is_needed_is_noticed(home: Path) -> None:
    with closing(Journal(home)) as journal:
        stored = journal.payload(0, 1)
        assert isinstance(stored, Chunks)
        cut(home / FOLDER / stored.file)
        with pytest.raises(Damaged, match=f"has {LARGE_BYTES} bytes of {len(VALUE)}"):
            stored.frames()


def test_what_was_not_recorded_goes_and_nothing_else(home: Path) -> None:
    with closing(Journal(home)) as journal:
        before = on_disk(home)
        refused, repeated = kept(journal), kept(journal)
        journal.values.release([refused, repeated])
        assert set(journal.values.take_unneeded()) == {refused.file, repeated.file}
        journal.values.remove([refused.file, repeated.file])
        assert on_disk(home) == before


def test_files_of_a_bag_go_when_it_is_forgotten_for_good_and_nobody_has_them_in_hand(home: Path) -> None:
    with closing(Journal(home)) as journal:
        dropped(journal, 1)
        journal.rollback()
        assert content(journal.payload(0, 1)) == VALUE
        in_hand = journal.payload(0, 1)
        assert isinstance(in_hand, Chunks)
        dropped(journal, 1)
        assert journal.values.take_unneeded() == []
        journal.commit()
        journal.rollback()  # of a later turn, before the log is in the tables
        journal.shorten_log()
        assert not (home / "journal.sqlite3-wal").stat().st_size  # no earlier commit can come back
        free = journal.values.take_unneeded()
        assert {*free, in_hand.file} == on_disk(home)
        assert in_hand.file not in free
        assert bytes(in_hand) == VALUE
        last = in_hand.file
        del in_hand
        assert journal.values.take_unneeded() == [last]


def test_a_disk_that_is_full_is_said_to_be_and_nothing_is_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: memoryview) -> None:
        os.write(descriptor, data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with closing(Journal(home)) as journal:
        before = on_disk(home)
        monkeypatch.setattr(files, "_write", full)
        with pytest.raises(OSError, match="No space"):
            kept(journal)
        assert on_disk(home) == before


def test_a_large_value_that_is_in_the_tables_stays_there(tmp_path: Path) -> None:
    """A caller that gives bytes, and not chunks, has them kept as they are."""
    with closing(Journal(tmp_path)) as journal:
        journal.add_bag(bag_row(1))
        journal.add_batch(batch_row(0, 1, 0, 1), [VALUE], 1e9)
        journal.add_results([result_row(0, VALUE)])
    with closing(Journal(tmp_path)) as journal:
        assert journal.payload(0, 0) == VALUE
        assert [row.payload for row in recorded(journal)] == [VALUE]
        assert not on_disk(tmp_path)


# --- parts of stored files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["gone", "cut", "changed"])
def test_a_part_of_a_file_that_is_not_all_there_refuses_the_home_and_its_content_is_not_read(
    tmp_path: Path, harm: str
) -> None:
    with closing(Journal(tmp_path)) as journal:
        holder = HolderRow(1, "bag", "ann", 0.0, 0, 0, False)
        journal.parts.put_holder(holder)
        journal.parts.add(holder, sha256(VALUE).digest(), kept(journal))
    (name,) = on_disk(tmp_path)
    path = tmp_path / FOLDER / name
    if harm == "changed":
        path.write_bytes(VALUE[::-1])
        with closing(Journal(tmp_path)) as journal:
            assert content(journal.parts.part(sha256(VALUE).digest())) == VALUE[::-1], "whoever gets it compares it"
        return
    path.unlink() if harm == "gone" else os.truncate(path, 7)
    with pytest.raises(JournalError, match=f"is damaged: file values/{name}"):
        Journal(tmp_path)
