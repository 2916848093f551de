"""The folder of a task: what is put in, what is taken out, and that nothing else is touched."""

import contextlib
import os
import shutil
import socket
import stat
import sys
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.files.task_folder import OutputsRefused, collect, matches, prepare, remove, unpack
from tests.files.fakes import content, digest, entry
from tests.files.test_cache import fetch

X = "5.7"
posix = pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")


@pytest.fixture
def area(tmp_path: Path) -> Path:
    place = tmp_path / "area"
    place.mkdir()
    prepare(place, None)
    return place


@pytest.fixture
def work(area: Path) -> Path:
    """The folder in which a command ran."""
    folder = area / "in" / X / "work"
    folder.mkdir(parents=True)
    return folder


def left(area: Path, *patterns: str) -> dict[str, bytes]:
    """What `collect` finds, read again as it is sent."""
    found = collect(area, X, patterns)
    parts = {each: source.read() for each, source in found.parts.items()}
    assert all(digest(data) == each for each, data in parts.items())
    (tree,) = found.trees
    files = wire.read_tree(parts[tree]).entries
    return {each.path: b"".join(parts[part] for part in wire.split_digests(each.parts)) for each in files}


def test_trees_are_unpacked_as_links_for_a_command_and_beside_each_other_for_a_function(
    area: Path, tmp_path: Path
) -> None:
    cache = FileCache(tmp_path / "cache", 10**9)
    files = {"data.csv": b"1,2", "in ner/ü": b"", "a/b/c": b"x" * 10}
    tree = wire.Tree(tuple(entry(name, data) for name, data in files.items()), ("out",))
    for name, data in files.items():
        fetch(cache, entry(name, data), data)
    key = digest(tree.packed())
    assert unpack(area, X, [(key, tree)], cache, None, command=True)
    assert content(area / "in" / X / "work") == files
    assert (area / "in" / X / "work" / "out").is_dir()
    assert (area / "in" / X / "work" / "data.csv").stat().st_nlink == 2
    assert unpack(area, X, [(key, tree)], cache, None, command=False), "and a second time, over what is left"
    assert content(area / "in" / X / "needs" / key.hex()) == files
    assert not (area / "in" / X / "work").exists()
    remove(area, X)
    assert content(area) == {}


def test_a_file_that_went_meanwhile_is_noticed(area: Path, tmp_path: Path) -> None:
    tree = wire.Tree((entry("data.csv", b"1"),))
    assert not unpack(area, X, [(b"k", tree)], FileCache(tmp_path / "cache", 10**9), None, command=True)


def test_a_folder_is_removed_even_if_its_task_locked_it(area: Path, work: Path) -> None:
    (work / "locked" / "inner").mkdir(parents=True)
    (work / "locked" / "file").touch()
    (work / "locked").chmod(0o500)
    remove(area, X)
    assert not (area / "in" / X).exists()


@posix
def test_a_link_in_a_locked_folder_leads_to_nothing_that_is_changed(
    area: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # an administrator removes all at once
    monkeypatch.setattr(shutil, "rmtree", lambda *given, **options: None)
    outside = area.parent / "outside"
    outside.mkdir(mode=0o755)
    (work / "locked").mkdir()
    (work / "locked" / "door").symlink_to(outside)
    (work / "door").symlink_to(outside)
    (work / "locked").chmod(0o500)
    remove(area, X)
    assert outside.stat().st_mode & 0o777 == 0o755
    assert (work / "locked").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("out/*.npz", "out/a.npz", True),
        ("out/*.npz", "out/b/a.npz", False),
        ("out/*.npz", "out/a.csv", False),
        ("out", "out/b/a.npz", True),
        ("out/", "out/a", True),
        ("./out", "out/a", True),
        ("*", "a/b", True),
        ("**/*.npz", "a.npz", True),
        ("**/*.npz", "a/b/c.npz", True),
        ("a/**", "a/b/c", True),
        ("a/**", "b", False),
        ("Out", "out", False),
        ("[ab]?", "b1", True),
        ("a/b", "a", False),
    ],
)
def test_patterns_match_files_and_folders_name_by_name(pattern: str, path: str, expected: bool) -> None:
    wanted = [part for part in pattern.split("/") if part not in ("", ".")]
    assert matches(path.split("/"), wanted) is expected


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches(["a"] * 500, ["**", "a"] * 40 + ["b"])


def test_what_matches_is_collected(area: Path, work: Path) -> None:
    files = {"out/a b.npz": os.urandom(wire.PART_BYTES + 1), "out/ü.txt": b"", "log": b"3"}
    (work / "out").mkdir()
    for name, data in files.items():
        (work / name).write_bytes(data)
    assert left(area, "out/*") == {name: data for name, data in files.items() if name.startswith("out")}
    assert left(area, "out", "log", "*") == files


def test_a_pattern_without_a_match_lists_what_the_folder_has(area: Path, work: Path) -> None:
    with pytest.raises(OutputsRefused, match=r"no file matches 'out/\*'; the folder has: nothing"):
        collect(area, X, ["out/*"])
    for number in range(12):
        (work / f"f{number:02}").touch()
    with pytest.raises(OutputsRefused, match=r"the folder has: f00, f01, .*, f09 and 2 more"):
        collect(area, X, ["f*", "out/*"])


@posix
@pytest.mark.parametrize("target", ["/etc/passwd", "../../../secret", "nowhere", "/"])
def test_a_link_out_of_the_folder_is_refused(area: Path, work: Path, target: str) -> None:
    (area.parent / "secret").write_bytes(b"secret")
    (work / "out").symlink_to(target)
    with pytest.raises(
        OutputsRefused, match=r"'out' is a link to something that is not in the task's folder|not a file"
    ):
        collect(area, X, ["out"])


@posix
def test_a_link_to_a_file_in_the_folder_counts_as_that_file(area: Path, work: Path) -> None:
    (work / "real").write_bytes(b"data")
    (work / "latest").symlink_to("real")
    assert left(area, "latest") == {"latest": b"data"}


@posix
def test_a_folder_that_is_a_link_is_not_entered(area: Path, work: Path) -> None:
    (area.parent / "others").mkdir()
    (area.parent / "others" / "theirs.npz").write_bytes(b"theirs")
    (work / "out").symlink_to(area.parent / "others")
    with pytest.raises(OutputsRefused, match="no file matches"):
        collect(area, X, ["out/*.npz"])
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        task_folder.open_file(area, (work / "out" / "theirs.npz").relative_to(area).as_posix())


@posix
def test_what_is_no_file_is_refused(area: Path, work: Path) -> None:
    os.mkfifo(work / "pipe")
    with pytest.raises(OutputsRefused, match="'pipe' is not a file"):
        collect(area, X, ["pipe"])


@posix
@pytest.mark.parametrize("names", [("a.txt", "A.txt"), ("nul",), ("what?",), ("dot.",)])
def test_names_that_not_every_system_can_have_are_refused(area: Path, work: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (work / name).touch()
    with pytest.raises(OutputsRefused, match=r"same name where case does not count|Windows cannot have it"):
        collect(area, X, ["*"])


def test_a_task_that_left_very_many_files_is_refused(area: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_folder, "NAMES_LIMIT", 3)
    monkeypatch.setattr(task_folder, "FILE_BYTES", 2)
    for name in "abc":
        (work / name).write_bytes(b"12")
    assert len(left(area, "*")) == 3
    (work / "c").write_bytes(b"123")
    with pytest.raises(OutputsRefused, match="'c' has more than 2 bytes"):
        collect(area, X, ["*"])
    (work / "d").touch()
    with pytest.raises(OutputsRefused, match="more than 3 files and folders"):
        collect(area, X, ["*"])


def test_more_outputs_than_a_task_may_leave_are_refused_before_any_is_read(
    area: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(wire.TREE_FILES + 1):
        (work / f"{number}").touch()
    monkeypatch.setattr(task_folder, "open_file", lambda *given: pytest.fail("a file is read"))
    with pytest.raises(OutputsRefused, match="10,001 files; at most 10,000"):
        collect(area, X, ["*"])


@posix
def test_devices_and_sockets_are_refused(area: Path, work: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        with contextlib.chdir(work):
            made.bind("door")
        with pytest.raises((OutputsRefused, OSError), match=r"not a file|No such device"):
            collect(area, X, ["door"])
    if os.geteuid() == 0:
        os.mknod(work / "zeros", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        with pytest.raises(OutputsRefused, match="'zeros' is not a file"):
            collect(area, X, ["zeros"])


@posix
@pytest.mark.parametrize("swapped", ["file", "folder", "folder of a link", "file that is sent"])
def test_what_becomes_a_link_between_a_look_and_the_next_is_not_followed(
    area: Path, work: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    outside = area.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"secret")
    (work / "out").mkdir()
    (work / "out" / "file").write_bytes(b"mine")
    (work / "link").symlink_to("out/file")
    path = work / "out" / "file" if swapped.startswith("file") else work / "out"

    def swap() -> None:
        shutil.move(path, area.parent / "before")
        path.symlink_to(outside / path.relative_to(work / "out"))

    real = task_folder._real

    def swapping(root: Path, path: str) -> str:
        found = real(root, path)
        if swapped != "file that is sent":
            swap()
        return found

    def sent() -> None:
        found = collect(area, X, ["link" if "link" in swapped else "out/*"])
        if swapped == "file that is sent":
            swap()
        for source in found.parts.values():
            source.read()

    monkeypatch.setattr(task_folder, "_real", swapping)
    with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
        sent()


def test_what_a_function_returned_and_a_large_value_are_two_trees(area: Path) -> None:
    for room in ("out", "whole"):
        (area / "left" / X / room).mkdir(parents=True)
        (area / "left" / X / room / "value").write_bytes(room.encode())
    assert len(collect(area, X, None).trees) == 2
    remove(area, X)
    assert collect(area, X, None).trees == []
