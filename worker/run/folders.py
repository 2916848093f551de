"""The temporary folder of a worker, and those left behind by workers that were killed.

Rule 1: in each folder lies its lock, which the worker holds for as long as it lives, however it ends. A folder is
removed only by whoever holds its lock; one without a lock is nobody's business.
Rule 2: anybody may put anything into a temporary directory, under any name. A folder counts only if it belongs to this
user and nobody else can write to it, so that nobody else can have put the lock there. Nobody else can exchange it
afterwards either: where others can write, the sticky bit must keep them from what is not theirs.
"""

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "deskgrid-worker-"
LOCK = ".worker-lock"

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Neither follow a link nor wait at a pipe; Windows has neither flag.
_CAREFULLY = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Folder:
    """A new folder at ``path``; what dead workers of this user left beside it is removed."""

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self._lock: int | None
        self.path, self._lock = _new_folder()

    def close(self) -> None:
        """Remove it. Harmless when done again."""
        if self._lock is not None:
            _remove(self.path, self._lock)
            self._lock = None


def remove_abandoned(place: Path) -> None:
    """Remove the folders in ``place`` whose workers are dead, if they were workers of this user."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has no lock, or another worker was faster
            if _is_ours(path):
                lock = os.open(path / LOCK, _CAREFULLY)
                if _taken(lock):
                    _remove(path, lock)
                else:
                    os.close(lock)


def _new_folder() -> tuple[Path, int]:
    """A folder whose lock is held, and the lock's descriptor."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))  # nobody else can read or write it
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if _taken(lock):
            return path, lock
        os.close(lock)  # another worker took it for abandoned before it was locked


def _is_ours(path: Path) -> bool:
    """Whether only this user, or the system's administrator, can have made this folder and what is in it."""
    if sys.platform == "win32":
        return path.is_dir()  # a temporary directory there is the user's own
    else:
        folder, place = path.lstat(), path.parent.stat()
        mine = stat.S_ISDIR(folder.st_mode) and folder.st_uid == os.geteuid() and not folder.st_mode & _OTHERS_WRITE
        return mine and (bool(place.st_mode & stat.S_ISVTX) or not place.st_mode & _OTHERS_WRITE)


def _remove(path: Path, lock: int) -> None:
    """Remove a folder whose lock is held. The lock goes last: what remains here is the next worker's to remove."""
    with suppress(OSError):
        for each in path.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each, ignore_errors=True)
            elif each.name != LOCK:
                each.unlink(missing_ok=True)
    if sys.platform == "win32":
        os.close(lock)  # or it could not be removed; nobody else removes a folder that is empty
    with suppress(OSError):
        if [each.name for each in path.iterdir()] == [LOCK]:
            (path / LOCK).unlink()
            path.rmdir()
    if sys.platform != "win32":
        os.close(lock)


def _taken(lock: int) -> bool:
    """Whether the lock is ours now, until this process ends: it was free, and has not been removed meanwhile."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    found = os.fstat(lock)
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1
