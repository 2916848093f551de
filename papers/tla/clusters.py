"""The systems of the paper on TLA: clusters of processors, their speeds, and work scaled to a load (Section 4.1).

All seconds are those of a processor of speed 1, as in the log.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import sqrt
from pathlib import Path
from random import Random
from typing import NamedTuple

from deskgrid.papers.base import PaperError
from deskgrid.papers.printed import table_of
from deskgrid.sleepbench.workloads.lublin import lublin_jobs
from deskgrid.sleepbench.workloads.source import WorkloadError
from deskgrid.sleepbench.workloads.swf import read_rigid

# How often speeds are drawn before it counts as impossible: one draw in three or so is of use.
DRAWS = 10_000


class RigidJob(NamedTuple):
    """``runtime``: on ``processors`` of speed 1."""

    submitted: float
    runtime: float
    processors: int


def systems() -> dict[str, Sequence[int]]:
    """The processors of each cluster, by the name of the system (Table 3)."""
    found: dict[str, Sequence[int]] = table_of("tla")["facts"]["systems"]
    return found


@cache
def workload(system: str, swf: Path | None) -> Sequence[RigidJob]:
    """The jobs of a system: of the log for A1 and A2, if there is one; otherwise drawn. Raises `PaperError`."""
    table = table_of("tla")
    if swf is None or system not in table["facts"]["logged"]:
        drawn = lublin_jobs(
            table["assumed"]["drawn_seed"], table["facts"]["drawn_jobs"], table["facts"]["drawn_machine"]
        )
        return [RigidJob(job.submitted_s - drawn[0].submitted_s, job.runtime_s, job.processors) for job in drawn]
    try:
        jobs = read_rigid(swf)
    except WorkloadError as error:
        raise PaperError(str(error)) from error
    return [RigidJob(job.submitted, job.runtime, job.processors) for job in jobs]


def load_of(jobs: Sequence[RigidJob], processors: int) -> float:
    """The system loading, if all speeds are 1 on the average (Eq. 5 and 6). Raises `PaperError` if it has no end."""
    lasts = jobs[-1].submitted - jobs[0].submitted
    if lasts <= 0.0:
        raise PaperError(f"all {len(jobs)} jobs arrive at once: there is no load")
    return sum([job.runtime * job.processors for job in jobs]) / lasts / processors


def scaled(jobs: Sequence[RigidJob], clusters: Sequence[int], load: float) -> list[RigidJob]:
    """The same jobs with runtimes multiplied so that they are this load. Raises `PaperError` if one fits nowhere."""
    if (largest := max([job.processors for job in jobs])) > max(clusters):
        raise PaperError(f"a job has {largest} processors, and the largest cluster {max(clusters)}")
    factor = load / load_of(jobs, sum(clusters))
    return [job._replace(runtime=job.runtime * factor) for job in jobs]


def speeds(clusters: Sequence[int], heterogeneity: float, seed: int) -> Sequence[float]:
    """A speed vector: the speed of each cluster, as Eq. 3 and 4 demand. Raises `PaperError` if none is found."""
    if not heterogeneity:
        return [1.0] * len(clusters)
    chance = Random(f"tla speeds {seed} {heterogeneity} {len(clusters)}")
    least = table_of("tla")["assumed"]["slowest"]
    for _ in range(DRAWS):
        drawn = [chance.gauss(1.0, sqrt(heterogeneity)) for _ in clusters[2:]]
        for pair in _last_two(clusters, heterogeneity, drawn, chance):
            if min(*drawn, *pair) >= least:
                return [*drawn, *pair]
    raise PaperError(f"no speeds of {len(clusters)} clusters have a heterogeneity of {heterogeneity}")


def _last_two(
    clusters: Sequence[int], heterogeneity: float, drawn: Sequence[float], chance: Random
) -> Iterator[tuple[float, float]]:
    """The speeds of the last two clusters, in which Eq. 3 is quadratic: none, or one of two solutions by chance.

    With x and y for what they differ from 1, a x + b y = rest by Eq. 4, and x² + y² = square by Eq. 3.
    """
    a, b = clusters[-2:]
    rest = -sum([(speed - 1.0) * size for speed, size in zip(drawn, clusters, strict=False)])
    square = len(clusters) * heterogeneity - sum([(speed - 1.0) ** 2 for speed in drawn])
    under = square * (a * a + b * b) - rest * rest
    if under >= 0.0:
        along, across = rest / (a * a + b * b), chance.choice((-1, 1)) * sqrt(under) / (a * a + b * b)
        yield 1.0 + along * a + across * b, 1.0 + along * b - across * a
