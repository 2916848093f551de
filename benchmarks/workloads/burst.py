"""Calls that do nothing, submitted and gathered: what a system itself costs, one submit each and as one bag."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.environments.base import Environment
from benchmarks.tasks import noop
from benchmarks.workloads.base import Figures, Metric, Workload, affordable, check, timed

Form = Callable[[Sequence[Any]], "list[Any] | None"]
# Each trial is so many times the one before, as long as that leaves time for more.
GROWTH = 10


def forms_of(environment: Environment) -> dict[str, Form]:
    """What gathers no-op calls for given items; None where the system has no such form."""

    def each(items: Sequence[Any]) -> list[Any] | None:
        return environment.gather(environment.submit(noop, items))

    def bag(items: Sequence[Any]) -> list[Any] | None:
        submitted = environment.submit_bag(noop, items)
        return None if submitted is None else environment.gather_bag(submitted)

    return {"each": each, "bag": bag}


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """Both forms, one after the other."""
    figures: Figures = {}
    for form, work in forms_of(environment).items():
        rate, count = _rate(environment, work, size[f"{form}_tasks"], size)
        figures |= {f"{form}_per_s": rate, f"{form}_tasks": count}
    return figures


def _rate(
    environment: Environment, work: Form, full: float, size: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """Tasks a second, and of how many."""
    if work(range(int(size["trial"]))) is None:  # the first calls pay for what is loaded then
        return None, None
    count = _count(work, int(full), size)
    seconds, results = timed(lambda: work(range(count)))
    check(environment, results, range(count))
    return count / seconds, count


def _count(work: Form, full: int, size: Mapping[str, float]) -> int:
    """How many tasks there is time for, by trials: of a fast system a few tell little, so it is tried with more."""
    tried = int(size["trial"])
    while True:
        seconds, _ = timed(partial(work, range(tried)))
        count = affordable(seconds, tried, full, size["budget_s"])
        if count < GROWTH * tried:
            return count
        tried *= GROWTH


WORKLOAD = Workload(
    metrics=(
        Metric("each_per_s", "one submit each", "tasks/s", "more"),
        Metric("each_tasks", "of so many", "tasks"),
        Metric("bag_per_s", "one bag or map", "tasks/s", "more"),
        Metric("bag_tasks", "of so many", "tasks"),
    ),
    run=run,
    full={"trial": 200, "each_tasks": 10_000, "bag_tasks": 100_000, "budget_s": 10},
    quick={"trial": 100, "each_tasks": 2_000, "bag_tasks": 20_000, "budget_s": 2},
    tiny={"trial": 5, "each_tasks": 20, "bag_tasks": 200, "budget_s": 60},
)
