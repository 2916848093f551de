"""Payloads: templates, arguments and results. To the protocol they are opaque bytes; the broker never unpickles.

And batches: the rows with payloads that travel, or are stored, together.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

from deskgrid.wire.limits import BATCH_BYTES, BATCH_ROWS, CHUNK_BYTES, LARGE_BYTES

RowT = TypeVar("RowT")


class Chunks:
    """A payload of `LARGE_BYTES` or more, in pieces anywhere in memory, so that it is sent without being copied.

    ``file``: the name of the file that the payload is stored in; empty until it is stored. ``checksum``: its CRC-32,
    once stored. ``digest``: the result of `sha256_of`; empty before the first call.
    """

    __slots__ = ("_pieces", "_size", "checksum", "digest", "file")

    def __init__(self, pieces: Sequence[memoryview], file: str = "") -> None:
        """``pieces``: contiguous views of single bytes."""
        self._pieces = pieces
        self._size = sum(map(len, pieces))
        self.file = file
        self.checksum = 0
        self.digest = ""

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join(self.frames())

    def frames(self) -> list[memoryview]:
        """Return the whole payload, in order, in pieces of at most `CHUNK_BYTES`."""
        step = CHUNK_BYTES
        return [piece[start : start + step] for piece in self._pieces for start in range(0, len(piece), step)]


# A template, a task's argument or its result.
Payload = bytes | Chunks


def sha256_of(payload: Payload) -> str:
    """Return the payload's SHA-256 in hexadecimal; for a large payload it is computed only once."""
    if isinstance(payload, bytes):
        return sha256(payload).hexdigest()
    if not payload.digest:
        found = sha256()
        for frame in payload.frames():
            found.update(frame)
        payload.digest = found.hexdigest()
    return payload.digest


def frames_of(parts: Sequence[Payload]) -> list[bytes | memoryview]:
    """Return a message and its large payloads as the frames to send."""
    found: list[bytes | memoryview] = []
    for part in parts:
        found += part.frames() if isinstance(part, Chunks) else [part]
    return found


def slice_of(payload: Payload, start: int, most: int) -> Payload:
    """Return at most ``most`` bytes of a payload, from ``start`` on. They are not copied, if they are large."""
    if isinstance(payload, bytes):
        return payload_of(payload[start : start + most])
    chosen, left = list[memoryview](), most
    for piece in payload.frames():
        if start < len(piece) and left:
            chosen.append(piece[start : start + left])
            left -= len(chosen[-1])
        start = max(0, start - len(piece))
    return Chunks(chosen) if most - left >= LARGE_BYTES else b"".join(chosen)


def payload_of(data: bytes) -> Payload:
    """Return ``data`` as a payload: as `Chunks` if it is large."""
    return data if len(data) < LARGE_BYTES else Chunks([memoryview(data)])


def in_batches(rows: Iterable[RowT], size: Callable[[RowT], int], most: int | None = None) -> Iterator[list[RowT]]:
    """Yield ``rows`` in batches of at most BATCH_ROWS rows, and BATCH_BYTES unless one row alone is larger.

    ``size``: the bytes of a row. ``most``: the rows of a batch, if they are not BATCH_ROWS. A batch is yielded once the
    next row turns out not to fit, or the rows end.
    """
    batch: list[RowT] = []
    total, most = 0, BATCH_ROWS if most is None else most
    for row in rows:
        count = size(row)
        if batch and (total + count > BATCH_BYTES or len(batch) == most):
            yield batch
            batch, total = [], 0
        batch.append(row)
        total += count
    if batch:
        yield batch
