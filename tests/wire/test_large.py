"""Large payloads travel behind their message, in frames of their own, and arrive whole or not at all."""

import os
from dataclasses import replace

import msgpack
import pytest

from deskgrid import wire
from deskgrid.wire import CHUNK_BYTES, LARGE_BYTES, Chunks

DATA = os.urandom(LARGE_BYTES + 1)


def large(data: bytes = DATA) -> Chunks:
    payload = wire.payload_of(data)
    assert isinstance(payload, Chunks)
    return payload


def result(task: int, payload: wire.Payload) -> wire.Result:
    return wire.Result(task, 1, 0, 0.5, payload, b"", b"")


SUBMIT = wire.Submit(
    1, "bag", "", "d" * 64, 0, (b"a", large(), b"b", large(DATA[::-1])), 1.0, (), wire.TaskOptions(), last=True
)
MESSAGES: list[wire.Message] = [
    SUBMIT,
    wire.Finished((result(1, b"small"), result(2, large()))),
    wire.Assign(1, 0.0, (wire.Work(1, 1, 0, "d" * 64, 1.0, wire.TaskOptions(), 0, large()),)),
    wire.Outcomes(
        1, "bag", (wire.pack_columns(([0, 1], [0], [1.0], ["pc"], [None, b""])),), (large(),), 2, 2, 2, closed=True
    ),
]


def sent(message: wire.Message) -> tuple[bytes, list[memoryview]]:
    """What is said, and the frames behind it."""
    values: list[Chunks] = []
    data = wire.encode(message, values)
    return data, [frame for value in values for frame in value.frames()]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_they_arrive_in_frames_or_inside_their_message(message: wire.Message) -> None:
    data, frames = sent(message)
    assert len(data) < CHUNK_BYTES
    assert all(0 < len(frame) <= CHUNK_BYTES for frame in frames)
    inside = wire.encode(message)
    assert len(inside) > LARGE_BYTES
    assert wire.encode(wire.decode(data, frames)) == inside


def test_what_is_large_in_a_message_of_a_worker_or_a_client_is_told() -> None:
    assert [bytes(value) for value in wire.large_of(SUBMIT)] == [DATA, DATA[::-1]]
    assert [bytes(value) for value in wire.large_of(MESSAGES[1])] == [DATA]
    assert wire.large_of(wire.Goodbye("")) == []


def test_only_what_is_large_travels_so() -> None:
    assert wire.payload_of(DATA[:-2]) == DATA[:-2]
    assert len(large()) == len(DATA)
    assert wire.frames_of([b"said", large(), b"more"])[1] == DATA[:CHUNK_BYTES]


def test_frames_that_do_not_fit_their_message_are_refused() -> None:
    data, frames = sent(replace(SUBMIT, payloads=(large(),)))
    for wrong, reason in (
        (frames[:-1], "not all there"),
        ([*frames[:-1], memoryview(b"")], "not all there"),
        ([*frames[:-1], memoryview(DATA)], "ends within a frame"),
        ([*frames, memoryview(b"x")], "more frames"),
    ):
        with pytest.raises(wire.ProtocolError, match=reason):
            wire.decode(data, wrong)


@pytest.mark.parametrize("size", [0, LARGE_BYTES - 1, wire.PAYLOAD_LIMIT + 1, 2**64 - 1])
def test_a_length_that_no_large_payload_has_is_refused(size: int) -> None:
    tag = wire.MESSAGES.index(wire.Finished)
    columns = [[1], [1], [0], [0.5], [msgpack.ExtType(1, size.to_bytes(8, "big"))], [b""], [b""], [False]]
    with pytest.raises(wire.ProtocolError, match=f"a large payload of {size} bytes"):
        wire.decode(msgpack.packb([tag, columns]), [memoryview(DATA)] * 99)


def test_one_large_payload_is_that_of_one_row() -> None:
    """For the broker keeps it as a file, and that is one task's."""
    same = large()
    data, frames = sent(wire.Finished((result(1, same), result(2, same))))
    with pytest.raises(wire.ProtocolError, match="one large payload for 2 rows"):
        wire.decode(data, frames)


@pytest.mark.parametrize("start", [0, 5, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES])
@pytest.mark.parametrize("most", [0, 7, CHUNK_BYTES + 2, 2 * CHUNK_BYTES])
def test_a_slice_has_the_bytes_that_it_should_and_is_large_only_if_they_are_many(start: int, most: int) -> None:
    data = os.urandom(2 * CHUNK_BYTES + 100)
    for payload in (data, Chunks([memoryview(data)[:10], memoryview(data)[10:]])):
        part = wire.slice_of(payload, start, most)
        assert bytes(part) == data[start : start + most]
        assert isinstance(part, Chunks) == (len(part) >= LARGE_BYTES)
