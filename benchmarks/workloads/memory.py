"""Bytes of memory for a task that waits, in the process that holds it and in the client; both forms of submitting.

Every slot is busy meanwhile. What is measured is how much the processes have grown, of memory that is their own.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.environments.base import Environment
from benchmarks.proc import memory
from benchmarks.tasks import noop, wait_for
from benchmarks.workloads.base import Figures, Metric, Workload, affordable, timed

WORKERS = 2


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """Fill up, in one form after the other."""
    environment.gather(environment.submit(noop, range(WORKERS)))
    with tempfile.NamedTemporaryFile(prefix="deskgrid-benchmark-") as file:
        kept: list[Any] = [environment.submit(wait_for, [file.name] * WORKERS)]
        figures = _grown(environment, "bag", environment.submit_bag, size, kept)
        figures |= _grown(environment, "each", environment.submit, size, kept)
    return figures


def _grown(
    environment: Environment,
    form: str,
    submit: Callable[[Any, Sequence[Any]], Any],
    size: Mapping[str, float],
    kept: list[Any],
) -> Figures:
    """What is submitted stays in ``kept``."""
    trial = range(int(size["trial"]))
    seconds, submitted = timed(lambda: submit(noop, trial))
    kept.append(submitted)
    if submitted is None:
        return {f"{form}_scheduler": None, f"{form}_client": None, f"{form}_tasks": None}
    count = affordable(seconds, len(trial), int(size["tasks"]), size["budget_s"])
    schedulers = environment.schedulers()
    before = sum(map(memory, schedulers)), memory(os.getpid())
    kept.append(submit(noop, range(count)))
    after = sum(map(memory, schedulers)), memory(os.getpid())
    scheduler, client = ((then - first) / count for first, then in zip(before, after, strict=True))
    return {f"{form}_scheduler": scheduler if schedulers else None, f"{form}_client": client, f"{form}_tasks": count}


WORKLOAD = Workload(
    metrics=(
        Metric("bag_scheduler", "in a bag: scheduler", "bytes a task", "less"),
        Metric("bag_client", "in a bag: client", "bytes a task", "less"),
        Metric("bag_tasks", "of so many", "tasks"),
        Metric("each_scheduler", "by itself: scheduler", "bytes a task", "less"),
        Metric("each_client", "by itself: client", "bytes a task", "less"),
        Metric("each_tasks", "of so many", "tasks"),
    ),
    run=run,
    full={"trial": 1000, "tasks": 1_000_000, "budget_s": 10},
    quick={"trial": 1000, "tasks": 100_000, "budget_s": 3},
    tiny={"trial": 10, "tasks": 1_000, "budget_s": 1},
    workers=WORKERS,
    apart=True,
)
