"""Equal partitions of a grid, for jobs of which nothing is known: AP2, MAP, HAP, RHAP, and RHAP's limit alone.

A. Chhabra, G. Singh, Performance Evaluation of Adaptive Scheduling Algorithm for Shared Heterogeneous Cluster Systems
(Eqs. 1 to 8). All five are one formula: what there is, divided by the jobs. A job waits for its whole partition, which
is never more than a site has. A rigid job gets what it asks for.

What a job gets is what others leave of its PCs, also if they did not count in the partition: so AP2, MAP and HAP wait
for more PCs than they planned (Section VI b: "the actual number of available BPUs can be lower").

A basic processing unit (BPU) is the power of one slot of the slowest PC.
"""

from functools import partial
from math import ceil, inf
from typing import Literal

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob
from deskgrid.scheduler.parallel.choices import DecisionView, HowMany, Size, fraction


class SlotSize(Size):
    """All PCs count as equally fast: the power of a slot is the part of it that others leave."""

    __slots__ = ()

    def of(self, host: Host) -> float:
        """That part."""
        return 1.0 - host.load


class Partition(HowMany):
    """An equal part for each job that waits, for each that runs by a factor, and one for the next to come.

    ``of``: what is divided: all slots; all PCs by their speed, whatever others use of them; or what others leave.
    ``f``: how much a job that runs counts, from 0 to 1. (The paper prints f + Running; MAP and HAP multiply.)
    ``most``: the most of the grid's power that a job gets, from 0 to 1; infinity: no limit. ``divided``: if not, each
    job gets the limit, however many there are.
    """

    def __init__(
        self,
        of: Literal["slots", "speeds", "power"],
        *,
        f: float = 0.0,
        most: float = inf,
        divided: bool = True,
    ) -> None:
        self.of = of
        self.f = fraction("f", f)
        self.most = most if most == inf else fraction("most", most)
        self.divided = divided

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """Return the ranks that the policy would give the job now."""
        need = job.need
        if need.least == need.most:
            return Size(need.most)
        running = sum([len(site.running) for site in look.view.sites])
        jobs = len(look.queue) + self.f * running + 1 if self.divided else 1.0
        if self.of == "slots":
            return _by_slots(look, need, jobs)
        most = self.most if self.most == inf else self.most * _units(look)
        return _by_power(look, need, jobs, most, loaded=self.of == "power")


# Rosti, Smirni, Dowdy, Serazzi, Carlson 1994 (Eq. 1); Dandamudi, Yu 1999 (Eq. 2); Dandamudi, Zhou 2004 (Eq. 5);
# Chhabra, Singh (Eqs. 6 to 8); and Eq. 8 alone.
AP2 = partial(Partition, "slots")
MAP = partial(Partition, "slots", f=0.5)
HAP = partial(Partition, "speeds", f=0.5)
RHAP = partial(Partition, "power", f=0.5, most=0.3)
MAX = partial(Partition, "speeds", most=0.3, divided=False)


def share(total: float, jobs: float) -> int:
    """Return one of so many equal parts, rounded up (Eqs. 1, 2, 5 and 7)."""
    return max(1, ceil(total / jobs + 0.5 - ROUNDING))


def _by_slots(look: DecisionView, need: Need, jobs: float) -> Size:
    """The job's share of all slots. It gets as many as are that many if others leave it only a part of each."""
    hosts = _hosts(look, need)
    slots = sum([host.slots // need.slots for some in hosts for host in some])
    most = [sum([host.slots // need.slots * (1.0 - host.load) for host in some]) for some in hosts]
    return SlotSize(need.least, min(share(slots, jobs), max(most, default=0.0)))


def _by_power(look: DecisionView, need: Need, jobs: float, most: float, *, loaded: bool) -> Size:
    """The job's share of all power. ``loaded``: less what others use. ``most``: the most BPUs of a job.

    What it gets is always counted as others leave it.
    """
    left = [sum([host.slots // need.slots * host.power for host in hosts]) for hosts in _hosts(look, need)]
    if loaded:
        total = sum(left)
    else:
        total = sum([host.slots // need.slots * host.speed for hosts in _hosts(look, need) for host in hosts])
    unit = _unit(look)
    return Size(need.least, min(min(share(total / unit, jobs), most) * unit, max(left, default=unit)))


def _units(look: DecisionView) -> float:
    """How many BPUs the grid has, if nobody else uses it."""
    return sum([host.slots * host.speed for site in look.view.sites for host in site.hosts]) / _unit(look)


def _unit(look: DecisionView) -> float:
    """The speed that counts as one BPU."""
    return min([host.speed for site in look.view.sites for host in site.hosts], default=1.0)


def _hosts(look: DecisionView, need: Need) -> list[list[Host]]:
    """The PCs of each site that have what the job needs."""
    if not need.labels:
        return [site.hosts for site in look.view.sites]
    return [[host for host in site.hosts if host.labels >= need.labels] for site in look.view.sites]
