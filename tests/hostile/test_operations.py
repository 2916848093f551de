"""Large honest operations delay nobody: other clients' pings are answered meanwhile."""

import time
from dataclasses import dataclass

import pytest

from deskgrid import Grid, wire
from tests.hostile.lab import Lab
from tests.hostile.limits import LARGE, unharmed
from tests.peers import COMMAND, Client

pytestmark = [pytest.mark.slow, pytest.mark.alone]

TASKS, PREDICTED, DISTINCT = (10_000_000 if LARGE else 1_000_000), 500_000, 5_000_000
BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Large:
    """A bag of many tasks that nobody runs: there is no worker."""

    client: Client
    bag: str


def submitted(place: Lab, count: int) -> Large:
    """``count`` tasks of a second each, batch by batch, as an honest client does, some of them on their way."""
    client = place.client()
    bag = client.submit([b""], last=False)
    submits = [
        client.batch(bag, [b""] * min(BATCH, count - first), first=first, last=first + BATCH >= count)
        for first in range(1, count, BATCH)
    ]
    for submit in submits[:2]:
        client.send(submit)
    for place_of, submit in enumerate(submits):
        answer = client.receive()
        assert isinstance(answer, wire.Accepted), answer
        assert answer.request == submit.request
        if place_of + 2 < len(submits):
            client.send(submits[place_of + 2])
    return Large(client, bag)


@pytest.mark.timeout(600)
def test_a_bag_of_a_million_tasks_is_submitted_and_cancelled_and_forgotten_beside_others(place: Lab) -> None:
    with place.pinging() as pings:
        large, began = submitted(place, TASKS), time.monotonic()
        assert large.client.ask("cancel", bag=large.bag, items=None)["cancelled"] == TASKS
        took = time.monotonic() - began
        row = large.client.ask("progress", bag=large.bag)
        assert row["cancelled"] == TASKS, row
        large.client.ask("forget", bag=large.bag)
    unharmed(place, pings, f"{TASKS:,} tasks submitted, cancelled in {took:.1f} s, forgotten")


def test_half_a_million_predictions_are_made_anew_beside_others(place: Lab) -> None:
    large = submitted(place, PREDICTED)
    with Grid(f"@{place.home / 'client.join'}") as grid, place.pinging() as pings:
        bag, began = grid.attach(large.bag), time.monotonic()
        bag.update_runtimes({item: 1.0 + item / PREDICTED for item in range(PREDICTED)})
        took = time.monotonic() - began
    unharmed(place, pings, f"{PREDICTED:,} predictions in {took:.1f} s")
    assert large.client.ask("progress", bag=large.bag)["longest_s"] == pytest.approx(2.0, abs=0.01)


def test_five_million_distinct_runtimes_in_one_message_hold_up_nobody(place: Lab) -> None:
    raw = place.submitter()
    template = place.client().batch("", [b""]).template
    runtimes = [1.0 + item / DISTINCT for item in range(DISTINCT)]
    raw.send(wire.Blob(template, COMMAND))
    with place.pinging() as pings:
        raw.say(
            wire.Submit,
            1,
            "evil",
            "",
            template,
            0,
            [b""] * DISTINCT,
            None,
            runtimes,
            wire.TaskOptions().packed(),
            True,
            0,
            0,
        )
        raw.answers(4.0)
        place.client().ask("ping")
    unharmed(place, pings, f"{DISTINCT:,} distinct runtimes in one message")
