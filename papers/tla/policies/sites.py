"""Sites as those who look ahead see them: slots that are free, and when others will be. Neither windows nor labels.

What is simulated is first come, first served: a job starts at the earliest time at which some site has room for it, but
not before the one that is ahead of it (TLA paper, Fig. 3).
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.parallel.base import ParallelJob, Site
from deskgrid.scheduler.parallel.choices import DecisionView

# In which order the places of sites are tried, by their free slots.
Arrange = Callable[[list[int]], Sequence[int]]


class SimulatedJob(NamedTuple):
    """What is simulated of a job: its slots, its seconds at speed 1, and when it was submitted."""

    slots: int
    seconds: float
    arrived: float


class Sites:
    """``order``: places of sites, the fastest first. ``ends``: a heap of (time, place, slots that are free then).

    ``most``: the slots of the largest site.
    """

    __slots__ = ("ends", "free", "most", "now", "order", "place", "speeds")

    def __init__(self, look: DecisionView) -> None:
        now = self.now = look.now
        sites = look.view.sites
        self.free = [site.idle for site in sites]
        self.speeds = [_speed(site) for site in sites]
        self.place = {site.name: place for place, site in enumerate(sites)}
        self.order = sorted(range(len(sites)), key=self.speeds.__getitem__, reverse=True)
        self.ends = [
            (at if at > now else now, place, slots)
            for place, site in enumerate(sites)
            for host in site.hosts
            for at, slots in host.frees
        ]
        heapify(self.ends)
        slots = self.free.copy()
        for _, place, more in self.ends:
            slots[place] += more
        self.most = max(slots)

    def power_used(self, place: int, slots: int, jobs: Sequence[SimulatedJob]) -> float:
        """The power in use when a job has started at ``place``, and as many behind it as can start now."""
        free = self.free.copy()
        free[place] -= slots
        power = slots * self.speeds[place]
        for needs, _, _ in jobs:
            for fast in self.order:
                if free[fast] >= needs:
                    break
            else:
                break
            free[fast] -= needs
            power += needs * self.speeds[fast]
        return power

    def turnaround(
        self, place: int, job: SimulatedJob, jobs: Sequence[SimulatedJob], arrange: Arrange | None = None
    ) -> tuple[float, list[int]]:
        """The average turnaround of a job that starts at ``place`` now, and of those behind it; and where they start.

        They take the first site with room: the fastest, or as ``arrange`` says. A job with more slots than any site
        has does not count; its place is -1.
        """
        free, ends, speeds, order = self.free.copy(), self.ends.copy(), self.speeds, self.order
        at, most = self.now, self.most
        free[place] -= job.slots
        end = at + job.seconds / speeds[place]
        heappush(ends, (end, place, job.slots))
        total = end - job.arrived
        places = []
        for slots, seconds, arrived in jobs:
            if slots > most:
                places.append(-1)
                continue
            while True:
                for chosen in order if arrange is None else arrange(free):
                    if free[chosen] >= slots:
                        break
                else:
                    at, freed, more = heappop(ends)
                    free[freed] += more
                    while ends and ends[0][0] <= at + ROUNDING:
                        _, freed, more = heappop(ends)
                        free[freed] += more
                    continue
                break
            places.append(chosen)
            free[chosen] -= slots
            end = at + seconds / speeds[chosen]
            heappush(ends, (end, chosen, slots))
            total += end - arrived
        return total / (1 + len(places) - places.count(-1)), places


def ahead(look: DecisionView, jobs: Sequence[ParallelJob]) -> list[SimulatedJob]:
    """What is simulated of jobs."""
    rows = []
    for job in jobs:
        need = job.need
        ranks = need.most if need.least == need.most else max(need.least, look.sizes.size(look, job).ranks)
        rows.append(SimulatedJob(ranks * need.slots, need.seconds(job.runtime, ranks), job.arrived))
    return rows


def _speed(site: Site) -> float:
    """The mean speed of its PCs; if they are equally fast, exactly that speed."""
    hosts = site.hosts
    speed = hosts[0].speed
    return speed if len(hosts) == 1 else speed + sum([host.speed - speed for host in hosts]) / len(hosts)
