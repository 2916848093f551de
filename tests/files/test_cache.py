"""The stored files of a PC: whole or not there, once for all workers, and bounded."""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.disk import size_on_disk
from deskgrid.worker.files.cache import ContentMismatch, FileCache, Partial, link
from tests.files.fakes import digest, entry, parts_of

DATA = os.urandom(2 * wire.PART_BYTES + 5)
FILE = entry("big", DATA)


def begun(cache: FileCache, file: wire.TreeFile) -> Partial | None:
    """A file that is being fetched, and was looked at."""
    partial = cache.begin(file)
    for _ in partial.look() if partial is not None else ():
        pass
    return partial


def fetch(cache: FileCache, file: wire.TreeFile, data: bytes) -> Path:
    partial = begun(cache, file)
    assert partial is not None
    for number in partial.missing:
        partial.write(number, wire.payload_of(parts_of(data)[number]))
    partial.finish()
    found = cache.find(file)
    assert found is not None
    return found


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache", 10**9)


def test_a_file_is_there_when_all_of_its_parts_are(cache: FileCache) -> None:
    partial = begun(cache, FILE)
    assert partial is not None
    assert partial.missing == [0, 1, 2]
    for number in (2, 0):
        partial.write(number, wire.payload_of(parts_of(DATA)[number]))
    assert cache.find(FILE) is None
    partial.write(1, parts_of(DATA)[1])
    partial.finish()
    path = cache.find(FILE)
    assert path is not None
    assert path.read_bytes() == DATA
    assert cache.begin(FILE) is None, "it is here already"


def test_a_cache_that_somebody_has_removed_is_made_again(cache: FileCache, tmp_path: Path) -> None:
    fetch(cache, FILE, DATA)
    shutil.rmtree(tmp_path / "cache")
    assert cache.find(FILE) is None
    assert fetch(cache, FILE, DATA).read_bytes() == DATA
    shutil.rmtree(tmp_path / "cache")
    cache.put_tree(digest(b"a"), b"a")
    assert cache.tree(digest(b"a")) == b"a"


def test_a_part_that_was_damaged_is_refused(cache: FileCache) -> None:
    partial = begun(cache, FILE)
    assert partial is not None
    with pytest.raises(ContentMismatch, match="damaged on its way, or on the disk of the broker"):
        partial.write(0, parts_of(DATA)[1])
    with pytest.raises(ContentMismatch):
        cache.put_tree(digest(b"a"), b"b")
    partial.close()


def test_an_interrupted_fetch_goes_on_where_it_stopped(cache: FileCache) -> None:
    partial = begun(cache, FILE)
    assert partial is not None
    for number in (0, 2):
        partial.write(number, parts_of(DATA)[number])
    assert cache.begin(FILE) is None, "another worker of this PC fetches it"
    partial.close()  # as when its worker was killed
    again = begun(cache, FILE)
    assert again is not None
    assert again.missing == [1]
    again.close()


def test_a_file_that_a_task_wrote_to_is_fetched_again(cache: FileCache, tmp_path: Path) -> None:
    path = fetch(cache, FILE, DATA)
    link(path, tmp_path / "mine", executable=False)
    (tmp_path / "mine").chmod(0o600)
    with (tmp_path / "mine").open("r+b") as file:
        file.write(b"changed")
    assert cache.find(FILE) is None
    assert fetch(cache, FILE, DATA).read_bytes() == DATA


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_files_are_read_only_and_can_be_run_if_they_could(cache: FileCache) -> None:
    assert stat.S_IMODE(fetch(cache, FILE, DATA).stat().st_mode) == 0o444
    program = entry("run", b"#!/bin/sh\n", executable=True)
    assert stat.S_IMODE(fetch(cache, program, b"#!/bin/sh\n").stat().st_mode) == 0o555


@pytest.mark.skipif(sys.platform == "win32", reason="Wine does not keep the time of use that os.utime sets")
def test_the_least_used_files_go_and_those_in_use_stay(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 8 * 2**20)
    files = {name: os.urandom(2**20) for name in "abcdefghi"}
    entries = {name: entry(name, data) for name, data in files.items()}
    paths = {name: fetch(cache, entries[name], data) for name, data in files.items() if name != "i"}
    for place, name in enumerate("bcahgfed"):
        os.utime(paths[name], ns=(place * 10**9, paths[name].stat().st_mtime_ns))
    link(paths["b"], tmp_path / "used", executable=False)
    fetch(cache, entries["i"], files["i"])
    assert all(path.exists() for path in paths.values()), "what a task uses does not count"
    partial = cache.begin(entry("more", os.urandom(2**20)))
    assert partial is not None
    assert [name for name, path in paths.items() if not path.exists()] == ["a", "c"]
    partial.close()


def test_the_files_are_looked_at_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, looks = FileCache(tmp_path / "cache", 2**20), list[int]()
    rows = FileCache._rows

    def looked(self: FileCache) -> Iterator[tuple[int, int, str]]:
        looks.append(1)
        return rows(self)

    monkeypatch.setattr(FileCache, "_rows", looked)
    for number in range(500):
        data = str(number).encode() * 100
        fetch(cache, entry("x", data), data)
    assert len(looks) < 20
    held = sum(size_on_disk(path.stat()) for path in (tmp_path / "cache").iterdir())
    assert held < 2**20 + 2**20 // 16


def test_files_that_nobody_uses_go_when_their_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FileCache(tmp_path / "cache", 10**12)
    old, kept, new = (os.urandom(2**20) for _ in range(3))
    first, used = fetch(cache, entry("old", old), old), fetch(cache, entry("kept", kept), kept)
    link(used, tmp_path / "used", executable=False)

    class Usage:
        free = 2**20 // 2

    monkeypatch.setattr("shutil.disk_usage", lambda folder: Usage)
    fresh = FileCache(tmp_path / "cache", 10**12)
    fresh.put_tree(digest(b"tree"), b"tree")
    assert first.exists(), "for this there is room"
    partial = fresh.begin(entry("new", new))
    assert partial is not None
    partial.close()
    assert (first.exists(), used.exists()) == (False, True)


def test_a_tree_for_which_there_is_no_room_leaves_nothing(
    cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        cache.put_tree(digest(b"tree"), b"tree")
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_another_worker_fetches_does_not_go(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 0)
    partial = begun(cache, FILE)
    assert partial is not None
    partial.write(0, parts_of(DATA)[0])
    other = cache.begin(entry("small", b"1"))
    assert other is not None
    other.close()
    assert (tmp_path / "cache" / f"{FILE.id}.part").exists()
    partial.close()
    cache.put_tree(digest(b"tree"), b"tree")
    assert not (tmp_path / "cache" / f"{FILE.id}.part").exists(), "an abandoned one does"


def test_a_tree_that_was_damaged_on_this_disk_is_not_there(cache: FileCache, tmp_path: Path) -> None:
    cache.put_tree(digest(b"tree"), b"tree")
    assert cache.tree(digest(b"tree")) == b"tree"
    (tmp_path / "cache" / f"{digest(b'tree').hex()}.tree").write_bytes(b"other")
    assert cache.tree(digest(b"tree")) is None


def test_where_there_can_be_no_links_a_task_gets_a_copy(
    cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    path = fetch(cache, FILE, DATA)
    monkeypatch.setattr("os.link", no_links)
    link(path, tmp_path / "copy", executable=True)
    assert (tmp_path / "copy").read_bytes() == DATA
    assert os.access(tmp_path / "copy", os.X_OK)
    assert path.stat().st_nlink == 1
