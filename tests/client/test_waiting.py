"""`Bag.wait`: what it returns, and what it asks the broker for."""

import threading

import pytest

from deskgrid import wire
from deskgrid.client.grid import Grid
from deskgrid.errors import BagRejected
from tests.client.fakebroker import FakeGrid
from tests.waiting import PATIENCE_S, eventually


def double(x: int) -> int:
    return 2 * x


def test_waiting_says_whether_all_has_ended(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1, 2])
    assert not bag.wait(0)
    assert not bag.wait(0.02)
    threading.Timer(0.05, fake.broker.run, (bag.id, 0, 1)).start()
    assert bag.wait()
    assert bag.wait(0)


def test_waiting_fetches_no_results(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1])
    threading.Timer(0.05, fake.broker.run, (bag.id, 0)).start()
    assert bag.wait(5)
    (watch,) = fake.memory.of(wire.Watch)
    assert watch.after > wire.BAG_LIMIT


def test_waiting_again_and_again_is_one_request_that_waits(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1])
    for _ in range(5):
        assert not bag.wait(0.001)
    threading.Timer(0.05, fake.broker.run, (bag.id, 0)).start()
    assert bag.wait(5)
    watches = fake.memory.of(wire.Watch)
    assert len(watches) == 6
    assert len({watch.request for watch in watches}) == 1


def test_two_threads_that_wait_are_both_told(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(double, [1])
    assert not bag.wait(0)
    told: list[bool] = []
    threads = [threading.Thread(target=lambda: told.append(bag.wait(PATIENCE_S))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len({watch.request for watch in fake.memory.of(wire.Watch)}) == 2)
    fake.broker.run(bag.id, 0)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert told == [True, True]


def test_an_impossible_wait_is_refused(grid: Grid) -> None:
    with pytest.raises(BagRejected, match="the timeout is"):
        grid.bag(double, [1]).wait(-1)
