"""MAP (Dandamudi, Yu 1999; Eq. 2 of the RHAP paper): as AP2, but those that run count, too."""

from deskgrid.scheduler.parallel.base import Job
from deskgrid.scheduler.parallel.choices import HowMany, Look, Size
from deskgrid.scheduler.parallel.sizes.partition import by_processors, running


class MAP(HowMany):
    """``f``: how much a job that runs counts, from 0 to 1. (The paper prints f + Running; MAP multiplies.)"""

    def __init__(self, f: float = 0.5) -> None:
        self.f = f

    def size(self, look: Look, job: Job) -> Size:
        """Its part now."""
        return by_processors(look, job.need, len(look.queue) + self.f * running(look) + 1)
