"""The temporary folder of a worker, and those that workers left which were killed.

Rule: beside each folder lies its lock, which the worker holds for as long as it lives, however it ends. A folder is
removed only by who holds its lock; one without a lock is nobody's business.
"""

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "deskgrid-"
SUFFIX = ".lock"


class Folder:
    """A new folder at ``path``; what dead workers of this user left beside it is removed."""

    def __init__(self) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self._descriptor, self._lock = _new_lock()
        self.path = _folder_of(self._lock)
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove it. Harmless when done again."""
        if self._descriptor is not None:
            _remove(self._lock, self._descriptor)
            self._descriptor = None


def remove_abandoned(place: Path) -> None:
    """Remove the folders in ``place`` whose workers are dead, and their locks."""
    for lock in place.glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError):  # another user's, or another worker was faster
            descriptor = os.open(lock, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            if _taken(descriptor):
                _remove(lock, descriptor)
            else:
                os.close(descriptor)


def _new_lock() -> tuple[int | None, Path]:
    """A lock that is held; its path says where the folder goes."""
    while True:
        descriptor, name = tempfile.mkstemp(SUFFIX, PREFIX)
        # Between these two lines another worker may have taken it for abandoned, and removed it.
        if _taken(descriptor) and Path(name).exists():
            return descriptor, Path(name)
        os.close(descriptor)


def _folder_of(lock: Path) -> Path:
    return lock.with_name(lock.name.removesuffix(SUFFIX))


def _remove(lock: Path, descriptor: int) -> None:
    shutil.rmtree(_folder_of(lock), ignore_errors=True)
    if sys.platform == "win32":
        os.close(descriptor)  # before it can be removed; nobody else removes a folder that is gone
        lock.unlink(missing_ok=True)
    else:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    """Whether the lock is ours now, until this process ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
