"""`File` and `Shared`: stored files and large objects, in a program and in its tasks.

Rule: this file imports nothing of ours, because tasks load it. In a task, `deskgrid.worker.run.child` has put an object
into `sys.modules` that knows the task's files. In a program, the client tells how a file is sent or fetched.
"""

import hashlib
import io
import mmap
import os
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import IO, Any, Generic, Protocol, TypeVar

# The name of the module by which the process that runs tasks lends us the files of its task.
_TASK = "_deskgrid_task"
# The name of a shared object in its tree; the bytes before its pickle, and the boundaries on which its buffers begin,
# which suit any array.
SHARED = "shared"
_HEAD_BYTES = 8
_ALIGNED = 64
# Shared objects that a process keeps although its task does not use them.
_KEPT = 8

ValueT = TypeVar("ValueT")


class Collecting(Protocol):
    """How a program notes the files that a value refers to while it is pickled."""

    def file(self, path: str) -> tuple[str, str]:
        """Note a file or a folder; return the tree in hexadecimal, and its name there."""

    def shared(self, shared: "Shared[Any]") -> str:
        """Note a shared object; return the tree in hexadecimal."""

    def function(self, function: FunctionType) -> None:
        """Note a function that may travel by value."""


class _Local(threading.local):
    """What this thread is doing."""

    collecting: Collecting | None = None
    # In a program: how the file of this name in the result that is being unpickled is fetched.
    fetch: Callable[[str], str] | None = None


_local = _Local()


def collect(collector: Collecting | None) -> Collecting | None:
    """Have ``collector`` note the files of the values that this thread pickles from now on; return what did so before.

    No context manager: this runs twice for each argument of a bag of millions.
    """
    before, _local.collecting = _local.collecting, collector
    return before


def note_function(function: FunctionType) -> None:
    """Tell who notes the files of values that this function is pickled."""
    if _local.collecting is not None:
        _local.collecting.function(function)


@contextmanager
def fetching(fetch: Callable[[str], str] | None) -> Iterator[None]:
    """Have files in the results that this thread unpickles in the meantime fetched by ``fetch``."""
    before, _local.fetch = _local.fetch, fetch
    try:
        yield
    finally:
        _local.fetch = before


def _task() -> Any:
    """The files of the task that this process runs; None in any other process."""
    return getattr(sys.modules.get(_TASK), "files", None)


class File(os.PathLike[str]):
    """A file or a folder that travels with a task, in its arguments or in its result.

    In your program, ``File("data.csv")`` is a file of yours. In a task, it is a read-only copy. The built-in ``open``,
    and everything else that takes a path, accepts it. To return a file, a task makes a ``File("out.npz")``, writes to
    it, and returns it. In your program, this result is a `File`, too, which is fetched when you first use it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fsdecode(path)
        self._fetch: Callable[[], str] | None = None
        self._given: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return os.path.basename(os.path.normpath(self._path))

    @property
    def path(self) -> str:
        """The path of the file on this machine. A file in a result is fetched first."""
        if self._fetch is not None:
            self._path, self._fetch = self._fetch(), None
        task = _task()
        if task is None or os.path.isabs(self._path):
            return self._path
        path: str = os.path.join(task.folder(), self._path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def __fspath__(self) -> str:
        return self.path

    def open(self, mode: str = "r", **options: Any) -> IO[Any]:
        """Open the file, as the built-in ``open`` does."""
        return open(self.path, mode, **options)

    def __repr__(self) -> str:
        return f"File({self._path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        task = _task()
        if task is not None:
            return _left, (task.leave(self.path),)
        if _local.collecting is not None:
            return _given, _local.collecting.file(self.path)
        return File, (self._path,)


def _given(tree: str, name: str) -> File:
    """Make the file that a task was given."""
    task = _task()
    return File(name if task is None else task.needed(tree, name))


def _left(name: str) -> File:
    """Make the file that a task left."""
    file, fetch = File(name), _local.fetch
    if fetch is not None:
        file._fetch = lambda: fetch(name)
    return file


class Shared(Generic[ValueT]):
    """An object that all tasks of a bag need; made by `Grid.share`. In a task, it is the object itself.

    The object travels to each PC once. All tasks there read its large arrays from one copy, so these are read-only.
    Each task finds it as it was shared.
    """

    def __init__(
        self,
        value: ValueT,
        stream: bytes,
        buffers: Iterable[pickle.PickleBuffer],
        modules: Iterable[str],
        functions: Iterable[FunctionType],
    ) -> None:
        self.value = value
        # What it refers to: modules, and functions that travel by value. Bags bring them.
        self.modules, self.functions = tuple(modules), tuple(functions)
        self.pieces = _laid_out(stream, [buffer.raw() for buffer in buffers])

    def __repr__(self) -> str:
        return f"<Shared {type(self.value).__name__}, {sum(map(len, self.pieces)):,} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        if _local.collecting is not None:
            for function in self.functions:
                _local.collecting.function(function)
            # With the names of its modules, which are found there as those of any value.
            return _load_shared, (_local.collecting.shared(self), *self.modules)
        if _task() is not None:
            raise TypeError("a shared object travels to tasks, not back: return the part that you need")
        raise TypeError("a shared object travels only in the items and functions of a bag")


def _laid_out(stream: bytes, views: list[memoryview]) -> list[memoryview]:
    """Lay out a pickle and its buffers as one file: head, sizes, pickle, and each buffer on a boundary."""
    sizes = b"".join([len(view).to_bytes(_HEAD_BYTES, "big") for view in views])
    head = len(stream).to_bytes(_HEAD_BYTES, "big") + len(views).to_bytes(_HEAD_BYTES, "big") + sizes + stream
    pieces, end = [memoryview(head)], len(head)
    for view in views:
        gap = -end % _ALIGNED
        pieces += [memoryview(bytes(gap)), view]
        end += gap + len(view)
    return [piece for piece in pieces if len(piece)]


class _Loaded:
    """A shared object in the process of tasks. ``attempt``: the last one that was given it."""

    def __init__(self, path: str) -> None:
        self._stream, self._buffers = _mapped(path)
        self.value: Any = None
        self._digest = b""
        self.attempt: object = None

    def given_to(self, attempt: object) -> Any:
        """Return it as it was shared; to one attempt always the same object."""
        if self.attempt is None or (attempt is not self.attempt and not self._is_as_it_was()):
            self.value = pickle.load(io.BytesIO(self._stream), buffers=self._buffers)
            self._digest = _digest(self.value)
        self.attempt = attempt
        return self.value

    def _is_as_it_was(self) -> bool:
        return type(self.value) in _UNCHANGEABLE or (self._digest != b"" and _digest(self.value) == self._digest)


# Of these, nobody can change an object.
_UNCHANGEABLE = frozenset({bytes, str, int, float, complex, bool, type(None)})
_loaded: OrderedDict[str, _Loaded] = OrderedDict()
_loading = threading.Lock()


def _load_shared(tree: str, *modules: str) -> Any:
    """Return a shared object in a task. ``modules``: those that it refers to."""
    with _loading:
        task = _task()
        if task is None:
            raise TypeError("a shared object can be loaded only in a task")
        if tree not in _loaded:
            _loaded[tree] = _Loaded(task.needed(tree, SHARED))
        _loaded.move_to_end(tree)
        value = task.shared[tree] = _loaded[tree].given_to(task.attempt)
        while len(_loaded) > _KEPT and next(iter(_loaded.values())).attempt is not task.attempt:
            _loaded.popitem(last=False)
        return value


def _mapped(path: str) -> tuple[memoryview, list[memoryview]]:
    """Return the pickle of a shared object, and its buffers."""
    with open(path, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    size, count = (int.from_bytes(view[start : start + _HEAD_BYTES], "big") for start in (0, _HEAD_BYTES))
    start = 2 * _HEAD_BYTES
    sizes = [
        int.from_bytes(view[start + place : start + place + _HEAD_BYTES], "big")
        for place in range(0, count * _HEAD_BYTES, _HEAD_BYTES)
    ]
    start += count * _HEAD_BYTES
    stream, end, buffers = view[start : start + size], start + size, []
    for length in sizes:
        end += -end % _ALIGNED
        buffers.append(view[end : end + length])
        end += length
    return stream, buffers


class _Changed(Exception):
    """Part of a shared object is memory that tasks can write."""


class _Digester(pickle.Pickler):
    """Pickles a shared object only to see whether a task has changed it. Code counts as what it is, not as its text."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        super().__init__(SimpleNamespace(write=self.hash.update), pickle.HIGHEST_PROTOCOL, buffer_callback=self._note)

    def reducer_override(self, value: Any) -> Any:
        """Have a class, a function or a module stand for itself."""
        if isinstance(value, (type, FunctionType, ModuleType)) and value is not int:
            return int, (id(value),)
        return NotImplemented

    def _note(self, buffer: pickle.PickleBuffer) -> None:
        """Note which part of the read-only copy this is, not what it contains."""
        view = buffer.raw()
        if not view.readonly:
            raise _Changed
        array: Any = getattr(view.obj, "__array_interface__", None)
        place = getattr(view.obj, "address", None) if array is None else array["data"][0]
        self.hash.update(view if place is None else b"%d %d" % (place, len(view)))


def _digest(value: object) -> bytes:
    """Return what tells whether ``value`` was changed; empty: nothing can."""
    if type(value) in _UNCHANGEABLE:
        return b""
    try:
        (digester := _Digester()).dump(value)
    except Exception:  # of whatever kind: the object's own code runs
        return b""
    return digester.hash.digest()
