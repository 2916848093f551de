"""PGS: prediction based grid scheduling, as in the paper (Section 2.3).

Phase 1 gives each slot with an empty queue the first task that fits, so that no slot idles while the rest is worked
out. Phase 2 takes the tasks in turn, priority queue first. It puts each on the slot with the smallest remaining time
strictly greater than the task's runtime, which keeps long windows for long tasks. A task that fits nowhere joins the
priority queue.
"""

from collections.abc import Iterator
from typing import ClassVar

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.policies.base import Place, Postpone, View
from deskgrid.scheduler.policies.placement import slot_for_each_task


class PGS:
    """The paper's policy. It looks at current windows only.

    ``order``: of the priority queue. ``queue_length``: tasks held for a slot beside the running one. ``queue_s``: a
    queue may hold more tasks than that, up to this many seconds of work (not in the paper; 0 switches it off).
    ``margin``: seconds kept free for starting up. ``stretch``: how many times its prediction a task may take.

    The defaults were found by measurement, on the paper's grid in several orders and 100 random ones. On average they
    are 0.02 % above the best of 15 settings; queues of 1, 2, 4 and 10 tasks cost 1.8, 4, 8 and 14 %, newest-first 10 %,
    fifo 11 %.
    """

    name: ClassVar[str] = "pgs"
    timed = True

    def __init__(
        self,
        order: str = "longest-first",
        queue_length: int = 0,
        queue_s: float = 1.0,
        margin: float = 1.0,
        stretch: float = 1.0,
    ) -> None:
        self.order = order
        self.queue_length = queue_length
        self.queue_s = queue_s
        self.margin = margin
        self.stretch = stretch
        self.requirement = Requirement(margin, stretch)

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        yield from self._first_task_for_each_slot(view)
        if view.slots_with_room():
            yield from slot_for_each_task(view, self.requirement)
            yield from self._regular_tasks(view)

    def _first_task_for_each_slot(self, view: View) -> Iterator[Place]:
        requirement = self.requirement
        while True:
            found = view.tightest_empty(min(view.priority.shortest(), view.regular.shortest()), requirement)
            if found is None:
                return
            slot, limit = found
            entry = view.priority.next_fit(limit)
            if entry is not None:
                yield Place(entry, slot, True, requirement)
            elif (entry := view.regular.next_fit(limit)) is not None:
                yield Place(entry, slot, False, requirement)

    def _regular_tasks(self, view: View) -> Iterator[Place | Postpone]:
        requirement = self.requirement
        while view.slots_with_room() and len(view.regular):
            entry = view.regular.next_fit(view.longest_fit(requirement))
            if entry is None or (slot := view.tightest(entry.runtime, requirement)) is None:
                yield Postpone(None)
                return
            if view.regular.first_before(entry):
                yield Postpone(entry)
            yield Place(entry, slot, False, requirement)
