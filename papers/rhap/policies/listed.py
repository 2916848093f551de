"""The first PCs that are free, in the order in which they are listed: whoever chose sizes alone did not choose PCs."""

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import ParallelJob, Start
from deskgrid.scheduler.parallel.choices import PLAIN, DecisionView, HeadReservation, Size
from deskgrid.scheduler.parallel.hosts import Choose, first, in_order, strongest


class Listed:
    """At the first site, by name, where the job can start."""

    sharing = PLAIN

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The first possible start."""
        choose = _choosing(job.need, size)
        for site in look.view.sites:
            if site.idle >= size.ranks * job.need.slots:
                idle = [host for host in site.hosts if host.idle]
                if size.power and sum([size.of(host) * host.idle for host in idle]) < size.power - ROUNDING:
                    continue
                if (start := in_order(look, job, idle, choose, reserved)) is not None:
                    return start
        return None


def _choosing(need: Need, size: Size) -> Choose:
    if size.power:
        return lambda free: strongest(free, need, size)[1]
    return lambda free: first(free, size.ranks)
