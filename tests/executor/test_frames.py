"""Frames: however a pipe cuts them, they come out whole."""

from hypothesis import given
from hypothesis import strategies as st

from worker.child import frame, take_frames

MESSAGES = st.lists(st.lists(st.integers(0, 2**40) | st.binary(max_size=300) | st.text(max_size=9), max_size=5))


@given(MESSAGES, st.integers(1, 50))
def test_frames_survive_any_cut(messages: list[list[object]], step: int) -> None:
    data = b"".join(frame(message) for message in messages)
    buffer = bytearray()
    taken: list[object] = []
    for place in range(0, len(data), step):
        buffer += data[place : place + step]
        taken += take_frames(buffer)
    assert taken == messages
    assert not buffer
