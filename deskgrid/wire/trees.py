"""Trees: lists of stored files with their names, as they travel; and payloads that need stored files.

A *file* is stored in *parts* of `PART_BYTES`, each known by its SHA-256. A *tree* is a list of files with their names
and parts. It is a part itself, so its digest names all of its files. Only clients and workers read trees; to the broker
they are parts like any other.

Rule 1: whoever reads a tree from the network or makes one from a folder checks all names: a tree can be unpacked on any
system, and never outside its folder.
Rule 2: a payload that needs trees begins with a mark that no pickle, no UTF-8 text and no account of a failure begins
with. Payloads without it are as they always were.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import msgpack

from deskgrid.wire.limits import (
    DIGEST_BYTES,
    FILE_BYTES,
    LARGE_BYTES,
    NAME_BYTES,
    PART_BYTES,
    PLACE_BYTES,
    TREE_FILES,
    TREE_PLACES,
    TREES_LIMIT,
)
from deskgrid.wire.payload import Chunks, Payload
from deskgrid.wire.source import UNREADABLE, Source, Wrong, source_of

# The name of the only file in the tree of a value that is stored as a whole.
VALUE = "value"
# What a payload with trees begins with: the mark; whether the value is the file `VALUE` of its last tree; and how many
# digests of trees follow. The payload itself comes after these.
MARK = b"\xc1"
_HEAD_BYTES = 4
# Names that Windows keeps for devices, with any ending; and characters that it allows in no name.
_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
_FORBIDDEN = frozenset('<>:"|?*\\') | {chr(code) for code in range(32)}


class TreeRefused(ValueError):
    """These files cannot be a tree; the message says why in one line."""


class TreeFile(NamedTuple):
    """One file. ``path``: with "/" between folders. ``parts``: the SHA-256 of its parts, one after the other."""

    path: str
    size: int
    executable: bool
    parts: bytes

    @property
    def id(self) -> str:
        """What the file's content is known by: files of one id are equal."""
        return f"{sha256(self.parts).hexdigest()}{'x' if self.executable else ''}"


@dataclass(frozen=True, slots=True)
class Tree:
    """``folders``: those that are to exist although they may hold no file."""

    entries: tuple[TreeFile, ...]
    folders: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum([entry.size for entry in self.entries])

    def packed(self) -> bytes:
        """Return the tree as the bytes of a part. Raises `TreeRefused`."""
        check_places([entry.path for entry in self.entries], self.folders)
        columns = [list(column) for column in zip(*self.entries, strict=True)] or [[], [], [], []]
        packed: bytes = msgpack.packb([*columns, self.folders])
        if len(packed) > PART_BYTES:
            raise TreeRefused(
                f"the list of {len(self.entries):,} files has {len(packed):,} bytes; at most {PART_BYTES:,}"
            )
        return packed


def count_of_parts(size: int) -> int:
    """Return how many parts a file of ``size`` bytes has."""
    return -(-size // PART_BYTES)


def split_digests(digests: bytes) -> list[bytes]:
    """Return the digests one by one."""
    return [digests[start : start + DIGEST_BYTES] for start in range(0, len(digests), DIGEST_BYTES)]


def read_tree(data: bytes) -> Tree:
    """Return the tree in ``data``; raises `TreeRefused`."""
    try:
        source = source_of(data)
        if source.array() != 5:
            raise Wrong("it has not five columns")
        columns = [source.many(TREE_FILES) for _ in range(5)]
        source.finish()
    except (Wrong, *UNREADABLE) as error:
        raise TreeRefused(f"not a list of files: {error!s:.80}") from error
    paths, sizes, flags, parts, folders = columns
    wanted = ((paths, str), (sizes, int), (flags, bool), (parts, bytes), (folders, str))
    if any(not {*map(type, column)} <= {kind} for column, kind in wanted):
        raise TreeRefused("not a list of files: a value has another type")
    if not len(paths) == len(sizes) == len(flags) == len(parts):
        raise TreeRefused("not a list of files: its columns differ in length")
    check_places(paths, folders)
    entries = tuple(map(TreeFile._make, zip(paths, sizes, flags, parts, strict=True)))
    for entry in entries:
        if not 0 <= entry.size <= FILE_BYTES or len(entry.parts) != DIGEST_BYTES * count_of_parts(entry.size):
            raise TreeRefused(f"the file {entry.path!r:.80} has the wrong number of parts for its size")
    return Tree(entries, tuple(folders))


# --- names -----------------------------------------------------------------------------------------------------------


def check_places(files: Sequence[str], folders: Iterable[str] = ()) -> None:
    """Raise `TreeRefused` unless these names can all be in one folder, on any system."""
    if len(files) > TREE_FILES:
        raise TreeRefused(f"{len(files):,} files; at most {TREE_FILES:,} can travel with a task")
    known: dict[str, tuple[str, bool]] = {}
    for path in files:
        _check_place(path)
        _note_folders(known, path.rpartition("/")[0])
        if _key(path) in known:
            raise TreeRefused(_same(known[_key(path)][0], path))
        known[_key(path)] = path, True
    for path in folders:
        _check_place(path)
        _note_folders(known, path)


def _note_folders(known: dict[str, tuple[str, bool]], folder: str) -> None:
    """Note a folder and those around it, up to one that is known already, whose own are known, too."""
    while folder and (other := known.get(_key(folder))) != (folder, False):
        if other is not None:
            raise TreeRefused(_same(other[0], folder))
        if len(known) >= TREE_PLACES:
            raise TreeRefused(f"more than {TREE_PLACES:,} files and folders; more cannot travel with a task")
        known[_key(folder)] = folder, False
        folder = folder.rpartition("/")[0]


def _same(one: str, other: str) -> str:
    if one == other:
        return f"two of the files are named {one!r:.200}: give one of them another name"
    return f"{one!r:.200} and {other!r:.200} are the same name where case does not count"


def _key(path: str) -> str:
    return path if path.isascii() and path.islower() else unicodedata.normalize("NFC", path).casefold()


def _check_place(path: str) -> None:
    if why := wrong_with_place(path):
        raise TreeRefused(f"{path!r:.200} cannot be the name of a file in a task's folder: {why}")


def wrong_with_place(path: str) -> str:
    """Return why ``path`` is no name for a file in a folder on any system; "" if it is one."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if size > PLACE_BYTES:
        return f"it has more than {PLACE_BYTES:,} bytes"
    return next(filter(None, map(_wrong_with_name, path.split("/"))), "")


def _wrong_with_name(name: str) -> str:
    if name in ("", ".", ".."):
        return "it is not a path below the folder"
    if len(name.encode()) > NAME_BYTES:
        return f"a part of it has more than {NAME_BYTES} bytes"
    if not _FORBIDDEN.isdisjoint(name) or name[-1] in ". " or name.partition(".")[0].rstrip().upper() in _DEVICES:
        return "Windows cannot have it"
    return ""


# --- payloads that need trees ----------------------------------------------------------------------------------------


class Wrapped(NamedTuple):
    """A payload and the digests of the trees that it needs. ``whole``: the value is the file `VALUE` of the last."""

    trees: tuple[bytes, ...]
    whole: bool
    payload: Payload


def wrap(trees: Sequence[bytes], payload: Payload, *, whole: bool = False) -> Payload:
    """Return ``payload`` with the digests of the trees that it needs."""
    if not trees:
        return payload
    if len(trees) > TREES_LIMIT:
        raise TreeRefused(f"{len(trees):,} files and shared objects in one value; at most {TREES_LIMIT:,}")
    head = MARK + bytes([whole]) + len(trees).to_bytes(2, "big") + b"".join(trees)
    if isinstance(payload, bytes):
        whole_payload = head + payload
        return whole_payload if len(whole_payload) < LARGE_BYTES else Chunks([memoryview(whole_payload)])
    return Chunks([memoryview(head), *payload.frames()])


def unwrap(payload: Payload) -> Wrapped:
    """Return the trees that ``payload`` needs, and the payload inside. Raises `TreeRefused`."""
    pieces: list[Any] = [memoryview(payload)] if isinstance(payload, bytes) else payload.frames()
    head = _beginning(pieces, _HEAD_BYTES)
    if head[:1] != MARK:
        return Wrapped((), False, payload)
    count = int.from_bytes(head[2:], "big")
    size = _HEAD_BYTES + count * DIGEST_BYTES
    found = _beginning(pieces, size)
    if len(found) < size or head[1] > 1 or not 0 < count <= TREES_LIMIT:
        raise TreeRefused("a payload whose list of trees makes no sense")
    return Wrapped(tuple(split_digests(found[_HEAD_BYTES:])), bool(head[1]), _after(payload, pieces, size))


def trees_in(payload: Payload) -> bytes:
    """Return the digests of the trees that ``payload`` names, one after the other; none if `unwrap` refuses it."""
    pieces: list[Any] = [payload] if isinstance(payload, bytes) else payload.frames()
    if pieces[0][:1] != MARK:
        return b""
    head = _beginning(pieces, _HEAD_BYTES)
    size = _HEAD_BYTES + int.from_bytes(head[2:], "big") * DIGEST_BYTES
    return _beginning(pieces, size)[_HEAD_BYTES:]


def _beginning(pieces: Iterable[memoryview], size: int) -> bytes:
    found = b""
    for piece in pieces:
        found += piece[: size - len(found)]
        if len(found) == size:
            break
    return found


def _after(payload: Payload, pieces: Sequence[memoryview], size: int) -> Payload:
    if isinstance(payload, bytes):
        return payload[size:]
    rest = []
    for piece in pieces:
        rest.append(piece[size:])
        size = max(0, size - len(piece))
    left = Chunks([piece for piece in rest if len(piece)])
    return left if len(left) >= LARGE_BYTES else bytes(left)


def read_digests(source: Source) -> bytes:
    """Read the digests of trees in a template."""
    value = source.value()
    if type(value) is not bytes or len(value) % DIGEST_BYTES or len(value) > TREES_LIMIT * DIGEST_BYTES:
        raise Wrong("not the digests of trees")
    return value
