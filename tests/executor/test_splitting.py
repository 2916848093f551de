"""What a process prints is split at its marks, however it is cut, and what is kept of it is bounded."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskgrid.worker.run.child import Splitter
from deskgrid.worker.run.output import PIPE_MOST, Ends, Outputs

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
        ends = Ends(limit)
        for place in range(0, len(data), step):
            ends.add(data[place : place + step])
            assert len(ends._head) + len(ends._tail) <= 2 * limit + 1
        half = limit // 2
        note = b"\n[... %d bytes cut ...]\n" % (len(data) - 2 * half)
        assert ends.whole() == data[:half] + note + data[len(data) - half :]


def test_as_much_as_is_allowed_is_not_cut() -> None:
    ends = Ends(7)
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
