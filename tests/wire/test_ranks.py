"""The results of a gang's ranks travel as one payload, and come out as they went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.wire.ranks import RANKS_MARK, RanksRefused, join_ranks, split_ranks

LARGE = wire.payload_of(bytes(range(256)) * (wire.LARGE_BYTES // 256 + 1))
MIDDLE = b"m" * (wire.LARGE_BYTES // 2)


def contents(payloads: list[wire.Payload] | None) -> list[bytes]:
    assert payloads is not None
    return [bytes(payload) for payload in payloads]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_results_come_out_as_they_went_in(payloads: list[bytes]) -> None:
    joined = join_ranks(payloads)
    assert isinstance(joined, bytes)
    assert split_ranks(joined) == payloads


@pytest.mark.parametrize("payloads", [[LARGE], [b"a", LARGE, b"", b"b", LARGE, b"c"], [MIDDLE, MIDDLE]], ids=len)
def test_large_results_come_out_as_they_went_in(payloads: list[wire.Payload]) -> None:
    joined = join_ranks(payloads)
    assert isinstance(joined, wire.Chunks)
    found = split_ranks(joined)
    assert contents(found) == contents(payloads)
    assert [isinstance(payload, wire.Chunks) for payload in found or ()] == [
        isinstance(payload, wire.Chunks) for payload in payloads
    ]


@pytest.mark.parametrize("payload", [b"", b"\x80\x05N.", b"text", wire.MARK + b"\x00"], ids=repr)
def test_another_payload_is_not_the_result_of_a_gang(payload: bytes) -> None:
    assert split_ranks(payload) is None
    assert split_ranks(wire.payload_of(payload + bytes(wire.LARGE_BYTES))) is None


@pytest.mark.parametrize(
    "payload",
    [
        RANKS_MARK,
        RANKS_MARK + bytes(4),
        RANKS_MARK + b"\xff\xff\xff\xff",
        bytes(join_ranks([b"a", b"b"]))[:-1],
        bytes(join_ranks([b"a", b"b"])) + b"c",
    ],
    ids=repr,
)
def test_a_payload_that_makes_no_sense_is_refused(payload: wire.Payload) -> None:
    with pytest.raises(RanksRefused, match="the result of a gang whose"):
        split_ranks(payload)


@given(st.binary(max_size=64))
def test_whatever_follows_the_mark_is_read_or_refused(rest: bytes) -> None:
    try:
        found = split_ranks(RANKS_MARK + rest)
    except RanksRefused:
        return
    assert found is not None
    assert join_ranks(found) == RANKS_MARK + rest
