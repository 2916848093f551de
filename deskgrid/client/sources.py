"""Files and large objects of a program as trees of parts, each with the place from which it is read when it is sent.

Rule 1: a file is read once to name its parts, and again only for parts that the broker lacks. If it changes in between,
the broker refuses the part, and the bag with it.
Rule 2: a link is followed if it leads to a file in the folder that is sent; any other link is refused.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

from deskgrid.errors import BagRejected
from deskgrid.files import SHARED, Shared
from deskgrid.wire import (
    FILE_BYTES,
    LARGE_BYTES,
    PART_BYTES,
    TREE_FILES,
    VALUE,
    Chunks,
    Payload,
    Tree,
    TreeFile,
    TreeRefused,
    payload_of,
    wrong_with_place,
)

_AT_ONCE: int = getattr(os, "O_NONBLOCK", 0)  # Windows has none
# A part of more pieces is copied into one: each piece would travel as a frame of its own.
_PIECES = 8
# Threads that compute the digests of a large object; a core takes 0.15 s for 200 MB. For so few parts, none is started.
_HASHERS = 4
_ALONE = 3


class PartSource(NamedTuple):
    """Where a part is: at ``place`` of the file at ``path``, or in memory."""

    path: str
    place: int
    pieces: tuple[memoryview, ...] = ()

    def read(self) -> Payload:
        """Return the bytes of the part, which are not copied if they are in memory. Raises `BagRejected`."""
        if self.pieces:
            size = sum(map(len, self.pieces))
            is_copied = size < LARGE_BYTES or len(self.pieces) > _PIECES
            return payload_of(b"".join(self.pieces)) if is_copied else Chunks(self.pieces)
        try:
            with _opened(self.path) as file:
                file.seek(self.place)
                data = _read_part(file.fileno())
        except OSError as error:
            raise BagRejected(f"{self.path} cannot be read any more: {error.strerror}") from error
        if not data:
            raise BagRejected(f"{self.path}: the file changed while it was sent")
        return payload_of(data)


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A tree by its digest, with all its parts; the last part is the tree itself. ``size``: bytes of its files."""

    digest: bytes
    size: int
    parts: Mapping[bytes, PartSource]


class _UnfinishedTree:
    """A tree that is being made."""

    def __init__(self) -> None:
        self.entries: list[TreeFile] = []
        self.folders: list[str] = []
        self.parts: dict[bytes, PartSource] = {}

    def add_file(self, path: str, name: str) -> None:
        """Read the file at ``path``, which is called ``name`` in the tree."""
        _check_name(name)
        digests, place = bytearray(), 0
        try:
            with _opened(path) as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise BagRejected(f"{path} is neither a file nor a folder")
                if found.st_size > FILE_BYTES:
                    raise BagRejected(f"{path} has {found.st_size:,} bytes; the limit is {FILE_BYTES:,}")
                while data := _read_part(file.fileno()):
                    digest = sha256(data).digest()
                    self.parts.setdefault(digest, PartSource(path, place))
                    digests += digest
                    place += len(data)
                    if len(data) < PART_BYTES:
                        break
        except OSError as error:
            raise BagRejected(f"{path} cannot be read: {error.strerror}") from error
        executable = sys.platform != "win32" and bool(found.st_mode & stat.S_IXUSR)
        self._add(TreeFile(name, place, executable, bytes(digests)))

    def add_pieces(self, pieces: Sequence[memoryview], name: str) -> None:
        """Add a file that is in memory."""
        digests, size = bytearray(), 0
        parts = list(_parts_of(pieces))
        for part, digest in zip(parts, _digests_of(parts), strict=True):
            self.parts.setdefault(digest, PartSource("", 0, part))
            digests += digest
            size += sum(map(len, part))
        self._add(TreeFile(name, size, False, bytes(digests)))

    def _add(self, entry: TreeFile) -> None:
        self.entries.append(entry)
        if len(self.entries) > TREE_FILES:
            raise BagRejected(f"more than {TREE_FILES:,} files for one task")

    def add_folder(self, root: str, name: str) -> None:
        """Add everything in a folder."""
        for path, inner, is_folder in _walked(root):
            if is_folder:
                _check_name(f"{name}/{inner}")
                self.folders.append(f"{name}/{inner}")
            else:
                self.add_file(path, f"{name}/{inner}")
        self.folders.append(name)

    def stored(self) -> StoredTree:
        """Return the tree."""
        tree = Tree(tuple(sorted(self.entries)), tuple(sorted(self.folders)))
        try:
            packed = tree.packed()
        except TreeRefused as error:
            raise BagRejected(str(error)) from error
        digest = sha256(packed).digest()
        self.parts.pop(digest, None)
        return StoredTree(digest, tree.size, {**self.parts, digest: PartSource("", 0, (memoryview(packed),))})


def stored_paths(named: Iterable[tuple[str, str]]) -> StoredTree:
    """Return files and folders as a tree; ``named``: what each is called there, and its path. Raises `BagRejected`."""
    making = _UnfinishedTree()
    for name, path in named:
        if os.path.isdir(path):
            making.add_folder(path, name)
        else:
            making.add_file(path, name)
    return making.stored()


def stored_pieces(pieces: Sequence[memoryview], name: str = VALUE) -> StoredTree:
    """Return a file in memory as a tree. Raises `BagRejected`."""
    making = _UnfinishedTree()
    making.add_pieces(pieces, name)
    return making.stored()


def stored_source(files: Mapping[str, bytes]) -> StoredTree:
    """Return files in memory, by name, as a tree. Raises `BagRejected`."""
    making = _UnfinishedTree()
    for name, data in files.items():
        _check_name(name)
        making.add_pieces([memoryview(data)], name)
    return making.stored()


def stored_shared(shared: "Shared[object]") -> StoredTree:
    """Return a shared object as a tree. Raises `BagRejected`."""
    return stored_pieces(shared.pieces, SHARED)


def name_of_path(path: str) -> str:
    """Return what a file or a folder is called in a task's folder unless somebody names it."""
    return os.path.basename(os.path.abspath(path))


def _check_name(name: str) -> None:
    if why := wrong_with_place(name):
        raise BagRejected(f"{name!r:.200} cannot be the name of a file in a task's folder: {why}")


def _parts_of(pieces: Iterable[memoryview]) -> Iterator[tuple[memoryview, ...]]:
    """Yield the pieces again, cut into parts."""
    part, size = list[memoryview](), 0
    for piece in pieces:
        rest = piece.cast("B") if piece.format != "B" or piece.ndim != 1 else piece
        while len(rest):
            some, rest = rest[: PART_BYTES - size], rest[PART_BYTES - size :]
            part.append(some)
            size += len(some)
            if size == PART_BYTES:
                yield tuple(part)
                part, size = [], 0
    if part:
        yield tuple(part)


def _digests_of(parts: Sequence[tuple[memoryview, ...]]) -> Iterable[bytes]:
    """Return the digests of parts; of many, some at a time."""
    if len(parts) > _ALONE:
        # A program that is ending gets no more threads.
        with suppress(RuntimeError), ThreadPoolExecutor(_HASHERS, "deskgrid-digests") as threads:
            return list(threads.map(_digest_of, parts))
    return map(_digest_of, parts)


def _digest_of(part: Iterable[memoryview]) -> bytes:
    found = sha256()
    for piece in part:
        found.update(piece)
    return found.digest()


def _walked(root: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (path, name below ``root``, whether it is a folder) of everything in a folder."""
    whole, folders = os.path.realpath(root), [""]
    while folders:
        folder = folders.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except OSError as error:
            raise BagRejected(f"{os.path.join(root, folder)} cannot be read: {error.strerror}") from error
        for name in names:
            inner = f"{folder}/{name}" if folder else name
            path = os.path.join(root, inner)
            if os.path.islink(path):
                _check_link(path, whole)
            is_folder = os.path.isdir(path)
            if is_folder:
                folders.append(inner)
                if len(folders) > TREE_FILES:
                    raise BagRejected(f"{root} has more than {TREE_FILES:,} folders")
            yield path, inner, is_folder


def _check_link(path: str, root: str) -> None:
    """Refuse a link that leads out of ``root``, nowhere, or to a folder."""
    target = os.path.realpath(path)
    if not Path(target).is_relative_to(root):
        raise BagRejected(f"{path} is a link that leads out of its folder, to {target}")
    if not os.path.isfile(target):
        raise BagRejected(f"{path} is a link to {target}, which is not a file")


def _opened(path: str) -> IO[bytes]:
    """Open a file without waiting for who writes to it, if it is a named pipe."""
    return open(path, "rb", buffering=0, opener=lambda path, flags: os.open(path, flags | _AT_ONCE))


def _read_part(descriptor: int) -> bytes:
    data = os.read(descriptor, PART_BYTES)
    while len(data) < PART_BYTES and (more := os.read(descriptor, PART_BYTES - len(data))):
        data += more
    return data
