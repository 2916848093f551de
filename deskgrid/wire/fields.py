"""The fields of messages: their types, lengths and ranges, which messages name in their annotations.

A plain field checks one value (`one`), or a whole array of values in a few loops in C (`all`). An array or a table
reads itself from a source, length first. ``str(field)`` is the field's text in the table of limits.
"""

import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Any

from deskgrid.wire.limits import (
    BATCH_ROWS,
    CHECKPOINT_BYTES,
    CHECKPOINT_LIMIT,
    COUNT_LIMIT,
    DIGEST_BYTES,
    LINE_BYTES,
    MESSAGE_LIMIT,
    NAME_BYTES,
    PART_BYTES,
    PAYLOAD_LIMIT,
    SECONDS_LIMIT,
)
from deskgrid.wire.payload import Chunks, Payload
from deskgrid.wire.source import Source, Wrong
from deskgrid.wire.text import clean, cut, is_longer


class Plain(ABC):
    """A field of one plain value."""

    __slots__ = ()

    @abstractmethod
    def one(self, value: Any) -> Any:
        """Check ``value`` and return the value to use; raises `Wrong`."""

    def all(self, values: list[Any]) -> list[Any]:
        """Check an array of values, like `one`."""
        return [self.one(value) for value in values]

    def read(self, source: Source) -> Any:
        """Read the next value."""
        return self.one(source.value())


def _other(kind: type, value: Any) -> Wrong:
    # The value itself is not shown, because it may be anything.
    return Wrong(f"expected {kind.__name__}, got {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Integer(Plain):
    """An integer within a range."""

    least: int
    most: int

    def one(self, value: Any) -> Any:
        if type(value) is not int:
            raise _other(int, value)
        if not self.least <= value <= self.most:
            raise Wrong(f"not an integer from {self.least} to {self.most}: {value}")
        return value

    def all(self, values: list[Any]) -> list[Any]:
        if set(map(type, values)) == {int} and min(values) >= self.least and max(values) <= self.most:
            return values
        return Plain.all(self, values)

    def __str__(self) -> str:
        most = "2^63 - 1" if self.most == COUNT_LIMIT else f"{self.most:,}"
        return f"{self.least:,} to {most}"


@dataclass(frozen=True, slots=True)
class Real(Plain):
    """A number, of seconds if nothing else is said."""

    most: float

    def one(self, value: Any) -> Any:
        if type(value) is not float:
            raise _other(float, value)
        if not 0.0 <= value <= self.most:
            raise Wrong(f"not a number from 0 to {self.most:g}: {value}")
        return value

    def all(self, values: list[Any]) -> list[Any]:
        # If a value is NaN, so is the sum, and the comparison fails; min and max are unreliable with NaN.
        if set(map(type, values)) == {float} and sum(values) >= 0.0 and min(values) >= 0.0 and max(values) <= self.most:
            return values
        return Plain.all(self, values)

    def __str__(self) -> str:
        return f"0 to {self.most:g} s"


@dataclass(frozen=True, slots=True)
class Share(Real):
    """A number from 0 to 1."""

    most: float = 1.0

    def __str__(self) -> str:
        return "0 to 1"


@dataclass(frozen=True, slots=True)
class Ratio(Plain):
    """A number within a range that does not begin at 0."""

    least: float
    most: float

    def one(self, value: Any) -> Any:
        if type(value) is not float:
            raise _other(float, value)
        if not self.least <= value <= self.most:
            raise Wrong(f"not a number from {self.least:g} to {self.most:g}: {value}")
        return value

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g}"


@dataclass(frozen=True, slots=True)
class Flag(Plain):
    """True or false."""

    def one(self, value: Any) -> Any:
        if type(value) is not bool:
            raise _other(bool, value)
        return value

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Line(Plain):
    """One line of printable text; other characters are replaced. A line that is too long is refused.

    ``shorten``: it is cut instead. Senders cut their own lines before sending (`deskgrid.wire.codec.encode`).
    """

    most: int
    shorten: bool = False

    def one(self, value: Any) -> Any:
        if type(value) is not str:
            raise _other(str, value)
        # A character has at most four bytes.
        if 4 * len(value) > self.most and is_longer(value, self.most):
            if not self.shorten:
                raise Wrong(f"a text of more than {self.most:,} bytes")
            value = cut(value, self.most)
        return value if value.isprintable() else clean(value)

    def all(self, values: list[Any]) -> list[Any]:
        if set(map(type, values)) == {str}:
            # Names repeat, so each one is checked once.
            known = {value: self.one(value) for value in set(values)}
            return [known[value] for value in values]
        return Plain.all(self, values)

    def __str__(self) -> str:
        return f"{_size(self.most)} of printable text"


@dataclass(frozen=True, slots=True)
class Word(Plain):
    """A text that matches a pattern; ``said`` describes it in words."""

    pattern: re.Pattern[str]
    said: str

    def one(self, value: Any) -> Any:
        if type(value) is not str:
            raise _other(str, value)
        if self.pattern.fullmatch(value) is None:
            raise Wrong(f"not {self.said}")
        return value

    def all(self, values: list[Any]) -> list[Any]:
        if set(map(type, values)) == {str}:
            for value in set(values):
                self.one(value)
            return values
        return Plain.all(self, values)

    def __str__(self) -> str:
        return self.said


@dataclass(frozen=True, slots=True)
class Document(Plain):
    """A JSON document; its reader parses it."""

    most: int

    def one(self, value: Any) -> Any:
        if type(value) is not str:
            raise _other(str, value)
        if is_longer(value, self.most):
            raise Wrong(f"a document of more than {self.most:,} bytes")
        return value

    def __str__(self) -> str:
        return f"{_size(self.most)} of JSON"


@dataclass(frozen=True, slots=True)
class Data(Plain):
    """Bytes. ``chunks``: they may also lie behind the message."""

    most: int
    chunks: bool = False

    def one(self, value: Any) -> Any:
        if type(value) is not bytes and not (self.chunks and type(value) is Chunks):
            raise _other(bytes, value)
        if len(value) > self.most:
            raise Wrong(f"more than {self.most:,} bytes")
        return value

    def all(self, values: list[Any]) -> list[Any]:
        if set(map(type, values)) == {bytes} and max(map(len, values)) <= self.most:
            return values
        return Plain.all(self, values)

    def __str__(self) -> str:
        return _size(self.most)


@dataclass(frozen=True, slots=True)
class Digests(Plain):
    """The SHA-256 of some parts, one after the other."""

    most: int

    def one(self, value: Any) -> Any:
        Data(self.most * DIGEST_BYTES).one(value)
        if len(value) % DIGEST_BYTES:
            raise Wrong(f"{len(value)} bytes, not a number of digests")
        return value

    def __str__(self) -> str:
        return f"{self.most:,} of {DIGEST_BYTES} bytes"


@dataclass(frozen=True, slots=True)
class Optional(Plain):
    """A value of another field, or nil."""

    inner: Any

    def one(self, value: Any) -> Any:
        return None if value is None else self.inner.one(value)

    def all(self, values: list[Any]) -> list[Any]:
        present = [value for value in values if value is not None]
        taken = iter(self.inner.all(present) if present else ())
        return [None if value is None else next(taken) for value in values]

    def read(self, source: Source) -> Any:
        if isinstance(self.inner, Plain):
            return self.one(source.value())
        return None if source.nil() else self.inner.read(source)

    def __str__(self) -> str:
        return f"{self.inner}, or nil"


@dataclass(frozen=True, slots=True)
class Many:
    """An array of plain values."""

    inner: Any
    most: int

    def read(self, source: Source) -> tuple[Any, ...]:
        """Read the next array."""
        values = source.many(self.most)
        return tuple(self.inner.all(values)) if values else ()

    def __str__(self) -> str:
        return f"{self.most:,} of {self.inner}"


# A function that edits the columns of rows, complete columns whose values have all been checked.
Tidy = Callable[[list[Sequence[Any]]], list[Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Rows:
    """An array of rows of one kind, which travel as columns."""

    kind: Any
    most: int
    columns: tuple[Plain, ...]
    tidy: Tidy | None = None

    def read(self, source: Source) -> tuple[Any, ...]:
        """Read the next rows."""
        columns = self.read_columns(source)
        return self.rows(columns) if columns else ()

    def read_columns(self, source: Source) -> list[list[Any]]:
        """Read the columns of the next rows; checks their lengths, but not the types of the values."""
        return source.columns(min(source.array(), len(self.columns) + 1), self.most)

    def rows(self, columns: list[list[Any]]) -> tuple[Any, ...]:
        """Check the columns from `read_columns` and convert them to rows."""
        if len(columns) != len(self.columns):
            raise Wrong(f"not the {len(self.columns)} columns of {self.kind.__name__}")
        count, lengths = len(columns[0]), set(map(len, columns))
        if not count or not lengths <= {1, count}:
            raise Wrong(f"columns of {self.kind.__name__} with {[*map(len, columns)]} values")
        pairs = zip(self.columns, columns, strict=True)
        whole: list[Sequence[Any]]
        if count == 1:
            whole = [[field.one(value)] for field, (value,) in pairs]
        else:
            checked = [field.all(values) if len(values) > 1 else [field.one(values[0])] for field, values in pairs]
            _check_repeated([values[0] for values in checked if len(values) == 1], count)
            whole = [values if len(values) == count else values * count for values in checked]
        if self.tidy is not None:
            whole = self.tidy(whole)
        return tuple(map(tuple.__new__, repeat(self.kind), zip(*whole, strict=True)))

    def __str__(self) -> str:
        return f"{self.most:,} rows of {self.kind.__name__}"


def _check_repeated(values: list[Any], count: int) -> None:
    """Raise `Wrong` if repeating these values for ``count`` rows exceeds the limit of a message."""
    if any(type(value) is Chunks for value in values):
        raise Wrong(f"one large payload for {count} rows")
    if count * sum(len(value) for value in values if type(value) in (bytes, str)) > MESSAGE_LIMIT:
        raise Wrong(f"{count} rows that have more than {MESSAGE_LIMIT:,} bytes")


def _size(count: int) -> str:
    """``64 MiB``, ``255 bytes``."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if count % unit == 0:
            return f"{count // unit:,} {name}"
    return f"{count:,} bytes"


@dataclass(frozen=True, slots=True)
class AtMost:
    """How many values an array may have; ``tidy``: see `Rows`."""

    count: int
    tidy: Tidy | None = None


# --- the fields that messages have in common -------------------------------------------------------------------------

# Numbers of requests, tasks and attempts; positions in the journal.
Count = Annotated[int, Integer(0, COUNT_LIMIT)]
Seconds = Annotated[float, Real(SECONDS_LIMIT)]
# Names of bags, workers, hosts, sites and users.
Name = Annotated[str, Line(NAME_BYTES)]
# A reason, a note, a plan.
Sentence = Annotated[str, Line(LINE_BYTES)]
# Ids of bags and sessions, drawn at random by their makers, with room for ids that people choose in tests and tools.
Id = Annotated[str, Word(re.compile(r"[A-Za-z0-9._~@:+-]{1,64}"), "1 to 64 letters, digits or . _ ~ @ : + -")]
Digest = Annotated[str, Word(re.compile(r"[0-9a-f]{64}"), "64 hexadecimal digits")]
Version = Annotated[str, Line(64)]
PythonVersion = Annotated[str, Word(re.compile(r"[0-9]{1,3}\.[0-9]{1,3}"), "a version like 3.12")]
Argument = Annotated[Payload, Data(PAYLOAD_LIMIT, chunks=True)]
# What one message carries of a checkpoint, and the bytes of a checkpoint.
CheckpointData = Annotated[Payload, Data(CHECKPOINT_BYTES, chunks=True)]
CheckpointSize = Annotated[int, Integer(0, CHECKPOINT_LIMIT)]
# One part of a stored file, and what it is known by.
PartData = Annotated[Payload, Data(PART_BYTES, chunks=True)]
PartDigest = Annotated[bytes, Data(DIGEST_BYTES)]
Arguments = Annotated[tuple[Argument, ...], AtMost(BATCH_ROWS)]


def fields_of(kind: type) -> dict[str, Any]:
    """Return the fields of a message or a row, by name."""
    return {name: field_of(hint) for name, hint in typing.get_type_hints(kind, include_extras=True).items()}


def field_of(hint: Any) -> Any:
    """Return the field that a type hint stands for."""
    if hint is bool:
        return Flag()
    if typing.get_origin(hint) is not Annotated:
        inner = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return Optional(field_of(inner[0]))
    limit = hint.__metadata__[0]
    if not isinstance(limit, AtMost):
        return limit
    inner_hint = typing.get_args(hint.__origin__)[0]
    if typing.get_origin(inner_hint) is Annotated:
        return Many(field_of(inner_hint), limit.count)
    return Rows(inner_hint, limit.count, tuple(fields_of(inner_hint).values()), limit.tidy)
