"""The folder of a task: what is put in, what is taken out, and that nothing else is touched."""

import contextlib
import os
import shutil
import socket
import stat
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeVar, cast

import pytest

from deskgrid import wire
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.files.task_folder import Collected, OutputsRefused, matches, prepare
from deskgrid.worker.run import beneath
from deskgrid.worker.run.accounts import UserAccount
from deskgrid.worker.run.child import TaskFiles
from tests.files.fakes import content, digest, entry
from tests.files.test_cache import fetch

X = "5.7"
Found = TypeVar("Found")
posix = pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")


def whole(steps: Generator[None, None, Found]) -> Found:
    """What steps find, all done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(Found, end.value)


def collect(area: Path, holder: str, patterns: Sequence[str] | None) -> Collected:
    return whole(task_folder.collect(area, holder, patterns))


def remove(area: Path, holder: str) -> None:
    for _ in task_folder.remove(area, holder):
        pass


def unpack(area: Path, holder: str, trees: Sequence[tuple[bytes, wire.Tree]], cache: FileCache, command: bool) -> bool:
    return whole(task_folder.unpack(area, holder, trees, cache, None, command=command))


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
    read = wire.read_tree(parts[tree])
    files = {each.path: b"".join(parts[part] for part in wire.split_digests(each.parts)) for each in read.entries}
    return files | {f"{folder}/": b"" for folder in read.folders}


def test_trees_are_unpacked_as_links_for_a_command_and_beside_each_other_for_a_function(
    area: Path, tmp_path: Path
) -> None:
    cache = FileCache(tmp_path / "cache", 10**9)
    files = {"data.csv": b"1,2", "in ner/ü": b"", "a/b/c": b"x" * 10}
    tree = wire.Tree(tuple(entry(name, data) for name, data in files.items()), ("out",))
    for name, data in files.items():
        fetch(cache, entry(name, data), data)
    key = digest(tree.packed())
    assert unpack(area, X, [(key, tree)], cache, command=True)
    assert content(area / "in" / X / "work") == files
    assert (area / "in" / X / "work" / "out").is_dir()
    assert (area / "in" / X / "work" / "data.csv").stat().st_nlink == 2
    assert unpack(area, X, [(key, tree)], cache, command=False), "and a second time, over what is left"
    assert content(area / "in" / X / "needs" / key.hex()) == files
    assert not (area / "in" / X / "work").exists()
    remove(area, X)
    assert content(area) == {}


def test_a_file_that_went_meanwhile_is_noticed(area: Path, tmp_path: Path) -> None:
    tree = wire.Tree((entry("data.csv", b"1"),))
    assert not unpack(area, X, [(b"k", tree)], FileCache(tmp_path / "cache", 10**9), command=True)


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
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # an administrator need not unlock anything
    outside = area.parent / "outside"
    outside.mkdir(mode=0o755)
    (work / "locked").mkdir()
    (work / "locked" / "door").symlink_to(outside)
    (work / "door").symlink_to(outside)
    (work / "locked").chmod(0o500)
    remove(area, X)
    assert outside.stat().st_mode & 0o777 == 0o755
    assert content(area) == {}


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


def test_a_folder_means_everything_in_it_with_its_empty_folders(area: Path, work: Path) -> None:
    for name in ("out/empty", "out/in ner/emptier/yet", "none"):
        (work / name).mkdir(parents=True)
    (work / "out" / "in ner" / "file").write_bytes(b"1")
    inside = {"out/empty/": b"", "out/in ner/emptier/yet/": b"", "out/in ner/file": b"1"}
    assert left(area, "out") == left(area, "out/**") == inside
    assert left(area, "**") == inside | {"none/": b""}
    assert left(area, "*/in*", "none") == {name: data for name, data in inside.items() if "in ner" in name} | {
        "none/": b""
    }
    with pytest.raises(OutputsRefused, match=r"no file matches 'x'; the folder has: none/, out/empty/, "):
        collect(area, X, ["x"])
    (work / "con").mkdir()
    with pytest.raises(OutputsRefused, match=r"'con' cannot be the name .* Windows cannot have it"):
        collect(area, X, ["*"])


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
        beneath.open_file(area, (work / "out" / "theirs.npz").relative_to(area).as_posix())


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
    monkeypatch.setattr(beneath, "open_file", lambda *given: pytest.fail("a file is read"))
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

    real = task_folder._Room.real

    def swapping(room: task_folder._Room, path: str) -> str:
        found = real(room, path)
        if swapped != "file that is sent":
            swap()
        return found

    def sent() -> None:
        found = collect(area, X, ["link" if "link" in swapped else "out/*"])
        if swapped == "file that is sent":
            swap()
        for source in found.parts.values():
            source.read()

    monkeypatch.setattr(task_folder._Room, "real", swapping)
    with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
        sent()


def test_what_a_function_returned_and_a_large_value_are_two_trees(area: Path) -> None:
    for room in ("out", "whole"):
        (area / "left" / X / room).mkdir(parents=True)
        (area / "left" / X / room / "value").write_bytes(room.encode())
    assert len(collect(area, X, None).trees) == 2
    remove(area, X)
    assert collect(area, X, None).trees == []


# --- how much a task may leave ---------------------------------------------------------------------------------------


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


@posix
def test_many_huge_files_are_refused_before_a_byte_is_read(
    area: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_folder, "_read_part", lambda *given: pytest.fail("a file is read"))
    for number in range(200):
        sparse(work / f"{number}", 15 * 2**30)
    with pytest.raises(OutputsRefused, match="the 200 files have more than"):
        collect(area, X, ["*"])
    sparse(work / "0", wire.FILE_BYTES + 1)
    with pytest.raises(OutputsRefused, match="'0' has more than 17,179,869,184 bytes"):
        collect(area, X, ["*"])


@posix
@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="this system does not tell holes")
def test_holes_are_not_read(area: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, read, reading = wire.PART_BYTES, list[int](), task_folder._read_part

    def noted(descriptor: int, place: int) -> bytes:
        read.append(place)
        return reading(descriptor, place)

    monkeypatch.setattr(task_folder, "_read_part", noted)
    sparse(work / "a", 9 * 2**30)
    with (work / "a").open("r+b") as file:
        file.seek(2 * part)
        file.write(b"data")
    sparse(work / "b", part + 5)
    found = collect(area, X, ["*"])
    assert read == [2 * part, 9 * 2**30], "and whether it has grown"
    assert found.size > 9 * 2**30
    a, b = wire.read_tree(found.parts[found.trees[0]].read()).entries
    assert wire.split_digests(a.parts)[1:3] == [digest(bytes(part)), digest(b"data" + bytes(part - 4))]
    assert wire.split_digests(b.parts) == [digest(bytes(part)), digest(bytes(5))]


@posix
def test_a_file_is_read_part_by_part_and_others_go_on_in_between(area: Path, work: Path) -> None:
    (work / "a").write_bytes(os.urandom(3 * wire.PART_BYTES + 1))
    assert len(list(task_folder.collect(area, X, ["*"]))) >= 3


@posix
def test_many_names_are_looked_through_and_removed_in_steps(area: Path, work: Path) -> None:
    count = 5 * beneath.STEP_NAMES
    for number in range(count):
        (work / f"{number}").touch()
    assert len(list(task_folder.collect(area, X, ["1*"]))) >= 5
    assert len(list(task_folder.remove(area, X))) >= 5
    assert list((area / "gone").iterdir()) == []


def nested(folder: Path, depth: int, name: str = "deep") -> None:
    """A folder in a folder, and so on: a path that is too long for any system call."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


@posix
def test_folders_nested_beyond_any_path_are_removed(area: Path, work: Path) -> None:
    nested(work, 3_000)
    remove(area, X)
    assert {path.name for path in area.rglob("*")} == {"in", "left", "new", "gone"}


@posix
def test_nobody_looks_into_folders_nested_beyond_any_name_of_a_result(area: Path, work: Path) -> None:
    nested(work, 3_000)
    (work / "a").write_bytes(b"1")
    assert left(area, "a") == {"a": b"1"}
    with pytest.raises(OutputsRefused, match="it has more than 1,024 bytes"):
        collect(area, X, ["deep"])
    remove(area, X)  # pytest could not


@posix
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has only names that are UTF-8")
def test_names_that_are_not_utf_8_are_refused_and_can_be_listed(area: Path, work: Path) -> None:
    os.close(os.open(os.fsencode(work) + b"/\xff.txt", os.O_WRONLY | os.O_CREAT))
    with pytest.raises(OutputsRefused, match="it is not UTF-8"):
        collect(area, X, ["*.txt"])
    with pytest.raises(OutputsRefused, match="no file matches") as refused:
        collect(area, X, ["a"])
    assert wire.read_failure(wire.Failure("OutputsRefused", str(refused.value)).packed()).kind == "OutputsRefused"


@posix
def test_links_that_lead_in_a_circle_are_refused(area: Path, work: Path) -> None:
    (work / "a").symlink_to("b")
    (work / "b").symlink_to("a")
    with pytest.raises(OutputsRefused, match="is a link to something that is not in the task's folder"):
        collect(area, X, ["a"])


@posix
def test_a_link_by_way_of_other_links_counts_as_the_file_inside(area: Path, work: Path) -> None:
    (work / "run1").mkdir()
    (work / "run1" / "model").write_bytes(b"data")
    (work / "latest").symlink_to("run1")
    (work / "best").symlink_to("./latest/../latest/model")
    (work / "absolute").symlink_to(work / "best")
    assert left(area, "best", "absolute") == {"best": b"data", "absolute": b"data"}


# --- who a file belongs to -------------------------------------------------------------------------------------------

by_root = pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can do it")


@by_root
def test_a_second_name_for_a_file_of_somebody_else_is_no_result(area: Path, work: Path) -> None:
    """As where the system lets everybody make such names (``fs.protected_hardlinks=0``)."""
    secret = area.parent / "secret"
    secret.write_bytes(b"secret")
    secret.chmod(0o600)
    (work / "out").hardlink_to(secret)
    with pytest.raises(OutputsRefused, match="'out' is not a file of the task"):
        whole(task_folder.collect(area, X, ["out"], 65534))
    (work / "out").unlink()
    (work / "out").write_bytes(b"mine")
    os.chown(work / "out", 65534, -1)
    secret.chmod(0o444)
    (work / "input").hardlink_to(secret)
    assert len(whole(task_folder.collect(area, X, ["*"], 65534)).parts) == 3


@by_root
def test_a_folder_is_given_away_from_the_inside_out_where_its_new_owner_cannot_reach_it(
    area: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = UserAccount("nobody", 65534, 65534, (65534,), "/")
    given, giving = list[str](), os.fchown
    names = ("a/b/c/file", "a/d/file")
    cache, tree = FileCache(tmp_path / "cache", 10**9), wire.Tree(tuple(entry(name, b"1") for name in names))
    fetch(cache, entry("", b"1"), b"1")

    def noted(descriptor: int, uid: int, gid: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert (area / "new").stat().st_mode & 0o777 == 0o700
        assert path.is_relative_to(area / "new")
        assert all(parent.stat().st_uid == 0 for parent in path.parents if parent.is_relative_to(area))
        given.append(path.relative_to(area / "new" / X).as_posix())
        giving(descriptor, uid, gid)

    monkeypatch.setattr(os, "fchown", noted)
    assert whole(task_folder.unpack(area, X, [(b"k", tree)], cache, account, command=True))
    assert sorted(given) == ["work", "work/a", "work/a/b", "work/a/b/c", "work/a/d"]
    work = area / "in" / X / "work"
    assert {path.stat().st_uid for path in (work, *work.rglob("*")) if path.is_dir()} == {65534}
    assert {path.stat().st_uid for path in work.rglob("*") if path.is_file()} == {0}


# --- races that made others' programs dangerous ----------------------------------------------------------------------


@posix
@pytest.mark.parametrize("moment", ["before it is entered", "before it is moved up"])
def test_a_folder_that_becomes_a_link_while_it_is_removed_is_not_followed(
    area: Path, work: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """As in CVE-2022-21658 and CVE-2021-20197, and in `rm` of early systems."""
    outside = area.parent / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "precious").touch()
    (work / "d" / "inner").mkdir(parents=True)
    renaming, swapped = beneath._rename, list[str]()

    def swap(name: str, at: int) -> None:
        if name == "d" and not swapped:
            swapped.append(name)
            os.rename("d", "before", src_dir_fd=at, dst_dir_fd=at)
            os.symlink(outside, "d", dir_fd=at)

    def moved(source: int, name: str, target: int, new: str) -> None:
        if moment == "before it is moved up":
            swap(name, source)
        renaming(source, name, target, new)
        if moment == "before it is entered" and name == "d":
            os.rename(new, f"{new}-before", src_dir_fd=target, dst_dir_fd=target)
            os.symlink(outside, new, dir_fd=target)
            swapped.append(new)

    monkeypatch.setattr(beneath, "_rename", moved)
    remove(area, X)
    assert swapped
    assert sorted(path.name for path in outside.iterdir()) == ["inner", "precious"]


@by_root
@pytest.mark.parametrize("moment", ["read", "removed", "given"])
def test_a_folder_in_the_middle_of_a_path_that_becomes_a_link_is_not_followed(
    area: Path, work: Path, moment: str
) -> None:
    """As in CVE-2018-21269 and CVE-2023-41915: not the last name is swapped, but a folder on the way to it."""
    outside = area.parent / "outside"
    (outside / X / "out").mkdir(parents=True)
    (outside / X / "out" / "secret").write_bytes(b"secret")
    shutil.rmtree(area / "left")
    (area / "left").symlink_to(outside)
    if moment == "read":
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            collect(area, X, None)
    elif moment == "removed":
        remove(area, X)
    else:
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            beneath.hand_over(area, [f"left/{X}/out"], 65534, 65534)
    assert (outside / X / "out" / "secret").read_bytes() == b"secret"
    assert (outside / X / "out").stat().st_uid == 0


@by_root
def test_a_second_name_for_a_file_of_root_is_not_handed_over(area: Path, work: Path) -> None:
    """As where start scripts ran ``chown -R``: folders have no second names, and files are never handed over."""
    (area.parent / "secret").touch(0o600)
    (work / "mine").hardlink_to(area.parent / "secret")
    with pytest.raises(NotADirectoryError):
        beneath.hand_over(area, [f"in/{X}/work/mine"], 65534, 65534)
    assert (area.parent / "secret").stat().st_uid == 0


def test_a_file_on_another_drive_is_kept_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, path = TaskFiles(str(tmp_path / "area")), tmp_path / "elsewhere" / "found"
    path.parent.mkdir()
    path.write_bytes(b"data")
    files.begin(5, 7)

    def on_another_drive(path: str, start: str) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr(os.path, "relpath", on_another_drive)
    assert files.leave(str(path)) == "found"
    assert (tmp_path / "area" / "left" / X / "out" / "found").read_bytes() == b"data"
