"""Reads a packed message value by value, so that it never builds a value that the message's fields do not allow.

Rule 1: msgpack never unpacks a whole container at once. The length of an array or a map is read first and checked
against the field's limit. A container in the place of a plain value is refused before its content is read.
Rule 2: a source that met an error is dropped. Other sources are reused: a new one costs as much as reading a short
message.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgpack

from deskgrid.wire.limits import LARGE_BYTES, PAYLOAD_LIMIT
from deskgrid.wire.payload import Chunks

# The msgpack extension type that stands for a large payload in a message, and the number of bytes of its data, which is
# the length of the payload.
CHUNKS, LENGTH = 1, 8
# Messages up to this size, nearly all, share sources. A longer message gets a source of its own, of the message's size.
SHARED_BYTES = 16 * 2**10
_NIL = 0xC0

# The exceptions that msgpack raises for malformed bytes, and passes on from our extension hook.
UNREADABLE = (ValueError, msgpack.UnpackException)


class Wrong(Exception):
    """A value is not what its field allows."""


class _Behind:
    """The frames behind a message, which contain its large payloads."""

    __slots__ = ("frames",)

    def __init__(self) -> None:
        self.frames: Iterator[memoryview] = iter(())

    def __call__(self, code: int, data: bytes) -> Chunks:
        """Return the payload that an extension stands for; raises ValueError."""
        if code != CHUNKS:
            raise ValueError(f"an extension of type {code}")
        size = int.from_bytes(data, "big")
        if not LARGE_BYTES <= size <= PAYLOAD_LIMIT:
            raise ValueError(f"a large payload of {size} bytes")
        pieces: list[memoryview] = []
        while size > 0:
            pieces.append(next(self.frames, memoryview(b"")))
            if not len(pieces[-1]):
                raise ValueError("a large payload is not all there")
            size -= len(pieces[-1])
        if size:
            raise ValueError("a large payload ends within a frame")
        return Chunks(pieces)


class Source:
    """One packed message. Each method raises one of `UNREADABLE`, or `Wrong`."""

    __slots__ = ("_behind", "_data", "_end", "_size", "_unpacker", "skip", "value")

    def __init__(self, size: int) -> None:
        self._size = size
        self._behind = _Behind()
        self._unpacker = msgpack.Unpacker(
            max_array_len=0,
            max_map_len=0,
            max_ext_len=LENGTH,
            max_buffer_size=size,
            read_size=size,
            ext_hook=self._behind,
        )
        self._data = b""
        self._end = 0
        # Reads the next value, which must be plain; and passes over one of any kind.
        self.value = self._unpacker.unpack
        self.skip = self._unpacker.skip

    def _begin(self, data: bytes, frames: Sequence[memoryview]) -> None:
        self._unpacker.feed(data)
        self._data = data
        self._end += len(data)
        self._behind.frames = iter(frames)

    def array(self) -> int:
        """Read the header of the next array; return how many values follow."""
        try:
            return int(self._unpacker.read_array_header())
        except ValueError as error:
            raise Wrong("expected an array") from error

    def map(self) -> int:
        """Read the header of the next map; return how many pairs of a key and a value follow."""
        try:
            return int(self._unpacker.read_map_header())
        except ValueError as error:
            raise Wrong("expected a map") from error

    def nil(self) -> bool:
        """Read nil if it is next; return whether it was."""
        left = self._end - self._unpacker.tell()
        if not left or self._data[-left] != _NIL:
            return False
        self.value()
        return True

    def values(self, count: int) -> list[Any]:
        """Read the next ``count`` values, which must be plain."""
        found = list(islice(self._unpacker, count))
        if len(found) != count:
            raise ValueError("it is not all there")
        return found

    def many(self, most: int) -> list[Any]:
        """Read the next array, of at most ``most`` plain values."""
        return self.columns(1, most)[0]

    def columns(self, count: int, most: int) -> list[list[Any]]:
        """Read the next ``count`` arrays, each of at most ``most`` plain values."""
        unpacker, found = self._unpacker, []
        for _ in range(count):
            try:
                length = unpacker.read_array_header()
            except ValueError as error:
                raise Wrong("expected an array") from error
            if length > most:
                raise Wrong(f"{length:,} values where there are at most {most:,}")
            found.append([unpacker.unpack()] if length == 1 else self.values(length))
        return found

    def finish(self) -> None:
        """Release the source after the last value; raises ValueError if values or frames are left."""
        if self._unpacker.tell() != self._end:
            raise ValueError("more follows than belongs to it")
        if next(self._behind.frames, None) is not None:
            raise ValueError("more frames than large payloads")
        self._data = b""
        if self._size == SHARED_BYTES and len(_idle) < _IDLE_MOST:
            _idle.append(self)


# Sources not in use. Threads take them out and put them back; both are atomic list operations.
_idle: list[Source] = []
_IDLE_MOST = 8


def source_of(data: bytes, frames: Sequence[memoryview] = ()) -> Source:
    """Return a source for ``data`` and the ``frames`` behind it."""
    if len(data) > SHARED_BYTES:
        source = Source(len(data))
    else:
        try:
            source = _idle.pop()
        except IndexError:
            source = Source(SHARED_BYTES)
    source._begin(data, frames)
    return source
