"""The temporary folder of a worker goes with it; what a killed one left goes with the next."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT
from worker.folders import Folder, remove_abandoned

PROGRAM = """
from worker.folders import Folder
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
    assert len(list(place.iterdir())) == 2  # a folder and its lock
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


def test_folders_of_others_stay(place: Path) -> None:
    without_lock, strange = place / "deskgrid-abc", place / "deskgrid-def.lock"
    without_lock.mkdir()
    strange.mkdir()
    Folder().close()
    assert without_lock.is_dir()
    assert strange.is_dir()


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_link_in_place_of_a_folder_is_not_followed(place: Path) -> None:
    precious = place / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    (place / "deskgrid-x.lock").touch()
    (place / "deskgrid-x").symlink_to(precious)
    (place / "target.lock").touch()
    (place / "deskgrid-y.lock").symlink_to(place / "target.lock")
    Folder().close()
    assert (precious / "file").read_text() == "keep"
    assert (place / "deskgrid-y.lock").is_symlink()
