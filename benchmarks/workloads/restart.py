"""A broker that holds a million tasks, half of them done, is killed and started again. deskgrid only."""

import time
from collections.abc import Mapping

from benchmarks.environments.base import Environment
from benchmarks.fakes import FakeWorkers
from benchmarks.proc import memory
from benchmarks.tasks import noop
from benchmarks.workloads.base import Figures, Metric, Workload
from deskgrid import Grid
from deskgrid.sleepbench.processes import START_S, Processes

# Enough to keep the broker busy until half of the tasks are done.
WORKERS, SLOTS = 4, 2


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """Seconds from the start of the process until it answers a client about the bag."""
    tasks = int(size["tasks"])
    with Processes(more=["--durability", "process"]) as processes:
        bag = _half_done(processes, tasks)
        processes.kill("broker")
        began = time.monotonic()
        processes.start_broker()
        with Grid(processes.client_line, timeout=START_S) as grid:
            progress = grid.attach(bag).progress()
        seconds = time.monotonic() - began
        held = memory(processes.pid("broker"))
    if progress.done < tasks // 2 or progress.total != tasks:
        raise ValueError(f"the bag has lost something: {progress}")
    return {"seconds": seconds, "bytes_per_task": held / tasks}


def _half_done(processes: Processes, tasks: int) -> str:
    """A bag of which half is done, by fake workers; its id."""
    with Grid(processes.client_line) as grid:
        bag = grid.bag(noop, range(tasks))
        with FakeWorkers(processes.home, WORKERS, SLOTS) as workers:
            while workers.taken < tasks // 2:
                workers.turn(0.1)
        return bag.id


WORKLOAD = Workload(
    metrics=(
        Metric("seconds", "restart of a broker, half of its tasks done", "s", "less"),
        Metric("bytes_per_task", "its memory after that, the whole process", "bytes a task", "less"),
    ),
    run=run,
    full={"tasks": 1_000_000},
    quick={"tasks": 100_000},
    tiny={"tasks": 2_000},
    workers=0,
)
