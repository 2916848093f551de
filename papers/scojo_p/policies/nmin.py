"""The least: each job gets the smallest size that it can have, at which it is most efficient."""

from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.choices import DecisionView, HowMany, Size


class Nmin(HowMany):
    """N_min of SCOJO-P's Table 1, always."""

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """Constant."""
        return Size(job.need.least)
