"""A real broker and real workers beside one that heartbeats and never answers: it keeps nothing from anybody."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.client.grid import Grid
from deskgrid.scheduler.handlers.trust import FIRST_SLOTS
from tests.live import HEARTBEAT_S, BrokerProcess, LiveWorker
from tests.peers import BareWorker, SocketLine, enrolled
from tests.waiting import PATIENCE_S, eventually

SLOTS = 64
TASKS = 50
# Such a bag would never end. With a timeout it does within this; without, what others of it took has to tell first.
WITHIN_S = 15.0
UNTIMED_WITHIN_S = 60.0


@contextmanager
def black_hole(broker: BrokerProcess) -> Iterator[list[wire.Message]]:
    """A worker of many slots in a thread that joins, takes everything and says that it lives; what it was told."""
    told: list[wire.Message] = []
    ended = threading.Event()
    worker = BareWorker(SocketLine(enrolled(broker.line("worker"), "hole")), "hole")
    worker.join(slots=SLOTS)

    def swallow() -> None:
        beat_at = 0.0
        while not ended.is_set():
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + HEARTBEAT_S
                worker.send(wire.Heartbeat(None, None))
            data = worker.line.receive(HEARTBEAT_S / 2)
            if data is not None:
                told.append(wire.decode(data))

    thread = threading.Thread(target=swallow, name="black hole", daemon=True)
    thread.start()
    try:
        yield told
    finally:
        ended.set()
        thread.join(PATIENCE_S)
        worker.close()
        assert not thread.is_alive()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "home")
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def honest(broker: BrokerProcess) -> Iterator[list[LiveWorker]]:
    """Two real workers that have joined."""
    with ExitStack() as stack:
        workers = [LiveWorker(broker.line("worker"), f"pc{number}") for number in (1, 2)]
        for worker in workers:
            stack.callback(worker.stop)
            worker.start()
        for worker in workers:
            assert eventually(lambda worker=worker: worker.has_said("joined"), PATIENCE_S)  # type: ignore[misc]
        yield workers
        for worker in workers:
            worker.ask_to_stop()


def swallowed(told: list[wire.Message]) -> int:
    return sum(len(message.work) for message in told if isinstance(message, wire.Assign))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("terms", "within_s"), [({"timeout": 1.0}, WITHIN_S), ({}, UNTIMED_WITHIN_S)], ids=["with a timeout", "without"]
)
def test_fifty_short_tasks_beside_a_black_hole_and_two_idle_pcs_are_done_soon(
    broker: BrokerProcess, terms: dict[str, Any], within_s: float
) -> None:
    with honest(broker), Grid(str(broker.line("client"))) as grid, ExitStack() as stack:
        nap = by_value()
        assert len(grid.bag(nap, [0.0] * 20).results()) == 20, "the honest ones are up"
        told = stack.enter_context(black_hole(broker))
        bag = grid.bag(nap, [0.05] * TASKS, **terms)
        assert bag.wait(timeout=within_s), f"after {within_s} s: {bag.progress()}"
        assert bag.results() == [0.05] * TASKS
        assert swallowed(told) >= FIRST_SLOTS, "the black hole was given nothing"
        (hole,) = [row for row in grid.status()["workers"] if row["name"] == "hole"]
        assert "answer" in hole["note"]


def by_value() -> Callable[[float], float]:
    """A short task that is no module's: the process of each bag would import this one, which takes a second."""

    def nap(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    return nap
