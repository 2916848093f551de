"""Checkpoints on this PC, in files: a task that goes on here need not wait until the broker has sent its checkpoint.

Rule: a file is written, flushed to the disk and renamed, so that it is always a whole checkpoint. If the disk is full,
there is no file, and the checkpoint comes from the broker.
"""

import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from deskgrid.wire import Payload, payload_of

# Bytes of all files: sixteen of the largest checkpoints. The oldest files are removed first.
MOST_BYTES = 2**30


class CheckpointFiles:
    """The files in ``folder``, which is made when the first one is written. Any thread may call this."""

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most = most
        self._mine = threading.Lock()
        self._sizes: OrderedDict[tuple[int, int], int] = OrderedDict()

    def _path(self, task: int, number: int) -> Path:
        return self._folder / f"{task}-{number}"

    def write(self, task: int, number: int, data: Payload) -> None:
        """Keep a checkpoint of a task under a number, in the place of an earlier one of that number."""
        path = self._path(task, number)
        with self._mine, suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            new = path.with_suffix(".new")
            try:
                with new.open("wb", buffering=0) as file:
                    for piece in [data] if isinstance(data, bytes) else data.frames():
                        file.write(piece)
                    os.fsync(file.fileno())
                new.replace(path)
            except OSError:
                new.unlink(missing_ok=True)
                raise
            self._sizes[task, number] = len(data)
            self._sizes.move_to_end((task, number))
            while sum(self._sizes.values()) > self._most:
                self._drop(*next(iter(self._sizes)))

    def holds(self, task: int, number: int) -> bool:
        """Whether the checkpoint of a task under a number is here."""
        return (task, number) in self._sizes

    def read(self, task: int, number: int) -> Payload | None:
        """The checkpoint of a task under a number; None if it is not here."""
        with self._mine, suppress(OSError):
            if (task, number) in self._sizes:
                return payload_of(self._path(task, number).read_bytes())
        return None

    def drop(self, task: int, number: int) -> None:
        """Nobody needs this one any more."""
        with self._mine:
            self._drop(task, number)

    def _drop(self, task: int, number: int) -> None:
        if self._sizes.pop((task, number), None) is not None:
            with suppress(OSError):
                self._path(task, number).unlink()
