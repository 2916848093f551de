"""A worker that takes all work and never answers: others soon do that work."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from deskgrid import Grid, wire
from tests.chaos.book import answer, work
from tests.counting import COUNTS
from tests.hostile.lab import Lab
from tests.peers import PATIENCE_S, BareWorker

TASKS, TASK_S, TIMEOUT_S = 50, 0.05, 1.0
SLOTS = 64
DONE_S = 15.0
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


def test_beside_a_worker_that_answers_nothing_two_honest_ones_do_all_of_it_in_time(place: Lab) -> None:
    hole = place.bare_worker("hole")
    hole.join(slots=SLOTS)
    for name in ("pc1", "pc2"):
        place.worker(name)
    with swallowing(hole), Grid(f"@{place.home / 'client.join'}") as grid:
        began, done = time.monotonic(), 0
        items = [(item, TASK_S) for item in range(TASKS)]
        bag = grid.bag(work, items, runtime=TASK_S, timeout=TIMEOUT_S)
        if bag.wait(DONE_S):
            done = sum(result == answer(item) for (item, _), result in bag.as_completed(errors="return"))
        else:
            done = bag.progress().done
        took = time.monotonic() - began
    COUNTS.append(f"hostile: beside a black hole of {SLOTS} slots {done} of {TASKS} tasks were done in {took:.1f} s")
    assert done == TASKS
    assert took < DONE_S
