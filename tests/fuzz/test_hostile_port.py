"""A hostile worker on a real port: the tests of the virtual grid, with real sockets and processes."""

from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from deskgrid import wire
from tests.counting import COUNTS
from tests.executor.rig import call, python_template
from tests.live import LiveGrid, live_grid
from tests.peers import COMMAND, BareWorker
from tests.waiting import eventually

FLOOD = 20_000
# A task that takes a moment, and the time in which all of them have to be done beside a flood: several times the usual.
TASKS = 20
IN_TIME_S = 20.0


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path) as grid:
        yield grid


def joined(grid: LiveGrid, name: str, **changes: object) -> BareWorker:
    worker = grid.bare_worker(name)
    worker.join(**changes)
    return worker


def test_what_a_worker_says_of_anothers_task_changes_nothing(grid: LiveGrid) -> None:
    honest = joined(grid, "honest")
    client = grid.client()
    bag = client.submit([b"1"], COMMAND, runtime=5.0)
    (work,) = honest.work()
    hostile = joined(grid, "hostile", uptime=0.001)
    hostile.finish(work, payload=b"forged")
    hostile.send(wire.Returned((wire.Ref(work.task, work.number),)))
    held = (wire.Running(work.task, work.number, 0, 1e9),)
    hostile.send(wire.Leave("", True, False, (), held))
    hostile.send(hostile.introduction(name="honest", running=held, uptime=0.001))
    assert hostile.refusal() == "this PC is enrolled as hostile: it cannot join under another name"
    hostile.send(hostile.introduction(running=held, uptime=0.001))
    hostile.expect(wire.Welcome)
    assert client.ask("progress", bag=bag)["running"] == 1
    honest.finish(work, payload=b"right")
    (result,) = client.results(bag)
    assert (result.payload, result.worker) == (b"right", "honest")


def test_a_flood_of_one_worker_does_not_hold_up_the_others(grid: LiveGrid) -> None:
    grid.worker("honest")
    hostile = joined(grid, "hostile", uptime=0.001)
    nan = bytes(msgpack.packb([wire.MESSAGES.index(wire.Heartbeat), float("nan"), []]))
    beat = wire.encode(wire.Heartbeat(0.001, ()))
    client = grid.client()
    bag = client.submit([call(item) for item in range(TASKS)], python_template(lambda item: item + 1), runtime=0.01)
    for number in range(FLOOD):
        hostile.line.send(nan if number % 10 == 0 else beat)
        while hostile.line.receive(0.0) is not None:
            pass
    done = eventually(lambda: client.ask("progress", bag=bag)["done"] == TASKS, IN_TIME_S)
    assert done, client.ask("progress", bag=bag)
    COUNTS.append(f"port: {FLOOD:,} messages of a hostile worker held nobody up")
