"""What is made of a message has at most eight times its length, and some megabytes for its rows, whatever it is."""

import tracemalloc
from collections.abc import Callable, Iterator

import msgpack
import pytest

from deskgrid import wire
from deskgrid.wire.codec import FIELDS
from deskgrid.wire.fields import Many, Optional, Rows

TAGS = {kind: tag for tag, kind in enumerate(wire.MESSAGES)}
SIZE = 2**18
# For the rows of one message, of which there are 10,000 at most.
ROWS_BYTES = 16 * 2**20

# Small things of which many fit: empty containers, nil, small integers, empty texts; nested ones; promises.
FILLINGS = {
    "empty arrays": b"\x90",
    "empty maps": b"\x80",
    "nil": b"\xc0",
    "integers": b"\x01",
    "texts": b"\xa0",
    "bytes": b"\xc4\x00",
    "nested arrays": b"\x91",
    "nested maps": b"\x81\x01",
    "timestamps": b"\xd6\xff\x00\x00\x00\x01",
    "extensions": b"\xd7\x01\x00\x00\x00\x00\x00\x10\x00\x00",
    "numbers": b"\xcf\x7f\xff\xff\xff\xff\xff\xff\xff",
}


def peak_of(action: Callable[[], object]) -> int:
    """Bytes that are held at most while ``action`` runs, besides those before."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def attempt(data: bytes) -> None:
    """Decode it, whatever comes of it."""
    try:
        wire.decode(data)
    except wire.ProtocolError:
        return


def hostile(filling: bytes) -> Iterator[bytes]:
    """Messages of every kind that have, in each place, as much of ``filling`` as makes `SIZE`."""
    body = filling * (SIZE // len(filling))
    count = SIZE // len(filling)
    array = b"\xdd" + count.to_bytes(4, "big")
    for kind, fields in FIELDS.items():
        head = b"\x9f" if len(fields) == 14 else bytes([0xDC, 0, len(fields) + 1])
        yield head + bytes([TAGS[kind]]) + array + body
        for field in fields.values():
            inner = field.inner if isinstance(field, Optional) else field
            if isinstance(inner, Rows):
                yield head + bytes([TAGS[kind]]) + bytes([0x90 + len(inner.columns)]) + array + body
                most = inner.most.to_bytes(4, "big")
                columns = (b"\xdd" + most + filling * inner.most) * len(inner.columns)
                yield head + bytes([TAGS[kind]]) + bytes([0x90 + len(inner.columns)]) + columns + body
            elif isinstance(inner, Many):
                yield head + bytes([TAGS[kind]]) + b"\xdd" + inner.most.to_bytes(4, "big") + body


@pytest.mark.parametrize("filling", FILLINGS.values(), ids=FILLINGS)
def test_decoding_does_not_multiply(filling: bytes) -> None:
    for data in hostile(filling):
        assert peak_of(lambda data=data: attempt(data)) < 8 * len(data) + ROWS_BYTES  # type: ignore[misc]


def test_valid_messages_with_as_many_rows_as_there_may_be_do_not_multiply() -> None:
    refs = wire.encode(wire.Returned(tuple(wire.Ref(1, 1) for _ in range(wire.HELD_ROWS))))
    attempts = wire.encode(wire.Leave("", True, True, (), (wire.Running(1, 1, 1, 0.5),) * wire.HELD_ROWS))
    results = (wire.Result(1, 1, 1, 0.5, b"", b"", b""),) * wire.RESULTS_ROWS
    for data in (refs, attempts, wire.encode(wire.Finished(results))):
        assert peak_of(lambda data=data: wire.decode(data)) < 8 * len(data) + ROWS_BYTES  # type: ignore[misc]


def test_results_of_a_hostile_broker_do_not_multiply() -> None:
    for filling in FILLINGS.values():
        count = SIZE // len(filling)
        piece = b"\x95" + b"\xdd" + count.to_bytes(4, "big") + filling * count
        outcomes = wire.Outcomes(1, "bag", (piece,), (), 1, 1, 1, closed=True)

        def read(outcomes: wire.Outcomes = outcomes) -> None:
            with pytest.raises(wire.ProtocolError):
                wire.results_in(outcomes)

        assert peak_of(read) < 8 * len(piece) + ROWS_BYTES


def test_accounts_do_not_multiply() -> None:
    for filling in FILLINGS.values():
        payload = b"\x94" + filling * (wire.LARGE_BYTES // len(filling) - 1)
        assert peak_of(lambda payload=payload: wire.read_failure(payload)) < 8 * len(payload)  # type: ignore[misc]


def test_a_valid_blob_is_copied_no_more_than_it_has_to_be() -> None:
    data = msgpack.packb([TAGS[wire.Blob], "d" * 64, bytes(wire.SAID_BYTES - 100)])
    assert peak_of(lambda: wire.decode(data)) < 2.2 * len(data)
