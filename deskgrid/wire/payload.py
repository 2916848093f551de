"""Payloads: templates, arguments and results. To the protocol they are opaque bytes; the broker never unpickles."""

from collections.abc import Sequence
from hashlib import sha256

from deskgrid.wire.limits import CHUNK_BYTES, LARGE_BYTES


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
