"""What a process prints is split at its marks, however it is cut, and what is kept of it is bounded."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskgrid.wire import payload_of
from deskgrid.worker.run.child import PIPE_MOST, Splitter
from deskgrid.worker.run.output import PRINTED, HeadAndTail, Outputs, with_printed, without_printed

MARK = b"aabaabaac"
MIB = 2**20


@given(st.lists(st.text("abc", max_size=40).map(str.encode), min_size=1, max_size=6), st.integers(1, 30))
@settings(max_examples=60)
def test_marks_are_found_however_a_stream_is_cut(pieces: list[bytes], step: int) -> None:
    stream = MARK.join(pieces)
    splitter, found = Splitter(MARK), [b""]
    for place in range(0, len(stream), step):
        first, *others = splitter.split(stream[place : place + step])
        found[-1] += first
        found += others
    found[-1] += splitter.held
    assert found == stream.split(MARK)


def test_only_what_may_begin_a_mark_is_held_back() -> None:
    splitter = Splitter(MARK)
    assert splitter.split(b"some text aab") == [b"some text "]
    assert splitter.split(b"x") == [b"aabx"]
    assert splitter.held == b""


@pytest.mark.parametrize("limit", [0, 1, 7, 1000])
def test_of_long_output_the_head_and_the_tail_are_kept_and_the_rest_takes_no_memory(limit: int) -> None:
    data = bytes(range(250)) * 400
    for step in (1, 999, len(data)):
        ends = HeadAndTail(limit)
        for place in range(0, len(data), step):
            ends.add(data[place : place + step])
            assert len(ends._head) + len(ends._tail) <= 2 * limit + 1
        half = limit // 2
        note = b"\n[... %d bytes cut ...]\n" % (len(data) - 2 * half)
        assert ends.whole() == data[:half] + note + data[len(data) - half :]


def test_as_much_as_is_allowed_is_not_cut() -> None:
    ends = HeadAndTail(7)
    ends.add(b"1234")
    ends.add(b"567")
    assert ends.whole() == b"1234567"
    assert ends.whole(b"8") == b"123\n[... 2 bytes cut ...]\n678"


def test_a_report_whose_mark_is_missing_is_refused_and_no_more_than_a_pipe_holds_is_read_for_it() -> None:
    outputs = Outputs(100, lambda: 1)
    read, write = outputs.stderr.theirs, os.dup(outputs.stdout.theirs)
    os.write(read, MARK)
    outputs.begin(MARK)
    outputs.spawned()
    os.write(write, b"printed")
    with pytest.raises(ValueError, match="the end of its output is not marked"):
        outputs.take()
    os.write(write, MARK)
    assert outputs.take() == (b"printed", b"")
    os.close(write)
    outputs.close()
    assert PIPE_MOST >= MIB


@pytest.mark.parametrize("data", [b"", b"state", bytes(2 * MIB)])
@pytest.mark.parametrize("limit", [7, 100])
def test_output_travels_behind_a_checkpoint_and_goes_on(data: bytes, limit: int) -> None:
    ends, whole = HeadAndTail(limit), HeadAndTail(limit)
    for part in (b"first", b"second and more" * 9):
        kept = with_printed(payload_of(data), ends.packed() + ends.packed() if ends.size else b"")
        checkpoint, printed = without_printed(kept)
        assert bytes(checkpoint) == data
        ends = HeadAndTail(limit)
        if printed:
            assert HeadAndTail(limit).go_on(ends.go_on(printed)) == b""
        ends.add(part)
        whole.add(part)
        assert ends.whole() == whole.whole()


@pytest.mark.parametrize("foot", [PRINTED, b"\0\0\0\0" + PRINTED, b"\xff\xff\xff\xff" + PRINTED, b"\0\0\0\3abc"])
def test_a_checkpoint_that_only_looks_as_if_it_had_output_is_left_alone_or_has_none(foot: bytes) -> None:
    checkpoint, printed = without_printed(b"state" + foot)
    assert printed == b""
    assert bytes(checkpoint) in (b"state" + foot, b"state")


@pytest.mark.parametrize("packed", [b"", b"short", bytes(16), b"\0" * 8 + b"\0\0\0\1" * 2 + b"xx"])
def test_output_that_makes_no_sense_changes_nothing(packed: bytes) -> None:
    outputs = Outputs(100, lambda: 1)
    outputs.spawned()
    outputs.go_on(packed)
    assert outputs.unreported() == (b"", b"")
    outputs.close()
