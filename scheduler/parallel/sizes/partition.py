"""Equal partitions of a grid, for jobs of which nothing is known: what AP2, MAP, HAP and RHAP have in common.

A. Chhabra, G. Singh, Performance Evaluation of Adaptive Scheduling Algorithm for Shared Heterogeneous Cluster Systems
(Eqs. 1 to 8). A job waits for its whole partition, which is never more than a site has. A rigid job gets what it asks
for.

What a job gets is what others leave of its PCs, also if they did not count in the partition: so AP2, MAP and HAP wait
for more PCs than they planned (Section VI b: "the actual number of available BPUs can be lower").

A basic processing unit (BPU) is the power of one slot of the slowest PC.
"""

from math import ceil, inf

from deskgrid.scheduler.model import ROUNDING
from deskgrid.scheduler.parallel.base import Host
from deskgrid.scheduler.parallel.choices import Look, Size
from deskgrid.scheduler.parallel.need import Need


def share(total: float, jobs: float) -> int:
    """One of so many equal parts, rounded up (Eqs. 1, 2, 5 and 7)."""
    return max(1, ceil(total / jobs + 0.5 - ROUNDING))


def running(look: Look) -> int:
    """How many jobs run."""
    return sum([len(site.running) for site in look.view.sites])


def by_processors(look: Look, need: Need, jobs: float) -> Size:
    """The job's share of all slots. It gets as many as are that many if others leave it only a part of each."""
    if need.least == need.most:
        return Size(need.most)
    hosts = _hosts(look, need)
    slots = sum([host.slots // need.slots for some in hosts for host in some])
    most = [sum([host.slots // need.slots * (1.0 - host.load) for host in some]) for some in hosts]
    return Size(need.least, min(share(slots, jobs), max(most, default=0.0)), equal=True)


def by_power(look: Look, need: Need, jobs: float, *, loaded: bool, most: float = inf) -> Size:
    """The job's share of all power. ``loaded``: less what others use. ``most``: the most BPUs of a job.

    What it gets is always counted as others leave it.
    """
    if need.least == need.most:
        return Size(need.most)
    left = [sum([host.slots // need.slots * host.power for host in hosts]) for hosts in _hosts(look, need)]
    if loaded:
        total = sum(left)
    else:
        total = sum([host.slots // need.slots * host.speed for hosts in _hosts(look, need) for host in hosts])
    unit = _unit(look)
    return Size(need.least, min(min(share(total / unit, jobs), most) * unit, max(left, default=unit)))


def units(look: Look) -> float:
    """How many BPUs the grid has, if nobody else uses it."""
    return sum([host.slots * host.speed for site in look.view.sites for host in site.hosts]) / _unit(look)


def _unit(look: Look) -> float:
    """The speed that counts as one BPU."""
    return min([host.speed for site in look.view.sites for host in site.hosts], default=1.0)


def _hosts(look: Look, need: Need) -> list[list[Host]]:
    """The PCs of each site that have what the job needs."""
    if not need.labels:
        return [site.hosts for site in look.view.sites]
    return [[host for host in site.hosts if host.labels >= need.labels] for site in look.view.sites]
