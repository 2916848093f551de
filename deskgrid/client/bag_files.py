"""The files of a bag on their way to the broker: noted while values are pickled, sent before the tasks that need them.

Rule 1: parts are offered first, and only those that the broker lacks are sent, few at a time. After a cut they are
offered again, so at most what was on its way travels twice: one part over a network.
Rule 2: nothing here costs anything for values without files.
"""

import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from deskgrid import wire
from deskgrid.client.conversation import Reply, TransferCut
from deskgrid.client.given import check_list
from deskgrid.client.link import Link
from deskgrid.client.lock import check_free
from deskgrid.client.payload import pack_call
from deskgrid.client.replies import Waiter
from deskgrid.client.script_classes import ScriptClasses
from deskgrid.client.sources import PartSource, StoredTree, name_of_path, stored_paths, stored_pieces, stored_shared
from deskgrid.client.template import checked_texts
from deskgrid.errors import BagRejected
from deskgrid.files import Shared, collect

# Bytes that are on their way: one part, so that a cut repeats no more. The next is read meanwhile. And how many parts,
# if they are small.
WINDOW_BYTES = wire.PART_BYTES
WINDOW = 32
# To a broker on this machine, whose connection nobody cuts: enough that it always has a part to write.
LOCAL_WINDOW_BYTES = 4 * wire.PART_BYTES
# Files that are remembered, so that a file that many items name is read once.
_REMEMBERED = 10_000


class KnownFiles:
    """What a program has sent, or is about to: files by path while they do not change, and shared objects."""

    def __init__(self) -> None:
        self._by_path: dict[str, tuple[object, StoredTree]] = {}
        # As long as somebody has the handle, and not longer: the object may be large.
        self._shared: WeakKeyDictionary[Shared[Any], StoredTree] = WeakKeyDictionary()

    def at(self, path: str) -> StoredTree:
        """Return the file or folder at a path. Raises `BagRejected`."""
        path = os.path.abspath(path)
        try:
            found = os.stat(path)
        except OSError as error:
            raise BagRejected(f"{path} cannot be read: {error.strerror}") from error
        now = None if os.path.isdir(path) else (found.st_mtime_ns, found.st_size, found.st_ino)
        before, stored = self._by_path.get(path, (None, None))
        if stored is None or now is None or before != now:
            stored = stored_paths([(name_of_path(path), path)])
            if len(self._by_path) < _REMEMBERED:
                self._by_path[path] = now, stored
        return stored

    def shared(self, shared: "Shared[Any]") -> StoredTree:
        """Return a shared object. Raises `BagRejected`."""
        stored = self._shared.get(shared)
        if stored is None:
            stored = self._shared[shared] = stored_shared(shared)
        return stored


class Noted:
    """The files that values refer to, noted while these are pickled. ``trees``: those of the last value, by digest.

    ``functions``: all that may travel by value, until it is None. ``classes``: of the script, which arguments may name.
    """

    __slots__ = ("_known", "classes", "functions", "trees")

    def __init__(self, known: KnownFiles, classes: ScriptClasses | None = None) -> None:
        self._known = known
        self.classes = ScriptClasses(classes)
        self.trees: dict[bytes, StoredTree] = {}
        self.functions: dict[int, FunctionType] | None = {}

    def file(self, path: str) -> tuple[str, str]:
        """Note a file while a value is pickled; see `deskgrid.files.Collecting`."""
        return self._add(self._known.at(path)), name_of_path(path)

    def shared(self, shared: "Shared[Any]") -> str:
        """Note a shared object while a value is pickled."""
        return self._add(self._known.shared(shared))

    def function(self, function: FunctionType) -> None:
        """Note a function while a value is pickled."""
        if self.functions is not None:
            self.functions[id(function)] = function

    def _add(self, stored: StoredTree) -> str:
        self.trees[stored.digest] = stored
        return stored.digest.hex()

    def pickled(self, make: Callable[[], bytes]) -> bytes:
        """Return what ``make()`` returns."""
        self.trees, before = {}, collect(self)
        try:
            return make()
        finally:
            collect(before)

    def pack_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> wire.Payload:
        """Make the payload of a call. Raises `PicklingFailed` or `BagRejected`."""
        self.trees, before = {}, collect(self)  # a new one: who has the last one keeps it
        try:
            payload = pack_call(args, kwargs, what, self.classes)
        finally:
            collect(before)
        if not self.trees and len(payload) <= wire.PAYLOAD_LIMIT:
            return payload
        whole = len(payload) + wire.DIGEST_BYTES * (len(self.trees) + 1) > wire.PAYLOAD_LIMIT
        if whole:
            value = stored_pieces([memoryview(payload)] if isinstance(payload, bytes) else payload.frames())
            self.trees[value.digest] = value
        try:
            return wire.wrap(list(self.trees), b"" if whole else payload, whole=whole)
        except wire.TreeRefused as error:
            raise BagRejected(f"{what}: {error}") from error


class BagFiles:
    """The files of the bag ``bag``: noted while its values are pickled, then sent before these are submitted."""

    def __init__(self, link: Link, known: KnownFiles, bag: str) -> None:
        self.bag = bag
        self._link = link
        self._window = LOCAL_WINDOW_BYTES if link.join.is_local else WINDOW_BYTES
        self._noted = Noted(known)
        # Parts that were noted and not sent, and those that the broker has.
        self._unsent: dict[bytes, PartSource] = {}
        self._sent: set[bytes] = set()
        # Bytes that every task needs, and the most that any task needs besides; and tasks that need others, with the
        # bytes that no task before them needed.
        self._common = 0
        self._most = 0
        self._tasks = 0
        self._new = 0
        self._sending = threading.RLock()

    def common(self, make: Callable[[], bytes]) -> tuple[bytes, bytes]:
        """Return what ``make()`` returns, and the digests of the trees that it needs: every task needs these."""
        data = self._noted.pickled(make)
        if len(self._noted.trees) > wire.TREES_LIMIT:
            raise BagRejected(f"the function refers to more than {wire.TREES_LIMIT:,} files and shared objects")
        self.need(self._noted.trees.values())
        return data, b"".join(self._noted.trees)

    def classes(self) -> tuple[bytes, bytes]:
        """Return the classes of the script that arguments so far have named, pickled, and the trees that they need."""
        return self.common(self._noted.classes.pickled)

    def functions(self) -> list[FunctionType]:
        """Return the functions in the values so far, which may travel by value; later ones are not noted."""
        found = list((self._noted.functions or {}).values())
        self._noted.functions = None
        return found

    def pack_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> wire.Payload:
        """Make the payload of a call. Raises `PicklingFailed` or `BagRejected`."""
        payload = self._noted.pack_call(args, kwargs, what)
        if self._noted.trees:
            self.need_once(self._noted.trees.values())
        return payload

    def need(self, stored: Iterable[StoredTree]) -> None:
        """Note trees that every task needs."""
        for each in stored:
            self._common += each.size
            self._note(each)

    def bring(self, stored: Iterable[StoredTree]) -> None:
        """Note trees of an environment, of which each PC needs one at most, and not for each task."""
        for each in stored:
            self._note(each)

    def need_once(self, stored: Collection[StoredTree]) -> None:
        """Note trees that one task needs."""
        self._most = max(self._most, sum([each.size for each in stored]))
        self._tasks += 1
        for each in stored:
            if each.digest not in self._sent and each.digest not in self._unsent:
                self._new += each.size
            self._note(each)

    def _note(self, stored: StoredTree) -> None:
        self._unsent.update((digest, part) for digest, part in stored.parts.items() if digest not in self._sent)

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Send what was noted and what the broker lacks, and wait until it is in its journal. Raises `BagRejected`."""
        if self._unsent:
            check_free(self._sending)
            with self._sending:
                while self._unsent:
                    self._send_some(list(islice(self._unsent, wire.OFFER_PARTS)))

    def _send_some(self, digests: Sequence[bytes]) -> None:
        lacking = deque(self._offered(digests))
        self._confirmed(set(digests).difference(lacking))
        flying, size = deque[tuple[bytes, int, Waiter]](), 0
        ahead: wire.Payload = b""
        try:
            while lacking or flying:
                if lacking and not ahead:
                    with self._given_up(lacking[0]):
                        ahead = self._unsent[lacking[0]].read()
                if ahead and len(flying) < WINDOW and size < self._window:
                    flying.append((lacking[0], len(ahead), self._begin(lacking.popleft(), ahead)))
                    size, ahead = size + len(ahead), b""
                    continue
                digest, its, waiter = flying.popleft()
                size -= its
                with self._given_up(digest):
                    _expect(waiter.get(), wire.Kept, f"{self._unsent[digest].path}: ")
                self._confirmed([digest])
        except TransferCut:
            return  # what was not confirmed is offered again

    @contextmanager
    def _given_up(self, digest: bytes) -> Iterator[None]:
        """Forget a part that cannot be sent: later calls of the function do not need it."""
        try:
            yield
        except BagRejected:
            del self._unsent[digest]
            raise

    def _offered(self, digests: Sequence[bytes]) -> list[bytes]:
        """Offer parts; return those that the broker lacks."""
        waiter, request = Waiter(), self._link.number()
        first, each = self._common + self._most, self._new // max(1, self._tasks)
        size = sum([self._size(digest) for digest in digests])
        self._link.send(wire.Offer(request, self.bag, b"".join(digests), size, first, each), waiter)
        reply = _expect(waiter.get(), wire.Lacks, "")
        assert isinstance(reply, wire.Lacks)
        return wire.split_digests(reply.parts)

    def _size(self, digest: bytes) -> int:
        pieces = self._unsent[digest].pieces
        return sum(map(len, pieces)) if pieces else wire.PART_BYTES

    def _begin(self, digest: bytes, data: wire.Payload) -> Waiter:
        waiter = Waiter()
        self._link.send(wire.Part(self._link.number(), self.bag, digest, data), waiter)
        return waiter

    def _confirmed(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self._unsent.pop(digest, None)
            self._sent.add(digest)


def new_bag_id() -> str:
    """Return an id for a new bag."""
    return secrets.token_hex(6)


def command_files(
    inputs: Iterable[str | os.PathLike[str]], outputs: Sequence[str]
) -> tuple[list[StoredTree], list[str] | None]:
    """Return the trees of a command's inputs, and its patterns; None: it needs no folder. Raises `BagRejected`."""
    check_list("inputs", inputs, 'a list, such as ["data.csv"]')
    named = [_named(each) for each in inputs]
    outputs = checked_texts("outputs", outputs, "out/*.npz")
    if len(outputs) > wire.PATTERNS_LIMIT:
        raise BagRejected(f"outputs is a list of at most {wire.PATTERNS_LIMIT} patterns")
    for pattern in outputs:
        if not pattern or os.path.isabs(pattern) or ".." in pattern.replace("\\", "/").split("/"):
            raise BagRejected(
                f"{pattern!r:.200} is not a pattern for files in the folder of the task, such as 'out/*.npz'"
            )
    if not named:
        return [], list(outputs) if outputs else None
    return [stored_paths(named)], list(outputs)


def _named(text: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the name and the path in PATH or NAME=PATH; a file whose name has a "=" can be given as ./FILE."""
    if isinstance(text, os.PathLike):
        path = os.fspath(text)
        return name_of_path(path), path
    if not isinstance(text, str):
        raise BagRejected(f"an input is PATH or NAME=PATH, not {text!r:.200}")
    name, sign, path = text.partition("=")
    if not (path if sign else name):
        raise BagRejected(f"an input is PATH or NAME=PATH, not {text!r:.200}")
    if not sign or "/" in name[:2] or os.path.exists(text):
        return name_of_path(text), text
    return name, path


def _expect(reply: Reply | None, kind: type[Reply], what: str) -> Reply:
    if not isinstance(reply, kind):
        raise BagRejected(f"{what if what != ': ' else ''}{getattr(reply, 'reason', 'an unexpected reply')}")
    return reply
