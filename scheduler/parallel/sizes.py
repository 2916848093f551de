"""How many ranks a parallel task gets: what it asks for, or an equal share of the power that the grid has."""

from functools import lru_cache

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.choices import DecisionView, HowMany, Size


class Rigid(HowMany):
    """A job gets what it asks for; a moldable one, whatever else waits, the size that makes the best use of it.

    That is its processor working set; all that it may have if nothing is known of its speed-up.
    """

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """Constant."""
        return Size(working_set(job.need))


def working_set(need: Need) -> int:
    """The ranks with the least ratio of runtime to efficiency (Ghosal, Serazzi, Tripathi 1991; SCOJO-P, Section 4.6).

    T_n / E_n = T_1 n / S_n^2.
    """
    if need.least == need.most or need.speedup is None:
        return need.most
    return _working_set(need)


@lru_cache(maxsize=4096)
def _working_set(need: Need) -> int:
    speedup = need.speedup
    assert speedup is not None
    return min(range(need.least, need.most + 1), key=lambda ranks: ranks / speedup.of(ranks) ** 2)


# The most of a site that one job gets if it can do with less, and others are there.
MOST = 0.3


class EqualShare(HowMany):
    """An equal share of the power that the grid has, for each job that waits or runs, and one for the next that comes.

    A job never gets more ranks than it makes good use of (`working_set`), nor more than 30 % of a site, unless nothing
    else runs or waits: then nobody needs the rest, and it may have a whole site. Power and jobs are counted once in a
    decision: a job that starts in it still counts.
    """

    def __init__(self) -> None:
        self._total = self._largest = 0.0
        self._jobs = 0
        self._alone = False

    def notice(self, look: DecisionView) -> None:
        """How much power there is, whatever uses it now."""
        if all(job.need.least == job.need.most for job in look.queue):
            return
        sites = [sum([host.slots * host.power for host in site.hosts]) for site in look.view.sites]
        self._total, self._largest = sum(sites), max(sites, default=0.0)
        self._jobs = len(look.queue) + sum([len(site.running) for site in look.view.sites])
        self._alone = self._jobs == 1 and not look.view.singles

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """A rigid job gets what it asks for."""
        need = job.need
        if need.least == need.most:
            return Size(need.most)
        useful = float(working_set(need) * need.slots)
        if self._alone:
            return Size(need.least, min(self._largest, useful))
        return Size(need.least, min(self._total / (self._jobs + 1), MOST * self._largest, useful))
