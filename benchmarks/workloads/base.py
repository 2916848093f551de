"""What is measured with an environment: sizes in, figures out.

Rule 1: this runs in the Python of the environment, beside it; the standard library is all there is.
Rule 2: what comes back is checked. A figure for work that was not done is worse than none.
Rule 3: a slow system gets fewer calls, as many as fit the time of ``budget_s``; how many is one of the figures.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from benchmarks.environments.base import Environment

# By name; None for what the system cannot do.
Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. ``better``: which way; "" for what only explains the others."""

    name: str
    title: str
    unit: str
    better: Literal["more", "less", ""] = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """``run`` is given sizes as in ``full`` (``quick`` and ``tiny`` are smaller ones) and returns the ``metrics``.

    ``workers``: of one slot each; 0 for what concerns deskgrid only, and starts what it needs itself. ``apart``: it
    leaves the system in no state for others. ``faults``: workers will be killed.
    """

    metrics: Sequence[Metric]
    run: Callable[[Environment, Mapping[str, float]], Figures]
    full: Mapping[str, float]
    quick: Mapping[str, float]
    tiny: Mapping[str, float]
    workers: int = 2
    apart: bool = False
    faults: bool = False


def check(environment: Environment, results: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise ValueError unless these are the results of those items, in order."""
    if len(results) != len(expected) or (environment.RETURNS and list(results) != list(expected)):
        raise ValueError(f"{environment.LABEL} returned {len(results)} results that are not those of the calls")


def quantile(values: Sequence[float], part: float) -> float:
    """The least of ``values`` that at least ``part`` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def middle(values: Sequence[float]) -> float:
    """The median."""
    return median(values)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that ``work`` took, and what it returned."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def affordable(seconds: float, calls: int, full: int, budget_s: float) -> int:
    """How many calls to make, up to ``full``, if ``calls`` took ``seconds``: at least as many as were tried."""
    return min(full, max(calls, int(calls * budget_s / max(seconds, 1e-9))))
