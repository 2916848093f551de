"""Best fit: the site that has the fewest slots left afterwards (BF of the TLA paper, Section 2.3)."""

from deskgrid.scheduler.parallel.base import ParallelJob, Start
from deskgrid.scheduler.parallel.choices import PLAIN, DecisionView, HeadReservation, Size
from deskgrid.scheduler.parallel.hosts import offers, site_of


class BestFit:
    """Of sites that have equally few, the one where it takes the least time; then the first by name."""

    sharing = PLAIN

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The possible start at the site with the fewest idle slots."""
        return min(offers(look, job, size, reserved), key=left, default=None)


def left(start: Start) -> tuple[int, float]:
    """The idle slots of its site, and its seconds."""
    return site_of(start).idle, start.seconds
