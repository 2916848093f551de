"""The folders of tasks: stored files are put into them, and the files that tasks leave are taken out again.

For an attempt X there are, below one folder: ``in/X/work``, where a command runs; ``in/X/needs``, with a folder for
each tree that a Python function needs; ``left/X/out``, the files that a function returned; and ``left/X/whole``, a
result that is too large for a message. The worker makes what is in ``in``, processes of tasks make what is in ``left``.

Rule 1: nothing outside these folders is ever read or removed, whatever a task left there: names are followed folder by
folder, and links are not. A link to a file inside the folder counts as that file.
Rule 2: what a task left is read once, and named by what was read. If it changes afterwards, the broker refuses it.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from deskgrid import wire
from deskgrid.wire import FILE_BYTES, PART_BYTES, Entry, Tree, TreeRefused, check_places
from deskgrid.worker.files.cache import FileCache, link
from deskgrid.worker.run.accounts import Account

IN, LEFT = "in", "left"
WORK, NEEDS, OUT, WHOLE = "work", "needs", "out", "whole"
# Names in a task's folder that are looked through for outputs: a task with more has forgotten to tidy up.
NAMES_LIMIT = 200_000
# Names that an error lists.
LISTED = 10


class OutputsRefused(Exception):
    """The files that a task left cannot be its result; one line that says why."""


class Source:
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
            os.lseek(descriptor, self._place, os.SEEK_SET)
            return _read_part(descriptor)
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class Collected:
    """The trees of a task's files, by digest, and where the bytes of each part are; the parts of trees come last."""

    trees: list[bytes] = field(default_factory=list)
    parts: dict[bytes, Source] = field(default_factory=dict)
    size: int = 0


def prepare(area: Path, account: Account | None) -> None:
    """Make the folders for the folders of tasks. Raises OSError."""
    for name in (IN, LEFT):
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
    account: Account | None,
    *,
    command: bool,
) -> bool:
    """Make an attempt's folder with these trees; False if a file is not in the cache any more. Raises OSError.

    ``trees``: each with its digest, one after the other, so that all of them need not be in memory.
    """
    folder = area / IN / holder
    remove(area, holder)
    if command:
        (folder / WORK).mkdir(parents=True)
    for digest, tree in trees:
        root = folder / WORK if command else folder / NEEDS / digest.hex()
        made = {root, *(root / name for name in tree.folders), *((root / entry.path).parent for entry in tree.entries)}
        for path in made:
            path.mkdir(parents=True, exist_ok=True)
        for entry in tree.entries:
            source = cache.find(entry)
            if source is None:
                return False
            try:
                link(source, root / entry.path, executable=entry.executable)
            except FileNotFoundError:
                return False
    if command and account is not None:
        for place, _, _ in os.walk(folder / WORK):
            account.own(Path(place))
    return True


def lay_out(digest: bytes, folder: Path, cache: FileCache) -> bool:
    """Make a folder with the files of a tree, whole or not at all; False if one is not in the cache. Raises OSError."""
    ((_, tree),) = trees_in(cache, [digest])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as staging:
        made = Path(staging) / "all"
        made.mkdir()
        for entry in tree.entries:
            source, path = cache.find(entry), made / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if source is None:
                return False
            try:
                link(source, path, executable=entry.executable)
            except FileNotFoundError:
                return False
        if not folder.is_dir():
            made.rename(folder)
    return True


def remove(area: Path, holder: str) -> None:
    """Remove the folders of an attempt, as far as that is possible."""
    for folder in (area / IN / holder, area / LEFT / holder):
        shutil.rmtree(folder, ignore_errors=True)
        if folder.is_dir() and not folder.is_symlink():
            _unlock(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _unlock(folder: Path) -> None:
    """Let the owner remove what is in a folder: a task may have locked some. (An administrator need not.)"""
    if sys.platform == "win32" or os.geteuid() != 0:
        with suppress(OSError):
            folder.chmod(0o700)
        for root, folders, _ in os.walk(folder):
            for path in (Path(root, name) for name in folders):
                with suppress(OSError):
                    if not path.is_symlink():  # it would change a folder of others
                        path.chmod(0o700)


# --- what a task left ------------------------------------------------------------------------------------------------


def collect(area: Path, holder: str, patterns: Sequence[str] | None) -> Collected:
    """Return the files that an attempt left: those of a command by ``patterns``; None: those that a function returned.

    Raises `OutputsRefused`, and OSError.
    """
    found = Collected()
    if patterns is not None:
        root = f"{IN}/{holder}/{WORK}"
        _add(found, area, root, _matching(_files_in(area, root), patterns))
        return found
    for room in (OUT, WHOLE):
        root = f"{LEFT}/{holder}/{room}"
        with suppress(FileNotFoundError):
            paths = _files_in(area, root)
            _add(found, area, root, paths)
    return found


def _add(found: Collected, area: Path, root: str, paths: Sequence[str]) -> None:
    """Add a tree of these files."""
    try:
        check_places(paths)  # at once: reading takes long
        packed = Tree(tuple([_read(found, area, root, path) for path in sorted(paths)])).packed()
    except TreeRefused as error:
        raise OutputsRefused(str(error)) from error
    digest = sha256(packed).digest()
    found.trees.append(digest)
    found.parts.pop(digest, None)
    found.parts[digest] = Source(None, data=packed)
    found.size += len(packed)


def _read(found: Collected, area: Path, root: str, path: str) -> Entry:
    """Read a file, and note its parts."""
    real = _real(area / root, path)

    def again() -> int:
        return open_file(area, f"{root}/{real}")

    descriptor, digests, size = again(), bytearray(), 0
    try:
        mode = os.fstat(descriptor).st_mode
        while data := _read_part(descriptor):
            digest = sha256(data).digest()
            found.parts.setdefault(digest, Source(again, size))
            digests += digest
            size += len(data)
            if size > FILE_BYTES:
                raise OutputsRefused(f"{path!r:.200} has more than {FILE_BYTES:,} bytes")
            if len(data) < PART_BYTES:
                break
    finally:
        os.close(descriptor)
    found.size += size
    return Entry(path, size, bool(mode & stat.S_IXUSR) and sys.platform != "win32", bytes(digests))


def _read_part(descriptor: int) -> bytes:
    data = os.read(descriptor, PART_BYTES)
    while len(data) < PART_BYTES and (more := os.read(descriptor, PART_BYTES - len(data))):
        data += more
    return data


def _real(root: Path, path: str) -> str:
    """Return the path of a file below ``root`` that ``path`` is, or links to."""
    if not (root / path).is_symlink():
        return path
    try:
        real = (root / path).resolve(strict=True).relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise OutputsRefused(f"{path!r:.200} is a link to something that is not in the task's folder") from error
    return real.as_posix()


def open_file(area: Path, path: str) -> int:
    """Open a file below ``area`` without following any link. Raises `OutputsRefused`, and OSError."""
    descriptor = _open(area, path, 0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OutputsRefused(f"{path.split('/', 3)[-1]!r:.200} is not a file")
    return descriptor


def _open(area: Path, path: str, more: int) -> int:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if sys.platform == "win32":
        return os.open(area / path, flags)
    else:
        *parents, name = path.split("/")
        at = os.open(area, flags | os.O_DIRECTORY)
        for parent in parents:
            at = _step(at, parent, flags | os.O_DIRECTORY)
        return _step(at, name, flags | more)


def _step(at: int, name: str, flags: int) -> int:
    """Open a name in an open folder, which is closed."""
    try:
        return os.open(name, flags, dir_fd=at)
    finally:
        os.close(at)


def _files_in(area: Path, root: str) -> list[str]:
    """Return the paths of everything below ``area / root`` but folders."""
    found, folders, seen = list[str](), [""], 0
    while folders:
        folder = folders.pop()
        for name, is_folder in _names_in(area, f"{root}/{folder}".rstrip("/")):
            (folders if is_folder else found).append(f"{folder}/{name}" if folder else name)
            seen += 1
            if seen > NAMES_LIMIT:
                raise OutputsRefused(f"the task left more than {NAMES_LIMIT:,} files and folders")
    return found


def _names_in(area: Path, folder: str) -> list[tuple[str, bool]]:
    """Return the names in a folder, and which of them are folders."""
    if sys.platform == "win32":
        with os.scandir(area / folder) as names:
            return [(each.name, each.is_dir(follow_symlinks=False)) for each in names]
    else:
        descriptor = _open(area, folder, os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as names:
                return [(each.name, each.is_dir(follow_symlinks=False)) for each in names]
        finally:
            os.close(descriptor)


def _matching(paths: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the files that match at least one pattern; each pattern has to match one."""
    chosen = dict[str, None]()
    for pattern in patterns:
        wanted = [part for part in pattern.split("/") if part not in ("", ".")]
        found = [path for path in paths if matches(path.split("/"), wanted)]
        if not found:
            raise OutputsRefused(f"no file matches {pattern!r:.200}; the folder has: {_listed(paths)}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)


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


def _listed(paths: Sequence[str]) -> str:
    if not paths:
        return "nothing"
    more = f" and {len(paths) - LISTED:,} more" if len(paths) > LISTED else ""
    return ", ".join(sorted(paths)[:LISTED]) + more
