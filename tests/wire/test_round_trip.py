"""Every message arrives as it was sent."""

import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deskgrid import wire
from tests.wire.drawing import messages_of


@pytest.mark.parametrize("kind", wire.MESSAGES)
@given(data=st.data())
@settings(max_examples=40)
def test_a_message_arrives_as_it_was_sent(kind: type[wire.Message], data: st.DataObject) -> None:
    message = data.draw(messages_of(kind))
    arrived = wire.decode(wire.encode(message))
    assert arrived == message
    assert repr(arrived) == repr(message)  # rows are rows again, not bare tuples


def test_a_payload_of_the_limit_arrives() -> None:
    template = bytes(wire.PAYLOAD_LIMIT)
    first, *behind = wire.frames_of(wire.parts_of(wire.Blob("d" * 64, wire.payload_of(template))))
    assert len(first) < 100
    blob = wire.decode(bytes(first), [memoryview(frame) for frame in behind])
    assert isinstance(blob, wire.Blob)
    assert bytes(blob.data) == template


def test_a_full_batch_arrives() -> None:
    refs = tuple(wire.Ref(task, 1) for task in range(wire.HELD_ROWS))
    assert wire.decode(wire.encode(wire.Taken(refs))) == wire.Taken(refs)


@pytest.mark.parametrize(("said", "arrives"), [("caf\ud800", "caf?"), ("\udcff", "?"), ("naïve ☃ 𝄞", "naïve ☃ 𝄞")])
def test_a_text_that_utf_8_cannot_say_arrives_with_question_marks(said: str, arrives: str) -> None:
    assert wire.decode(wire.encode(wire.Failed(1, said))) == wire.Failed(1, arrives)


def test_a_new_message_goes_to_the_end_so_that_tags_stay() -> None:
    names = [kind.__name__ for kind in wire.MESSAGES]
    known = (
        "Join Heartbeat Finished Leave Returned Welcome Assign Recall Stop Taken Planned Fetch Blob Goodbye Refused "
        "Rejoin Hello Submit Watch Ask Greeting Accepted Outcomes Answer Failed"
    ).split()
    assert names[: len(known)] == known
    assert typing.get_args(wire.Message) == wire.MESSAGES


def test_no_message_comes_from_both_sides_of_the_broker_but_for_the_broker_itself() -> None:
    assert not set(wire.FROM_WORKER) & set(wire.FROM_CLIENT)
    assert not set(wire.FROM_BOTH) & {*wire.FROM_WORKER, *wire.FROM_CLIENT}
    assert set(wire.FROM_WORKER) | set(wire.FROM_CLIENT) < set(wire.MESSAGES)
