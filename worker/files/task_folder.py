"""The folders of tasks: stored files are put into them, and the files that tasks leave are taken out again.

For an attempt X there are, below one folder: ``in/X/work``, where a command runs; ``in/X/needs``, with a folder for
each tree that a Python function needs; ``left/X/out``, the files that a function returned; and ``left/X/whole``, a
result that is too large for a message. The worker makes what is in ``in``, processes of tasks make what is in ``left``.
What is being made is in ``new``, and what is being removed in ``gone``; tasks reach neither.

Rule 1: nothing outside these folders is ever read or removed, whatever a task left there: names are followed folder by
folder, and links are not (`deskgrid.worker.run.beneath`). A link to a file inside the folder counts as that file,
whether it is relative or absolute. Those that a function left, its process has followed: see `TaskFiles.leave`.
Rule 2: what a task needs is made where no task can reach it, given to the task's user, and then moved into its place.
Rule 3: what a task left is read once, and named by what was read. If it changes afterwards, the broker refuses it.
Rule 4: names, sizes and their sums are looked at before a byte is read; what was never written to a file is not read.
Each of these functions that takes long is a generator, which yields between its steps.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from deskgrid import wire
from deskgrid.wire import DIGEST_BYTES, FILE_BYTES, PART_BYTES, PLACE_BYTES, Tree, TreeFile, TreeRefused, check_places
from deskgrid.worker.files.cache import FileCache, digest_of_zeros, link
from deskgrid.worker.run import beneath
from deskgrid.worker.run.accounts import UserAccount

Item = TypeVar("Item")
IN, LEFT, NEW, GONE = "in", "left", "new", "gone"
WORK, NEEDS, OUT, WHOLE = "work", "needs", "out", "whole"
# Names in a task's folder that are looked through for outputs: a task with more has forgotten to tidy up.
NAMES_LIMIT = 200_000
# Links that lead to links, until a file comes: as many as Linux follows.
LINKS_LIMIT = 40
# Names that an error lists.
LISTED = 10
# Files that are given to a task, or looked at, in one step.
STEP_FILES = 100


class OutputsRefused(Exception):
    """The files that a task left cannot be its result; one line that says why."""


class Names(NamedTuple):
    """What is in a folder: the paths of everything but folders, and those of the folders that are empty."""

    files: list[str]
    folders: list[str]


class PartOrigin:
    """Where the bytes of a part are: in a file below a task's folder, or here."""

    __slots__ = ("_data", "_open", "_place")

    def __init__(self, open_file: "Callable[[], int] | None", place: int = 0, data: bytes = b"") -> None:
        self._open = open_file
        self._place = place
        self._data = data

    def read(self) -> bytes:
        """Return the bytes. Raises OSError."""
        if self._open is None:
            return self._data
        descriptor = self._open()
        try:
            return _read_part(descriptor, self._place)
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class Collected:
    """The trees of a task's files, by digest, and where the bytes of each part are; the parts of trees come last."""

    trees: list[bytes] = field(default_factory=list)
    parts: dict[bytes, PartOrigin] = field(default_factory=dict)
    size: int = 0


def prepare(area: Path, account: UserAccount | None) -> None:
    """Make the folders for the folders of tasks. Raises OSError."""
    for name in (IN, LEFT, NEW, GONE):
        (area / name).mkdir(mode=0o700, exist_ok=True)
    if account is not None:
        account.let_pass(area)
        account.let_pass(area / IN)
        account.own(area / LEFT)


class Gone(Exception):
    """A tree is not in the cache any more."""


def trees_in(cache: FileCache, digests: Sequence[bytes]) -> Iterator[tuple[bytes, Tree]]:
    """Read trees one by one. Raises `Gone` if one is not in the cache any more."""
    for digest in dict.fromkeys(digests):
        data = cache.tree(digest)
        if data is None:
            raise Gone
        yield digest, wire.read_tree(data)


def unpack(
    area: Path,
    holder: str,
    trees: Iterable[tuple[bytes, Tree]],
    cache: FileCache,
    account: UserAccount | None,
    *,
    command: bool,
) -> Generator[None, None, bool]:
    """Make an attempt's folder with these trees; False if a file is not in the cache any more. Raises OSError.

    ``trees``: each with its digest, one after the other, so that all of them need not be in memory.
    """
    yield from remove(area, holder)
    made = area / NEW / holder
    (made / WORK if command else made).mkdir(parents=True)
    for digest, tree in trees:
        place = WORK if command else f"{NEEDS}/{digest.hex()}"
        if not (yield from _fill(made / place, tree, cache)):
            return False
    if command and account is not None:
        folders = [Path(folder).relative_to(made).as_posix() for folder, _, _ in os.walk(made / WORK)]
        beneath.hand_over(made, folders, account.uid, account.gid)
    made.rename(area / IN / holder)
    return True


def _fill(root: Path, tree: Tree, cache: FileCache) -> Generator[None, None, bool]:
    """Make the folders and files of a tree; return False if one is not in the cache any more."""
    for path in {
        root,
        *(root / name for name in tree.folders),
        *((root / entry.path).parent for entry in tree.entries),
    }:
        path.mkdir(parents=True, exist_ok=True)
    for number, entry in enumerate(tree.entries):
        source = cache.find(entry)
        if source is None:
            return False
        try:
            link(source, root / entry.path, executable=entry.executable)
        except FileNotFoundError:
            return False
        if number % STEP_FILES == STEP_FILES - 1:
            yield
    return True


def lay_out(digest: bytes, folder: Path, cache: FileCache) -> Generator[None, None, bool]:
    """Make a folder with the files of a tree, whole or not at all; False if one is not in the cache. Raises OSError."""
    ((_, tree),) = trees_in(cache, [digest])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as staging:
        made = Path(staging) / "all"
        if not (yield from _fill(made, tree, cache)):
            return False
        if not folder.is_dir():
            made.rename(folder)
    return True


def remove(area: Path, holder: str) -> Iterator[None]:
    """Remove the folders of an attempt, as far as that is possible. They are out of the tasks' reach at once."""
    gone = [beneath.move_away(area, place, holder, area / GONE) for place in (IN, LEFT, NEW)]
    yield from beneath.removal(area / GONE, [name for name in gone if name is not None])


# --- what a task left ------------------------------------------------------------------------------------------------


def collect(
    area: Path, holder: str, patterns: Sequence[str] | None, uid: int | None = None
) -> Generator[None, None, Collected]:
    """Return the files that an attempt left: those of a command by ``patterns``; None: those that a function returned.

    ``uid``: of the user that it ran as; None: our own. Raises `OutputsRefused`, and OSError.
    """
    found = Collected()
    if patterns is not None:
        root = f"{IN}/{holder}/{WORK}"
        names = yield from _names_in(area, root)
        yield from _add(found, _Room(area, root, uid), (yield from _matching(names, patterns)))
        return found
    for name in (OUT, WHOLE):
        root = f"{LEFT}/{holder}/{name}"
        try:
            names = yield from _names_in(area, root)
        except FileNotFoundError:
            continue
        yield from _add(found, _Room(area, root, uid), names)
    return found


@dataclass(frozen=True, slots=True)
class _Room:
    """A folder ``root`` below ``area`` with files that the user ``uid`` left."""

    area: Path
    root: str
    uid: int | None

    def open(self, path: str) -> int:
        """Open a file here. Raises `OutputsRefused`, and OSError."""
        try:
            return beneath.open_file(self.area, f"{self.root}/{path}", () if self.uid is None else (self.uid,))
        except beneath.NotAFile as error:
            raise OutputsRefused(f"{path!r:.200} is not a file of the task") from error

    def real(self, path: str) -> str:
        """Return the path of the file here that ``path`` is, or links to."""
        try:
            return self._followed(path)
        except (OSError, ValueError, IndexError) as error:
            raise OutputsRefused(f"{path!r:.200} is a link to something that is not in the task's folder") from error

    def _followed(self, path: str) -> str:
        """Follow links within this folder, name by name. Raises ValueError, IndexError, and OSError."""
        names, found, links = path.split("/")[::-1], list[str](), 0
        while names:
            name = names.pop()
            if name in ("", "."):
                continue
            if name == "..":
                found.pop()  # above the folder is nothing: an IndexError
                continue
            target = beneath.link_at(self.area, "/".join([self.root, *found, name])) if links or not names else None
            if target is None:
                found.append(name)
                continue
            links += 1
            if links > LINKS_LIMIT:
                raise ValueError("too many links")
            if os.path.isabs(target):
                target, found = Path(target).relative_to(self.area / self.root).as_posix(), []
            names += target.split("/")[::-1]
        return "/".join(found)


def _add(found: Collected, room: _Room, names: Names) -> Generator[None, None, None]:
    """Add a tree of these files and folders."""
    try:
        check_places(names.files, names.folders)
        real = yield from _measured(room, sorted(names.files))
        entries = []
        for path, place in real.items():
            entries.append((yield from _read(found, room, path, place)))
        packed = Tree(tuple(entries), tuple(sorted(names.folders))).packed()
    except TreeRefused as error:
        raise OutputsRefused(str(error)) from error
    digest = sha256(packed).digest()
    found.trees.append(digest)
    found.parts.pop(digest, None)
    found.parts[digest] = PartOrigin(None, data=packed)
    found.size += len(packed)


def _measured(room: _Room, paths: Sequence[str]) -> Generator[None, None, dict[str, str]]:
    """Return where each of these files is, if their sizes are those of a result. No byte of them is read before."""
    real, listed, total = dict[str, str](), 0, 0
    for number, path in enumerate(paths):
        real[path] = room.real(path)
        descriptor = room.open(real[path])
        size = os.fstat(descriptor).st_size
        os.close(descriptor)
        _check_size(path, size)
        total += size
        listed += len(path.encode()) + DIGEST_BYTES * wire.count_of_parts(size)
        if listed > PART_BYTES:
            raise OutputsRefused(
                f"the {len(paths):,} files have more than {total:,} bytes: the list of their parts has more than "
                f"{PART_BYTES:,}"
            )
        if number % STEP_FILES == STEP_FILES - 1:
            yield
    return real


def _check_size(path: str, size: int) -> None:
    if size > FILE_BYTES:
        raise OutputsRefused(f"{path!r:.200} has more than {FILE_BYTES:,} bytes")


def _read(found: Collected, room: _Room, path: str, real: str) -> Generator[None, None, TreeFile]:
    """Read a file, and note its parts."""

    def again() -> int:
        return room.open(real)

    descriptor, digests, size = again(), bytearray(), 0
    try:
        about = os.fstat(descriptor)
        while True:
            digest, count = _digest_at(descriptor, size, about.st_size)
            if count:
                found.parts.setdefault(digest, PartOrigin(again, size))
                digests += digest
                size += count
                _check_size(path, size)
            if count < PART_BYTES:
                break
            yield
    finally:
        os.close(descriptor)
    found.size += size
    return TreeFile(path, size, bool(about.st_mode & stat.S_IXUSR) and sys.platform != "win32", bytes(digests))


def _digest_at(descriptor: int, place: int, end: int) -> tuple[bytes, int]:
    """Return the digest and the bytes of the part at a place of a file; ``end``: of the file."""
    count = min(PART_BYTES, end - place)
    if count > 0 and beneath.is_hole(descriptor, place, count):
        return digest_of_zeros(count), count
    data = _read_part(descriptor, place)
    return sha256(data).digest(), len(data)


def _read_part(descriptor: int, place: int) -> bytes:
    os.lseek(descriptor, place, os.SEEK_SET)
    data = os.read(descriptor, PART_BYTES)
    while len(data) < PART_BYTES and (more := os.read(descriptor, PART_BYTES - len(data))):
        data += more
    return data


def _names_in(area: Path, root: str) -> Generator[None, None, Names]:
    """Return what is below ``area / root``.

    A folder whose path no file of a result can have counts as a file: nobody looks into it.
    """
    found, folders, seen = Names([], []), [""], 0
    while folders:
        folder, before = folders.pop(), seen
        with closing(beneath.names_in(area, f"{root}/{folder}".rstrip("/"))) as names:
            for name, is_folder in names:
                path = f"{folder}/{name}" if folder else name
                (folders if is_folder and len(os.fsencode(path)) <= PLACE_BYTES else found.files).append(path)
                seen += 1
                if seen > NAMES_LIMIT:
                    raise OutputsRefused(f"the task left more than {NAMES_LIMIT:,} files and folders")
                if seen % beneath.STEP_NAMES == 0:
                    yield
        if folder and seen == before:
            found.folders.append(folder)
    return found


def _matching(names: Names, patterns: Sequence[str]) -> Generator[None, None, Names]:
    """Return what matches at least one pattern; each pattern has to match something."""
    chosen = dict[str, None](), dict[str, None]()
    for pattern in patterns:
        wanted, count = [part for part in pattern.split("/") if part not in ("", ".")], 0
        for paths, its in zip(names, chosen, strict=True):
            for some in batched(paths):
                found = [path for path in some if matches(path.split("/"), wanted)]
                its.update(dict.fromkeys(found))
                count += len(found)
                yield
        if not count:
            raise OutputsRefused(f"no file matches {pattern!r:.200}; the folder has: {_listed(names)}")
    return Names(*map(list, chosen))


def matches(path: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path, or a folder that it is in, matches a pattern; ``**`` stands for any number of folders."""
    # How many names of the path the pattern may have used up so far.
    used = {0}
    for pattern in wanted:
        if pattern == "**":
            used = set(range(min(used), len(path) + 1))
        else:
            used = {count + 1 for count in used if count < len(path) and fnmatchcase(path[count], pattern)}
        if not used:
            return False
    return True


def batched(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield as many of these as one step takes."""
    return (items[start : start + beneath.STEP_NAMES] for start in range(0, len(items), beneath.STEP_NAMES))


def _listed(names: Names) -> str:
    paths = [*names.files, *(f"{folder}/" for folder in names.folders)]
    if not paths:
        return "nothing"
    more = f" and {len(paths) - LISTED:,} more" if len(paths) > LISTED else ""
    return ", ".join(sorted(paths)[:LISTED]) + more
