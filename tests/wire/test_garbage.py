"""Whatever arrives, `decode` gives a message or raises ProtocolError, in one line: never anything else."""

import math
import random
import struct
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskgrid import wire
from tests.wire.drawing import fits, harmed, messages, messages_of

TAGS = {kind: tag for tag, kind in enumerate(wire.MESSAGES)}
# A row with most sorts of field, by name; ``frame(outcome=[True])`` is garbage but for its form.
GOOD: dict[str, Any] = wire.Result(3, 4, 0, 0.5, b"payload", b"", b"")._asdict()


def frame(*more: Any, **changes: Any) -> bytes:
    """A `Finished` with one result, with ``changes`` to its columns and ``more`` of them."""
    columns = {name: [value] for name, value in GOOD.items()} | changes
    return packed([TAGS[wire.Finished], [*columns.values(), *more]])


def packed(values: Any) -> bytes:
    return bytes(msgpack.packb(values))


def judged(data: bytes) -> wire.Message | None:
    """The message in ``data``, or None when it was refused as it has to be; anything else fails the test."""
    try:
        return wire.decode(data)
    except wire.ProtocolError as error:
        reason = str(error)
    assert reason.isprintable()
    assert len(reason) < 160
    return None


@given(st.lists(st.binary(max_size=64), min_size=12, max_size=12))
@settings(max_examples=1_000)
def test_arbitrary_bytes_give_a_message_or_the_one_error(frames: list[bytes]) -> None:
    for data in frames:
        judged(data)


# Each as the fields of every message: by chance alone, bytes seldom begin with an array and a tag.
@given(st.integers(0x90, 0x9F), st.binary(max_size=40))
@settings(max_examples=400)
def test_arbitrary_fields_give_a_message_or_the_one_error(head: int, fields: bytes) -> None:
    for tag in range(len(TAGS) + 1):
        judged(bytes([head, tag]) + fields)


def _damaged(data: bytes, dice: random.Random) -> bytes:
    """``data`` with a byte changed, added or gone, or with its end gone."""
    place, byte = dice.randrange(len(data)), bytes([dice.randrange(256)])
    rest = dice.choice((byte + data[place + 1 :], byte + data[place:], data[place + 1 :], b""))
    return data[:place] + rest or byte


@given(messages.map(wire.encode), st.integers(0, 2**32))
@settings(max_examples=500)
def test_a_damaged_message_is_a_message_or_the_one_error(whole: bytes, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        data = whole
        for _ in range(dice.randint(1, 3)):
            data = _damaged(data, dice)
        message = judged(data)
        if message is not None:
            assert wire.decode(wire.encode(message)) == message, data


@pytest.mark.parametrize("kind", wire.MESSAGES)
@given(data=st.data())
@settings(max_examples=4)
def test_a_message_is_taken_exactly_when_its_fields_are_of_their_types(
    kind: type[wire.Message], data: st.DataObject
) -> None:
    values = msgpack.unpackb(wire.encode(data.draw(messages_of(kind))))[1:]
    assert fits(values, kind)
    for some in harmed(values):
        taken = judged(packed([TAGS[kind], *some])) is not None
        assert taken == fits(some, kind), some


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not msgpack"),
        (b"GET / HTTP/1.1\r\n\r\n", "expected an array"),
        (packed(None), "expected an array"),
        (packed([]), "not msgpack"),
        (packed({"0": 1}), "expected an array"),
        (packed([True]), "no known tag"),
        (packed([1.0, 0.5, []]), "no known tag"),
        (packed([-1]), "no known tag"),
        (packed([len(TAGS)]), "no known tag"),
        (packed([2**64 - 1]), "no known tag"),
        (packed(["Rejoin"]), "no known tag"),
        (packed([TAGS[wire.Rejoin], 1]), "Rejoin has 0 fields, got 1"),
        (packed([TAGS[wire.Failed], 1]), "Failed has 2 fields, got 1"),
        (packed([TAGS[wire.Rejoin]]) + b"\0", "not msgpack"),
        (frame()[:-1], "not msgpack"),
        (frame()[:2] + b"\x98\x93\x01\x02", "it is not all there"),
        (frame([7]), "not the 8 columns of Result"),
        (frame(task=[True]), "expected int, got bool"),
        (frame(task=[1.0]), "expected int, got float"),
        (frame(task=[None]), "expected int, got NoneType"),
        (frame(task=[-1]), "not an integer from 0"),
        (frame(task=[2**63]), "not an integer from 0"),
        (frame(task=[3, 4, -1]), "not an integer from 0 to 9223372036854775807: -1"),
        (frame(task=[3, 4, "5"]), "expected int, got str"),
        (frame(task=7), "expected an array"),
        (frame(task=[]), r"columns of Result with \[0, 1, 1, 1, 1, 1, 1, 1\] values"),
        (frame(number=[]), r"columns of Result with \[1, 0, 1, 1, 1, 1, 1, 1\] values"),
        (frame(number=[4, 5]), r"columns of Result with \[1, 2, 1, 1, 1, 1, 1, 1\] values"),
        (frame(task=[3, 4, 5], number=[4, 5]), r"columns of Result with \[3, 2, 1, 1, 1, 1, 1, 1\] values"),
        (frame(elapsed=[1]), "expected float, got int"),
        (frame(elapsed=[math.nan]), "not a number from 0 to 1e[+]10: nan"),
        (frame(task=[3, 4, 5], elapsed=[1.0, math.nan, 2.0]), "not a number from 0 to 1e[+]10: nan"),
        (frame(elapsed=[math.inf]), "not a number .*: inf"),
        (frame(task=[3, 4], elapsed=[math.inf, -math.inf]), "not a number .*: inf"),
        (frame(elapsed=[-math.inf]), "not a number .*: -inf"),
        (frame(elapsed=[-1e-9]), "not a number .*: -1e-09"),
        (frame(elapsed=[1e10 + 1]), "not a number .*: 10000000001.0"),
        (frame(payload=["p"]), "expected bytes, got str"),
        (frame(payload=[msgpack.ExtType(5, b"p")]), "an extension of type 5"),
        (frame(payload=[msgpack.Timestamp(1, 2)]), "expected bytes, got Timestamp"),
        (packed([TAGS[wire.Finished], {"results": []}]), "Finished.results: expected an array"),
        (packed([TAGS[wire.Finished], [GOOD]]), "expected an array"),
        (packed([TAGS[wire.Goodbye], b"bytes"]), "expected str, got bytes"),
        # Text that is not UTF-8, a key that cannot be one, a timestamp with too many nanoseconds, a reserved byte.
        (bytes([0x92, TAGS[wire.Goodbye], 0xA2, 0xC3, 0x28]), "not msgpack"),
        (bytes([0x92, TAGS[wire.Goodbye], 0x81, 0x90, 0x00]), "not msgpack"),
        (bytes([0x92, TAGS[wire.Goodbye], 0xC7, 12, 0xFF]) + b"\xff" * 12, "not msgpack"),
        (bytes([0x92, TAGS[wire.Goodbye], 0xC1]), "not msgpack"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, reason: str) -> None:
    with pytest.raises(wire.ProtocolError, match=reason):
        wire.decode(data)


# Array, map, string, binary, extension: "four thousand million of them follow".
@pytest.mark.parametrize("code", [0xDD, 0xDF, 0xDB, 0xC6, 0xC9])
@pytest.mark.parametrize("prefix", [b"", bytes([0x92, TAGS[wire.Goodbye]])])
def test_a_huge_declared_length_costs_no_memory(code: int, prefix: bytes) -> None:
    data = prefix + struct.pack(">BI", code, 0xFFFF_FFFF) + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(wire.ProtocolError):
            wire.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# Some of these depths can be unpacked but not printed, or printed but not unpacked.
@pytest.mark.parametrize("depth", [10, 500, 900, 990, 1000, 1010, 1020, 1030, 5000, 200_000])
@pytest.mark.parametrize("kind", [wire.Answer, wire.Goodbye, wire.Finished, wire.Heartbeat])
def test_deep_nesting_is_refused(kind: type[wire.Message], depth: int) -> None:
    fields = b"\xa0" * (len(kind.__dataclass_fields__) - 1)
    data = bytes([0x92 + len(fields), TAGS[kind]]) + b"\x91" * depth + b"\x90" + fields
    assert judged(data) is None
