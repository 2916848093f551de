"""A million tasks on ten thousand PCs that come and go, in virtual time: how long that takes. deskgrid only."""

import resource
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

from benchmarks.environments.base import Environment
from benchmarks.workloads.base import Figures, Metric, Workload
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, SimulatedPC, Simulator, cycle

POLICIES = ("packing", "pgs")
# Evenly between these, seconds: the runtimes of tasks; how long a PC is there, and away.
RUNTIMES_S = (60.0, 600.0)
UP_S = (4 * 3600.0, 12 * 3600.0)
DOWN_S = (1 * 3600.0, 4 * 3600.0)
SEED = 7
# Of the kernel's figure for the most memory that a process has had, bytes.
KIB = 1024
MB = 1e6


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """Each policy in a process of its own, so that its memory can be told."""
    figures: Figures = {}
    for policy in POLICIES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            seconds, peak = pool.submit(simulate, policy, int(size["tasks"]), int(size["slots"])).result()
        figures |= {f"{policy}_s": seconds, f"{policy}_mb": peak / MB}
    return figures


def simulate(policy: str, tasks: int, slots: int) -> tuple[float, int]:
    """Seconds that the run took, and the most bytes that this process has had."""
    random = Random(SEED)
    pcs = [SimulatedPC(f"pc{number}", cycle(random.uniform(*UP_S), random.uniform(*DOWN_S))) for number in range(slots)]
    arrival = Arrival([random.uniform(*RUNTIMES_S) for _ in range(tasks)])
    began = time.perf_counter()
    found = Simulator(make_policy(policy), pcs, [arrival]).run()
    seconds = time.perf_counter() - began
    if found.counters.done != tasks:
        raise ValueError(f"{found.counters.done} of {tasks} simulated tasks were done")
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


WORKLOAD = Workload(
    metrics=tuple(
        metric
        for policy in POLICIES
        for metric in (
            Metric(f"{policy}_s", f"{policy}: a run", "s", "less"),
            Metric(f"{policy}_mb", f"{policy}: the most memory of it", "MB", "less"),
        )
    ),
    run=run,
    full={"tasks": 1_000_000, "slots": 10_000},
    quick={"tasks": 50_000, "slots": 1_000},
    tiny={"tasks": 500, "slots": 20},
    workers=0,
)
