"""Clients that crash, attach, cancel, forget, and send invalid requests."""

import json

import pytest

from deskgrid import wire
from deskgrid.client.conversation import Reply
from tests.grid.builders import bag, executions, submitted
from tests.grid.grid import VirtualGrid


def test_whoever_attaches_after_a_crash_gets_everything_from_the_beginning(grid: VirtualGrid) -> None:
    grid.worker("pc")
    first = submitted(grid, [2.0] * 6)
    grid.run(5.0)
    assert 0 < len(first.watched["bag"].results) < 6
    first.crash()
    second = grid.client()
    second.attach("bag")
    grid.finish()
    assert len(second.watched["bag"].results) == 6


def test_a_client_that_is_cut_off_while_it_submits_submits_everything_once(grid: VirtualGrid) -> None:
    grid.worker("pc", slots=4)
    client = grid.client(delay_s=0.3)
    grid.run(2.0)
    client.submit(bag([1.0] * 30, size=3))
    grid.run(1.0)
    assert 0 < grid.witness.told["bag"] < 30
    grid.partition(client, 25.0)
    grid.finish()
    assert grid.witness.told["bag"] == 30
    assert executions(grid) == [1] * 30


def test_a_bag_that_is_cancelled_and_forgotten_in_one_breath_is_gone(grid: VirtualGrid) -> None:
    grid.worker("pc")
    client = submitted(grid, [600.0, 600.0])
    client.cancel("bag", None)
    client.forget("bag")
    grid.run(1.0)
    assert client.watched["bag"].gone, "whoever watches a bag is told when it is forgotten"
    grid.finish()
    assert grid.world.now < 20.0


def test_work_of_a_forgotten_bag_that_comes_back_late_is_ignored(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    client = submitted(grid, [600.0])
    grid.run(5.0)
    client.cable.delay_s = 0.0
    pc.cable.cut = True  # the order to stop will wait
    client.cancel("bag", None)
    client.forget("bag")
    grid.run(1.0)
    pc.stop()
    pc.cable.mend()
    grid.run(5.0)
    assert grid.broker.up
    grid.witness.nothing_left(grid.broker.sessions)


def test_a_template_that_went_with_another_bag_is_sent_again_for_all_batches_on_their_way(grid: VirtualGrid) -> None:
    grid.worker("pc")
    client = submitted(grid, [1.0], "first")
    grid.run(3.0)
    client.forget("first")
    grid.run(1.0)
    client.submit(bag([0.1] * 12, "second", size=2))
    grid.run(1.0)
    assert grid.witness.told["second"] == 12
    grid.finish()


def test_a_batch_that_arrives_before_the_beginning_of_its_bag_is_sent_again(grid: VirtualGrid) -> None:
    grid.worker("pc")
    client = grid.client()
    client.submit(bag([1.0] * 4, size=2), backwards=True)
    grid.finish()
    assert grid.witness.told["bag"] == 4
    assert executions(grid) == [1] * 4


def test_an_earlier_connection_of_a_client_is_not_kept(grid: VirtualGrid) -> None:
    client = grid.client()
    grid.run(1.0)
    for _ in range(5):
        client.break_link(half_open=True)
        client.ask("bags", {})
        grid.run(20.0)
    assert len(grid.broker.sessions.clients.by_peer) == 1


NONSENSE: list[tuple[str, dict[str, object]]] = [
    ("policy", {"name": "pgs", "options": {"margin": "wide"}}),
    ("policy", {"name": "pgs", "options": [1]}),
    ("policy", {"name": "pgs", "options": {"name": "fcfs"}}),
    ("policy", {"name": 7}),
    ("cancel", {"bag": "bag", "items": [0, 99]}),
    ("cancel", {"bag": "bag", "items": {"0": 1}}),
    ("logs", {"bag": "bag", "item": [0, 1]}),
    ("logs", {"bag": "bag", "item": []}),
    ("explain", {"bag": "bag", "item": [0]}),
    ("runtimes", {"bag": "bag", "items": [0], "runtimes": [2**64 - 1]}),
    ("runtimes", {"bag": "bag", "items": [0], "runtimes": [-1.0]}),
    ("runtimes", {"bag": "bag", "items": [0], "runtimes": []}),
    ("forget", {"bag": "bag"}),
    ("nonsense", {}),
    ("status", {"rows": 1}),
]


@pytest.mark.parametrize(("what", "args"), NONSENSE)
def test_what_makes_no_sense_is_refused_and_the_grid_goes_on(
    grid: VirtualGrid, what: str, args: dict[str, object]
) -> None:
    client = submitted(grid, [1.0, 2.0])
    replies: list[Reply] = []
    client.ask(what, args, replies.append)
    grid.run(1.0)
    assert [type(reply) for reply in replies] == [wire.Failed]
    grid.worker("pc")
    grid.finish()


def test_an_item_that_is_cancelled_twice_in_one_order_is_recorded_once(grid: VirtualGrid) -> None:
    client = submitted(grid, [1.0, 2.0])
    replies: list[Reply] = []
    grid.witness.cancelled.add("bag")
    client.ask("cancel", {"bag": "bag", "items": [1, 1]}, replies.append)
    grid.run(1.0)
    (reply,) = replies
    assert isinstance(reply, wire.Answer)
    assert json.loads(reply.body) == {"cancelled": 1}
    grid.worker("pc")
    grid.finish()
