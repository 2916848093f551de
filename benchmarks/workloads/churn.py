"""Workers are killed, one after the other, while a bag of sleeps runs: what comes back, and how much later."""

import threading
from collections.abc import Mapping
from typing import Any

from benchmarks.environments.base import Environment
from benchmarks.tasks import nap
from benchmarks.workloads.base import Figures, Metric, Workload, timed

WORKERS = 4
NAP_S = 0.1
# Longer than any system that comes to an end needs; one that does not has lost the rest. Seconds.
PATIENCE_S = 60.0


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """The share of the right results, and the time until the last of them or of the errors in their place."""
    naps = [NAP_S] * int(size["tasks"])
    environment.gather(environment.submit(nap, naps[:WORKERS]))
    if not environment.workers():
        return {"complete": None, "ratio": None}
    ideal = len(naps) * NAP_S / WORKERS
    ended = threading.Event()
    killer = threading.Thread(target=_kill, args=(environment, int(size["kills"]), ideal / size["every"], ended))
    killer.start()
    try:
        seconds, results = timed(lambda: _within(environment, naps, PATIENCE_S))
    finally:
        ended.set()
        killer.join()
    right = sum(result == NAP_S for result in results)
    return {"complete": right / len(naps), "ratio": seconds / ideal if right == len(naps) else None}


def _kill(environment: Environment, kills: int, seconds: float, ended: threading.Event) -> None:
    for _ in range(kills):
        if ended.wait(seconds):
            return
        environment.kill_worker()


def _within(environment: Environment, naps: list[float], seconds: float) -> list[Any]:
    """The results, or nothing when they take longer than that."""
    found: list[Any] = []
    waiter = threading.Thread(target=_gather, args=(environment, naps, found), daemon=True)
    waiter.start()
    waiter.join(seconds)
    return list(found)


def _gather(environment: Environment, naps: list[float], found: list[Any]) -> None:
    try:
        found += environment.gather(environment.submit(nap, naps))
    except Exception as error:
        found.append(error)


WORKLOAD = Workload(
    metrics=(
        Metric("complete", "right results", "of all", "more"),
        Metric("ratio", "time / ideal, if all are right", "", "less"),
    ),
    run=run,
    full={"tasks": 200, "kills": 3, "every": 4},
    quick={"tasks": 80, "kills": 1, "every": 3},
    tiny={"tasks": 16, "kills": 1, "every": 3},
    workers=WORKERS,
    apart=True,
    faults=True,
)
