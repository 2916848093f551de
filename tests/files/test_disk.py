"""Files and folders in the same way on all systems: what an open or read-only file lets others do."""

import os
import sys
from pathlib import Path

import pytest

from deskgrid.disk import open_shared, remove_tree, set_times, size_on_disk, stat_of


def test_an_open_file_can_be_renamed_replaced_and_removed(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    other.write_bytes(b"earlier")
    descriptor = open_shared(one, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, b"1\n2\r\n\x1a")
        one.replace(other)
        assert other.read_bytes() == b"1\n2\r\n\x1a", "no line end is translated"
        other.unlink()
    finally:
        os.close(descriptor)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "before", "after"),
    [
        ("rb", b"old", b"old"),
        ("wb", b"old", b"new"),
        ("ab", b"old", b"oldnew"),
        ("xb", None, b"new"),
        ("r+b", b"old", b"new"),
    ],
)
def test_it_opens_as_open_does(tmp_path: Path, mode: str, before: bytes | None, after: bytes) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)
    with open(path, mode, buffering=0, opener=open_shared) as file:
        if mode != "rb":
            file.write(b"new")
    assert path.read_bytes() == after


@pytest.mark.parametrize("mode", ["rb", "r+b", "xb"])
def test_a_file_that_cannot_be_opened_is_an_error_of_the_same_kind(tmp_path: Path, mode: str) -> None:
    if mode == "xb":
        (tmp_path / "file").touch()
    with pytest.raises((FileExistsError, FileNotFoundError)), open(tmp_path / "file", mode, opener=open_shared):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="whoever has no rights makes no links there")
def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="link"):
        open_shared(tmp_path / "link", os.O_RDWR | os.O_CREAT)
    assert not (tmp_path / "target").exists()


def test_times_that_are_set_stay_when_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    descriptor = open_shared(path, os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"data")
    set_times(descriptor, 2_000_000_000 * 10**9, 1_000_000_000 * 10**9)
    os.close(descriptor)
    found = path.stat()
    assert (found.st_atime_ns, found.st_mtime_ns) == (2_000_000_000 * 10**9, 1_000_000_000 * 10**9)


def test_a_folder_goes_with_what_is_read_only_in_it(tmp_path: Path) -> None:
    inner = tmp_path / "folder" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (inner / "file").chmod(0o444)
    remove_tree(tmp_path / "folder")
    remove_tree(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_names_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    os.link(tmp_path / "one", tmp_path / "two")
    with os.scandir(tmp_path) as found:
        assert [stat_of(each).st_nlink for each in found] == [2, 2]


def test_a_small_file_takes_a_cluster_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {0: 0, 1: 4096, 4096: 4096, 4097: 8192}
    for size in sizes:
        (tmp_path / str(size)).write_bytes(bytes(size))
    monkeypatch.setattr(sys, "platform", "win32")
    assert {size: size_on_disk((tmp_path / str(size)).stat()) for size in sizes} == sizes
