"""Jobs that can start in no known window: to find that out again and again would take a bounded pass too long.

Those that could not start even if nothing else ran are not asked about (`deskgrid.scheduler.parallel.possible`).

Rule 1: a bounded pass asks about only a few of them: those about which it was asked longest ago, and about each only
once after anything has changed.
Rule 2: as soon as one of them can start, or has a time at which it can, all that need the same are asked about again.
"""

from collections.abc import Iterable, Sequence

from deskgrid.scheduler.parallel.base import ParallelJob

# To find out that a job can start in no known window takes as long as so many starts, and as many more for each
# so many PCs; and at most so many, which is what a moldable job takes, because several sizes are tried.
START_TIMES, PCS, MOST = 10, 1_000, 30
# About so many jobs that are known to be such are asked about in one decision: less than a bounded pass has time for.
RETRIED = 3
# Then the next ones are asked about after so many seconds, even if nothing more has changed.
RETRY_S = 1.0


class Asides:
    """``rest``: whether the last decision left some out."""

    def __init__(self) -> None:
        self._serial = self._changed = 0
        self.rest = False

    def change(self) -> None:
        """Something has changed: it may let some start about which it was asked before."""
        self._changed = self._serial

    def put(self, jobs: Iterable[ParallelJob]) -> None:
        """They can start in no known window, and one of them has been tried."""
        self._serial += 1
        for job in jobs:
            job.aside = self._serial

    def to_ask(self, turns: Sequence[list[ParallelJob]]) -> Sequence[list[ParallelJob]]:
        """The jobs that are asked about now."""
        serials = sorted({job.aside for jobs in turns for job in jobs if job.aside})
        if not serials:
            return turns
        due = [serial for serial in serials if serial <= self._changed]
        self.rest = len(due) > RETRIED
        last = due[:RETRIED][-1] if due else 0
        return [[job for job in jobs if job.aside <= last] for jobs in turns]

    def back(self, job: ParallelJob, jobs: Iterable[ParallelJob]) -> bool:
        """``job`` has a time at which it can start. Returns whether it was aside; then none of ``jobs`` like it is."""
        if not job.aside:
            return False
        for each in [each for each in jobs if each.need == job.need]:
            each.aside = 0
        job.aside = 0
        return True


def cost(job: ParallelJob, pcs: int) -> int:
    """As many starts could be decided in the time that was spent on it, if there are so many PCs."""
    return min(MOST, START_TIMES * (1 + pcs // PCS)) if job.need.least == job.need.most else MOST
