"""Results travel in pieces, packed once; what is no results is refused when somebody wants to read it."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.wire import BagResult, Chunks

SECONDS = st.floats(0.0, wire.SECONDS_LIMIT)
Row = tuple[int, int, float, str, bytes]
ROWS = st.lists(
    st.tuples(st.integers(0, wire.BAG_LIMIT), st.integers(0, 5), SECONDS, st.sampled_from(["pc1", "pc2"]), st.binary()),
    min_size=1,
)


def large() -> Chunks:
    payload = wire.payload_of(bytes(wire.LARGE_BYTES))
    assert isinstance(payload, Chunks)
    return payload


def told(*pieces: bytes, large: tuple[wire.Payload, ...] = ()) -> wire.Outcomes:
    return wire.Outcomes(1, "bag", pieces, large, 1, 1, 1, closed=True)


@given(st.lists(ROWS))
def test_pieces_are_read_as_the_rows_they_were_packed_of(
    pieces: list[list[Row]],
) -> None:
    packed = [wire.pack_columns([*zip(*rows, strict=True)]) for rows in pieces]
    outcomes = wire.decode(wire.encode(told(*packed)))
    assert isinstance(outcomes, wire.Outcomes)
    assert wire.results_in(outcomes) == tuple(BagResult(*row) for rows in pieces for row in rows)


def test_large_payloads_take_their_places_in_order() -> None:
    first, second = large(), large()
    pieces = [
        wire.pack_columns(([0, 1], [0], [1.0], ["pc"], [None, b"small"])),
        wire.pack_columns(([2], [0], [1.0], ["pc"], [None])),
    ]
    rows = wire.results_in(told(*pieces, large=(first, second)))
    assert [row.payload for row in rows] == [first, b"small", second]


def test_large_payloads_of_all_rows_take_their_places_too() -> None:
    """They are all nil in the piece, and so nil once."""
    piece = wire.pack_columns(([0, 1], [0], [1.0], ["pc"], [None, None]))
    first, second = large(), large()
    assert [row.payload for row in wire.results_in(told(piece, large=(first, second)))] == [first, second]


def test_the_name_of_a_worker_that_an_older_journal_holds_is_cut() -> None:
    (row,) = wire.results_in(told(wire.pack_columns(([0], [0], [1.0], ["é" * 500], [b""]))))
    assert row.worker == "é" * 126 + "..."


def test_a_piece_without_rows_has_none() -> None:
    assert wire.results_in(told(msgpack.packb([]))) == ()


PIECE = wire.pack_columns(([0, 1], [0], [1.0], ["pc"], [b"a", b"b"]))
NIL = wire.pack_columns(([0], [0], [1.0], ["pc"], [None]))


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        (told(b"\xc1"), "not results"),
        (told(msgpack.packb(1)), "expected an array"),
        (told(msgpack.packb([[0]])), "not the 5 columns of BagResult"),
        (told(msgpack.packb([[0], [0], [1.0], ["pc"], ["text"]])), "expected bytes"),
        (told(msgpack.packb([[0, 1], [0], [1.0], ["pc"], [b"", b"", b""]])), "columns of BagResult with"),
        (told(NIL), "expected bytes, got NoneType"),
        (told(NIL, NIL, large=(large(),)), "expected bytes, got NoneType"),
        (told(PIECE, large=(large(),)), "more large payloads"),
        (told(msgpack.packb({}), large=(large(),)), "not results"),
        (told(msgpack.packb(1), large=(large(),)), "not results"),
    ],
)
def test_what_is_no_results_is_refused(outcomes: wire.Outcomes, reason: str) -> None:
    with pytest.raises(wire.ProtocolError, match=reason):
        wire.results_in(outcomes)
