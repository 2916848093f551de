"""Messages to bytes and back.

Rule 1: ``decode(bytes)`` either returns a message or raises `ProtocolError`, never anything else.
Rule 2: a decoded message needs at most eight times the memory of its bytes, plus some megabytes for its rows. To ensure
this, lengths are checked during decoding, not after it (`deskgrid.wire.source`).

A message is packed by msgpack as the array ``[tag, field, ...]`` in the order of its fields. Rows travel as columns,
``[[task, task, ...], [number, ...], ...]``, which loops in C check and convert to rows. If all values of a column are
the same, the column holds only that one value; the first column is always complete. A large payload travels behind the
message in frames of its own, as `Chunks`; the message holds its length instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Annotated, Any

import msgpack

from deskgrid.wire.fields import AtMost, Line, Optional, Rows, field_of, fields_of
from deskgrid.wire.limits import BATCH_ROWS, CONTROL_BYTES, NAME_BYTES
from deskgrid.wire.messages import INTRODUCTIONS, MESSAGES, MOST, Message
from deskgrid.wire.messages.client import Answer, BagResult, Outcomes, Submit
from deskgrid.wire.messages.common import Blob
from deskgrid.wire.messages.files import Part
from deskgrid.wire.messages.ranks import Met, PmiBytes, PrepareRanks, RanksEnded
from deskgrid.wire.messages.worker import Assign, Checkpoint, Finished, Result, Saved
from deskgrid.wire.payload import Chunks, Payload
from deskgrid.wire.source import CHUNKS, LENGTH, UNREADABLE, Source, Wrong, source_of
from deskgrid.wire.task_options import TaskOptions
from deskgrid.wire.text import clean, cut


class ProtocolError(ValueError):
    """The received bytes are not a message of this protocol; the peer is at fault."""


def _values_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives the values of a message of ``kind`` in field order: in C for two fields or more."""
    names = [field.name for field in fields(kind)]
    return attrgetter(*names) if len(names) > 1 else lambda message: tuple(getattr(message, name) for name in names)


def _is_table(field: Any) -> bool:
    return isinstance(field.inner if isinstance(field, Optional) else field, Rows)


# Approximate maximum size of a message, or of a row in it, without its payload.
_ROW_BYTES = 100
_TAGS = {kind: tag for tag, kind in enumerate(MESSAGES)}
# For each kind of message, the function that gives its values.
_VALUES: dict[type[Message], Callable[[Message], tuple[Any, ...]]] = {kind: _values_of(kind) for kind in MESSAGES}
# The fields of each message by name, and the functions that read them, in order.
FIELDS: dict[type[Message], dict[str, Any]] = {kind: fields_of(kind) for kind in MESSAGES}
_READERS = {
    kind: [(f"{kind.__name__}.{name}", field.read) for name, field in its.items()] for kind, its in FIELDS.items()
}
# The upper half of the first byte of an array with up to fifteen values; the lower half is their number.
_ARRAY = 0x9
_INTRODUCTIONS = {_TAGS[kind] for kind in INTRODUCTIONS}
# The maximum bytes of each message, by tag.
_MOST = {_TAGS[kind]: most for kind, most in MOST.items()}
# For each kind of message, the positions of its rows, and the positions and limits of its lines. The tag is at 0.
_TABLES = {kind: [at for at, field in enumerate(its.values(), 1) if _is_table(field)] for kind, its in FIELDS.items()}
_LINES = {
    kind: [(at, field.most) for at, field in enumerate(its.values(), 1) if isinstance(field, Line)]
    for kind, its in FIELDS.items()
}
_RESULTS: Rows = FIELDS[Finished]["results"]
_BAG_RESULTS: Rows = field_of(Annotated[tuple[BagResult, ...], AtMost(BATCH_ROWS)])


# --- to bytes --------------------------------------------------------------------------------------------------------


def encode(message: Message, values: list[Chunks] | None = None) -> bytes:
    """Return the bytes of ``message``. The caller keeps its values within their limits; `decode` checks them.

    Large payloads are appended to ``values``, and their frames belong behind the message; if ``values`` is None, they
    are packed into the message. Lines longer than their field's limit are cut. Characters that UTF-8 cannot encode
    (lone surrogates from JSON or from a file name) are sent as "?".
    """

    def packable(value: Chunks | TaskOptions) -> msgpack.ExtType | bytes:
        if isinstance(value, TaskOptions):
            return value.packed()
        if values is None:
            return bytes(value)
        values.append(value)
        return msgpack.ExtType(CHUNKS, len(value).to_bytes(LENGTH, "big"))

    kind = type(message)
    array = [_TAGS[kind], *_VALUES[kind](message)]
    for place in _TABLES[kind]:
        array[place] = array[place] and _columns(array[place])
    for place, most in _LINES[kind]:
        array[place] = cut(array[place], most)
    packed: bytes = msgpack.packb(array, unicode_errors="replace", default=packable)
    return packed


def _columns(rows: tuple[Any, ...]) -> list[Sequence[Any]]:
    """Return the columns of one or more rows."""
    return _shortened(tuple(zip(*rows, strict=True)))


def _shortened(columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    first, *others = columns
    return [first, *[column[:1] if column.count(column[0]) == len(column) else column for column in others]]


def pack_columns(columns: Sequence[Sequence[Any]]) -> bytes:
    """Pack rows, given as columns, in the form in which they travel."""
    packed: bytes = msgpack.packb(_shortened(columns))
    return packed


def parts_of(message: Message) -> list[Payload]:
    """Return the encoded ``message`` and its large payloads, in the order in which they travel."""
    values: list[Chunks] = []
    return [encode(message, values), *values]


# --- and back --------------------------------------------------------------------------------------------------------


def decode(data: bytes, chunks: Sequence[memoryview] = ()) -> Message:
    """Return the message in ``data``; raises `ProtocolError`, with the reason in one line, if it is not a message.

    ``chunks``: the frames behind it, which must be exactly those of its large payloads.
    """
    if len(data) > CONTROL_BYTES and len(data) > (most := _most(data)):
        raise ProtocolError(f"not a message that may have more than {most:,} bytes")
    source = source_of(data, chunks)
    where, values = "not a message", list[Any]()
    try:
        kind = _kind_of(source)
        for name, read in _READERS[kind]:
            where = name
            values.append(read(source))
        where = kind.__name__
        source.finish()
    except Wrong as error:
        raise ProtocolError(f"{where}: {error}") from error
    except UNREADABLE as error:
        raise ProtocolError(f"{where}: not msgpack: {error!s:.80}") from error
    return kind(*values)


def version_in(data: bytes) -> str:
    """Return the version that an introduction of any build begins with; "" for anything else.

    It has at most `NAME_BYTES` characters: whoever is turned away has not been looked at.
    """
    source = source_of(data)
    try:
        source.array()
        tag, version = source.values(2)
    except (Wrong, *UNREADABLE):
        return ""
    return clean(version[:NAME_BYTES]) if tag in _INTRODUCTIONS and isinstance(version, str) else ""


def _most(data: bytes) -> int:
    """Return how many bytes the message may have, judging by its first two: the array's header and the tag."""
    return _MOST.get(data[1], CONTROL_BYTES) if data[0] >> 4 == _ARRAY else CONTROL_BYTES


def _kind_of(source: Source) -> type[Message]:
    """Read the array's header and the tag; return the kind of message that follows."""
    count, tag = source.array(), source.value()
    if type(tag) is not int or not 0 <= tag < len(MESSAGES):
        raise Wrong("no known tag")
    kind = MESSAGES[tag]
    if count != len(_READERS[kind]) + 1:
        raise Wrong(f"{kind.__name__} has {len(_READERS[kind])} fields, got {count - 1}")
    return kind


def results_of_tasks(rows: list[list[Any]]) -> tuple[Result, ...]:
    """Make results from the values that a task process reported; raises `ProtocolError`."""
    try:
        return _RESULTS.rows([list(column) for column in zip(*rows, strict=True)]) if rows else ()
    except (Wrong, ValueError) as error:
        raise ProtocolError(f"Result: {error}") from error


def results_in(outcomes: Outcomes) -> tuple[BagResult, ...]:
    """Return the results in ``outcomes``, in order; raises `ProtocolError` if they are malformed."""
    large = iter(outcomes.large)
    found: list[BagResult] = []
    try:
        for piece in outcomes.results:
            source = source_of(piece)
            columns = _BAG_RESULTS.read_columns(source)
            source.finish()
            if columns:
                found += _BAG_RESULTS.rows(_with_large(columns, large) if outcomes.large else columns)
        if next(large, None) is not None:
            raise ValueError("more large payloads than results that have one")
    except (Wrong, *UNREADABLE) as error:
        raise ProtocolError(f"not results: {error!s:.80}") from error
    return tuple(found)


def _with_large(columns: list[list[Any]], large: Any) -> list[list[Any]]:
    """Return the columns, with each nil among the payloads replaced by the next large payload."""
    *others, payloads = columns
    if payloads == [None]:
        payloads = payloads * len(columns[0])
    return [*others, [next(large, None) if each is None else each for each in payloads]]


# --- about messages --------------------------------------------------------------------------------------------------


def weight(message: Message) -> int:
    """Estimate the maximum size of ``message`` in bytes without encoding it; accurate enough for large messages."""
    match message:
        case Outcomes(results=pieces, large=large):
            return _ROW_BYTES + sum(map(len, pieces)) + sum(map(len, large))
        case Assign(work=rows) | PrepareRanks(work=rows):
            return _ROW_BYTES * (1 + len(rows)) + sum(len(row.payload) for row in rows)
        case Blob(data=data) | Part(data=data) | Checkpoint(data=data) | Met(values=data) | PmiBytes(data=data):
            return _ROW_BYTES + len(data)
        case Answer(body=body):
            return _ROW_BYTES + len(body)
    return _ROW_BYTES


def large_of(message: Message) -> list[Chunks]:
    """Return the large payloads of a message from a worker or a client."""
    match message:
        case Submit(payloads=payloads):
            return [payload for payload in payloads if isinstance(payload, Chunks)]
        case Finished(results=rows) | RanksEnded(results=rows):
            return [row.payload for row in rows if isinstance(row.payload, Chunks)]
        case Blob(data=Chunks() as data) | Part(data=Chunks() as data) | Saved(data=Chunks() as data):
            return [data]
    return []
