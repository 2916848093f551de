"""Mutated frames for the codec; `tests.fuzz.frames` can try any number of them."""

import pytest

from deskgrid import wire
from tests.counting import COUNTS
from tests.fuzz import frames
from tests.fuzz.frames import fuzz, taken

INPUTS = 40_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whatever_frame_arrives_is_a_message_or_refused_and_leaves_nothing_in_memory() -> None:
    fuzzed = fuzz(seed=1, count=INPUTS)
    assert fuzzed.inputs == INPUTS
    assert fuzzed.messages > INPUTS // 50, "most of what is refused has to be nearly right"
    COUNTS.append(f"fuzzed: {fuzzed}")


def test_a_crash_of_the_codec_is_found_and_named_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(data: bytes) -> wire.Message:
        if b"\xff" in data:
            raise IndexError("boom")
        raise wire.ProtocolError("no")

    monkeypatch.setattr(wire, "decode", fragile)
    with pytest.raises(AssertionError, match=r"seed 7, input \d+: b['\"].*boom"):
        fuzz(seed=7, count=2_000)


@pytest.mark.slow
def test_memory_that_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[bytes]] = []

    def leaky(data: bytes) -> bool:
        kept.append([data])
        return taken(data)

    monkeypatch.setattr(frames, "taken", leaky)
    with pytest.raises(AssertionError, match="blocks of memory more"):
        fuzz(seed=7, count=2_000)
