"""AI2: best fit or fastest first, whichever makes use of more computing power now (TLA paper, Section 2.3)."""

from operator import attrgetter

from deskgrid.papers.tla.policies.sites import Sites, ahead
from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.parallel.base import ParallelJob, Start
from deskgrid.scheduler.parallel.choices import PLAIN, DecisionView, HeadReservation, Size
from deskgrid.scheduler.parallel.hosts import offers, site_of
from deskgrid.scheduler.parallel.where import left


class AdaptiveIntelligent2:
    """It tries both for the job, then places the others of this session fastest first, in their turn, while they fit.

    The power of a job is its slots times the speed of its site. Where both use the same, the site is chosen that fits
    best: it leaves more slots together for those that come.
    """

    sharing = PLAIN

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The better of both starts. `Start.considered` is the power that each would use; None if they are the same."""
        starts = list(offers(look, job, size, reserved))
        if not starts:
            return None
        tight, fast = min(starts, key=left), min(starts, key=attrgetter("seconds"))
        if tight is fast:
            return tight
        sites = Sites(look)
        # No site has room for more jobs than it has idle slots.
        others = ahead(look, [each for each in look.queue[: 1 + sum(sites.free)] if each is not job])
        slots = size.ranks * job.need.slots
        considered = {
            site_of(start).name: sites.power_used(sites.place[site_of(start).name], slots, others)
            for start in (tight, fast)
        }
        best = fast if considered[site_of(fast).name] > considered[site_of(tight).name] + ROUNDING else tight
        return best._replace(considered=considered)
