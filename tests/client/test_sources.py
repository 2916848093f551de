"""Where the parts of a program's files and large objects are read from."""

import pytest

from deskgrid.client.sources import stored_pieces
from deskgrid.wire import LARGE_BYTES, PART_BYTES, Chunks, Payload


def sent(pieces: list[memoryview]) -> list[Payload]:
    """The parts of a file in memory, without the tree."""
    *parts, _ = stored_pieces(pieces).parts.values()
    return [part.read() for part in parts]


def test_a_large_object_is_sent_from_where_it_is() -> None:
    data = bytearray(range(256)) * (PART_BYTES // 128)
    head = memoryview(b"head")
    for number, part in enumerate(sent([head, memoryview(data)])[:2]):
        assert isinstance(part, Chunks)
        assert len(part) == PART_BYTES
        assert [frame.obj for frame in part.frames()][-1] is data
        assert bytes(part) == (b"head" + data)[number * PART_BYTES :][:PART_BYTES]


@pytest.mark.parametrize("size", [100, LARGE_BYTES // 100, LARGE_BYTES // 10])
def test_many_small_pieces_travel_as_few(size: int) -> None:
    pieces = [memoryview(bytes([number % 256]) * size) for number in range(100)]
    part, *_ = sent(pieces)
    frames = [part] if isinstance(part, bytes) else part.frames()
    assert len(frames) < 20
    assert bytes(part) == b"".join(pieces)[:PART_BYTES]
