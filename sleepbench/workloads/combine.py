"""Any jobs on any PCs: what of the jobs can run there at all, and how soon it could be done.

A policy that knows windows never starts a task that no window can hold; it waits for ever, and so would a simulation.
In real logs there are always some. They are left out, the same for every policy, and counted.
"""

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from deskgrid.scheduler.planning.relaxation import done_at
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.simulation.simulator import IDEAL, Arrival, Conditions, SimulatedPC, Span
from deskgrid.sleepbench.workloads.source import Jobs, Lab, WorkloadError

# Windows are looked at that open in this time: of endless ones there is always a longer one some day, and a task that
# waits for it makes the makespan a matter of that one window.
HORIZON_S = 30 * 24 * 3600.0

# Far more than a scheduler allows for rounding, far less than matters: a task that fits by less is left out, too.
HAIR_S = 1e-3


def leave_out_too_long(jobs: Jobs, lab: Lab, policies: Iterable[Policy] = (), conditions: Conditions = IDEAL) -> Jobs:
    """``jobs`` without tasks that do not fit the longest window; raises `WorkloadError` if that leaves none.

    What is left fits under each of ``policies``, whose margins differ, with what an attempt costs beside its runtime
    (which may be added to the prediction, too).
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
    """How soon all could be done: the work fills every slot whenever it is there, and the last bag has to come first.

    For PCs that stay it is the paper's bound (Section 4.2). Raises `WorkloadError` if they are gone before.
    """
    soonest = soonest_s(jobs.arrivals, lab.pcs)
    if math.isinf(soonest):
        raise WorkloadError(f"{lab.title} are gone for good before all is done")
    return soonest


def soonest_s(arrivals: Iterable[Arrival], pcs: Iterable[SimulatedPC]) -> float:
    """The same; infinite if they are gone before."""
    last = max(arrival.at + max(arrival.really()) for arrival in arrivals)
    work = math.fsum(seconds for arrival in arrivals for seconds in arrival.really())
    return max(last, done_at(heapq.merge(*map(_edges, pcs)), work))


def _edges(pc: SimulatedPC) -> Iterator[tuple[float, int]]:
    """When slots come, and when they go."""
    for span in pc.timetable():
        yield span.opens, pc.slots
        if span.closes < math.inf:
            yield span.closes, -pc.slots


def _first(pc: SimulatedPC) -> list[Span]:
    return list(takewhile(lambda span: span.opens < HORIZON_S, pc.timetable()))


def _part(arrival: Arrival, predicted: float, actual: float) -> Arrival | None:
    """What of a bag takes less than ``actual`` seconds and is predicted to take less than ``predicted``; or None."""
    pairs = list(zip(arrival.runtimes, arrival.really(), strict=True))
    fitting = [pair for pair in pairs if pair[0] < predicted and pair[1] < actual]
    if len(fitting) == len(pairs):
        return arrival
    if not fitting:
        return None
    return Arrival([pair[0] for pair in fitting], [pair[1] for pair in fitting], arrival.at)
