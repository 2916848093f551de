"""Summarize the rows of a result: medians, ranges, and how many times better deskgrid was.

Rule: a ratio compares two figures of the same run, which were measured on the same machine in the same hour. The median
of the ratios is shown. A ratio above 1 is in favour of deskgrid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.catalogue import OURS
from benchmarks.workloads.base import Metric


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric of one environment, over all runs. ``ratio``: None if either system has no figure."""

    median: float
    least: float
    most: float
    ratio: float | None


def values(result: Mapping[str, Any], environment: str, workload: str, metric: str) -> dict[int, float]:
    """The figure of each run that has one."""
    found = {}
    for row in result["rows"]:
        if (row["environment"], row["workload"]) == (environment, workload):
            value = row["figures"].get(metric)
            if value is not None:
                found[row["run"]] = float(value)
    return found


def cell(result: Mapping[str, Any], environment: str, workload: str, metric: Metric) -> Cell | None:
    """The summary of one metric; None if there is no figure."""
    theirs = values(result, environment, workload, metric.name)
    if not theirs:
        return None
    ours = values(result, OURS, workload, metric.name)
    ratios = [_ratio(ours[run], theirs[run], metric.better) for run in theirs if run in ours]
    known = [ratio for ratio in ratios if ratio is not None]
    figures = list(theirs.values())
    return Cell(median(figures), min(figures), max(figures), median(known) if known else None)


def _ratio(ours: float, theirs: float, better: str) -> float | None:
    """How many times better our figure is."""
    above, below = (ours, theirs) if better == "more" else (theirs, ours)
    return above / below if better and below > 0.0 else None


def workloads_of(result: Mapping[str, Any]) -> list[str]:
    """The workloads, in the order of their first runs."""
    return list(dict.fromkeys(row["workload"] for row in result["rows"]))


def failures(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The rows without figures."""
    return [row for row in result["rows"] if row["failure"]]
