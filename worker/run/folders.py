"""The temporary folder of a worker, and the folders that killed workers left behind.

Rule 1: each folder contains a lock file. Its worker holds the lock until it ends, however it ends. Only the holder of
the lock removes the folder; folders without a lock are left alone.
Rule 2: anybody may put anything into a temporary directory, under any name. So a folder counts only if it belongs to
this user and nobody else can write to it: then nobody else can have put the lock there. Nobody else may be able to
replace the folder afterwards either: if others can write to its parent, the parent must have the sticky bit.
Rule 3: a worker runs for months, and what is in a temporary directory is removed after days, by a program or a person.
systemd-tmpfiles leaves a folder alone that is locked, with everything in it. Others look when files were last used, so
they are touched now and then. If the folder is gone all the same, it is made again: before a process is started, and
whenever the worker looks.
"""

import errno
import logging
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from deskgrid.homes import this_host
from deskgrid.worker.run import shared
from deskgrid.worker.run.beneath import remove

log = logging.getLogger("deskgrid.worker")

# With a number of this host, because a disk that several share may have locks of each host only. It is short, because
# a local socket, whose path is short, may be in the folder of a task.
PREFIX = f"deskgrid-worker-{crc32(this_host().encode()):08x}-"
LOCK = ".worker-lock"
# What the names of the files end with that say what processes have made in shared memory.
NOTES = ".made"

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Do not follow a link or wait at a pipe; Windows has neither flag.
_CAREFULLY = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class WorkerFolder:
    """A new folder at ``path``; creating it also removes the folders that this user's dead workers left beside it."""

    def __init__(self, place: Path | None = None, prepare: Callable[[Path], None] = lambda path: None) -> None:
        """``place``: the folder to make it in; None: the system's for temporary files.

        ``prepare``: called with the folder whenever it has been made. Raises OSError.
        """
        # Without links, as a task that asks for its current folder is told it, and as its absolute links name it.
        place = (place or Path(tempfile.gettempdir())).resolve()
        remove_abandoned(place)
        self.prepare = prepare
        self._lock: int | None
        self.path, self._lock = _new_folder(place)
        self._kept = _kept_from_cleaning(self.path)
        prepare(self.path)

    def renew(self) -> None:
        """Make the folder again, at the same path, if somebody has removed it. Raises OSError."""
        if self._lock is None or self._is_there(self._lock):
            return
        log.warning("folder-removed path=%r: it is made again; whoever cleans up there should leave it", str(self.path))
        self.path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)
        if not is_ours(self.path):
            raise PermissionError(f"{self.path} was removed, and belongs to somebody else now")
        lock = os.open(self.path / LOCK, _CAREFULLY | os.O_CREAT, 0o600)
        if not taken(lock):
            os.close(lock)
            raise BlockingIOError(f"{self.path} was removed, and is being removed again")
        os.close(self._lock)
        self._let_clean()
        self._lock, self._kept = lock, _kept_from_cleaning(self.path)
        self.prepare(self.path)

    def _is_there(self, lock: int) -> bool:
        try:
            return os.path.samestat(os.stat(self.path / LOCK), os.fstat(lock))
        except FileNotFoundError:
            return False

    def touch(self, names: Iterable[str]) -> None:
        """Let what is below these names in the folder count as used now. It must be out of the reach of tasks."""
        for name in names:
            for folder, _, files in os.walk(self.path / name):
                for path in (folder, *(os.path.join(folder, file) for file in files)):
                    with suppress(OSError):
                        os.utime(path)
        with suppress(OSError):
            os.utime(self.path / LOCK)
            os.utime(self.path)

    def close(self) -> None:
        """Remove the folder. May be called again."""
        if self._lock is not None:
            self._let_clean()
            _remove(self.path, self._lock)
            self._lock = None

    def _let_clean(self) -> None:
        if self._kept is not None:
            os.close(self._kept)
            self._kept = None


def remove_abandoned(place: Path) -> None:
    """Remove the folders in ``place`` of this user's dead workers."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has no lock, or another worker was faster
            if is_ours(path):
                lock = os.open(path / LOCK, _CAREFULLY)
                if taken(lock):
                    for notes in path.glob(f"*{NOTES}"):
                        shared.remove(shared.noted(str(notes)), [notes.stat().st_uid])
                    _remove(path, lock)
                else:
                    os.close(lock)


def _kept_from_cleaning(path: Path) -> int | None:
    """Lock a folder, so that systemd-tmpfiles keeps away from it; return the lock's descriptor."""
    if sys.platform == "win32":
        return None
    else:
        import fcntl

        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with suppress(OSError):  # a disk without locks
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return folder


def _new_folder(place: Path) -> tuple[Path, int]:
    """Make a folder and take its lock; return its path and the lock's descriptor."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # nobody else can read or write it
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if taken(lock):
            return path, lock
        os.close(lock)  # another worker took it for abandoned before it was locked
        if not has_locks(place):
            (path / LOCK).unlink(missing_ok=True)
            path.rmdir()
            raise OSError(errno.ENOLCK, f"the disk of {place} has no locks: name another folder for temporary files")


def is_ours(path: Path) -> bool:
    """Whether only this user or the administrator can have made this folder and its contents."""
    if sys.platform == "win32":
        return path.is_dir()  # a temporary directory there is the user's own
    else:
        folder, place = path.lstat(), path.parent.stat()
        mine = stat.S_ISDIR(folder.st_mode) and folder.st_uid == os.geteuid() and not folder.st_mode & _OTHERS_WRITE
        return mine and (bool(place.st_mode & stat.S_ISVTX) or not place.st_mode & _OTHERS_WRITE)


def _remove(path: Path, lock: int) -> None:
    """Remove a folder whose lock is held. The lock goes last, so that the next worker can remove what remains."""
    with suppress(OSError):
        for name in {each.name for each in path.iterdir()} - {LOCK}:
            remove(path, name)
    if sys.platform == "win32":
        os.close(lock)  # Windows cannot remove an open file; nobody else removes an empty folder
    with suppress(OSError):
        if [each.name for each in path.iterdir()] == [LOCK]:
            (path / LOCK).unlink()
            path.rmdir()
    if sys.platform != "win32":
        os.close(lock)


def has_locks(place: Path) -> bool:
    """Whether a file in ``place`` can be locked: a disk in the network may have no locks. Raises OSError."""
    with tempfile.NamedTemporaryFile(prefix=PREFIX, dir=place) as file:
        return taken(file.fileno())


def taken(lock: int) -> bool:
    """Try to take the lock until this process ends; return whether it was free and its file still exists."""
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
