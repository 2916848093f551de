"""What crosses the wire: every message, and the one codec for all of them.

Rule 1: ``decode(bytes)`` gives a message or raises `ProtocolError`; nothing else ever comes out of it.
Rule 2: durations in seconds, never dates: the clocks of lab PCs are wrong.
Rule 3: payloads (templates, arguments, results) are opaque bytes here; the broker never unpickles.

A message is a frozen dataclass packed by msgpack as the array ``[tag, field, ...]`` in the order of its fields. A row
(one of many in a message) is a named tuple, because a busy grid makes thousands of them a second and a named tuple
costs a third of a frozen dataclass. Rows travel as their columns, ``[[task, task, ...], [number, ...], ...]``, which
are checked and made rows of by loops in C; a column after the first whose values are all the same has that one only.
A payload that is large travels behind the message, in frames of its own, as `Chunks`; in its place is how long it is.
Integers are non-negative. Floats are seconds, from 0 to `SECONDS_LIMIT`.
"""

import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import msgpack

VERSION = "0.1.0"

# One task's argument or result, or one template. Above it a task fails with a clear error and the grid goes on.
PAYLOAD_LIMIT = 64 * 2**20
# A payload from this size on is `Chunks`, and the broker keeps it as a file: for what is smaller, a file of its own
# costs more than to be copied with a batch.
LARGE_BYTES = 2**20
# A frame of a large payload: while one is deciphered the next is enciphered, and messages of others go between two.
CHUNK_BYTES = 2**20
# A batch closes at this size, so that one message never holds the line for long; a single large payload travels alone.
BATCH_BYTES = 4 * 2**20
# Rows in one message: a few milliseconds of work for whoever decodes it.
BATCH_ROWS = 10_000
# Rows that are read of one message at most, for with columns of one value a row is as small as a byte: more than the
# attempts that a worker of the most slots can hold, which it names all at once when it introduces itself.
ROWS_LIMIT = 2**21
# What a socket takes at most: one payload of the limit and a batch around it.
MESSAGE_LIMIT = PAYLOAD_LIMIT + 2 * BATCH_BYTES
# Tasks in one bag. Ten times the largest measured; beyond it ids and indexes have not been tried.
BAG_LIMIT = 10_000_000
# The longest duration, seconds: three hundred years, so that no sum over a bag or a week of windows overflows.
SECONDS_LIMIT = 1e10
# Announced windows: the coming week, at most this many (design, "Words").
WINDOWS_LIMIT = 64


class ProtocolError(ValueError):
    """What arrived is not a message of this protocol; the peer is at fault."""


class Chunks:
    """A payload of `LARGE_BYTES` or more, in pieces that lie anywhere in memory: to be sent it need not be copied.

    ``file``: by which name whoever has to keep it keeps it; empty while nobody does. ``checksum``: its CRC-32 then.
    """

    __slots__ = ("_pieces", "_size", "checksum", "file")

    def __init__(self, pieces: Sequence[memoryview], file: str = "") -> None:
        """``pieces``: of single bytes, and contiguous."""
        self._pieces = pieces
        self._size = sum(map(len, pieces))
        self.file = file
        self.checksum = 0

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.frames())

    def frames(self) -> list[memoryview]:
        """All of it, in order, in pieces of at most `CHUNK_BYTES`."""
        step = CHUNK_BYTES
        return [piece[start : start + step] for piece in self._pieces for start in range(0, len(piece), step)]


# A task's argument or result.
Payload = bytes | Chunks


def frames_of(parts: Sequence[Payload]) -> list[bytes | memoryview]:
    """A message and its large payloads, as they travel."""
    found: list[bytes | memoryview] = []
    for part in parts:
        found += part.frames() if isinstance(part, Chunks) else [part]
    return found


def payload_of(data: bytes) -> Payload:
    """``data`` as it travels."""
    return data if len(data) < LARGE_BYTES else Chunks([memoryview(data)])


class Outcome(IntEnum):
    """How one attempt ended."""

    DONE = 0
    ERROR = 1  # the task raised, or its command exited with a code other than 0
    CRASH = 2  # the task's process died
    TIMEOUT = 3  # the task ran longer than its own limit
    CANCELLED = 4  # somebody cancelled it
    DEPARTED = 5  # stopped because its PC goes away; never counts against the task


class Window(NamedTuple):
    """A planned time a PC is available, relative to the moment of sending. Seconds."""

    starts_in: float
    lasts: float


class Running(NamedTuple):
    """An attempt that a worker holds; ``elapsed`` is None when it has not started."""

    task: int
    number: int
    slot: int
    elapsed: float | None


class Ref(NamedTuple):
    """One attempt, by name."""

    task: int
    number: int


class Work(NamedTuple):
    """One attempt to make."""

    task: int
    number: int
    slot: int
    template: str
    runtime: float
    timeout: float | None
    payload: Payload


class Result(NamedTuple):
    """One attempt that ended at a worker."""

    task: int
    number: int
    outcome: int
    elapsed: float
    payload: Payload
    stdout: bytes
    stderr: bytes


class BagResult(NamedTuple):
    """The end of task ``item`` of a bag (0 for its first), as its submitter sees it."""

    item: int
    outcome: int
    elapsed: float
    worker: str
    payload: Payload


# --- worker to broker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A worker introduces itself, at connecting and whenever a window opens.

    ``uptime``: seconds left of the current window; None open-ended; 0.0 away (no window is open now).
    ``kind`` and ``plan``: which sort of plan and one line that describes it to people. ``opening`` grows with each
    introduction of a session; work assigned in answer to an earlier one is void, for ``running`` does not have it.
    """

    version: str
    python: str
    name: str
    session: str
    opening: int
    host: str
    site: str
    slots: int
    kind: str
    plan: str
    uptime: float | None
    windows: tuple[Window, ...]
    running: tuple[Running, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Still here; remaining seconds as in `Join`. ``windows`` None: those to come are the ones last announced."""

    uptime: float | None
    windows: tuple[Window, ...] | None


@dataclass(frozen=True, slots=True)
class Finished:
    """Attempts that ended. Sent again after a reconnection until `Taken` names them."""

    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """A departure; ``held`` is handed back (elapsed None: it had not started).

    ``planned``: the window closes, as announced; otherwise somebody stops the worker before that. ``stopping``: its
    process ends too, so it will not be back by itself.
    """

    reason: str
    planned: bool
    stopping: bool
    windows: tuple[Window, ...]
    held: tuple[Running, ...]


@dataclass(frozen=True, slots=True)
class Returned:
    """Recalled attempts that had not started; they never will."""

    attempts: tuple[Ref, ...]


# --- broker to worker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """A worker is in, under ``name``. ``windows``: the broker's plan for it as JSON, or None."""

    version: str
    broker: str
    name: str
    heartbeat: float
    lease: float
    windows: str | None


@dataclass(frozen=True, slots=True)
class Assign:
    """Attempts to make, in this order on each slot; ``opening`` is that of the introduction the broker knows."""

    opening: int
    work: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Hand these back if they have not started."""

    attempts: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill these; nobody waits for an answer."""

    attempts: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """These results are in the journal (or nobody wants them): forget them."""

    attempts: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """The broker's plan for this worker changed."""

    windows: str | None


# --- both ways -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send me this template."""

    digest: str


@dataclass(frozen=True, slots=True)
class Blob:
    """A template, by the SHA-256 of its bytes in hexadecimal."""

    digest: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender ends on purpose."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will not have this peer; trying again as it is would not help."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The broker does not know this connection (it was restarted, or the lease ran out): introduce yourself."""


# --- client to broker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """A client introduces itself."""

    version: str
    python: str
    session: str
    user: str


@dataclass(frozen=True, slots=True)
class Submit:
    """One batch of a bag. The same batch sent again is accepted again and counted once.

    ``first`` is the index in the bag of the first payload. ``runtimes`` is empty when all have ``runtime``, which is
    None when nobody said. ``last`` closes the bag. ``watch``: if the batch is accepted, this is also a `Watch` of that
    number, with ``after``; 0: it is not.
    """

    request: int
    bag: str
    name: str
    template: str
    first: int
    payloads: tuple[Payload, ...]
    runtime: float | None
    runtimes: tuple[float, ...]
    timeout: float | None
    retries: int
    last: bool
    watch: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """Tell me what ended in this bag after ``after`` (0 for all); the answer waits until there is something."""

    request: int
    bag: str
    after: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A question or an order other than the above; ``args`` is a JSON object."""

    request: int
    what: str
    args: str


# --- broker to client ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greeting:
    """A client is in."""

    version: str
    broker: str
    python: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch is in the journal. ``note`` is for people: empty, or what they should know now."""

    request: int
    bag: str
    note: str


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Answer to `Watch`: results in the order they were recorded; ask again with ``after``.

    ``settled`` of ``total`` tasks have ended; ``closed`` when no more will be submitted.
    ``results``: pieces, each the packed columns of `BagResult`s (`pack_columns`), as the broker keeps them; nil stands
    for a payload in ``large``, where they are in order. `results_in` makes rows of them. ``receipts``: requests that
    are answered by this, too, as by an `Accepted` without a note.
    """

    request: int
    bag: str
    results: tuple[bytes, ...]
    large: tuple[Payload, ...]
    after: int
    settled: int
    total: int
    closed: bool
    receipts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to `Ask`: a JSON document."""

    request: int
    body: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The request was not carried out; ``reason`` is one line for people."""

    request: int
    reason: str


Message = (
    Join
    | Heartbeat
    | Finished
    | Leave
    | Returned
    | Welcome
    | Assign
    | Recall
    | Stop
    | Taken
    | Planned
    | Fetch
    | Blob
    | Goodbye
    | Refused
    | Rejoin
    | Hello
    | Submit
    | Watch
    | Ask
    | Greeting
    | Accepted
    | Outcomes
    | Answer
    | Failed
)

# The tag of a message is its place here, so a new one goes to the end.
MESSAGES: tuple[type[Message], ...] = typing.get_args(Message)

FROM_WORKER = (Join, Heartbeat, Finished, Leave, Returned, Fetch)
FROM_CLIENT = (Hello, Submit, Watch, Ask, Blob, Goodbye)

_Check = Callable[[Any], Any]


class _Wrong(Exception):
    """A value is not of the declared type."""


def _exactly(kind: type) -> _Check:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise _Wrong(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    return check


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise _Wrong(f"expected int, got {type(value).__name__}")
    if not 0 <= value < 2**63:
        raise _Wrong(f"not an integer from 0 to 2^63: {value}")
    return value


def _seconds(value: Any) -> float:
    # Only of numbers is the value shown: what else arrived may be nested too deeply to be printed.
    if type(value) is not float:
        raise _Wrong(f"expected float, got {type(value).__name__}")
    if not 0.0 <= value <= SECONDS_LIMIT:
        raise _Wrong(f"not a number of seconds from 0 to {SECONDS_LIMIT:g}: {value}")
    return value


def _payload(value: Any) -> Any:
    if type(value) is not bytes and type(value) is not Chunks:
        raise _Wrong(f"expected bytes, got {type(value).__name__}")
    return value


def _optional(inner: _Check) -> _Check:
    return lambda value: None if value is None else inner(value)


def _all_in_range(values: list[Any], kind: object) -> bool:
    """Whether all of ``values``, which are of ``kind``, are what `_PLAIN` has for it, by a few loops in C."""
    if kind is int:
        return bool(min(values) >= 0 and max(values) < 2**63)
    # The sum is not a number when one of them is none; then what the others of these say means nothing.
    return kind is not float or bool(sum(values) >= 0.0 and min(values) >= 0.0 and max(values) <= SECONDS_LIMIT)


def _many(hint: Any) -> _Check:
    """The check for an array of a plain type, or of one that is optional: at first of all values together."""
    inner, optional = _check_of(hint), isinstance(hint, types.UnionType) and hint != Payload
    kind = typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint

    def check(value: Any) -> Any:
        if type(value) is not list:
            raise _Wrong(f"expected an array, got {type(value).__name__}")
        if len(value) == 1:
            return (inner(value[0]),)
        some = [item for item in value if item is not None] if optional else value
        if some and not (set(map(type, some)) == {kind} and _all_in_range(some, kind)):
            _ = [inner(item) for item in some]  # raises, and says what is wrong with the first that is
        return tuple(value)

    return check


def _rows(kind: type) -> _Check:
    """The check for many rows of one kind, which it makes of their columns."""
    checks = [_many(hint) for hint in typing.get_type_hints(kind).values()]

    def check(value: Any) -> Any:
        if type(value) is not list:
            raise _Wrong(f"expected an array, got {type(value).__name__}")
        if not value:
            return ()
        if len(value) != len(checks):
            raise _Wrong(f"not the {len(checks)} columns of {kind.__name__}")
        columns = [column(values) for column, values in zip(checks, value, strict=True)]
        count = len(columns[0])
        if count > 1 and any(len(column) == 1 and type(column[0]) is Chunks for column in columns):
            raise _Wrong(f"one large payload for {count} rows")
        if not 1 <= count <= ROWS_LIMIT or any(len(column) not in (1, count) for column in columns):
            raise _Wrong(f"columns of {kind.__name__} with {[*map(len, columns)]} values")
        whole = [column if len(column) == count else repeat(column[0], count) for column in columns]
        return tuple(map(tuple.__new__, repeat(kind), zip(*whole, strict=True)))

    return check


_PLAIN: dict[object, _Check] = {
    int: _integer,
    float: _seconds,
    str: _exactly(str),
    bytes: _exactly(bytes),
    bool: _exactly(bool),
    Payload: _payload,
}


def _check_of(hint: Any) -> _Check:
    """The check for a declared type: plain, ``X | None``, or ``tuple[X, ...]`` of one that is plain or a row."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return _optional(_check_of(arguments[0]))
    return _many(arguments[0]) if arguments[0] in _PLAIN else _rows(arguments[0])


def _values_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of a message of ``kind``, in the order of its fields: one call in C, if it has some."""
    names = [field.name for field in fields(kind)]
    return attrgetter(*names) if len(names) > 1 else lambda message: tuple(getattr(message, name) for name in names)


# What a message or a row in it is without its payload, at most, about.
_ROW_BYTES = 100
# What stands in a message for a large payload: an extension type of msgpack, its data the length of what follows.
_CHUNKS, _LENGTH = 1, 8
_BAG_RESULTS = _rows(BagResult)
_TAGS = {kind: tag for tag, kind in enumerate(MESSAGES)}
# What gives the values of a message.
_VALUES: dict[type[Message], Callable[[Message], tuple[Any, ...]]] = {kind: _values_of(kind) for kind in MESSAGES}


def _are_rows(hint: Any) -> bool:
    """Whether a declared type is ``tuple[X, ...]`` of rows, or that or None."""
    if isinstance(hint, types.UnionType):
        hint = typing.get_args(hint)[0]
    return typing.get_origin(hint) is tuple and typing.get_args(hint)[0] not in _PLAIN


# Which of a message's values, after its tag, are rows.
_TABLES = {
    kind: [place for place, hint in enumerate(typing.get_type_hints(kind).values(), 1) if _are_rows(hint)]
    for kind in MESSAGES
}
_CHECKS = {kind: tuple(_check_of(hint) for hint in typing.get_type_hints(kind).values()) for kind in MESSAGES}


def pack_failure(kind: str, message: str, trace: str = "", pickled: bytes = b"") -> bytes:
    """The payload of an attempt that did not succeed: the exception's type, message, traceback and pickle."""
    packed: bytes = msgpack.packb([kind, message, trace, pickled])
    return packed


def encode(message: Message, values: list[Chunks] | None = None) -> bytes:
    """The bytes of ``message``. Values of the declared types are the caller's duty (mypy's); `decode` checks them.

    Its large payloads are appended to ``values``, whose frames belong behind it; without that they are in it.
    What UTF-8 cannot say in a text, half a surrogate pair that came out of JSON or a file's name, is sent as "?".
    """

    def outside(payload: Chunks) -> msgpack.ExtType | bytes:
        if values is None:
            return bytes(payload)
        values.append(payload)
        return msgpack.ExtType(_CHUNKS, len(payload).to_bytes(_LENGTH, "big"))

    kind = type(message)
    array = [_TAGS[kind], *_VALUES[kind](message)]
    for place in _TABLES[kind]:
        array[place] = array[place] and _columns(array[place])
    packed: bytes = msgpack.packb(array, unicode_errors="replace", default=outside)
    return packed


def _columns(rows: tuple[Any, ...]) -> list[Sequence[Any]]:
    """The columns of one row or more."""
    return _shortened(tuple(zip(*rows, strict=True)))


def _shortened(columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    first, *others = columns
    return [first, *[column[:1] if column.count(column[0]) == len(column) else column for column in others]]


def pack_columns(columns: Sequence[Sequence[Any]]) -> bytes:
    """Rows, given by their columns, as they travel."""
    packed: bytes = msgpack.packb(_shortened(columns))
    return packed


def results_in(outcomes: Outcomes) -> tuple[BagResult, ...]:
    """The results that ``outcomes`` tells, in order; raises `ProtocolError` when it does not."""
    large = iter(outcomes.large)
    found: list[BagResult] = []
    try:
        for piece in outcomes.results:
            columns = msgpack.unpackb(piece, max_str_len=MESSAGE_LIMIT, max_bin_len=MESSAGE_LIMIT)
            if outcomes.large:
                columns[-1] = [next(large) if each is None else each for each in columns[-1]]
            found += _BAG_RESULTS(columns)
        if next(large, None) is not None:
            raise ValueError("more large payloads than results that have one")
    except (ValueError, LookupError, TypeError, msgpack.UnpackException, RecursionError, StopIteration) as error:
        raise ProtocolError(f"not results: {error!s:.80}") from error
    except _Wrong as error:
        raise ProtocolError(f"results: {error}") from error
    return tuple(found)


def parts_of(message: Message) -> list[Payload]:
    """``message`` and its large payloads, in the order in which they travel."""
    values: list[Chunks] = []
    return [encode(message, values), *values]


def weight(message: Message) -> int:
    """About how many bytes ``message`` is at most, without encoding it: exact enough for what can be large."""
    match message:
        case Outcomes(results=pieces, large=large):
            return _ROW_BYTES + sum(map(len, pieces)) + sum(map(len, large))
        case Assign(work=rows):
            return _ROW_BYTES * (1 + len(rows)) + sum(len(row.payload) for row in rows)
        case Blob(data=data):
            return _ROW_BYTES + len(data)
        case Answer(body=body):
            return _ROW_BYTES + len(body)
    return _ROW_BYTES


def large_of(message: Message) -> list[Chunks]:
    """The large payloads of what a worker or a client says."""
    match message:
        case Submit(payloads=payloads):
            return [payload for payload in payloads if isinstance(payload, Chunks)]
        case Finished(results=rows):
            return [row.payload for row in rows if isinstance(row.payload, Chunks)]
    return []


def _taken(frames: Iterator[memoryview], code: int, data: bytes) -> Chunks | msgpack.ExtType:
    """The payload that an extension stands for, off the front of ``frames``; raises ValueError."""
    if code != _CHUNKS:
        return msgpack.ExtType(code, data)
    size = int.from_bytes(data, "big")
    if not LARGE_BYTES <= size <= PAYLOAD_LIMIT:
        raise ValueError(f"a large payload of {size} bytes")
    pieces: list[memoryview] = []
    while size > 0:
        pieces.append(next(frames, memoryview(b"")))
        if not len(pieces[-1]):
            raise ValueError("a large payload is not all there")
        size -= len(pieces[-1])
    if size:
        raise ValueError("a large payload ends within a frame")
    return Chunks(pieces)


def decode(data: bytes, chunks: Sequence[memoryview] = ()) -> Message:
    """The message in ``data``; raises `ProtocolError` for anything else, with the reason in one line.

    ``chunks``: the frames behind it; those of its large payloads, and no others.
    """
    frames = iter(chunks)
    try:
        values = msgpack.unpackb(
            data, max_str_len=MESSAGE_LIMIT, max_bin_len=MESSAGE_LIMIT, ext_hook=partial(_taken, frames)
        )
        if next(frames, None) is not None:
            raise ValueError("more frames than large payloads")
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ProtocolError(f"not msgpack: {error!s:.80}") from error
    if type(values) is not list or not values or type(values[0]) is not int or not 0 <= values[0] < len(MESSAGES):
        raise ProtocolError("not a message: no known tag")
    kind = MESSAGES[values[0]]
    checks = _CHECKS[kind]
    if len(values) != len(checks) + 1:
        raise ProtocolError(f"{kind.__name__} has {len(checks)} fields, got {len(values) - 1}")
    try:
        return kind(*[check(value) for check, value in zip(checks, values[1:], strict=True)])
    except _Wrong as error:
        raise ProtocolError(f"{kind.__name__}: {error}") from error
