"""Combine any jobs with any PCs: which of the jobs can run there at all, and how soon they could be done.

A policy that knows windows never starts a task that fits into no window. Such a task would wait for ever, and the
simulation would never end. Real logs always contain such tasks. They are left out, the same ones for every policy, and
counted.
"""

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.policies.planning.planner import done_at
from deskgrid.scheduler.simulation.simulator import IDEAL, Arrival, Conditions, RealWindow, SimulatedPC
from deskgrid.sleepbench.workloads.source import Jobs, Lab, WorkloadError

# Only windows that open within this time count. An endless series of windows has a longer one some day, and a task that
# waits for it would make the makespan depend on that one window.
HORIZON_S = 30 * 24 * 3600.0

# Tasks that fit by less than this are left out, too. It is far more than a scheduler allows for rounding, and far less
# than matters.
HAIR_S = 1e-3


def leave_out_too_long(jobs: Jobs, lab: Lab, policies: Iterable[Policy] = (), conditions: Conditions = IDEAL) -> Jobs:
    """``jobs`` without tasks that do not fit into the longest window; raises `WorkloadError` if that leaves none.

    The remaining tasks fit under each of ``policies``, whose margins differ, including the overhead of an attempt
    (which may be part of the prediction, too).
    """
    spans = [span for pc in lab.pcs for span in _first(pc)]
    announced = max((span.longest() for span in spans), default=0.0) - HAIR_S
    lasts = max((span.closes - span.opens for span in spans), default=0.0) - HAIR_S
    needs = [policy.requirement for policy in policies]
    limits = ((announced - each.margin) / each.stretch - conditions.overhead_s for each in needs)
    predicted = min(limits, default=announced)
    actual = lasts - conditions.overhead_s - conditions.opening_s
    kept = tuple(part for arrival in jobs.arrivals if (part := _part(arrival, predicted, actual)) is not None)
    left = replace(jobs, arrivals=kept)
    missing = jobs.tasks - left.tasks
    if not missing:
        return jobs
    if not kept:
        raise WorkloadError(f"all {missing:,} tasks are longer than any window of {lab.title}")
    note = f"tasks left out, longer than any window of the first 30 days: {missing:,}"
    return replace(left, notes=(*jobs.notes, note))


def lower_bound_s(jobs: Jobs, lab: Lab) -> float:
    """A lower bound of the makespan: the work fills every slot whenever it is up, and no task starts before it arrives.

    For PCs that stay it is the paper's bound (Section 4.2). Raises `WorkloadError` if the PCs are gone before.
    """
    soonest = soonest_s(jobs.arrivals, lab.pcs)
    if math.isinf(soonest):
        raise WorkloadError(f"{lab.title} are gone for good before all is done")
    return soonest


def soonest_s(arrivals: Iterable[Arrival], pcs: Iterable[SimulatedPC]) -> float:
    """As `lower_bound_s`, but infinite if the PCs are gone before all is done."""
    last = max(arrival.at + max(arrival.really()) for arrival in arrivals)
    work = math.fsum(arrival.need.width * seconds for arrival in arrivals for seconds in arrival.really())
    return max(last, done_at(heapq.merge(*map(_edges, pcs)), work))


def _edges(pc: SimulatedPC) -> Iterator[tuple[float, int]]:
    """When slots appear and disappear: pairs of a time and a change of their number."""
    for span in pc.timetable():
        yield span.opens, pc.slots
        if span.closes < math.inf:
            yield span.closes, -pc.slots


def _first(pc: SimulatedPC) -> list[RealWindow]:
    return list(takewhile(lambda span: span.opens < HORIZON_S, pc.timetable()))


def _part(arrival: Arrival, predicted: float, actual: float) -> Arrival | None:
    """The tasks of a bag that take less than ``actual`` seconds, and less than ``predicted`` by prediction; or None."""
    pairs = list(zip(arrival.runtimes, arrival.really(), strict=True))
    fitting = [pair for pair in pairs if pair[0] < predicted and pair[1] < actual]
    if len(fitting) == len(pairs):
        return arrival
    if not fitting:
        return None
    return Arrival([pair[0] for pair in fitting], [pair[1] for pair in fitting], arrival.at)
