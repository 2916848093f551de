"""Fastest first: the site where the job takes the least time (FF of the TLA paper, Section 2.3)."""

from deskgrid.scheduler.parallel.base import ParallelJob, Start
from deskgrid.scheduler.parallel.choices import PLAIN, DecisionView, HeadReservation, Size
from deskgrid.scheduler.parallel.hosts import offers


class Fastest:
    """Of sites where it takes equally long, the first by name."""

    sharing = PLAIN

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The possible start that takes the fewest seconds."""
        best: Start | None = None
        for start in offers(look, job, size, reserved):
            if best is None or start.seconds < best.seconds:
                best = start
        return best
