"""Arguments on their way out and results on their way back: the client's pickling, both ways.

A task's exception is raised here as itself, with its remote traceback as the cause and a note that says which task it
was and where it ran; what cannot be rebuilt becomes a `TaskError`.
"""

import io
import pickle
import threading
from collections import deque
from collections.abc import Mapping
from sys import getsizeof
from typing import Any

import msgpack

from broker.client.errors import (
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
from broker.protocol import LARGE_BYTES, PAYLOAD_LIMIT, BagResult, Chunks, Outcome, Payload, payload_of


def pack_call(args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> Payload:
    """The payload of one call; ``what`` names it in messages. Raises `PicklingFailed` or `BagRejected`."""
    call = (args, kwargs)
    if any(getsizeof(arg) >= LARGE_BYTES for arg in args):
        return _pack_large(call, what)
    try:
        packed = pickle.dumps(call, pickle.HIGHEST_PROTOCOL)
        by_value = b"__main__" in packed
    except Exception:
        packed, by_value = b"", True
    if by_value:
        # Something of the user's program, which a worker cannot import, or something only cloudpickle knows.
        packed = _by_value(call, what)
    return checked_size(packed, what)


class _Pieces:
    """A file for pickle, which takes large bytes objects as they are: they are neither copied nor searched."""

    def __init__(self) -> None:
        self.by_value = False
        self._all: list[bytes] = []
        self._small: list[bytes] = []

    def write(self, data: bytes | bytearray) -> None:
        """Take a piece; what could be changed meanwhile is copied."""
        if len(data) >= LARGE_BYTES:
            self._all += [b"".join(self._small), bytes(data)]
            self._small = []
        else:
            self.by_value = self.by_value or b"__main__" in data
            self._small.append(bytes(data))

    def all(self) -> list[bytes]:
        """What was written; of two neighbours at least one is large."""
        return [piece for piece in (*self._all, b"".join(self._small)) if piece]


def _pack_large(call: tuple[tuple[Any, ...], Mapping[str, Any]], what: str) -> Payload:
    pieces = _Pieces()
    try:
        pickle.dump(call, pieces, pickle.HIGHEST_PROTOCOL)
        by_value = pieces.by_value
    except Exception:
        by_value = True
    if by_value:
        return checked_size(_by_value(call, what), what)
    payload = Chunks([memoryview(piece) for piece in pieces.all()])
    _check_size(len(payload), what)
    return payload if len(payload) >= LARGE_BYTES else bytes(payload)


def _by_value(call: tuple[Any, ...], what: str) -> bytes:
    import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps(call, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise PicklingFailed(f"{what} cannot be pickled: {error}") from error
    return packed


def pack_text(item: object, what: str) -> Payload:
    """The payload of one task of a command bag."""
    if not isinstance(item, str):
        raise BagRejected(f"{what} is not text but {type(item).__name__}: a command's items are texts")
    try:
        return checked_size(item.encode(), what)
    except UnicodeEncodeError as error:
        raise PicklingFailed(f"{what} cannot be sent as UTF-8: {error}") from error


def checked_size(packed: bytes, what: str) -> Payload:
    """``packed`` as it travels, unless it is larger than a task may carry."""
    _check_size(len(packed), what)
    return payload_of(packed)


def _check_size(size: int, what: str) -> None:
    if size > PAYLOAD_LIMIT:
        raise BagRejected(f"{what} has {size:,} bytes; the limit is {PAYLOAD_LIMIT:,}")


class Failure:
    """An exception in the place of a value, which may itself be an exception."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class Unread:
    """A result as it came, which is unpickled for the first who wants it."""

    def __init__(self, result: BagResult, bag: str) -> None:
        self._result: BagResult | None = result
        self._bag = bag
        self._lock = threading.RLock()
        self._value: Any = None

    def value(self) -> Any:
        """What `value_of` makes of it, the same each time."""
        with self._lock:
            if self._result is not None:
                self._value, self._result = value_of(self._result, self._bag), None
            return self._value


def value_of(result: BagResult, bag: str) -> Any:
    """What the task returned, or a `Failure` with the exception that it raised or that says what befell it."""
    if result.outcome == Outcome.DONE:
        try:
            return _unpickled(result.payload)
        except Exception as error:
            unreadable = ResultUnreadable(f"the result of {_where(result, bag)} cannot be unpickled: {error!r}")
            unreadable.__cause__ = error
            return Failure(unreadable)
    if result.outcome == Outcome.CANCELLED:
        return Failure(TaskCancelled(f"{_where(result, bag)} was cancelled"))
    return Failure(_failure(result, bag))


def _unpickled(payload: Payload) -> Any:
    if isinstance(payload, bytes):
        return pickle.loads(payload)
    return pickle.load(io.BufferedReader(_Frames(payload.frames())))


class _Frames(io.RawIOBase):
    """The frames of a large payload as one file, of which pickle copies a large object once, into its place."""

    def __init__(self, frames: list[memoryview]) -> None:
        self._left = deque(frames)

    def readable(self) -> bool:
        """It is for nothing else."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` with what comes next; how much that is, nothing at the end."""
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


def _failure(result: BagResult, bag: str) -> Exception:
    name, message, trace, pickled = _parts(bytes(result.payload))
    where = _where(result, bag)
    if result.outcome in _KINDS:
        kind, what = _KINDS[result.outcome]
        error: Exception = kind(f"{where} {what}" + (f": {message}" if message else ""))
    else:
        error = _rebuilt(pickled) or RemoteError(f"{name}: {message}" if message else name)
        error.add_note(f"deskgrid: raised by {where}")
    if trace:
        error.__cause__ = RemoteTraceback(trace)
    return error


def _parts(payload: bytes) -> tuple[str, str, str, bytes]:
    """Type, message, traceback and pickle of an error; something that can be shown, whatever arrived."""
    try:
        name, message, trace, pickled = msgpack.unpackb(payload)
        return str(name), str(message), str(trace), pickled if isinstance(pickled, bytes) else b""
    except (ValueError, TypeError, msgpack.UnpackException):
        return "unknown error", "what the worker said of it cannot be read", "", b""


def _rebuilt(pickled: bytes) -> Exception | None:
    """The task's own exception. Only an `Exception`: a task's SystemExit must not end this program."""
    try:
        error = pickle.loads(pickled) if pickled else None
    except Exception:
        return None
    return error if isinstance(error, Exception) else None


def _where(result: BagResult, bag: str) -> str:
    on = f" on {result.worker} after {result.elapsed:.3g} s" if result.worker else ""
    return f"task {result.item} of bag {bag}{on}"
