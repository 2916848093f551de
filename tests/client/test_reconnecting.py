"""A broker that is restarted, goes silent, loses messages or sends nonsense: the client continues where it was."""

import gc
import threading

import pytest

from deskgrid import wire
from deskgrid.client.grid import Grid
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S, eventually


def double(x: int) -> int:
    return 2 * x


def test_a_loop_over_results_goes_on_over_a_restart(fake: FakeGrid, grid: Grid, impatient: None) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1, 2, 3])
    fake.broker.run(bag.id, 1)
    pairs = bag.as_completed()
    assert next(pairs) == (2, 4)
    fake.restart()
    fake.broker.run(bag.id, 0, 2)
    assert list(pairs) == [(1, 2), (3, 6)]


def test_a_future_survives_a_restart(fake: FakeGrid, grid: Grid, impatient: None) -> None:
    fake.memory.hold = True
    future = grid.submit(double, 4)
    assert eventually(lambda: bool(fake.memory.bags))
    fake.restart()
    (bag,) = fake.memory.bags
    fake.broker.run(bag, 0)
    assert future.result(PATIENCE_S) == 8
    fake.memory.hold = False
    assert grid.submit(double, 5).result(PATIENCE_S) == 10


def test_a_loop_that_was_left_is_not_asked_for_again(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1, 2])
    fake.broker.run(bag.id, 0)
    pairs = bag.as_completed()
    next(pairs)
    del pairs
    gc.collect()
    fake.restart()
    before = len(fake.memory.of(wire.Watch))
    assert bag.progress().done == 1
    assert len(fake.memory.of(wire.Watch)) == before


def test_an_idle_client_finds_the_new_broker_when_it_asks(fake: FakeGrid, grid: Grid, impatient: None) -> None:
    bag = grid.bag(double, [1])
    fake.restart()
    assert bag.progress().done == 1


def test_a_bag_is_accepted_once_though_the_broker_is_restarted_while_it_arrives(
    fake: FakeGrid, grid: Grid, impatient: None
) -> None:
    fake.memory.hold = True
    count = 12 * wire.BATCH_ROWS
    middle = threading.Event()

    def items() -> "range":
        return range(count)

    def restart_in_the_middle() -> None:
        assert eventually(lambda: len(fake.memory.of(wire.Submit)) >= 2)
        fake.restart()
        middle.set()

    other = threading.Thread(target=restart_in_the_middle)
    other.start()
    bag = grid.bag(double, iter(items()))
    other.join()
    assert middle.is_set()
    assert len(fake.memory.bags[bag.id].payloads) == count == len(bag)


@pytest.mark.parametrize("kind", [wire.Submit, wire.Accepted, wire.Watch, wire.Outcomes, wire.Hello, wire.Greeting])
def test_a_message_that_gets_lost_costs_time_only(fake: FakeGrid, impatient: None, kind: type[wire.Message]) -> None:
    lost: list[wire.Message] = []

    def lose_the_first(message: wire.Message) -> bool:
        if isinstance(message, kind) and not lost:
            lost.append(message)
            return True
        return False

    fake.broker.lose = lose_the_first
    with Grid(fake.line) as grid:
        assert grid.bag(double, [1, 2]).results() == [2, 4]
        assert [future.result(PATIENCE_S) for future in [grid.submit(double, 3)]] == [6]
    assert len(lost) == 1
    assert sum(len(bag.payloads) for bag in fake.memory.bags.values()) == 3


def test_a_silent_broker_is_told_of_once_and_again_when_it_is_back(
    fake: FakeGrid, grid: Grid, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1])
    fake.broker.lose = lambda message: True
    waiting = threading.Thread(target=bag.wait)
    waiting.start()
    assert eventually(lambda: "no answer from the broker at" in caplog.text)
    fake.broker.lose = lambda message: False
    assert eventually(lambda: "is back" in caplog.text)
    fake.broker.run(bag.id, 0)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert caplog.text.count("no answer from the broker at") == 1


def test_garbage_from_the_broker_is_skipped(fake: FakeGrid, grid: Grid, caplog: pytest.LogCaptureFixture) -> None:
    fake.broker.garbage = b"\xc1 garbage"
    assert grid.bag(double, [1]).results() == [2]
    assert "is not a message of deskgrid" in caplog.text


def test_a_broker_that_lost_its_templates_gets_them_again(fake: FakeGrid, grid: Grid) -> None:
    grid.bag(double, [1])
    fake.memory.templates.clear()
    fake.memory.hold = True
    grid.bag(double, [2])
    assert len(fake.memory.of(wire.Blob)) == 2
    assert len(fake.memory.templates) == 1


def test_a_template_travels_once_for_all_bags_of_a_connection(fake: FakeGrid, grid: Grid) -> None:
    for n in range(3):
        grid.bag(double, [n])
    assert len(fake.memory.of(wire.Blob)) == 1
