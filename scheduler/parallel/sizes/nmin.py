"""The least: each job gets the smallest size that it can have, at which it is most efficient."""

from deskgrid.scheduler.parallel.base import Job
from deskgrid.scheduler.parallel.choices import HowMany, Look, Size


class Nmin(HowMany):
    """N_min of SCOJO-P's Table 1, always."""

    def size(self, look: Look, job: Job) -> Size:
        """The same whenever it is asked."""
        return Size(job.need.least)
