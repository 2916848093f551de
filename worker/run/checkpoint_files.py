"""Checkpoints on this PC, in files: a task that goes on here need not wait until the broker has sent its checkpoint.

Rule 1: a file is written, flushed to the disk and renamed, so that it is always a whole checkpoint. If the disk is
full, there is no file, and the checkpoint comes from the broker. A disk that fills up takes a part of what is written
without an error; so everything goes through `write_all`.
Rule 2: a large checkpoint is not in memory: it is read where it lies, and copied piece by piece.
"""

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from deskgrid.disk import open_shared
from deskgrid.wire import CHECKPOINT_LIMIT, CHUNK_BYTES, LARGE_BYTES, Chunks, Payload
from deskgrid.worker.run.beneath import open_file
from deskgrid.worker.run.child import write_all
from deskgrid.worker.run.output import behind_checkpoint

# Bytes of all files: four of the largest checkpoints. The oldest files are removed first.
MOST_BYTES = 4 * CHECKPOINT_LIMIT


class CheckpointFiles:
    """The files in ``folder``, which is made when the first one is written. Any thread may call this.

    ``uids``: of the users that tasks run as; empty: our own.
    """

    def __init__(self, folder: Path, most: int = MOST_BYTES, uids: Collection[int] = ()) -> None:
        self._folder = folder
        self._uids = uids
        self._most = most
        self._mine = threading.Lock()
        self._sizes: OrderedDict[tuple[int, int], int] = OrderedDict()

    def _path(self, task: int, number: int) -> Path:
        return self._folder / f"{task}-{number}"

    def write(self, task: int, number: int, data: Payload, start: int = 0, size: int | None = None) -> None:
        """Keep a checkpoint of a task under a number, in the place of an earlier one of that number.

        ``start``, ``size``: ``data`` is what follows after so many of so many bytes; the parts come in order.
        """
        pieces = [memoryview(data)] if isinstance(data, bytes) else data.frames()
        with self._mine, suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            new = self._path(task, number).with_suffix(".new")
            with open(new, "ab" if start else "wb", buffering=0, opener=open_shared) as file:
                if file.tell() != start:
                    return  # there was no room for an earlier part
                try:
                    for piece in pieces:
                        write_all(file.fileno(), piece)
                except OSError:
                    new.unlink(missing_ok=True)
                    raise
                if size is None or file.tell() == size:
                    self._complete(task, number, file.fileno())

    def take(self, task: int, number: int, path: Path, printed: bytes = b"") -> Payload | None:
        """Keep the checkpoint in a file that a task has written, with what it has ``printed``; None if it cannot be.

        The file is copied, because the task may go on writing to it; and it may be anything. Only the folder that it is
        in may be one that tasks can write to.
        """
        with self._mine, suppress(OSError):
            source = open_file(path.parent.parent, f"{path.parent.name}/{path.name}", self._uids)
            try:
                told = os.fstat(source)
                if told.st_size > CHECKPOINT_LIMIT:
                    return None
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._copy(task, number, source, told.st_size, behind_checkpoint(printed, told.st_size))
            finally:
                os.close(source)
            return self._read(task, number)
        return None

    def _copy(self, task: int, number: int, source: int, size: int, behind: bytes) -> None:
        new = self._path(task, number).with_suffix(".new")
        try:
            with open(new, "wb", buffering=0, opener=open_shared) as file:
                while file.tell() < size and (piece := os.read(source, min(CHUNK_BYTES, size - file.tell()))):
                    write_all(file.fileno(), piece)
                if behind:
                    write_all(file.fileno(), behind)
                self._complete(task, number, file.fileno())
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _complete(self, task: int, number: int, file: int) -> None:
        """A file has been written."""
        os.fsync(file)
        path = self._path(task, number)
        path.with_suffix(".new").replace(path)
        self._sizes[task, number] = os.fstat(file).st_size
        self._sizes.move_to_end((task, number))
        while sum(self._sizes.values()) > self._most:
            self._drop(*next(iter(self._sizes)))

    def holds(self, task: int, number: int) -> bool:
        """Whether the checkpoint of a task under a number is here."""
        return (task, number) in self._sizes and self._path(task, number).is_file()

    def read(self, task: int, number: int) -> Payload | None:
        """The checkpoint of a task under a number; None if it is not here."""
        with self._mine, suppress(OSError):
            return self._read(task, number)
        return None

    def _read(self, task: int, number: int) -> Payload | None:
        size = self._sizes.get((task, number))
        if size is None:
            return None
        with self._path(task, number).open("rb") as file:
            if size < LARGE_BYTES:
                return file.read()
            return Chunks([memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))])

    def drop(self, task: int, number: int) -> None:
        """Nobody needs this one any more, nor what has come of it."""
        with self._mine:
            self._drop(task, number)
            with suppress(OSError):
                self._path(task, number).with_suffix(".new").unlink()

    def _drop(self, task: int, number: int) -> None:
        if self._sizes.pop((task, number), None) is not None:
            with suppress(OSError):
                self._path(task, number).unlink()
