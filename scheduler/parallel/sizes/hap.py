"""HAP (Dandamudi, Zhou 2004; Eq. 5 of the RHAP paper): as MAP, but a part of the power of all PCs, not of their slots.

The load of others does not count for the part.
"""

from deskgrid.scheduler.parallel.base import Job
from deskgrid.scheduler.parallel.choices import HowMany, Look, Size
from deskgrid.scheduler.parallel.sizes.partition import by_power, running


class HAP(HowMany):
    """``f``: how much a job that runs counts, from 0 to 1. (The paper prints f + Running; HAP multiplies.)"""

    def __init__(self, f: float = 0.5) -> None:
        self.f = f

    def size(self, look: Look, job: Job) -> Size:
        """Its part now."""
        return by_power(look, job.need, len(look.queue) + self.f * running(look) + 1, loaded=False)
