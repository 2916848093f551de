"""How CISNE chooses PCs (Lérida et al. 2008, Section 2): by their load alone, or so that unlike jobs share them.

A PC has at most one rank of a job, and at most ``mpl`` slots of each of its processors are occupied (None: all of its
slots). Of several sites, the one is chosen where the PCs that the job gets are the least loaded.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob, Site, Start
from deskgrid.scheduler.parallel.choices import DecisionView, HeadReservation, Sharing, Size
from deskgrid.scheduler.parallel.hosts import first, in_order


@dataclass(frozen=True, slots=True)
class CisneNeed(Need):
    """``cpu``: the part of its time in which a task computes, if that is known; the rest it communicates."""

    cpu: float = 1.0


class Normal:
    """The PCs with the least load: of others, and of what they run for us."""

    def __init__(self, mpl: float | None = None) -> None:
        if mpl is not None and not mpl >= 1:
            raise ValueError(f"mpl is a number from 1 up, not {mpl!r}")
        self.mpl = mpl
        self.sharing = Sharing(inf if mpl is None else mpl, apart=True, shared=True)

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The start on the PCs that are the least loaded on average."""
        best: Start | None = None
        least = inf
        for site in look.view.sites:
            if site.idle < size.ranks * job.need.slots:
                continue
            hosts = sorted([host for host in site.hosts if host.idle], key=self._order(site, job))
            start = in_order(look, job, hosts, partial(first, ranks=size.ranks), reserved)
            if start is not None and (load := sum([_load(host) for host, _ in start.ranks])) < least - ROUNDING:
                best, least = start, load
        return best

    def _order(self, site: Site, job: ParallelJob) -> Callable[[Host], tuple[float, ...]]:
        return lambda host: (_load(host),)


class Uniform(Normal):
    """PCs with equally many ranks; of these, those whose ranks compute when those of the job communicate."""

    def _order(self, site: Site, job: ParallelJob) -> Callable[[Host], tuple[float, ...]]:
        cpu: defaultdict[Host, list[float]] = defaultdict(list)
        for running in site.running:
            for host, ranks in running.ranks:
                cpu[host] += [_computes(running.job)] * ranks
        mine = _computes(job)

        def order(host: Host) -> tuple[float, ...]:
            theirs = cpu.get(host)
            unlike = abs(mine - sum(theirs) / len(theirs)) if theirs else 0.0
            return (host.slots - host.idle) / host.processors, -unlike, host.load

        return order


def _computes(job: ParallelJob) -> float:
    return job.need.cpu if isinstance(job.need, CisneNeed) else 1.0


def _load(host: Host) -> float:
    return host.load + (host.slots - host.idle) / host.processors
