"""Large arguments and large results, one at a time; and how long other calls take meanwhile."""

import os
import threading
import time
from collections.abc import Mapping

from benchmarks.environments.base import Environment, Function
from benchmarks.tasks import echo, noop, produce, size_of
from benchmarks.workloads.base import Figures, Metric, Workload, middle, quantile, timed

MB = 1e6
MS = 1000.0


def run(environment: Environment, size: Mapping[str, float]) -> Figures:
    """There, back, and both ways beside small calls."""
    if not environment.RETURNS:
        return dict.fromkeys(metric.name for metric in WORKLOAD.metrics)
    count = int(size["bytes"])
    data, repeats = os.urandom(count), int(size["repeats"])
    there = [_seconds(environment, size_of, data, count) for _ in range(repeats)]
    back = [_seconds(environment, produce, count, None) for _ in range(repeats)]
    return {
        "argument_mb_s": count / MB / middle(there),
        "result_mb_s": count / MB / middle(back),
        "other_p99_ms": _beside(environment, data, size["beside_s"]) if environment.THREADS else None,
    }


def _seconds(environment: Environment, function: Function, item: object, expected: object) -> float:
    seconds, result = timed(lambda: environment.one(function, item))
    if result != expected and not (expected is None and len(result) == item):
        raise ValueError(f"{environment.LABEL} returned something else")
    return seconds


def _beside(environment: Environment, data: bytes, seconds: float) -> float:
    """Small calls for so long, while another thread has ``data`` go there and back, again and again."""
    stop, wrong = threading.Event(), []

    def carry() -> None:
        while not stop.is_set():
            if environment.one(echo, data) != data:
                wrong.append("what came back is not what went there")

    carrier = threading.Thread(target=carry)
    carrier.start()
    took: list[float] = []
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            took.append(timed(lambda: environment.one(noop, 0))[0] * MS)
    finally:
        stop.set()
        carrier.join()
    if wrong:
        raise ValueError(wrong[0])
    return quantile(took, 0.99)


WORKLOAD = Workload(
    metrics=(
        Metric("argument_mb_s", "argument", "MB/s", "more"),
        Metric("result_mb_s", "result", "MB/s", "more"),
        Metric("other_p99_ms", "other calls meanwhile, p99", "ms", "less"),
    ),
    run=run,
    full={"bytes": 10_000_000, "repeats": 10, "beside_s": 5},
    quick={"bytes": 10_000_000, "repeats": 3, "beside_s": 2},
    tiny={"bytes": 100_000, "repeats": 2, "beside_s": 0.2},
)
