"""A store in memory as a broker has it, and background work without a thread, for what workers do with files."""

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from deskgrid import wire
from deskgrid.worker.files.background import FileWork


class InlineBackground:
    """A `Background` without threads: its work is done when the owner polls, in order."""

    def __init__(self) -> None:
        self._todo: deque[FileWork] = deque()

    def do(self, action: Callable[[], Any], then: Callable[[Any], None], holder: str = "") -> FileWork:
        self._todo.append(FileWork(action, then))
        return self._todo[-1]

    @property
    def busy(self) -> bool:
        return bool(self._todo)

    def close(self) -> None:
        self.poll()

    def poll(self) -> None:
        while self._todo:
            work = self._todo.popleft()
            is_over, found = False, None
            while not is_over:
                is_over, found = work.go_on()
            work.then(found)


def parts_of(data: bytes) -> list[bytes]:
    return [data[start : start + wire.PART_BYTES] for start in range(0, len(data), wire.PART_BYTES)]


def digest(data: bytes) -> bytes:
    return sha256(data).digest()


def entry(name: str, data: bytes, *, executable: bool = False) -> wire.TreeFile:
    return wire.TreeFile(name, len(data), executable, b"".join(map(digest, parts_of(data))))


class Store:
    """What a broker has. ``sent``: the parts that it gave; ``refuses``: holders that it gives nothing.

    ``claimed``: what it was asked about; ``others``: the parts that only other people have sent.
    """

    def __init__(self) -> None:
        self.parts: dict[bytes, bytes] = {}
        self.sent: list[bytes] = []
        self.kept: list[bytes] = []
        self.offers: list[wire.Offer] = []
        self.refuses: set[str] = set()
        self.claimed: list[wire.Claim] = []
        self.others: set[bytes] = set()

    def add(self, files: dict[str, bytes], folders: tuple[str, ...] = ()) -> bytes:
        """Store files; the digest of their tree."""
        tree = wire.Tree(tuple(entry(name, data) for name, data in sorted(files.items())), folders).packed()
        for data in (*files.values(), tree):
            self.parts.update((digest(part), part) for part in parts_of(data))
        return digest(tree)

    def answer(self, message: wire.Message) -> wire.Message:
        """What the broker says."""
        match message:
            case wire.Claim(request, _, claimed):
                self.claimed.append(message)
                lacking = [
                    each for each in wire.split_digests(claimed) if each in self.others or each not in self.parts
                ]
                return wire.Lacks(request, b"".join(lacking))
            case wire.Want(request, holder, wanted):
                if holder in self.refuses or wanted not in self.parts or wanted in self.others:
                    return wire.Failed(request, "it is not here")
                self.sent.append(wanted)
                return wire.Part(request, holder, wanted, wire.payload_of(self.parts[wanted]))
            case wire.Offer(request, holder, offered):
                self.offers.append(message)
                lacking = [each for each in wire.split_digests(offered) if each not in self.parts]
                refused = holder in self.refuses
                return wire.Failed(request, "too much") if refused else wire.Lacks(request, b"".join(lacking))
            case wire.Part(request, _, named, data):
                if digest(bytes(data)) != named:
                    return wire.Failed(request, "it changed")
                self.parts[named] = bytes(data)
                self.kept.append(named)
                return wire.Kept(request)
        raise AssertionError(message)

    def files(self, tree: bytes) -> dict[str, bytes]:
        """The files of a tree that was sent here."""
        entries = wire.read_tree(self.parts[tree]).entries
        return {each.path: b"".join(self.parts[part] for part in wire.split_digests(each.parts)) for each in entries}


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
