"""Stored files come from the broker: results that are too large for a message, and files that tasks left.

Rule 1: each part is compared with its digest, and asked for only if it is not on the disk yet. So a fetch that was
interrupted goes on where it stopped.
Rule 2: a file appears under its name when all of it is there, and never takes the place of another file.
"""

import atexit
import os
import threading
from collections import deque
from hashlib import sha256
from pathlib import Path

from deskgrid import wire
from deskgrid.client.link import Link
from deskgrid.client.replies import Waiter
from deskgrid.errors import RequestFailed

# Parts that are on their way at a time.
WINDOW = 4
_PART = ".deskgrid-part"


class ResultFiles:
    """The files of one bag's results."""

    def __init__(self, link: Link, bag: str) -> None:
        self._link = link
        self._bag = bag

    def value(self, tree: bytes) -> Path:
        """Fetch a result that is a file; the caller removes it. Raises `RequestFailed`."""
        folder = _OUR_FOLDER.new()
        self.fetch(tree, folder)
        return folder / wire.VALUE

    def named(self, tree: bytes, name: str) -> str:
        """Fetch one file or folder of a result for this program; return its path. Raises `RequestFailed`."""
        folder = _OUR_FOLDER.path() / f"{self._bag}-{tree.hex()[:16]}"
        folder.mkdir(exist_ok=True)
        self.fetch(tree, folder, name)
        return str(folder / name)

    def tree(self, digest: bytes) -> wire.Tree:
        """Fetch a list of files. Raises `RequestFailed`."""
        try:
            return wire.read_tree(bytes(_checked(self._ask(digest), digest)))
        except wire.TreeRefused as error:
            raise RequestFailed(f"the broker's list of files cannot be read: {error}") from error

    def fetch(self, tree: bytes, folder: Path, name: str = "") -> list[Path]:
        """Fetch the files of a tree, or only those called ``name`` or in the folder of that name, into ``folder``.

        Files that are there already and are equal stay. Returns the paths. Raises `RequestFailed`.
        """
        files = self.tree(tree)
        try:
            chosen = [each for each in files.entries if not name or f"{each.path}/".startswith(f"{name}/")]
            for inner in files.folders:
                if not name or f"{inner}/".startswith(f"{name}/"):
                    (folder / inner).mkdir(parents=True, exist_ok=True)
            return [self._file(entry, folder / entry.path) for entry in chosen]
        except OSError as error:
            raise RequestFailed(f"a file cannot be kept: {error}") from error

    def _file(self, entry: wire.TreeFile, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        digests = wire.split_digests(entry.parts)
        if os.path.lexists(path):
            if path.is_file() and path.stat().st_size == entry.size and not _missing(path, digests):
                return path
            raise RequestFailed(f"{path} is there already, and is another file: move it, or choose another folder")
        part = path.with_name(f"{path.name}{_PART}")
        with open(part, "r+b" if part.is_file() else "x+b") as file:
            file.truncate(entry.size)
            self._fill(file.fileno(), digests, _missing(part, digests))
        if entry.executable:
            part.chmod(part.stat().st_mode | 0o111)
        part.rename(path)
        return path

    def _fill(self, descriptor: int, digests: list[bytes], missing: list[int]) -> None:
        waiting, flying = deque(missing), deque[tuple[int, Waiter]]()
        while waiting or flying:
            while waiting and len(flying) < WINDOW:
                flying.append((waiting[0], self._ask(digests[waiting.popleft()])))
            number, waiter = flying.popleft()
            data = _checked(waiter, digests[number])
            os.lseek(descriptor, number * wire.PART_BYTES, os.SEEK_SET)
            for piece in [memoryview(data)] if isinstance(data, bytes) else data.frames():
                left = piece
                while left:
                    left = left[os.write(descriptor, left) :]

    def _ask(self, digest: bytes) -> Waiter:
        waiter = Waiter()
        self._link.send(wire.Want(self._link.number(), self._bag, digest), waiter)
        return waiter


def _checked(waiter: Waiter, digest: bytes) -> wire.Payload:
    reply = waiter.get()
    if not isinstance(reply, wire.Part):
        raise RequestFailed(getattr(reply, "reason", "the broker's answer is not a part of a file"))
    if bytes.fromhex(wire.sha256_of(reply.data)) != digest:
        raise RequestFailed("a part of a file was damaged on its way, or on the disk of the broker")
    return reply.data


def _missing(path: Path, digests: list[bytes]) -> list[int]:
    """Return the numbers of the parts that a file does not have."""
    missing = []
    with path.open("rb") as file:
        for number, digest in enumerate(digests):
            if sha256(file.read(wire.PART_BYTES)).digest() != digest:
                missing.append(number)
    return missing


class _OurFolder:
    """This program's folder for files of results, which is removed when the program ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._path: Path | None = None

    def path(self) -> Path:
        """Return the folder, which is made at its first use."""
        with self._lock:
            if self._path is None or not self._path.is_dir():
                import tempfile  # here, because most programs fetch no files, and start sooner without it

                self._path = Path(tempfile.mkdtemp(prefix="deskgrid-results-"))
                atexit.register(_remove, self._path, os.getpid())
            return self._path

    def new(self) -> Path:
        """Return a new folder in it."""
        from tempfile import mkdtemp

        return Path(mkdtemp(dir=self.path()))


def _remove(path: Path, pid: int) -> None:
    """Remove the folder of this program, and not that of the program from which this one was forked."""
    import shutil

    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)


_OUR_FOLDER = _OurFolder()
