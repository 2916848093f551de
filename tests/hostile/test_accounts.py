"""A worker can report anything as a failure: that affects only its own task."""

import threading
from typing import Any

import pytest

from deskgrid import Grid, wire
from tests.hostile.forging import account, nested, packed
from tests.hostile.lab import Lab
from tests.peers import BareWorker, Client
from tests.waiting import PATIENCE_S

# How deep: more than Python's own limit of calls.
DEPTH = 1000
ACCOUNTS = {
    "nested": account("E", nested(DEPTH, "arrays"), "trace", b""),
    "nested-maps": account("E", "e", nested(DEPTH, "maps"), b""),
    "all-nested": nested(DEPTH, "both").data,
    "a-map": packed({"kind": "E", "message": "e"}),
    "a-number": packed(7),
    "short": packed(["E"]),
    "numbers": packed([2**63, -1, 1e308, None]),
    "no-text": packed(["\ud800", "\udfff", "x", b"\x80"]),
    "a-wrong-pickle": account("E", "e", "trace", b"\x80\x05cnowhere\nnothing\n."),
    "escapes": account("\x1b[2J", "\x1b]0;owned\x07", "\x9b31m\x00", b""),
}


def ended(place: Lab, client: Client, payload: bytes, outcome: wire.Outcome) -> str:
    """The bag of one task that ended so, on as many workers as that takes."""
    bag: str = client.submit([b""], runtime=0.01)
    for number in range(3 if outcome is wire.Outcome.CRASH else 1):
        worker = place.bare_worker(f"evil{number}")
        worker.join()
        worker.finish(*worker.work(), payload=payload, outcome=outcome)
        worker.send(wire.Leave("enough", False, True, (), ()))
    return bag


@pytest.mark.parametrize("outcome", [wire.Outcome.CRASH, wire.Outcome.ERROR], ids=["crash", "error"])
@pytest.mark.parametrize("name", ["nested", "a-map"])
def test_an_account_of_1_kilobyte_kills_the_broker_neither_now_nor_when_it_is_read_nor_after_a_restart(
    place: Lab, name: str, outcome: wire.Outcome
) -> None:
    client = place.client()
    bag = ended(place, client, ACCOUNTS[name], outcome)
    (result,) = client.results(bag)
    assert result.outcome == outcome
    assert client.ask("logs", bag=bag, item=0)["state"] == outcome.name.lower()
    place.restart()
    assert place.client().ask("logs", bag=bag, item=0)["state"] == outcome.name.lower()


def test_whatever_a_worker_says_of_a_failure_its_task_fails_and_the_log_can_be_read(place: Lab) -> None:
    client = place.client()
    for payload in ACCOUNTS.values():
        bag = ended(place, client, payload, wire.Outcome.ERROR)
        assert client.ask("logs", bag=bag, item=0)["error"]
        assert client.ask("ping") == {}


def answering(worker: BareWorker, count: int) -> None:
    """Answer so many tasks with all accounts by turns."""
    worker.join(slots=count)
    work = worker.work(count)
    for number, each in enumerate(work):
        payload = [*ACCOUNTS.values()][number % len(ACCOUNTS)]
        worker.finish(each, payload=payload, outcome=wire.Outcome.ERROR)


def with_worker(place: Lab, count: int) -> threading.Thread:
    """A worker that answers so, beside the test."""
    worker = place.bare_worker("evil")
    thread = threading.Thread(target=answering, args=(worker, count))
    thread.start()
    return thread


def test_an_honest_client_gets_an_error_for_each_of_these_and_the_others_results(place: Lab) -> None:
    count = len(ACCOUNTS)
    with Grid(f"@{place.home / 'client.join'}") as grid:
        bag = grid.bag(abs, range(count), runtime=0.01)
        thread = with_worker(place, count)
        ended: list[Any] = [result for _, result in bag.as_completed(errors="return")]
        thread.join(PATIENCE_S)
    assert len(ended) == count
    assert all(isinstance(error, Exception) for error in ended), ended


def test_the_futures_of_such_tasks_are_settled(place: Lab) -> None:
    count = len(ACCOUNTS)
    with Grid(f"@{place.home / 'client.join'}") as grid:
        futures = [grid.submit(abs, number) for number in range(count)]
        thread = with_worker(place, count)
        errors = [future.exception(PATIENCE_S) for future in futures]
        thread.join(PATIENCE_S)
    assert all(isinstance(error, Exception) for error in errors), errors
