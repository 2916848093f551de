"""The stored files of a PC, which all of its workers share: each once, by its content; the least used ones go first.

Rule 1: a file appears under its id when all of its parts are there and each is what its digest says. Until then it is
``ID.part``, and only the worker that holds that file's lock writes to it. What is in it already is used: it is compared
with the digests first.
Rule 2: tasks get hard links to these files, which are read-only. If a task writes to one nevertheless, its time of
change tells, and the file is fetched again.
Rule 3: a file that a task has a link to is never removed.
Rule 4: only the worker's own user can enter the folder: a task reaches a file by the link that it was given.
Rule 5: a part that is all zeros is neither fetched nor written: there is a hole in the file.
"""

import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from deskgrid.disk import open_shared, set_times, size_on_disk, stat_of
from deskgrid.wire import PART_BYTES, Payload, TreeFile, sha256_of, split_digests
from deskgrid.worker.run.beneath import is_hole
from deskgrid.worker.run.folders import taken

# The time of change of each file here. A file with another was written to. Seconds since 1970.
CHANGED_S = 1_000_000_000
# When there are too many bytes, this share more is removed, so that not every file has all others looked at.
SPARE_SHARE = 16
# Digests of holes that are remembered: that of a whole part, and some of the ends of files.
ZEROS_KEPT = 16
_PART, _TREE = ".part", ".tree"


class PcAtFault(str):
    """Why files cannot be had, if this PC is to blame: another one may have room for them."""

    __slots__ = ()


class ContentMismatch(Exception):
    """What arrived is not what it was announced as; one line."""


class NoRoomHere(OSError):
    """The files that a task needs do not fit on this PC's disk, even if all others were removed."""

    def __str__(self) -> str:
        return str(self.strerror)


class Partial:
    """A file that is being fetched; its lock is held. ``missing``: the parts that it lacks, when `look` has looked."""

    def __init__(self, path: Path, entry: TreeFile, descriptor: int) -> None:
        self._path = path
        self._entry = entry
        self._descriptor = descriptor
        self._digests = split_digests(entry.parts)
        self.missing: list[int] = []
        os.truncate(descriptor, entry.size)

    def look(self) -> Iterator[None]:
        """Find out which parts are there already, one with each step. Raises OSError."""
        for number, digest in enumerate(self._digests):
            if not self._is_there(number, digest):
                self.missing.append(number)
            yield

    def _is_there(self, number: int, digest: bytes) -> bool:
        place = number * PART_BYTES
        size = min(PART_BYTES, self._entry.size - place)
        zeros = digest == digest_of_zeros(size)
        if is_hole(self._descriptor, place, size):
            return zeros
        data = _read(self._descriptor, place, size)
        # Where holes cannot be told, most parts are zeros that nobody wrote, and a digest takes longer than this.
        return (zeros or any(data[:: max(1, len(data) // 64)])) and sha256(data).digest() == digest

    def digest(self, number: int) -> bytes:
        """The digest of a part."""
        return self._digests[number]

    def write(self, number: int, data: Payload) -> None:
        """Write a part. Raises `ContentMismatch`, and OSError."""
        if bytes.fromhex(sha256_of(data)) != self._digests[number]:
            raise ContentMismatch("a part of a file was damaged on its way, or on the disk of the broker")
        place = number * PART_BYTES
        for piece in [memoryview(data)] if isinstance(data, bytes) else data.frames():
            _write(self._descriptor, place, piece)
            place += len(piece)

    def finish(self) -> None:
        """All parts are there: give the file its name. Raises OSError."""
        if sys.platform != "win32":
            os.fchmod(self._descriptor, 0o555 if self._entry.executable else 0o444)
        set_times(self._descriptor, time.time_ns(), CHANGED_S * 10**9)
        self._path.replace(self._path.with_name(self._entry.id))
        self.close()

    def close(self) -> None:
        """Let go of the lock; what was written stays."""
        os.close(self._descriptor)


class FileCache:
    """``folder``: for all workers of this PC. ``most``: bytes that files may have which no task uses."""

    def __init__(self, folder: Path, most: int) -> None:
        """Make the folder, if there is none. Raises OSError."""
        self._folder = folder
        self._most = most
        # Bytes that may come before the files are looked at again.
        self._room = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # an earlier version of deskgrid let others enter it

    def find(self, entry: TreeFile) -> Path | None:
        """The file of an entry, which counts as used now; None if it is not here."""
        path = self._folder / entry.id
        try:
            found = path.stat()
            if found.st_size != entry.size or found.st_mtime_ns != CHANGED_S * 10**9:
                path.unlink()  # a task wrote to it
                return None
            os.utime(path, ns=(time.time_ns(), found.st_mtime_ns))
        except OSError:
            return None
        return path

    def begin(self, entry: TreeFile) -> Partial | None:
        """Begin to fetch a file; None if another worker of this PC fetches it, or has just done so. Raises OSError."""
        path = self._folder / f"{entry.id}{_PART}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have removed it
        descriptor = open_shared(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not taken(descriptor) or not self._is_named(descriptor, path) or self.find(entry) is not None:
            os.close(descriptor)
            return None
        try:
            self._make_room(bytes_of(entry))
            return Partial(path, entry, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @staticmethod
    def _is_named(descriptor: int, path: Path) -> bool:
        """Whether a file still has this name: another worker may have finished it before its lock was taken."""
        with suppress(OSError):
            return os.path.samestat(os.fstat(descriptor), path.stat())
        return False

    def check_room(self, size: int) -> None:
        """Raise `NoRoomHere` if files of so many bytes cannot come, even if all that nobody uses were removed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have removed it
        if size > (free := shutil.disk_usage(self._folder).free):
            room = free + sum(row[1] for row in self._rows())
            if size > room:
                raise NoRoomHere(errno.ENOSPC, f"its files have {size:,} bytes, and there is room for {room:,}")

    def tree(self, digest: bytes) -> bytes | None:
        """The bytes of a tree; None if it is not here."""
        path = self._folder / f"{digest.hex()}{_TREE}"
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if sha256(data).digest() != digest:
            return None
        with suppress(OSError):
            os.utime(path)
        return data

    def put_tree(self, digest: bytes, data: bytes) -> None:
        """Keep a tree. Raises `ContentMismatch`, and OSError."""
        if sha256(data).digest() != digest:
            raise ContentMismatch("a list of files was damaged on its way, or on the disk of the broker")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(len(data))
        path = self._folder / f"{digest.hex()}{_TREE}"
        staging = path.with_name(f"{path.name}-{token_hex(8)}")
        try:
            staging.write_bytes(data)
            staging.replace(path)
        except OSError:
            with suppress(OSError):
                staging.unlink()
            raise

    def _make_room(self, size: int) -> None:
        """Remove the files that were used least lately, if ``size`` more bytes do not fit, here or on the disk.

        All files are looked at only now and then, because a task may bring ten thousand.
        """
        self._room -= size
        if self._room >= 0:
            return
        rows, spare = sorted(self._rows()), self._most // SPARE_SHARE
        room = self._most - size - sum(row[1] for row in rows)
        free = shutil.disk_usage(self._folder).free - size
        if room < 0 or free < 0:
            for _, bytes_, path in rows:
                if room >= spare and free >= 0:
                    break
                if self._remove(path):
                    room += bytes_
                    free += bytes_
        self._room = min(spare, room, free)

    def _rows(self) -> Iterator[tuple[int, int, str]]:
        """(when it was used, its bytes on the disk, path) of each file that no task uses."""
        with os.scandir(self._folder) as found:
            for each in found:
                with suppress(OSError):
                    row = stat_of(each)
                    if stat.S_ISREG(row.st_mode) and row.st_nlink == 1:
                        yield row.st_atime_ns, size_on_disk(row), each.path

    @staticmethod
    def _remove(path: str) -> bool:
        if not path.endswith(_PART):
            with suppress(OSError):
                os.unlink(path)
                return True
            return False
        with suppress(OSError):
            lock = open_shared(path, os.O_RDWR)
            try:
                if taken(lock):
                    os.unlink(path)
                    return True
            finally:
                os.close(lock)
        return False


def bytes_of(entry: TreeFile) -> int:
    """The bytes of a file that its disk has to keep: all but its holes, as far as whole parts are holes."""
    return entry.size - PART_BYTES * split_digests(entry.parts).count(digest_of_zeros(PART_BYTES))


@lru_cache(ZEROS_KEPT)
def digest_of_zeros(size: int) -> bytes:
    """The digest of so many zeros: of a hole."""
    return sha256(bytes(size)).digest()


def link(source: Path, target: Path, *, executable: bool) -> None:
    """Give a task a file: a hard link, or a copy where there can be none. Raises OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EEXIST, errno.ENOSPC):
            raise
        shutil.copyfile(source, target)
        target.chmod(0o555 if executable else 0o444)


def _read(descriptor: int, place: int, size: int) -> bytes:
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, size)


def _write(descriptor: int, place: int, data: memoryview) -> None:
    os.lseek(descriptor, place, os.SEEK_SET)
    while data:
        data = data[os.write(descriptor, data) :]
