"""Large values as files, in a folder beside the journal.

Rule 1: a file is whole (and with ``flush``, on the disk) before the commit that names it. It is removed after the
commit that drops its name. If the broker was killed in between, files that no commit names are removed at the next
opening.
Rule 2: a file is written once and never changed. A file that fills a message of its own is mapped to be sent, not
copied. Smaller files are read, because each map takes a file descriptor, and descriptors are scarce.
"""

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from deskgrid.broker.store.rows import FileRow
from deskgrid.private_files import make_private_folder
from deskgrid.wire import BATCH_BYTES, Chunks

FOLDER = "values"
# How much of a file is written before that is flushed. File systems flush what others have written, too, before a
# commit is on the disk: after a whole large file, all peers would wait for it.
FLUSH_BYTES = 4 * 2**20


class Damaged(Exception):
    """The disk does not hold what was written; one line that says why."""


class StoredChunks(Chunks):
    """A large payload in a file, read or mapped when its frames are asked for."""

    __slots__ = ("__weakref__", "_length", "_path")

    def __init__(self, path: Path, size: int) -> None:
        super().__init__((), path.name)
        self._path = path
        self._length = size

    def __len__(self) -> int:
        return self._length

    def frames(self) -> list[memoryview]:
        """The frames of the whole file. Raises `Damaged`."""
        return Chunks([_view(self._path, self._length)]).frames()


class Files:
    """The files of one home. ``flush``: writing a file waits for the disk, as a commit does."""

    def __init__(self, home: Path, flush: bool) -> None:
        """Make the folder, if there is none. Raises OSError."""
        self._folder = home / FOLDER
        self._flush = flush
        make_private_folder(self._folder)

    def write(self, name: str, value: Chunks) -> None:
        """Write a file. Raises OSError, and leaves none behind."""
        path = self._folder / name
        try:
            with open(path, "xb", buffering=0, opener=_private) as file:
                unflushed = 0
                for frame in value.frames():
                    _write(file.fileno(), frame)
                    unflushed += len(frame)
                    if self._flush and unflushed >= FLUSH_BYTES:
                        os.fsync(file.fileno())
                        unflushed = 0
                if self._flush and unflushed:
                    os.fsync(file.fileno())
            if self._flush:
                _flush_folder(self._folder)
        except OSError:
            self.remove([name])
            raise

    def stored(self, name: str, size: int) -> StoredChunks:
        """The value in a file."""
        return StoredChunks(self._folder / name, size)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; files that cannot be removed now are removed at the next opening."""
        for name in names:
            with suppress(OSError):
                (self._folder / name).unlink()

    def remove_others(self, names: set[str]) -> None:
        """Remove all files but these."""
        self.remove(path.name for path in self._folder.iterdir() if path.name not in names)

    def wrong_with(self, rows: Iterable[FileRow]) -> str:
        """What is wrong with these files, or "". Reads those that have a checksum, about a second for each GiB."""
        for row in rows:
            try:
                if row.checksum is None:
                    _check_size(self._folder / row.name, row.size)
                    continue
                with _view(self._folder / row.name, row.size) as view:
                    found = crc32(view)
            except Damaged as error:
                return str(error)
            if found != row.checksum:
                return f"file {FOLDER}/{row.name} is not what was written"
        return ""


def checksum_of(value: Chunks) -> int:
    """The checksum that the file has to have when it is read again."""
    checksum = 0
    for frame in value.frames():
        checksum = crc32(frame, checksum)
    return checksum


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_size(path: Path, size: int) -> None:
    """Raise `Damaged` unless a file has ``size`` bytes."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise Damaged(f"file {path.parent.name}/{path.name}: {error.strerror}") from error
    if found != size:
        raise Damaged(f"file {path.parent.name}/{path.name} has {found} bytes of {size}")


def _view(path: Path, size: int) -> memoryview:
    """All of a file; raises `Damaged`."""
    place = f"file {path.parent.name}/{path.name}"
    _check_size(path, size)
    try:
        with path.open("rb", buffering=0) as file:
            if size <= BATCH_BYTES:
                return memoryview(file.readall())
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except OSError as error:
        raise Damaged(f"{place}: {error.strerror}") from error
