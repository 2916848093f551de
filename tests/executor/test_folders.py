"""A worker removes its temporary folder when it ends; the next worker removes the folder of a killed one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deskgrid.worker.run.folders import LOCK, PREFIX, Folder, remove_abandoned
from tests.live import ROOT

PROGRAM = """
from deskgrid.worker.run.folders import Folder
folder = Folder()
(folder.path / "file").write_text("mine")
print(folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def other(place: Path) -> tuple["subprocess.Popen[str]", Path]:
    """Another worker's process, and its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(place), "TEMP": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_it_is_there_until_it_is_closed_and_leaves_nothing(place: Path) -> None:
    folder = Folder()
    (folder.path / "file").write_text("something")
    folder.close()
    folder.close()
    assert list(place.iterdir()) == []


def test_what_a_killed_worker_left_is_removed_by_the_next_one(place: Path) -> None:
    process, left = other(place)
    ended(process)
    assert left.is_dir()
    folder = Folder()
    assert not left.exists()
    assert list(place.iterdir()) == [folder.path]
    folder.close()


def test_what_a_living_worker_has_stays(place: Path) -> None:
    process, kept = other(place)
    try:
        Folder().close()
        assert (kept / "file").read_text() == "mine"
    finally:
        ended(process)
    remove_abandoned(place)
    assert not kept.exists()


def test_folders_that_are_no_workers_stay(place: Path) -> None:
    without_lock, strange = place / f"{PREFIX}abc", place / f"{PREFIX}def"
    without_lock.mkdir(mode=0o700)
    (strange / LOCK).mkdir(parents=True)
    Folder().close()
    assert without_lock.is_dir()
    assert (strange / LOCK).is_dir()


def test_what_a_worker_left_is_removed_whole_and_links_in_it_are_not_followed(place: Path) -> None:
    process, left = other(place)
    precious = place / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    (left / "some" / "more").mkdir(parents=True)
    for link in (left / "link", left / "some" / "link"):
        link.symlink_to(precious)
    ended(process)
    remove_abandoned(place)
    assert not left.exists()
    assert (precious / "file").read_text() == "keep"


def test_a_removal_that_was_interrupted_is_ended_by_the_next_worker(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, left = other(place)
    (left / "folder").mkdir()
    ended(process)
    with monkeypatch.context() as patch:
        patch.setattr("deskgrid.worker.run.folders.remove", lambda *args: None)
        remove_abandoned(place)
    assert (left / "folder").is_dir()
    remove_abandoned(place)
    assert not left.exists()


# --- what other users of the machine can do in a temporary directory that all share -----------------------------------

posix = pytest.mark.skipif(os.name != "posix", reason="only there a temporary directory is everybody's")
MALLORY = 12345


def abandoned(place: Path, name: str = f"{PREFIX}x", mode: int = 0o700) -> Path:
    """A folder with a free lock, and something in it."""
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "file").write_text("keep")
    (folder / LOCK).touch()
    folder.chmod(mode)
    return folder


def test_a_folder_is_removed_only_by_the_lock_in_it(place: Path) -> None:
    """Anybody can put a file beside it."""
    mine = place / "deskgrid-results"
    mine.mkdir(mode=0o700)
    (mine / "file").write_text("keep")
    for name in ("deskgrid-results.lock", f"{PREFIX}results{LOCK}"):
        (place / name).touch(mode=0o666)
    Folder().close()
    assert (mine / "file").read_text() == "keep"


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_stays(place: Path, mode: int) -> None:
    folder = abandoned(place, mode=mode)
    Folder().close()
    assert (folder / "file").read_text() == "keep"
    folder.chmod(0o700)
    Folder().close()
    assert not folder.exists(), "and only for that"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_stays_even_if_root_runs_the_worker(place: Path) -> None:
    folder = abandoned(place)
    os.chown(folder, MALLORY, MALLORY)
    Folder().close()
    assert (folder / "file").read_text() == "keep"


@posix
def test_a_link_in_place_of_a_folder_or_of_its_lock_is_not_followed(place: Path) -> None:
    elsewhere = abandoned(place / "elsewhere")
    (place / f"{PREFIX}y").symlink_to(elsewhere)
    linked = abandoned(place, f"{PREFIX}z")
    (linked / LOCK).unlink()
    (linked / LOCK).symlink_to(elsewhere / LOCK)
    Folder().close()
    assert (elsewhere / "file").read_text() == "keep"
    assert (linked / "file").read_text() == "keep"


@posix
@pytest.mark.parametrize("what", ["hard link", "pipe"])
def test_a_lock_that_is_no_file_of_its_own_is_none(place: Path, what: str) -> None:
    folder = abandoned(place)
    (folder / LOCK).unlink()
    if what == "pipe":
        os.mkfifo(folder / LOCK)
    else:
        os.link(folder / "file", folder / LOCK)
    Folder().close()
    assert (folder / "file").read_text() == "keep"


@posix
def test_where_anybody_can_exchange_folders_none_is_removed(place: Path) -> None:
    folder = abandoned(place)
    place.chmod(0o777)
    Folder().close()
    assert (folder / "file").read_text() == "keep"
    place.chmod(0o1777)
    Folder().close()
    assert not folder.exists(), "with the sticky bit nobody can"
