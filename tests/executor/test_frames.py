"""Frames: however a pipe cuts them, they come out whole, together with the data behind them."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from deskgrid.wire import LARGE_BYTES
from deskgrid.worker.run import child
from deskgrid.worker.run.child import Frames, Raw, frame, write_all

# What a message says; and, as bytes of a bytearray, what goes behind it.
VALUES = st.integers(0, 2**40) | st.binary(max_size=300) | st.text(max_size=9) | st.binary(max_size=90).map(bytearray)
MESSAGES = st.lists(st.lists(VALUES, max_size=5), max_size=9)


@given(MESSAGES, st.integers(5, 80))
@settings(max_examples=40)
def test_frames_survive_any_cut(messages: list[list[object]], step: int) -> None:
    data = b""
    for message in messages:
        behind: list[memoryview] = []
        values = [Raw([memoryview(value)]) if isinstance(value, bytearray) else value for value in message]
        data += b"".join([frame(values, behind), *behind])
    ours, theirs = os.pipe()
    frames, taken = Frames(ours), list[object]()
    try:
        for place in range(0, len(data), step):
            write_all(theirs, data[place : place + step])
            left = len(data[place : place + step])
            while left:
                count, found = frames.read()
                left -= count
                taken += found
        os.close(theirs)
        assert frames.read() == (0, [])
    finally:
        os.close(ours)
    assert taken == messages


def test_the_process_of_tasks_takes_the_same_payloads_for_large() -> None:
    assert child.LARGE_BYTES == LARGE_BYTES
