"""Several people: bags that are paused or wait for others, shares, and licences.

Whose turn it is in a pass is in `deskgrid.scheduler.placing.turns`.
"""

import math

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import IllegalEvent, State
from deskgrid.scheduler.queues.task_ranges import Spans
from deskgrid.scheduler.state.bags import BARRED, QUEUED, WAITING, TaskBatch
from deskgrid.scheduler.state.grid import SchedulerState


def bar(batch: TaskBatch, first: int, count: int) -> Spans:
    """Bar the waiting ones of ``count`` tasks from ``first`` on. Returns their ranges."""
    spans = batch.spans(WAITING, first, count)
    for span in spans:
        batch.set_range(*span, State.BARRED)
    return spans


class People:
    """Applies the events about bags as a whole, shares and licences to ``grid``."""

    def __init__(self, grid: SchedulerState) -> None:
        self._grid = grid

    def bag_gated(self, event: ev.BagGated, now: float) -> None:
        """A bag is paused or has to wait, or goes on."""
        bag = self._grid.tasks.bags.get(event.bag)
        if bag is None:
            raise IllegalEvent(f"unknown bag {event.bag}")
        bag.bar(event.barred, now)
        self._grid.changes += 1

    def routed(self, event: ev.TasksRouted, now: float) -> None:
        """Waiting tasks leave their queues, or come back, as their bags say."""
        grid = self._grid
        for batch, first, count in list(grid.tasks.pieces(event.spans)):
            if batch.bag.barred:
                for task, _ in batch.spans(QUEUED, first, count):
                    grid.unqueue(task, State.QUEUED)
                    grid.tasks.move(task, State.BARRED)
                for span in bar(batch, first, count):
                    grid.discard(batch.bag.category, *span)
                continue
            for span in batch.spans(BARRED, first, count):
                batch.set_range(*span, State.WAITING)
                if batch.bag.category.parallel:
                    grid.jobs(batch.bag.category).enqueue(batch, *span)
                else:
                    grid.categories.add_again(batch.bag.category, batch.rows(*span))
        grid.changes += 1

    def shares_arranged(self, event: ev.SharesArranged, now: float) -> None:
        """Owners have other shares."""
        if not all(0.0 < weight < math.inf for _, weight in event.shares.values()):
            raise IllegalEvent("the weight of a share is a finite number above 0")
        self._grid.shares.arrange(event.shares)

    def usage_restored(self, event: ev.UsageRestored, now: float) -> None:
        """Owners have used something before this scheduler began."""
        if not all(0.0 <= used < math.inf for used in event.used_s.values()):
            raise IllegalEvent("what was used is a finite number of seconds from 0 up")
        for owner, used in event.used_s.items():
            self._grid.shares.account(owner).new_s += used

    def licences_counted(self, event: ev.LicencesCounted, now: float) -> None:
        """The grid has other numbers of licences."""
        self._grid.categories.licences.total = dict(event.total)
        self._grid.changes += 1
