"""RHAP's limit alone: each job gets as much as it may, however many there are."""

from deskgrid.scheduler.parallel.base import Job
from deskgrid.scheduler.parallel.choices import HowMany, Look, Size
from deskgrid.scheduler.parallel.sizes.partition import by_power, units


class Max(HowMany):
    """``most``: the part of a grid's power that each job gets (Eq. 8 of the RHAP paper)."""

    def __init__(self, most: float = 0.3) -> None:
        self.most = most

    def size(self, look: Look, job: Job) -> Size:
        """The same for all."""
        return by_power(look, job.need, 1.0, loaded=False, most=self.most * units(look))
