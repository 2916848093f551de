"""Every limit, from both sides: what is at it is taken, what is over it is refused; and honest peers keep to them."""

import runpy
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.scheduler.placing import placing
from deskgrid.wire import fields
from deskgrid.wire.codec import FIELDS
from deskgrid.wire.table import BEGIN, END, markdown
from deskgrid.wire.task_options import PackedOptions
from deskgrid.worker.run import child, executor

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 2**63 - 1
TAGS = {kind: tag for tag, kind in enumerate(wire.MESSAGES)}


def values(limit: Any) -> tuple[list[Any], list[Any]]:
    """For a plain field: values at its limits, and values just beyond."""
    made: tuple[list[Any], list[Any]]
    match limit:
        case fields.Optional(inner=inner):
            good, bad = values(inner)
            made = [None, *good], bad
        case fields.Integer(least=least, most=most):
            made = [least, most], [least - 1, most + 1]
        case fields.Real(most=most):
            made = [0.0, most], [-1.0, 2 * most]
        case fields.Ratio(least=smallest, most=most):
            made = [smallest, 1.0, most], [0.0, smallest / 2, 2 * most, 1, float("nan")]
        case fields.Flag():
            made = [True, False], [0, 1]
        case fields.Line(most=most):
            made = ["", "a" * most, "é" * (most // 2)], ["a" * (most + 1), "é" * (most // 2 + 1)]
        case fields.Document(most=most):
            made = ["", "a" * most], ["a" * (most + 1)]
        case fields.Word(pattern=pattern):
            good = [
                word
                for word in ("3.12", "d" * 64, "a" * 64, "b-1~2", "gpu=1", "a" * 64 + "=0.125")
                if pattern.fullmatch(word)
            ]
            made = good, ["", "a" * 65, "\x1b[2J", "b 1", "b1\n", "../b1", "3.12.1\n"]
        case PackedOptions(most=most):
            sized = [msgpack.packb({"timeout": 1.0} | {"x" * most: 1}), b"\x80" * (most + 1)]
            made = [b"\x80", msgpack.packb({"timeout": 1.0, "retries": wire.RETRIES_LIMIT})], ["", b"", *sized]
        case fields.Digests(most=most):
            made = [b"", bytes(32), bytes(32 * most)], ["", bytes(31), bytes(33), bytes(32 * most + 32)]
        case fields.Data(most=most, chunks=behind):
            # What may lie behind the message is too large to stand in it.
            made = ([b""], [""]) if behind else ([b"", bytes(most)], [bytes(most + 1)])
        case _:
            raise AssertionError(limit)
    return made


def least(limit: Any) -> Any:
    """The smallest thing that a field may be."""
    inner = limit.inner if isinstance(limit, fields.Optional) else limit
    return [] if isinstance(inner, fields.Many | fields.Rows) else values(limit)[0][0]


PLAIN = [
    (kind, name)
    for kind, its in FIELDS.items()
    for name, field in its.items()
    if not isinstance(field.inner if isinstance(field, fields.Optional) else field, fields.Many | fields.Rows)
]


def taken(kind: type[wire.Message], changes: dict[str, Any]) -> bool:
    """Whether a message with these values, and the smallest in other places, is decoded."""
    array = [TAGS[kind], *(changes.get(name, least(field)) for name, field in FIELDS[kind].items())]
    try:
        wire.decode(msgpack.packb(array))
    except wire.ProtocolError as error:
        reason = str(error)
    else:
        return True
    assert len(reason) < 160
    assert reason.isprintable()
    return False


@pytest.mark.parametrize(("kind", "name"), PLAIN)
def test_a_field_takes_what_is_at_its_limit_and_nothing_beyond(kind: type[wire.Message], name: str) -> None:
    good, bad = values(FIELDS[kind][name])
    for value in good:
        assert taken(kind, {name: value}), value
    for value in bad:
        assert not taken(kind, {name: value}), repr(value)[:80]


TABLES = [
    (kind, name)
    for kind, its in FIELDS.items()
    for name, field in its.items()
    if isinstance(field.inner if isinstance(field, fields.Optional) else field, fields.Many | fields.Rows)
]


@pytest.mark.parametrize(("kind", "name"), TABLES)
def test_an_array_takes_as_many_values_as_it_may_have_and_no_more(kind: type[wire.Message], name: str) -> None:
    field = FIELDS[kind][name]
    field = field.inner if isinstance(field, fields.Optional) else field

    def filled(count: int) -> Any:
        if isinstance(field, fields.Many):
            return [least(field.inner)] * count
        first, *others = [least(column) for column in field.columns]
        return [[first] * count, *([other] for other in others)]

    assert taken(kind, {name: filled(field.most)})
    assert not taken(kind, {name: filled(field.most + 1)})


@pytest.mark.parametrize("place", range(7))
def test_what_is_wrong_in_any_column_of_a_row_is_refused(place: int) -> None:
    rows = FIELDS[wire.Finished]["results"]
    good = [[least(column)] * 3 for column in rows.columns]
    assert taken(wire.Finished, {"results": good})
    for bad in values(rows.columns[place])[1]:
        if not isinstance(bad, bytes) or len(bad) < 2**20:
            for where in range(3):
                harmed = [[*column] for column in good]
                harmed[place][where] = bad
                assert not taken(wire.Finished, {"results": harmed})


@pytest.mark.parametrize(
    ("place", "wrong"), [(3, [1, 2]), (3, ["d" * 64, b"d"]), (5, [b"\x80", None]), (6, [0, -1]), (7, [b"", ""])]
)
def test_what_is_wrong_in_a_column_of_work_is_refused(place: int, wrong: list[Any]) -> None:
    columns: list[list[Any]] = [[1, 2], [1, 2], [0], ["d" * 64], [1.0], [b"\x80"], [0], [b""], [None], [""], [None]]
    assert taken(wire.Assign, {"work": columns})
    columns[place] = wrong
    assert not taken(wire.Assign, {"work": columns})


def test_a_column_may_have_a_value_in_some_rows_only() -> None:
    row = wire.Running(1, 1, 0, None)
    leave = wire.Leave("", True, True, (), (row, row._replace(elapsed=0.5), row))
    assert wire.decode(wire.encode(leave)) == leave


def test_a_worker_that_is_no_text_is_refused() -> None:
    outcomes = wire.Outcomes(1, "b", (msgpack.packb([[0, 1], [0], [1.0], ["pc", 1], [b""]]),), (), 1, 1, 1, closed=True)
    with pytest.raises(wire.ProtocolError, match="expected str, got int"):
        wire.results_in(outcomes)


def test_a_control_message_has_a_mebibyte_at_most() -> None:
    bare = wire.Stop(tuple(wire.Ref(LARGEST - row, LARGEST) for row in range(wire.HELD_ROWS)))
    assert len(wire.encode(bare)) < wire.CONTROL_BYTES
    padded = [TAGS[wire.Goodbye], "x" * wire.CONTROL_BYTES]
    with pytest.raises(wire.ProtocolError, match="not a message that may have more than 1,048,576 bytes"):
        wire.decode(msgpack.packb(padded))


@pytest.mark.parametrize("kind", [wire.Finished, wire.Submit, wire.Blob])
def test_what_a_peer_says_in_one_message_has_8_mib_at_most(kind: type[wire.Message]) -> None:
    beginning = msgpack.packb([TAGS[kind], *[None] * len(FIELDS[kind])])
    for size, reason in ((wire.SAID_BYTES, kind.__name__), (wire.SAID_BYTES + 1, "more than 3,145,728 bytes")):
        with pytest.raises(wire.ProtocolError, match=reason):
            wire.decode(beginning.ljust(size, b"\xc0"))


def test_one_value_of_many_rows_is_not_made_more_of_than_a_message_has() -> None:
    count = wire.RESULTS_ROWS
    columns = [[*range(count)], [1], [0], [0.5], [bytes(wire.LARGE_BYTES - 1)], [b""], [b""], [False]]
    with pytest.raises(wire.ProtocolError, match="500 rows that have more than 70,254,592 bytes"):
        wire.decode(msgpack.packb([TAGS[wire.Finished], columns]))


# --- honest peers keep to them ---------------------------------------------------------------------------------------


def test_the_longest_introduction_of_an_honest_worker_is_taken() -> None:
    name = "n" * wire.NAME_BYTES
    windows = tuple(wire.Window(float(number), 0.1) for number in range(wire.WINDOWS_LIMIT))
    running = tuple(
        wire.Running(LARGEST - row, LARGEST - row, wire.SLOTS_LIMIT - 1 - row % 9, 0.1) for row in range(wire.HELD_ROWS)
    )
    join = wire.Join(
        wire.VERSION, ("3.12",), name, "s" * 64, LARGEST, name, name, 1024, "windows", "p" * 1024, 0.1, windows, running
    )
    assert wire.decode(wire.encode(join)) == join


def test_a_worker_is_given_no_more_than_it_can_name_at_once() -> None:
    assert placing.WORKER_TASKS == wire.HELD_ROWS
    assert placing.WORKER_TASKS // wire.SLOTS_LIMIT > 1


def test_what_a_worker_keeps_of_a_task_is_within_the_limits() -> None:
    assert executor.CAPTURE_LIMIT + len(b"\n[... %d bytes cut ...]\n" % sys.maxsize) <= wire.PRINTED_BYTES
    assert len(child._shortened("x" * 10**6)) <= wire.ACCOUNT_CHARACTERS
    assert (child.MARK, child.HEAD_BYTES, child.DIGEST_BYTES) == (wire.MARK, 4, wire.DIGEST_BYTES)
    assert (child.VALUE, child.VALUE_LIMIT) == (wire.VALUE, wire.VALUE_BYTES)
    assert child.GATHER_LIMIT == wire.SAID_AT_MEETING_BYTES
    assert (child.TEXT_LIMIT, child.RAW_LIMIT) == (wire.PICKLED_BYTES, wire.PAYLOAD_LIMIT)
    assert child.REPORT_LIMIT > wire.LARGE_BYTES + 2 * wire.PRINTED_BYTES
    longest = child.error_payload("k" * 999, "\U0001f9ea" * 10**6, "\U0001f9ea" * 10**6, bytes(child.TEXT_LIMIT))
    assert len(longest) < wire.LARGE_BYTES
    failure = wire.read_failure(longest)
    assert len(failure.pickled) == child.TEXT_LIMIT
    assert (failure.kind, failure.message, failure.trace) == tuple(msgpack.unpackb(longest)[:3])


def test_lines_that_are_too_long_are_cut_by_whoever_sends_them() -> None:
    sent = wire.decode(wire.encode(wire.Failed(1, "é" * 5_000)))
    assert isinstance(sent, wire.Failed)
    assert sent.reason == "é" * 510 + "..."


def test_results_that_a_process_tells_are_checked_like_those_that_travel() -> None:
    good = [1, 2, 0, 0.5, b"value", b"out", b"err", True]
    failed = [2, 3, 1, 0.5, b"\xc1", b"", b"", False]
    first, second = wire.results_of_tasks([good, failed])
    assert first == wire.Result(1, 2, 0, 0.5, b"value", b"out", b"err", True)
    assert second.payload == wire.UNREADABLE.packed()
    assert wire.results_of_tasks([]) == ()
    for place, value in enumerate([True, "2", 10, -1.0, "value", bytes(wire.PRINTED_BYTES + 1), None, 1]):
        with pytest.raises(wire.ProtocolError):
            wire.results_of_tasks([[*good[:place], value, *good[place + 1 :]], failed])
    wrongs: list[list[list[object]]] = [[good[:-1]], [good, good[:-1]], [[]]]
    for wrong in wrongs:
        with pytest.raises(wire.ProtocolError):
            wire.results_of_tasks(wrong)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_table_of_limits_in_the_page_is_that_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    found = page[page.index(BEGIN) : page.index(END) + len(END)]
    runpy.run_module("deskgrid.wire", run_name="__main__")
    assert capsys.readouterr().out == f"{markdown()}\n"
    assert found == markdown(), "put what `python -m deskgrid.wire` prints into docs/reference/limits.md"
