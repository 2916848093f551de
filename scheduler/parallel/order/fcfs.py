"""First come, first served: while the head waits, all wait."""

from collections.abc import Sequence

from deskgrid.scheduler.parallel.base import ParallelJob


class FirstCome:
    """In the order of their arrival."""

    backfills = False
    overtakes = False

    def order(self, waiting: Sequence[ParallelJob], now: float) -> list[ParallelJob]:
        """As they came."""
        return list(waiting)
