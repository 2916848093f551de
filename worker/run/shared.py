"""What a process has in shared memory: a file notes what Python code makes there, so that it can be removed.

Rule 1: as `child.py`, this file imports nothing of ours.
Rule 2: an entry is known by its name and its inode: another program may have an entry of the same name by now.
"""

import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

# Where Linux has it: SharedMemory, named semaphores (``sem.NAME``), and what libraries put there by themselves.
FOLDER = "/dev/shm"
Entry = tuple[str, int]
# Bytes that are read of a file with notes: those of a hundred thousand entries. A task may have made it any size.
NOTES_BYTES = 8 * 2**20


def watch(notes: str, noted: Callable[[], None]) -> None:
    """Note in a file what Python code makes from now on, in this process and in its copies.

    ``noted``: called whenever something was made here.
    """
    if sys.platform == "linux":
        _multiprocessing: Any = importlib.import_module("_multiprocessing")
        _posixshmem: Any = importlib.import_module("_posixshmem")

        def note(name: str) -> None:
            with suppress(OSError):  # it is gone already, or the disk is full
                line = f"{os.lstat(f'{FOLDER}/{name}').st_ino} {name}\n"
                file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                try:
                    os.write(file, os.fsencode(line))
                finally:
                    os.close(file)
            noted()

        opens: Any = vars(_posixshmem)["shm_open"]

        def shm_open(path: str, flags: int, mode: int = 0o777) -> int:
            descriptor: int = opens(path, flags, mode)
            if flags & os.O_CREAT:
                note(path.lstrip("/"))
            return descriptor

        base: Any = _multiprocessing.SemLock

        class SemLock(base):  # type: ignore[misc]  # typeshed does not have it
            __slots__ = ()

            def __new__(cls, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> Any:
                made = super().__new__(cls, kind, value, maxvalue, name, unlink)
                if not unlink:
                    note(f"sem.{name.lstrip('/')}")
                return made

        vars(_posixshmem)["shm_open"] = shm_open
        vars(_multiprocessing)["SemLock"] = SemLock


def noted(notes: str) -> Iterator[Entry]:
    """Yield the entries that were noted in a file, to which a task may have written anything, or which it replaced."""
    with suppress(OSError):
        file = os.open(notes, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            data = os.read(file, NOTES_BYTES)
        finally:
            os.close(file)
        for line in data.split(b"\n"):
            inode, _, name = line.partition(b" ")
            with suppress(ValueError):
                yield os.fsdecode(name), int(inode)


def remove(entries: Iterable[Entry], uids: Collection[int], folder: str = FOLDER) -> None:
    """Remove those of these entries that are still the same, and belong to one of these users."""
    for name, inode in entries:
        if not name or "/" in name or "\0" in name:
            continue
        path = f"{folder}/{name}"
        with suppress(OSError):
            found = os.lstat(path)
            if found.st_ino != inode or found.st_uid not in uids:
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                import shutil

                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


def used(pids: Collection[int], proc: str = "/proc", folder: str = FOLDER) -> set[str]:
    """Return the names of the entries that these processes have mapped or open, as far as we may know."""
    found: set[str] = set()
    start = f"{folder}/"
    for pid in pids:
        with suppress(OSError), open(f"{proc}/{pid}/maps", "rb") as maps:
            for line in maps:
                _, slash, name = line.rpartition(start.encode())
                if slash:
                    found.add(os.fsdecode(name.rstrip(b"\n")))
        with suppress(OSError):
            for descriptor in os.listdir(f"{proc}/{pid}/fd"):
                with suppress(OSError):
                    path = os.readlink(f"{proc}/{pid}/fd/{descriptor}")
                    if path.startswith(start):
                        found.add(path.removeprefix(start))
    return {name.removesuffix(" (deleted)").partition("/")[0] for name in found}


def remove_unused(entries: Collection[Entry], uids: Collection[int]) -> None:
    """Remove those of these entries that no process uses, as far as we may know, and that are these users'."""
    if entries:
        in_use = used([int(name) for name in os.listdir("/proc") if name.isdigit()])
        remove([entry for entry in entries if entry[0] not in in_use], uids)


def entries(names: Iterable[str]) -> list[Entry]:
    """Return the entries of these names that are there."""
    found = []
    for name in names:
        with suppress(OSError):
            found.append((name, os.lstat(f"{FOLDER}/{name}").st_ino))
    return found
