"""The memory of a decoded message is bounded by its length, at the broker and at the worker."""

import hashlib
import time
from collections.abc import Callable

import msgpack
import pytest

from deskgrid import wire
from tests.hostile.forging import Frames, many, packed
from tests.hostile.lab import Lab, Raw
from tests.hostile.limits import GROWTH, SLACK, unharmed
from tests.memory import most_resident, resident
from tests.waiting import eventually

# Seconds of large messages, which would find little more on a second Python.
pytestmark = [pytest.mark.slow, pytest.mark.alone]

MIB = 2**20
# More than any message of a peer, and as much as one.
SIZES = {"71 MiB": 71 * 2**20, "3 MiB": wire.SAID_BYTES - 1000}
TEMPLATE = 60 * 2**20
# How long a stream of messages of 1 MiB goes on; seconds.
STREAM_S = 3.0
# Another's submission beside it, in the mean. Beats: about half a second.
SUBMIT = 250.0
# How long others are looked at when the broker has been sent something large. Seconds.
AFTER_S = 1.5


Attacker = tuple[Raw, Callable[[int], Frames]]


def submitter(place: Lab) -> Attacker:
    """One who was let in, and a message with about so many empty arrays."""
    return place.submitter(), lambda size: [_of(wire.Submit, 12, 5, many(size))]


def worker(place: Lab) -> Attacker:
    """Likewise."""
    raw = place.raw(place.key("worker", "evil"))
    raw.send(place.introduction("evil", uptime=0.0))
    raw.expect(wire.Welcome)
    return raw, lambda size: [_of(wire.Finished, 1, 0, many(size))]


def _of(kind: type[wire.Message], fields: int, place: int, value: object) -> bytes:
    values: list[object] = [None] * fields
    values[place] = value
    return packed([wire.MESSAGES.index(kind), *values])


PEERS = {"submitter": submitter, "worker": worker}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("role", sorted(PEERS))
def test_one_message_of_empty_arrays_costs_no_memory_and_nobody_waits(place: Lab, role: str, size: str) -> None:
    raw, arrays = PEERS[role](place)
    with place.pinging() as pings:
        raw.frames(arrays(SIZES[size]))
        raw.answers(AFTER_S)
    unharmed(place, pings, f"{size} of empty arrays by a {role}")


@pytest.mark.parametrize("role", sorted(PEERS))
def test_while_messages_of_1_mib_of_arrays_come_another_submits_without_waiting(place: Lab, role: str) -> None:
    raw, arrays = PEERS[role](place)
    small, client, took, sent = arrays(MIB), place.client(), list[float](), 0
    with place.pinging() as pings:
        until = time.monotonic() + STREAM_S
        while (began := time.monotonic()) < until:
            while sent < 100 * (began - until + STREAM_S) and raw.has_room(small):
                sent += 1
            client.submit([b"1"])
            took.append(time.monotonic() - began)
            raw.answers(0.01)
    unharmed(place, pings, f"{sent} MiB of arrays by a {role}, another's submission {max(took):.2f} s at most")
    beat = pings.latency().beat
    assert sum(took) / len(took) < SUBMIT * beat
    assert max(took) < SLACK * SUBMIT * beat


def template() -> bytes:
    """One that is one as far as its kind goes."""
    start = b"".join(map(packed, ("kind", "python", "python", "3.11", "more")))
    return b"\x83" + start + many(TEMPLATE).data


def test_a_template_of_60_mib_of_empty_arrays_swells_neither_broker_nor_worker(place: Lab) -> None:
    place.worker()
    (honest,) = place.workers
    before, raw, data = resident(honest.process.pid), place.submitter(), template()
    digest = hashlib.sha256(data).hexdigest()
    with place.pinging() as pings:
        raw.frames([*map(bytes, wire.frames_of(wire.parts_of(wire.Blob(digest, wire.payload_of(data)))))])
        raw.send(wire.Submit(1, "evil", "", digest, 0, (b"",), 0.01, (), wire.TaskOptions(), True, 2, 0))
        raw.answers(2 * AFTER_S)
    assert most_resident(honest.process.pid) - before <= GROWTH
    unharmed(place, pings, "a template of 60 MiB of arrays", slack=2 * SLACK)
    client = place.client()
    (result,) = client.results(client.submit([b"1"]))
    assert result.outcome == wire.Outcome.DONE


def frames() -> dict[str, Frames]:
    """Large payloads that are not as they are said to be."""

    def submit(size: int, code: int = 1) -> bytes:
        outside = msgpack.ExtType(code, size.to_bytes(8, "big"))
        values: list[object] = [
            1,
            "evil",
            "",
            "0" * 64,
            0,
            [outside],
            None,
            [],
            wire.TaskOptions().packed(),
            True,
            0,
            0,
        ]
        return packed([wire.MESSAGES.index(wire.Submit), *values])

    whole = bytes(2**20)
    return {
        "missing": [submit(2**20)],
        "short": [submit(2**20), whole[1:]],
        "long": [submit(2**20), whole, b"x"],
        "empty ones": [submit(2**20), *[b""] * 250, whole],
        "too many": [submit(2**20), whole, *[b""] * 2000],
        "huge": [submit(2**63), whole],
        "another type": [submit(2**20, 2), whole],
        "for nobody": [packed([wire.MESSAGES.index(wire.Goodbye), ""]), whole],
    }


def test_large_payloads_that_are_not_as_they_are_said_to_be_are_refused_and_leave_no_file(place: Lab) -> None:
    line = place.key("submitter", "mallory")
    for data in frames().values():
        place.greeted(line).frames(data)
    place.client().submit([b"1"])

    def left() -> list[int]:
        return [size for path in place.home.rglob("*") if path.is_file() and (size := path.stat().st_size) == MIB]

    assert eventually(lambda: not left()), "the broker keeps what no message names"
    assert place.grown() <= GROWTH
