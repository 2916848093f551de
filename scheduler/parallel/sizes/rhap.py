"""RHAP (Chhabra, Singh; Eqs. 6 to 8): as HAP, but of the power that others leave, and with a limit for each job."""

from deskgrid.scheduler.parallel.base import Job
from deskgrid.scheduler.parallel.choices import HowMany, Look, Size
from deskgrid.scheduler.parallel.sizes.partition import by_power, running, units


class RHAP(HowMany):
    """``f``: how much a job that runs counts, from 0 to 1. ``most``: the most of a grid's power that a job gets."""

    def __init__(self, f: float = 0.5, most: float = 0.3) -> None:
        self.f = f
        self.most = most

    def size(self, look: Look, job: Job) -> Size:
        """Its part now."""
        jobs = len(look.queue) + self.f * running(look) + 1
        return by_power(look, job.need, jobs, loaded=True, most=self.most * units(look))
