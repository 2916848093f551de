"""Pickles arguments for the grid, and unpickles results and exceptions from it.

The client raises a task's own exception, with the remote traceback as its cause and a note that names the task and the
worker. An exception that cannot be rebuilt becomes a `TaskError`.
"""

import io
import os
import pickle
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from sys import getsizeof
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from deskgrid.client.bundle import named_in
from deskgrid.client.by_value import has_to_travel_by_value, pickle_by_value
from deskgrid.client.generators import warn_of_generators
from deskgrid.client.refusals import not_picklable
from deskgrid.client.script_classes import ScriptClasses
from deskgrid.durations import precise
from deskgrid.errors import (
    BagRejected,
    PicklingFailed,
    RemoteError,
    RemoteTraceback,
    ResultUnreadable,
    TaskCancelled,
    TaskCrashed,
    TaskError,
    TaskTimeout,
)
from deskgrid.files import Shared, collect, fetching
from deskgrid.raised import put_together
from deskgrid.wire import (
    LARGE_BYTES,
    MARK,
    PAYLOAD_LIMIT,
    RANKS_MARK,
    VALUE_BYTES,
    BagResult,
    Chunks,
    Outcome,
    Payload,
    clean,
    payload_of,
    read_failure,
    split_ranks,
    unwrap,
)

if TYPE_CHECKING:
    from deskgrid.client.downloads import ResultFiles


ValueT = TypeVar("ValueT")


def pack_call(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str, classes: ScriptClasses | None = None
) -> Payload:
    """Make the payload of one call; ``what`` names it in messages. Raises `PicklingFailed` or `BagRejected`.

    ``classes``: those of the script that it may name, because they travel with the function. A payload of more than
    PAYLOAD_LIMIT has to be sent as a stored file.
    """
    call = (args, kwargs)
    if any(getsizeof(arg) >= LARGE_BYTES for arg in args):
        return _pack_large(call, what)
    try:
        packed = pickle.dumps(call, pickle.HIGHEST_PROTOCOL)
        by_value = has_to_travel_by_value(packed)
    except Exception:
        packed, by_value = b"", True
    if by_value:
        # The call refers to the user's program, which a worker cannot import, or only cloudpickle can pickle it.
        named = classes.naming(call) if packed and _may_name(packed) and classes is not None else b""
        packed = named or _call_by_value(call, what)
    return checked_size(packed, what, VALUE_BYTES)


class _PiecesFile:
    """A file for pickle that keeps large bytes objects as they are, without copying or searching them."""

    def __init__(self) -> None:
        self.by_value = False
        self._all: list[bytes] = []
        self._small: list[bytes] = []

    def write(self, data: bytes | bytearray) -> None:
        """Take a piece; copy it if it is mutable."""
        if len(data) >= LARGE_BYTES:
            self._all += [b"".join(self._small), bytes(data)]
            self._small = []
        else:
            self.by_value = self.by_value or has_to_travel_by_value(data)
            self._small.append(bytes(data))

    def all(self) -> list[bytes]:
        """Return the pieces; of two neighbouring pieces at least one is large."""
        return [piece for piece in (*self._all, b"".join(self._small)) if piece]


def _may_name(packed: bytes) -> bool:
    """Whether nothing but names of the script stands against a pickle."""
    return b"getattr" not in packed


def _pack_large(call: tuple[tuple[Any, ...], Mapping[str, Any]], what: str) -> Payload:
    pieces = _PiecesFile()
    try:
        pickle.dump(call, pieces, pickle.HIGHEST_PROTOCOL)
        by_value = pieces.by_value
    except Exception:
        by_value = True
    if by_value:
        return checked_size(_call_by_value(call, what), what, VALUE_BYTES)
    payload = Chunks([memoryview(piece) for piece in pieces.all()])
    _check_size(len(payload), what, VALUE_BYTES)
    return payload if len(payload) >= LARGE_BYTES else bytes(payload)


# Takes the large buffers of a value, so that they are not in its pickle.
Apart = Callable[[pickle.PickleBuffer], object]


def _by_value(value: object, what: str, apart: Apart | None = None) -> bytes:
    try:
        return pickle_by_value(value, apart)
    except Exception as error:
        raise not_picklable(what, {"it": value}, error) from error


def _call_by_value(call: tuple[tuple[Any, ...], Mapping[str, Any]], what: str) -> bytes:
    try:
        return pickle_by_value(call)
    except Exception as error:
        args, kwargs = call
        names = ["item"] if what.startswith("item ") else [f"argument {place}" for place in range(len(args))]
        raise not_picklable(what, dict(zip(names, args, strict=False)) | dict(kwargs), error) from error


class _Within:
    """Notes the functions in a shared object; see `deskgrid.files.Collecting`."""

    def __init__(self) -> None:
        self.functions: dict[int, FunctionType] = {}

    def file(self, path: str) -> tuple[str, str]:
        raise TypeError(f"it contains a File, {path}: pass files beside a shared object, not in it")

    def shared(self, shared: Shared[Any]) -> str:
        raise TypeError("it contains a shared object: pass one beside the other")

    def function(self, function: FunctionType) -> None:
        self.functions[id(function)] = function


def share(value: ValueT) -> Shared[ValueT]:
    """Make a shared object: pickled by value if it refers to the user's program. Raises `PicklingFailed`."""
    warn_of_generators(value, f"the object to share, {type(value).__name__}")
    within, buffers = _Within(), list[pickle.PickleBuffer]()
    before = collect(within)
    try:
        stream = _by_reference(value, buffers.append)
        if not stream:
            buffers.clear()
            stream = _by_value(value, f"the object to share, {type(value).__name__},", buffers.append)
    finally:
        collect(before)
    return Shared(value, stream, buffers, sorted(named_in(stream, whole=True)), within.functions.values())


def _by_reference(value: object, apart: Apart) -> bytes:
    """Pickle ``value``. Empty: that fails, or it refers to the user's program, which no worker can import."""
    try:
        packed = pickle.dumps(value, pickle.HIGHEST_PROTOCOL, buffer_callback=apart)
    except Exception:
        return b""
    return b"" if has_to_travel_by_value(packed) else packed


def pack_text(item: object, what: str) -> Payload:
    """Make the payload of one task of a command bag. Lone surrogates are bytes that are not UTF-8, as in file names."""
    if not isinstance(item, str):
        how = ": use os.fsdecode" if isinstance(item, bytes) else ""
        raise BagRejected(f"{what} is not text but {type(item).__name__}: a command's items are texts{how}")
    if "\0" in item:
        raise BagRejected(f"{what} has a NUL character, which no command line can hold")
    try:
        return checked_size(item.encode("utf-8", "surrogateescape"), what)
    except UnicodeEncodeError as error:
        raise PicklingFailed(f"{what} has a character that stands for no byte: {error}") from error


def checked_size(packed: bytes, what: str, most: int = PAYLOAD_LIMIT) -> Payload:
    """Return ``packed`` as a payload. Raises `BagRejected` if it exceeds the limit."""
    _check_size(len(packed), what, most)
    return payload_of(packed)


def _check_size(size: int, what: str, most: int) -> None:
    if size > most:
        raise BagRejected(f"{what} has {size:,} bytes; the limit is {most:,}")


class Raised:
    """Marks an exception that was raised; a value that a task returned may itself be an exception."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class Unread:
    """A received result, which is unpickled when it is first read."""

    def __init__(self, result: BagResult, bag: str, files: "ResultFiles | None" = None) -> None:
        self._result: BagResult | None = result
        self._bag = bag
        self._files = files
        self._lock = threading.RLock()
        self._value: Any = None

    def value(self) -> Any:
        """Return the outcome of `value_of`, the same object each time."""
        with self._lock:
            if self._result is not None:
                self._value, self._result = value_of(self._result, self._bag, self._files), None
            return self._value


def value_of(result: BagResult, bag: str, files: "ResultFiles | None" = None) -> Any:
    """Return the task's value, or a `Raised` with its exception or with an exception that describes its end.

    ``files``: fetch the files of results.

    Never raises, whatever the result contains: an unreadable result becomes a `ResultUnreadable` for that task. Only
    Ctrl-C interrupts it.
    """
    if result.outcome == Outcome.CANCELLED:
        return Raised(TaskCancelled(f"{_where(result, bag)} was cancelled"))
    if result.outcome != Outcome.DONE:
        return Raised(_failure(result, bag))
    value, trouble = _tried(lambda: _unpickled(result.payload, files))
    if trouble is None:
        return value
    because, _ = _tried(lambda: _why_unreadable(trouble))
    why = f"{said_of(trouble)}{because or ''}"
    unreadable = ResultUnreadable(f"the result of {_where(result, bag)} cannot be unpickled: {why}")
    unreadable.__cause__ = trouble
    return Raised(unreadable)


def _why_unreadable(trouble: BaseException) -> str:
    """Return what is known about a result that cannot be loaded here."""
    name = str(getattr(trouble, "name", None) or "") if isinstance(trouble, ModuleNotFoundError) else ""
    first = name.partition(".")[0]
    if name != first and first in sys.modules:
        return f": the task may have used another version of {first}; with env=... it uses yours"
    if isinstance(trouble, NotImplementedError) and "Path" in said_of(trouble):
        return ": it has a path of another system; return str(path) instead"
    return ""


def _tried(action: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Run ``action``, which runs code that came with a result; return its value, and the exception that it raised.

    A SystemExit or a KeyboardInterrupt from a result must not end this program. In the main thread, however, a
    KeyboardInterrupt may be a real Ctrl-C, and is raised.
    """
    try:
        return action(), None
    except KeyboardInterrupt as error:
        if threading.current_thread() is threading.main_thread():
            raise
        return None, error
    except BaseException as error:
        return None, error


# How an exception keeps its cause and its context.
_LINKS: Mapping[str, Any] = vars(BaseException)
# The beginning of the note that tells where a task's exception was raised.
RAISED_BY = "deskgrid: raised by "


def said_of(error: BaseException) -> str:
    """Describe an exception in text, even if its own methods fail."""
    text, trouble = _tried(lambda: str.__str__(repr(error))[:300])
    return clean(f"{type(error).__name__}, which cannot be shown" if trouble else text)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to a task's exception, if the exception allows it."""
    _tried(lambda: BaseException.add_note(error, note))


def _unpickled(payload: Payload, files: "ResultFiles | None") -> Any:
    if isinstance(payload, bytes) and payload[:1] not in (MARK, RANKS_MARK):
        return pickle.loads(payload)
    ranks = split_ranks(payload)
    return _one(payload, files) if ranks is None else [_one(result, files) for result in ranks]


def _one(payload: Payload, files: "ResultFiles | None") -> Any:
    """Unpickle the result of a task, or of one rank of a gang."""
    wrapped = unwrap(payload)
    if not wrapped.trees or files is None:
        return _loaded(wrapped.payload)
    with fetching(lambda name: files.named(wrapped.trees[0], name)):
        if not wrapped.whole:
            return _loaded(wrapped.payload)
        import shutil  # here, as in `deskgrid.client.downloads`

        path = files.value(wrapped.trees[-1])
        try:
            with path.open("rb") as file:
                return pickle.load(file)
        finally:
            shutil.rmtree(path.parent, ignore_errors=True)


def _loaded(payload: Payload) -> Any:
    if isinstance(payload, bytes):
        return pickle.loads(payload)
    return pickle.load(io.BufferedReader(_FramesFile(payload.frames())))


class _FramesFile(io.RawIOBase):
    """The frames of a large payload as one file, from which pickle copies a large object only once."""

    def __init__(self, frames: list[memoryview]) -> None:
        self._left = deque(frames)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next bytes into ``buffer``; return their number, 0 at the end."""
        if not self._left:
            return 0
        frame = self._left.popleft()
        count = min(len(frame), len(buffer))
        buffer[:count] = frame[:count]
        if count < len(frame):
            self._left.appendleft(frame[count:])
        return count


_KINDS: dict[int, tuple[type[TaskError], str]] = {
    Outcome.CRASH: (TaskCrashed, "ended its process"),
    Outcome.TIMEOUT: (TaskTimeout, "ran longer than its timeout"),
}


# In the message of a TypeError: an option of `task` that was given to a function which does not know it.
_OPTION = re.compile(
    "unexpected keyword argument '(runtime|timeout|retries|modules|gang|slots|speedup|memory|resources|labels)'"
)


def _failure(result: BagResult, bag: str) -> Exception:
    told = read_failure(result.payload)
    where = ("" if told.rank is None else f"rank {told.rank} of ") + _where(result, bag)
    if result.outcome in _KINDS:
        kind, what = _KINDS[result.outcome]
        error: Exception = kind(f"{where} {what}" + (f": {told.message}" if told.message else ""))
    else:
        said = f"{told.kind}: {told.message}" if told.message else told.kind
        rebuilt = _rebuilt(told.pickled, said)
        error = RemoteError(said) if rebuilt is None else rebuilt
        add_note(error, f"{RAISED_BY}{where}")
        if path := _missing_path(error):
            here = "this file is on your machine" if os.path.exists(path) else "tasks see the files of their PC"
            add_note(error, f"deskgrid: {here}: File({path!r}) in an item brings a file of yours along")
        if told.kind == "TypeError" and (option := _OPTION.search(told.message)):
            add_note(error, f"deskgrid: if {option[1]} is meant for the grid, submit task(function, {option[1]}=...)")
    if told.trace:
        # Not through the attributes, which the exception's class may have redefined.
        if (cause := _LINKS["__cause__"].__get__(error)) is not None:
            _LINKS["__context__"].__set__(error, cause)
        _LINKS["__cause__"].__set__(error, RemoteTraceback(told.trace))
    return error


def _missing_path(error: Exception) -> str:
    """Return the path that a task did not find; empty if it failed for another reason."""

    def found() -> str:
        path = error.filename if isinstance(error, FileNotFoundError) else ""
        path = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        return str.__str__(path) if isinstance(path, str) else ""

    path, _ = _tried(found)
    return path or ""


def _rebuilt(pickled: bytes, said: str) -> Exception | None:
    """Rebuild the task's exception, or what is closest to it; ``said``: its text in that case."""
    error, _ = _tried(lambda: put_together(pickled, RemoteError, said)) if pickled else (None, None)
    return error if issubclass(type(error), Exception) else None


def _where(result: BagResult, bag: str) -> str:
    on = f" on {result.worker} after {precise(result.elapsed)}" if result.worker else ""
    return f"task {result.item} of bag {bag}{on}"
