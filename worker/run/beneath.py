"""Files and folders below a place that tasks can write to: how the worker, who may be root, handles them.

Rule 1: nothing there is opened, changed, renamed or removed by its path. Each name is opened in an open folder, and no
link is followed. So whatever a task puts in the place of a folder while we look, nothing outside is touched.
Rule 2: only what belongs to the task's user counts as left by it, or what everybody may read, as its inputs. A second
name for a file of somebody else is neither.
Rule 3: work takes as many steps as there is to do, and no step takes long: a generator yields after each.

Windows opens no names in folders; there, all tasks run as the worker's own user.
"""

import errno
import itertools
import os
import stat
import sys
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from deskgrid.disk import remove_tree

# Names in one step.
STEP_NAMES = 200
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = _READ | getattr(os, "O_DIRECTORY", 0)
# Numbers of the names that things get which are moved away: no two of one process are equal.
_NUMBERS = itertools.count(1)


class NotAFile(OSError):
    """What has this name is no file of the task's user: a link, a pipe, a device, or a file of somebody else."""


def open_file(top: Path, path: str, uids: Collection[int] = ()) -> int:
    """Open a file below ``top`` for reading. Raises `NotAFile`, OSError.

    ``uids``: of the users whose files count, beside those that everybody may read; empty: any.
    """
    descriptor = _open(top, path, 0)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or (uids and found.st_uid not in uids and not found.st_mode & stat.S_IROTH):
        os.close(descriptor)
        raise NotAFile(errno.EINVAL, "Not a file")
    return descriptor


def is_hole(descriptor: int, place: int, size: int) -> bool:
    """Whether these bytes of a file were never written, so that they are zeros, as far as its disk can tell."""
    if not hasattr(os, "SEEK_DATA"):
        return False
    try:
        return os.lseek(descriptor, place, os.SEEK_DATA) >= place + size
    except OSError as error:
        return error.errno == errno.ENXIO  # nothing follows


def open_folder(top: Path, path: str) -> int:
    """Open a folder below ``top``; "" is ``top`` itself. Raises OSError. Not on Windows."""
    return _open(top, path, _FOLDER & ~_READ)


def _open(top: Path, path: str, more: int) -> int:
    if sys.platform == "win32":
        return os.open(top / path, _READ)
    else:
        *parents, name = path.split("/") if path else ["."]
        at = os.open(top, _FOLDER)
        for parent in parents:
            at = _step(at, parent, _FOLDER)
        return _step(at, name, _READ | more)


def _step(at: int, name: str, flags: int) -> int:
    """Open a name in an open folder, which is closed."""
    try:
        return os.open(name, flags, dir_fd=at)
    finally:
        os.close(at)


def names_in(top: Path, folder: str) -> Generator[tuple[str, bool], None, None]:
    """Yield the names in a folder below ``top``, each with whether it is a folder. Raises OSError."""
    if sys.platform == "win32":
        with os.scandir(top / folder) as names:
            yield from ((each.name, each.is_dir(follow_symlinks=False)) for each in names)
    else:
        descriptor = open_folder(top, folder)
        try:
            with os.scandir(descriptor) as names:
                yield from ((each.name, each.is_dir(follow_symlinks=False)) for each in names)
        finally:
            os.close(descriptor)


def link_at(top: Path, path: str) -> str | None:
    """What a name below ``top`` is a link to; None if it is none. Raises OSError."""
    if sys.platform == "win32":
        return os.readlink(top / path) if (top / path).is_symlink() else None
    else:
        folder, _, name = path.rpartition("/")
        at = open_folder(top, folder)
        try:
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
            return os.readlink(name, dir_fd=at) if is_link else None
        finally:
            os.close(at)


def hand_over(top: Path, folders: Iterable[str], uid: int, gid: int) -> None:
    """Give a user folders below ``top``, which nobody else can reach yet: the inner ones first. Raises OSError."""
    if sys.platform != "win32":
        for folder in sorted(folders, key=lambda path: path.count("/"), reverse=True):
            descriptor = open_folder(top, folder)
            try:
                os.fchown(descriptor, uid, gid)
            finally:
                os.close(descriptor)


# --- removing --------------------------------------------------------------------------------------------------------


def move_away(top: Path, folder: str, name: str, to: Path) -> str | None:
    """Move what has a name in a folder below ``top`` into our folder ``to``, on the same disk.

    Returns its name there; None if there is nothing, or it cannot be moved.
    """
    gone = f"{os.getpid()}-{next(_NUMBERS)}"
    with suppress(OSError):
        if sys.platform == "win32":
            (top / folder / name).rename(to / gone)
        else:
            source = open_folder(top, folder)
            try:
                target = os.open(to, _FOLDER)
                try:
                    _rename(source, name, target, gone)
                finally:
                    os.close(target)
            finally:
                os.close(source)
        return gone
    return None


def _rename(source: int, name: str, target: int, new: str) -> None:
    """Move a name to another folder. To move a folder one has to write to it, and a task may have locked it."""
    try:
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:
        if _is_root():
            raise
        _unlock(source, name)
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def _unlock(at: int, name: str) -> None:
    """Let us write to a folder. An administrator need not: only the tasks' own user comes here, so it gains nothing."""
    if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        os.chmod(name, 0o700, dir_fd=at)


def removal(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Remove these names in ``folder``, which nobody else can write to, with everything below them.

    What cannot be removed stays. Folders inside are first moved up into ``folder``: so no depth is too much, and never
    more than two folders are open.
    """
    if sys.platform == "win32":
        for path in (folder / name for name in names):
            with suppress(OSError):
                if path.is_dir():
                    remove_tree(path)
                else:
                    path.chmod(0o600)
                    path.unlink()
            yield
    else:
        with suppress(OSError):
            top = os.open(folder, _FOLDER)
            try:
                todo = list(names)
                while todo:
                    yield from _remove(top, todo.pop(), todo)
            finally:
                os.close(top)


def remove(folder: Path, name: str, inside: str = "") -> None:
    """Remove a name, with everything below it, at once: in a folder that nobody else can write to.

    ``inside``: the name is in this folder there, to which tasks can write.
    """
    # What can be moved has nothing mounted on it. What is mounted further below is not removed either: see `_emptied`.
    gone = move_away(folder, inside, name, folder) if inside or sys.platform != "win32" else name
    for _ in removal(folder, [] if gone is None else [gone]):
        pass


def _remove(top: int, name: str, todo: list[str]) -> Iterator[None]:
    """Remove a name in ``top``; append what was moved up to ``todo``."""
    with suppress(OSError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=top)
            return
        if not _is_root():
            _unlock(top, name)
        at = os.open(name, _FOLDER, dir_fd=top)
        try:
            # Some file systems leave names out while others are removed, and a process may still write there.
            while (yield from _emptied(top, at, todo)):
                with suppress(OSError):
                    os.rmdir(name, dir_fd=top)
                    return
        finally:
            os.close(at)
        os.rmdir(name, dir_fd=top)


def _emptied(top: int, at: int, todo: list[str]) -> Generator[None, None, bool]:
    """Remove all files in an open folder, and move its folders up; return whether there was anything."""
    done = 0
    with os.scandir(at) as names:
        for each in names:
            with suppress(OSError):
                if each.is_dir(follow_symlinks=False):
                    gone = f"{os.getpid()}-{next(_NUMBERS)}"
                    _rename(at, each.name, top, gone)
                    todo.append(gone)
                else:
                    os.unlink(each.name, dir_fd=at)
                done += 1
            if done % STEP_NAMES == 0:
                yield
    return bool(done)
