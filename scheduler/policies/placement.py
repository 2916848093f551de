"""Two ways to serve the priority queue that several policies share: a task for each slot, or a slot for each task."""

from collections.abc import Callable, Iterator
from math import inf

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.policies.base import Place, View
from deskgrid.scheduler.queues.waiting import Entry

# Short tasks that are alike are placed on one slot together: up to this many tasks, and this many seconds of work. It
# does not matter which of them runs where, and placing them together costs a tenth. Enough of them are left for this
# many rounds over the slots with room, so that every slot has something to do if a prediction was too short.
TOGETHER_TASKS = 100
TOGETHER_S = 0.01
TOGETHER_ROUNDS = 4

# The task that a policy intends for a slot, if any, with a runtime below a limit.
Choice = Callable[[int, float], Entry | None]


def task_for_each_slot(
    view: View, requirement: Requirement, choice: Choice = lambda slot, limit: None
) -> Iterator[Place]:
    """Each slot with an empty queue, the tightest first, gets what ``choice`` says, or the first task that fits."""
    while (found := view.tightest_empty(view.priority.shortest(), requirement)) is not None:
        slot, limit = found
        chosen = choice(slot, limit)
        entry = chosen or view.priority.next_fit(limit)
        if entry is not None:
            yield Place(entry, slot, True, requirement, 1 if chosen else _together(entry, view))


def slot_for_each_task(view: View, requirement: Requirement, limit: float = inf) -> Iterator[Place]:
    """Each task below ``limit``, in the order of the queue, goes to the tightest slot that has room for it."""
    if not view.slots_with_room() or view.priority.shortest() >= limit:
        return
    entry = view.priority.next_fit(min(view.longest_fit(requirement), limit))
    while entry is not None and (slot := view.tightest(entry.runtime, requirement)) is not None:
        yield Place(entry, slot, True, requirement, _together(entry, view))
        entry = view.priority.next_fit(min(view.longest_fit(requirement), limit), entry)


def tasks_of_rare_windows(view: View, requirement: Requirement, least: float) -> Iterator[Place]:
    """Each task that takes ``least`` seconds or more, the longest first, goes to the tightest slot that has room."""
    entry = view.priority.next_fit(view.longest_fit(requirement))
    while (
        entry is not None and entry.runtime >= least and (slot := view.tightest(entry.runtime, requirement)) is not None
    ):
        yield Place(entry, slot, True, requirement)
        entry = view.priority.next_fit(view.longest_fit(requirement), entry)


def _together(entry: Entry, view: View) -> int:
    """How many of the tasks like ``entry`` to place on one slot together: fewer and fewer towards the last ones."""
    if entry.alike == 1:
        return 1
    most = min(TOGETHER_TASKS, entry.alike // (TOGETHER_ROUNDS * view.slots_with_room()))
    return max(1, int(min(most, TOGETHER_S / entry.runtime)) if entry.runtime else most)
