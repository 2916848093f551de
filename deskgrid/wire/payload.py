"""Payloads: templates, arguments and results. To the protocol they are opaque bytes; the broker never unpickles."""

from collections.abc import Sequence
from hashlib import sha256

from deskgrid.wire.limits import CHUNK_BYTES, LARGE_BYTES


class Chunks:
    """A payload of `LARGE_BYTES` or more, in pieces that lie anywhere in memory: to be sent it need not be copied.

    ``file``: by which name whoever has to keep it keeps it; empty while nobody does. ``checksum``: its CRC-32 then.
    ``digest``: what `sha256_of` found; empty before.
    """

    __slots__ = ("_pieces", "_size", "checksum", "digest", "file")

    def __init__(self, pieces: Sequence[memoryview], file: str = "") -> None:
        """``pieces``: of single bytes, and contiguous."""
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
        """All of it, in order, in pieces of at most `CHUNK_BYTES`."""
        step = CHUNK_BYTES
        return [piece[start : start + step] for piece in self._pieces for start in range(0, len(piece), step)]


# A template, a task's argument or its result.
Payload = bytes | Chunks


def sha256_of(payload: Payload) -> str:
    """Its SHA-256, in hexadecimal; a large payload's is found once."""
    if isinstance(payload, bytes):
        return sha256(payload).hexdigest()
    if not payload.digest:
        found = sha256()
        for frame in payload.frames():
            found.update(frame)
        payload.digest = found.hexdigest()
    return payload.digest


def frames_of(parts: Sequence[Payload]) -> list[bytes | memoryview]:
    """A message and its large payloads, as they travel."""
    found: list[bytes | memoryview] = []
    for part in parts:
        found += part.frames() if isinstance(part, Chunks) else [part]
    return found


def payload_of(data: bytes) -> Payload:
    """``data`` as it travels."""
    return data if len(data) < LARGE_BYTES else Chunks([memoryview(data)])
