"""A broker with a thousand workers that have nothing to do: what their heartbeats cost it. deskgrid only."""

import time
from collections.abc import Mapping

from benchmarks.environments.base import Environment
from benchmarks.fakes import FakeWorkers
from benchmarks.proc import used
from benchmarks.workloads.base import Figures, Metric, Workload
from deskgrid.sleepbench.processes import Processes

# After they have joined, until what that took is over. Seconds.
SETTLE_S = 3.0


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """Percent of a core. The workers are in this process, the broker in its own."""
    with Processes(more=["--durability", "process"]) as processes:
        broker = processes.pid("broker")
        with FakeWorkers(processes.home, int(size["workers"])) as workers:
            _turn_for(workers, SETTLE_S)
            began, before, beats = time.monotonic(), used(broker), workers.beats
            _turn_for(workers, size["seconds"])
            spent, seconds = used(broker) - before, time.monotonic() - began
            beats = workers.beats - beats
    return {
        "percent": 100.0 * spent.total / seconds,
        "python_percent": 100.0 * spent.main / seconds,
        "beats_per_s": beats / seconds,
    }


def _turn_for(workers: FakeWorkers, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0.0:
        workers.turn(min(left, 0.1))


WORKLOAD = Workload(
    metrics=(
        Metric("percent", "broker whose workers have nothing to do", "% of a core", "less"),
        Metric("python_percent", "of that, outside ZeroMQ", "% of a core", "less"),
        Metric("beats_per_s", "heartbeats", "a second"),
    ),
    run=run,
    full={"workers": 1000, "seconds": 20},
    quick={"workers": 1000, "seconds": 6},
    tiny={"workers": 20, "seconds": 3},
    workers=0,
)
