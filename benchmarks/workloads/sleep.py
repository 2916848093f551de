"""Tasks that sleep for 50 ms, a few hundred on 8 slots: what of the time that there is goes to them."""

from collections.abc import Mapping

from benchmarks.environments.base import Environment
from benchmarks.tasks import nap
from benchmarks.workloads.base import Figures, Metric, Workload, check, timed

WORKERS = 8
NAP_S = 0.05


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """Both forms; that for many only where a task of it is one call."""
    naps = [NAP_S] * int(size["tasks"])
    ideal = len(naps) * NAP_S / WORKERS
    check(environment, environment.gather(environment.submit(nap, naps[:WORKERS])), naps[:WORKERS])
    seconds, results = timed(lambda: environment.gather(environment.submit(nap, naps)))
    check(environment, results, naps)
    return {"each_ratio": seconds / ideal, "bag_ratio": _as_bag(environment, naps, ideal)}


def _as_bag(environment: Environment, naps: list[float], ideal: float) -> float | None:
    if environment.CHUNK > 1:
        return None
    seconds, results = timed(lambda: _gathered(environment, naps))
    if results is None:
        return None
    check(environment, results, naps)
    return seconds / ideal


def _gathered(environment: Environment, naps: list[float]) -> list[object] | None:
    submitted = environment.submit_bag(nap, naps)
    return None if submitted is None else environment.gather_bag(submitted)


WORKLOAD = Workload(
    metrics=(
        Metric("each_ratio", "one submit each: time / ideal", "", "less"),
        Metric("bag_ratio", "one bag or map: time / ideal", "", "less"),
    ),
    run=run,
    full={"tasks": 400},
    quick={"tasks": 160},
    tiny={"tasks": 16},
    workers=WORKERS,
)
