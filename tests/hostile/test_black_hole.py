"""A worker that takes all work and never answers: others soon do that work."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deskgrid import Grid, wire
from tests.chaos.book import answer, work
from tests.counting import COUNTS
from tests.hostile.lab import Lab
from tests.peers import BareWorker
from tests.waiting import PATIENCE_S

TASKS, TASK_S, TIMEOUT_S = 50, 0.05, 1.0
SLOTS = 64
# How many times as long it may take as without.
DONE = 12.0
HEARTBEAT_S = 1.0


@contextmanager
def swallowing(worker: BareWorker) -> Iterator[None]:
    """It says that it lives, and nothing else."""
    over = threading.Event()

    def live() -> None:
        while not over.wait(HEARTBEAT_S):
            worker.send(wire.Heartbeat(None, None))
            while worker.line.receive(0.0) is not None:
                pass

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)


@pytest.mark.alone
def test_beside_a_worker_that_answers_nothing_two_honest_ones_do_all_of_it_in_time(place: Lab) -> None:
    for name in ("pc1", "pc2"):
        place.worker(name)
    hole = place.bare_worker("hole")
    with Grid(f"@{place.home / 'client.join'}") as grid:

        def seconds_for_all() -> float:
            began = time.monotonic()
            items = [(item, TASK_S) for item in range(TASKS)]
            bag = grid.bag(work, items, runtime=TASK_S, timeout=TIMEOUT_S)
            assert all(result == answer(item) for (item, _), result in bag.as_completed(errors="return"))
            return time.monotonic() - began

        alone = seconds_for_all()
        hole.join(slots=SLOTS)
        with swallowing(hole):
            took = seconds_for_all()
    said = f"{TASKS} tasks were done in {took:.1f} s, and in {alone:.1f} s without"
    COUNTS.append(f"hostile: beside a black hole of {SLOTS} slots {said}")
    assert took < DONE * alone
