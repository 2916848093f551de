"""What a worker says of a failure becomes a value that cannot surprise, whatever it is."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.wire import UNREADABLE, Failure, read_failure
from deskgrid.worker.run.child import error_payload


def nested(depth: int) -> bytes:
    """A message nested so deeply, in the account of an error."""
    return b"\x94" + b"\xa1k" + b"\x91" * depth + b"\x90" + b"\xa1t" + b"\xc4\x00"


UNREADABLES = [
    b"",
    b"\xc1",
    b"\x80",
    b"\x93\xa0\xa0\xa0",
    msgpack.packb({"kind": "k", "message": "m", "trace": "t", "pickled": b""}),
    msgpack.packb(["k", "m", "t"]),
    msgpack.packb(["k", "m", "t", b"", -1]),
    msgpack.packb(["k", "m", "t", b"", True]),
    msgpack.packb(["k", "m", "t", b"", 1, 1]),
    msgpack.packb(["k", "m", "t", "p"]),
    msgpack.packb([b"k", "m", "t", b""]),
    msgpack.packb(["k", 2**63, "t", b""]),
    msgpack.packb(["k", ["m"], "t", b""]),
    msgpack.packb(["k", {}, "t", b""]),
    msgpack.packb(["k", None, "t", b""]),
    msgpack.packb(["k", "m", "t", msgpack.ExtType(1, (2**20).to_bytes(8, "big"))]),
    msgpack.packb(["k", "m", "t", b""]) + b"\x00",
    msgpack.packb(["k", "m", "t", bytes(2**20)]),
    *map(nested, (1, 500, 990, 1000, 1010, 1020, 100_000)),
]


@pytest.mark.parametrize("payload", UNREADABLES, ids=lambda payload: repr(payload[:12]))
def test_an_account_that_makes_no_sense_is_an_unreadable_one(payload: bytes) -> None:
    assert read_failure(payload) is UNREADABLE


def test_an_account_of_the_size_of_a_result_is_unreadable() -> None:
    assert read_failure(wire.payload_of(bytes(wire.LARGE_BYTES))) is UNREADABLE


@given(st.binary(max_size=64))
def test_whatever_an_account_is_it_is_read(payload: bytes) -> None:
    failure = read_failure(payload)
    assert failure is UNREADABLE or read_failure(failure.packed()) == failure


@given(st.text(), st.text(), st.text(), st.binary(max_size=64), st.none() | st.integers(0, 1023))
def test_a_failure_is_read_as_it_was_packed(
    kind: str, message: str, trace: str, pickled: bytes, rank: int | None
) -> None:
    failure = Failure(kind, message, trace, pickled, rank)
    assert read_failure(failure.packed()) == failure
    assert failure.kind.isprintable()
    assert failure.message.replace("\n", "").replace("\t", "").isprintable()


def test_a_failure_is_clean_and_short() -> None:
    failure = Failure("K\x1b[2J" * 999, "a\x07\r\nb\u202ec\tz", "x" * 10**6, bytes(10**6))
    assert failure.kind == ("K?[2J" * 999)[:252] + "..."
    assert failure.message == "a?\nb?c\tz"
    assert len(failure.trace) <= wire.ACCOUNT_CHARACTERS
    assert "characters cut" in failure.trace
    assert failure.pickled == b""


def test_the_process_that_runs_tasks_packs_a_failure_as_we_do() -> None:
    said = ("ValueError", "no", "Traceback ...", b"pickled")
    assert Failure(*said).packed() == error_payload(*said)


def finished(columns: list[list[Any]]) -> tuple[wire.Result, ...]:
    """The results in a message with these columns."""
    message = wire.decode(msgpack.packb([wire.MESSAGES.index(wire.Finished), columns]))
    assert isinstance(message, wire.Finished)
    return message.results


def test_accounts_are_read_where_they_enter_and_results_are_not() -> None:
    account = error_payload("ValueError", "no\x1b", "", b"")
    outcomes = [0, 1, 2, 3, 4, 5]
    rows = finished([[*range(6)], [1], outcomes, [0.5], [account], [b""], [b""], [False]])
    tidy = Failure("ValueError", "no?").packed()
    assert [row.payload for row in rows] == [account, tidy, tidy, tidy, b"", b""]
    (row,) = finished([[1], [1], [2], [0.5], [nested(1000)], [b""], [b""], [False]])
    assert row.payload == UNREADABLE.packed()


def test_one_account_of_many_rows_is_read_once() -> None:
    account = error_payload("E", "x" * 60_000, "y" * 60_000, b"")
    rows = finished([[*range(500)], [1], [1], [0.5], [account], [b""], [b""], [False]])
    assert len({id(row.payload) for row in rows}) == 1
