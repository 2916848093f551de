"""One call at a time: how long until its result is here."""

import time
from collections.abc import Mapping

from benchmarks.environments.base import Environment
from benchmarks.tasks import noop
from benchmarks.workloads.base import Figures, Metric, Workload, affordable, check, middle, quantile, timed

# The part of the budget that warming up may take.
WARM_UP = 0.3
# Of one call, seconds to milliseconds.
MS = 1000.0


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """Warm up, then so many calls, or what the budget has time for."""
    warm: list[float] = []
    while len(warm) < size["warm_up"] and sum(warm) < WARM_UP * size["budget_s"]:
        warm.append(timed(lambda: environment.one(noop, 0))[0])
    count = affordable(sum(warm), len(warm), int(size["calls"]), size["budget_s"])
    took = []
    for item in range(count):
        began = time.perf_counter()
        result = environment.one(noop, item)
        took.append((time.perf_counter() - began) * MS)
        check(environment, [result], [item])
    return {"median_ms": middle(took), "p99_ms": quantile(took, 0.99), "calls": count}


WORKLOAD = Workload(
    metrics=(
        Metric("median_ms", "median", "ms", "less"),
        Metric("p99_ms", "p99", "ms", "less"),
        Metric("calls", "of so many", "calls"),
    ),
    run=run,
    full={"warm_up": 50, "calls": 500, "budget_s": 10},
    quick={"warm_up": 5, "calls": 100, "budget_s": 3},
    tiny={"warm_up": 2, "calls": 10, "budget_s": 1},
)
