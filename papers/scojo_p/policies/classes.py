"""Classes by runtime (SCOJO-P, Section 5.2): the shorter a job, the sooner its turn; one that waits for long rises."""

from bisect import bisect_right
from collections.abc import Sequence

from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.sizes import working_set

# Seconds: jobs that would take less on the size that suits them are short, or medium; the others are long (Table 1).
LIMITS = (60.0, 3600.0)
# A job that has waited so many times its runtime rises by one class.
PATIENCE = 5.0


class Classes:
    """EASY backfilling in the order of the classes; within one in the order of arrival.

    ``limits``: seconds, ascending, between one class and the next. ``patience``: after how many times its runtime a
    waiting job has its turn with the class above its own.
    """

    backfills = True
    overtakes = True

    def __init__(self, limits: Sequence[float] = LIMITS, patience: float = PATIENCE) -> None:
        self.limits = tuple(limits)
        self.patience = patience

    def order(self, waiting: Sequence[ParallelJob], now: float) -> list[ParallelJob]:
        """By class, and by arrival."""
        return sorted(waiting, key=lambda job: self.rank(job, now))

    def rank(self, job: ParallelJob, now: float) -> int:
        """The class in which the job has its turn now; 0 is the first."""
        seconds = optimum(job)
        own = self.class_of(seconds)
        return own - 1 if own and now - job.arrived >= self.patience * seconds else own

    def class_of(self, seconds: float) -> int:
        """0: short; then longer ones."""
        return bisect_right(self.limits, seconds)


def optimum(job: ParallelJob) -> float:
    """The seconds that it takes on the size that suits it, on PCs of speed 1."""
    return job.need.seconds(job.runtime, working_set(job.need))
