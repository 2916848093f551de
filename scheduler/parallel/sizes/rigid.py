"""Rigid: a job gets what it asks for; a moldable one, whatever else waits, the size that makes the best use of it."""

from functools import lru_cache

from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.choices import DecisionView, HowMany, Size
from deskgrid.scheduler.parallel.need import Need


class Rigid(HowMany):
    """The processor working set of a moldable job; all that a job may have if nothing is known of its speed-up."""

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """Constant."""
        return Size(working_set(job.need))


def working_set(need: Need) -> int:
    """The ranks with the least ratio of runtime to efficiency (Ghosal, Serazzi, Tripathi 1991; SCOJO-P, Section 4.6).

    T_n / E_n = T_1 n / S_n^2.
    """
    if need.least == need.most or need.speedup is None:
        return need.most
    return _working_set(need)


@lru_cache(maxsize=4096)
def _working_set(need: Need) -> int:
    speedup = need.speedup
    assert speedup is not None
    return min(range(need.least, need.most + 1), key=lambda ranks: ranks / speedup.of(ranks) ** 2)
