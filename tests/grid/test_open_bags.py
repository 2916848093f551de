"""Open bags whose client dies, or is away for a long time."""

import pytest

from deskgrid import wire
from deskgrid.broker.peers.clients import CLIENT_GONE_S, SWEEP_S
from deskgrid.client.conversation import Reply
from tests.grid.builders import bag, executions
from tests.grid.clients import ClientNode
from tests.grid.grid import VirtualGrid

# A client is noticed to be gone after so long at most, and its bags are closed after as long again.
SOON_S = CLIENT_GONE_S + SWEEP_S + 5.0


def half_submitted(grid: VirtualGrid, seconds: float = 1.0) -> ClientNode:
    """A client on a slow line in the middle of submitting a bag of thirty tasks."""
    grid.worker("pc", slots=4)
    client = grid.client(delay_s=0.3)
    grid.run(2.0)
    client.submit(bag([seconds] * 30, size=3))
    grid.run(1.0)
    assert 0 < grid.witness.told["bag"] < 30
    return client


def closed(grid: VirtualGrid) -> bool:
    return grid.broker.sessions.state.book.by_id["bag"].closed


def test_the_bag_of_a_client_that_died_is_closed_when_its_work_is_done(grid: VirtualGrid) -> None:
    half_submitted(grid).crash()
    watcher = grid.client()
    watcher.attach("bag")
    grid.run(CLIENT_GONE_S - 10.0)
    assert not watcher.idle
    grid.run_until(lambda: closed(grid), SOON_S + SWEEP_S, "the bag is closed")
    grid.run(1.0)
    assert watcher.watched["bag"].complete
    assert len(watcher.watched["bag"].results) == grid.witness.told["bag"]
    grid.run(SOON_S)
    assert not grid.broker.sessions.clients.by_peer, "neither the dead nor the silent are kept"
    replies: list[Reply] = []
    watcher.ask("bags", {}, replies.append)
    grid.run(5.0)
    assert [type(reply) for reply in replies] == [wire.Answer], "the silent one notices nothing"
    assert closed(grid), "it was another one's bag"
    grid.finish()


def test_a_bag_with_work_to_do_is_never_closed(grid: VirtualGrid) -> None:
    half_submitted(grid, seconds=3 * SOON_S).crash()
    grid.run(2.5 * SOON_S)
    assert not closed(grid)
    grid.finish()


def test_a_client_that_is_back_after_long_goes_on_with_its_bag(grid: VirtualGrid) -> None:
    client = half_submitted(grid)
    grid.partition(client, 2.5 * SOON_S)
    grid.run(2.4 * SOON_S)
    assert closed(grid)
    grid.finish()
    assert grid.witness.told["bag"] == 30
    assert executions(grid) == [1] * 30


def test_a_client_that_only_waits_keeps_its_bag_open(grid: VirtualGrid) -> None:
    client = half_submitted(grid)
    client._submitting.clear()  # it has no more to submit for now, and watches
    grid.run(3 * SOON_S)
    assert not closed(grid)
    assert len(client.watched["bag"].results) == grid.witness.told["bag"]
    assert grid.witness.said[wire.Greeting] == 1, "it is not taken for gone"


@pytest.mark.parametrize("returns", [False, True])
def test_after_a_restart_of_the_broker_a_client_has_as_long_to_come_back(grid: VirtualGrid, returns: bool) -> None:
    client = half_submitted(grid)
    grid.partition(client, SOON_S + SWEEP_S if returns else 9 * SOON_S)
    grid.restart_broker(1.0)
    grid.run(CLIENT_GONE_S - 10.0)
    assert not closed(grid)
    grid.run(SWEEP_S + 20.0)
    assert closed(grid)
    if returns:
        grid.finish()
        assert executions(grid) == [1] * 30


def test_a_bag_forgotten_while_it_is_submitted_ends_its_submission(grid: VirtualGrid) -> None:
    client = half_submitted(grid)
    other = grid.client()
    other.cancel("bag", None)
    other.forget("bag")
    grid.run_until(lambda: client.idle, 30.0, "the client has given up")
    said = sum(grid.witness.said.values())
    grid.run(60.0)
    assert sum(grid.witness.said.values()) - said < 5, "nobody goes on asking"
    grid.finish()
