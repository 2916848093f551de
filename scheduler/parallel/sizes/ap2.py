"""AP2 (Rosti, Smirni, Dowdy, Serazzi, Carlson 1994; Eq. 1 of the RHAP paper): one partition more than jobs wait."""

from deskgrid.scheduler.parallel.base import Job
from deskgrid.scheduler.parallel.choices import HowMany, Look, Size
from deskgrid.scheduler.parallel.sizes.partition import by_processors


class AP2(HowMany):
    """An equal part of all slots for each job that waits, and one for the next to come. Those that run do not count."""

    def size(self, look: Look, job: Job) -> Size:
        """Its part now."""
        return by_processors(look, job.need, len(look.queue) + 1)
