"""A policy for parallel tasks, made of three choices: which next, how many ranks, and where.

The head of the queue starts as soon as it can. While it waits, the earliest time at which it can start is reserved for
it, and if the choice of the next backfills, others start that do not delay it.
"""

from collections.abc import Iterator

from deskgrid.scheduler.parallel.base import Keep, ParallelView, Start
from deskgrid.scheduler.parallel.choices import HowMany, Look, Reserved, Where, WhichNext
from deskgrid.scheduler.parallel.reservation import earliest


class Composed:
    """``margin``: seconds kept free before a window closes."""

    def __init__(self, name: str, which: WhichNext, sizes: HowMany, where: Where, margin: float = 1.0) -> None:
        self.name = name
        self.which = which
        self.sizes = sizes
        self.where = where
        self.margin = margin

    def decide(self, view: ParallelView) -> Iterator[Start | Keep]:
        """The heads of the queue, one after the other, as far as they can start; then those that fit into gaps."""
        now = view.now
        queue = self.which.order([job for job in view.waiting if job.not_before <= now], now)
        look = Look(view, now, queue, self.sizes, self.margin)
        self.sizes.notice(look)
        while queue:
            start = self._head(look)
            if isinstance(start, Start):
                yield start
                del queue[0]
                continue
            if start is not None:
                yield Keep(start.job, start.ranks, start.at)
            if self.which.backfills:
                yield from self._fill(look, start)
            return

    def _head(self, look: Look) -> Start | Reserved | None:
        """How the head starts now, or what it waits for, if that is known."""
        job = look.queue[0]
        size = self.sizes.size(look, job)
        start = self.where.place(look, job, size)
        if start is not None:
            return start
        other = self.sizes.instead(look, job, size)
        if other != size and (start := self.where.place(look, job, other)) is not None:
            return start
        return earliest(look, job, other)

    def _fill(self, look: Look, reserved: Reserved | None) -> Iterator[Start]:
        if not any(site.idle for site in look.view.sites):
            return
        for job, size in self.sizes.fill(look, look.queue[1:], reserved):
            start = self.where.place(look, job, size, reserved)
            if start is not None:
                yield start
                look.queue.remove(job)
