"""A worker removes its temporary folder when it ends; the next worker removes the folder of a killed one."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.worker.run.folders import LOCK, PREFIX, WorkerFolder, remove_abandoned
from tests.executor.rig import Rig, call, python_template, value
from tests.live import ROOT

PROGRAM = """
from deskgrid.worker.run.folders import WorkerFolder
folder = WorkerFolder()
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
    path = Path(process.stdout.readline().strip())
    # Of a process that did not start, the path would be this test's own working directory.
    assert path.is_absolute()
    return process, path


def ended(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_its_path_has_no_links_as_programs_see_it_that_ask_where_they_are(place: Path) -> None:
    (place / "link").symlink_to(place)
    folder = WorkerFolder(place / "link")
    assert folder.path.parent == place
    folder.close()


def test_it_is_there_until_it_is_closed_and_leaves_nothing(place: Path) -> None:
    folder = WorkerFolder()
    (folder.path / "file").write_text("something")
    folder.close()
    folder.close()
    assert list(place.iterdir()) == []


def test_what_a_killed_worker_left_is_removed_by_the_next_one(place: Path) -> None:
    process, left = other(place)
    ended(process)
    assert left.is_dir()
    folder = WorkerFolder()
    assert not left.exists()
    assert list(place.iterdir()) == [folder.path]
    folder.close()


def test_what_a_living_worker_has_stays(place: Path) -> None:
    process, kept = other(place)
    try:
        WorkerFolder().close()
        assert (kept / "file").read_text() == "mine"
    finally:
        ended(process)
    remove_abandoned(place)
    assert not kept.exists()


def test_what_a_worker_of_another_host_has_stays(place: Path) -> None:
    # Where a disk in the network has locks of each host only, its lock looks free.
    others = place / f"deskgrid-worker-{0:08x}-abc"
    others.mkdir(mode=0o700)
    (others / LOCK).touch(0o600)
    WorkerFolder().close()
    assert others.is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="other locks")
def test_a_disk_without_locks_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(lock: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(OSError, match="has no locks: name another folder"):
        WorkerFolder()
    assert not list(place.iterdir())


def test_folders_that_are_no_workers_stay(place: Path) -> None:
    without_lock, strange = place / f"{PREFIX}abc", place / f"{PREFIX}def"
    without_lock.mkdir(mode=0o700)
    (strange / LOCK).mkdir(parents=True)
    WorkerFolder().close()
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
    WorkerFolder().close()
    assert (mine / "file").read_text() == "keep"


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_stays(place: Path, mode: int) -> None:
    folder = abandoned(place, mode=mode)
    WorkerFolder().close()
    assert (folder / "file").read_text() == "keep"
    folder.chmod(0o700)
    WorkerFolder().close()
    assert not folder.exists(), "and only for that"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_stays_even_if_root_runs_the_worker(place: Path) -> None:
    folder = abandoned(place)
    os.chown(folder, MALLORY, MALLORY)
    WorkerFolder().close()
    assert (folder / "file").read_text() == "keep"


@posix
def test_a_link_in_place_of_a_folder_or_of_its_lock_is_not_followed(place: Path) -> None:
    elsewhere = abandoned(place / "elsewhere")
    (place / f"{PREFIX}y").symlink_to(elsewhere)
    linked = abandoned(place, f"{PREFIX}z")
    (linked / LOCK).unlink()
    (linked / LOCK).symlink_to(elsewhere / LOCK)
    WorkerFolder().close()
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
    WorkerFolder().close()
    assert (folder / "file").read_text() == "keep"


@posix
def test_where_anybody_can_exchange_folders_none_is_removed(place: Path) -> None:
    folder = abandoned(place)
    place.chmod(0o777)
    WorkerFolder().close()
    assert (folder / "file").read_text() == "keep"
    place.chmod(0o1777)
    WorkerFolder().close()
    assert not folder.exists(), "with the sticky bit nobody can"


# --- somebody cleans up -----------------------------------------------------------------------------------------------


def swept(rig: Rig) -> None:
    """Somebody removes everything that is in the folder for temporary files."""
    shutil.rmtree(rig.executor.folder.path)


def test_a_folder_that_was_removed_is_made_again_with_its_lock(place: Path) -> None:
    folder = WorkerFolder()
    shutil.rmtree(folder.path)
    folder.renew()
    assert folder.path.is_dir()
    remove_abandoned(place)
    assert folder.path.is_dir(), "it counts as that of a worker that lives"
    folder.close()
    assert list(place.iterdir()) == []


def test_the_place_of_a_folder_is_made_again_too(place: Path) -> None:
    (place / "files").mkdir()
    folder = WorkerFolder(place / "files")
    shutil.rmtree(place / "files")
    folder.renew()
    assert folder.path.is_dir()
    folder.close()


@posix
def test_a_folder_that_somebody_else_has_made_in_its_place_is_not_used(place: Path) -> None:
    folder = WorkerFolder()
    shutil.rmtree(folder.path)
    folder.path.mkdir(mode=0o777)
    folder.path.chmod(0o777)
    with pytest.raises(PermissionError, match="belongs to somebody else now"):
        folder.renew()
    folder.path.chmod(0o700)
    folder.close()


def test_what_a_folder_is_prepared_with_is_there_again(place: Path) -> None:
    folder = WorkerFolder(prepare=lambda path: (path / "in").mkdir())
    shutil.rmtree(folder.path)
    folder.renew()
    assert (folder.path / "in").is_dir()
    folder.close()


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="this system does not clean up")
@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root cleans up")
def test_systemd_leaves_the_folder_of_a_living_worker_alone(place: Path) -> None:
    folder = WorkerFolder(prepare=lambda path: (path / "file").touch())
    (place / "other").mkdir()
    (place / "tmpfiles.conf").write_text(f"e {place} - - - 0\n", encoding="utf-8")
    subprocess.run(["systemd-tmpfiles", "--clean", str(place / "tmpfiles.conf")], check=True)
    assert not (place / "other").exists(), "it cleans"
    assert (folder.path / "file").exists()
    folder.close()


def test_files_that_no_task_can_write_to_are_touched(place: Path) -> None:
    folder = WorkerFolder(prepare=lambda path: (path / "bundles" / "one").mkdir(parents=True))
    module = folder.path / "bundles" / "one" / "module.py"
    module.touch()
    paths = [module, module.parent, folder.path / LOCK, folder.path]
    for path in paths:
        os.utime(path, (0, 0))
    folder.touch(["bundles", "missing"])
    assert all(path.stat().st_mtime > 0 for path in paths)
    folder.close()


def test_no_task_fails_because_its_workers_folder_was_removed(rigs: Callable[..., Rig]) -> None:
    def makes_a_file() -> int:
        import tempfile

        with tempfile.NamedTemporaryFile() as file:
            return file.write(b"text")

    rig = rigs()
    assert value(rig.call(makes_a_file)) == 4
    for _ in range(5):
        swept(rig)
        assert value(rig.call(makes_a_file)) == 4, "in the process that has served it, or in another one"


def test_a_process_is_started_after_the_folder_was_removed(rigs: Callable[..., Rig]) -> None:
    rig = rigs()
    swept(rig)
    assert value(rig.call(lambda: 1)) == 1


def test_modules_that_were_removed_are_asked_for_again(rigs: Callable[..., Rig]) -> None:
    def imported() -> int:
        import importlib

        return int(importlib.import_module("travelled").VALUE)

    rig, blob = rigs(), python_template(imported, {"travelled.py": b"VALUE = 42"})
    digest = rig.know(blob)
    swept(rig)
    assert not rig.executor.knows(digest)
    (ended,) = rig.run(rig.know(blob), call())
    assert value(ended) == 42


def test_a_checkpoint_that_was_removed_is_not_here(rigs: Callable[..., Rig]) -> None:
    rig = rigs()
    rig.executor.checkpoints.write(7, 1, b"state")
    assert rig.executor.checkpoints.holds(7, 1)
    swept(rig)
    assert not rig.executor.checkpoints.holds(7, 1)
