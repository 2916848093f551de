"""What several policies do with the priority queue: for each slot a task, or for each task a slot."""

from collections.abc import Callable, Iterator
from math import inf

from scheduler.policies.base import Place, View
from scheduler.waiting import Entry

# What a policy has in mind for a slot, of tasks below a limit.
Choice = Callable[[int, float], Entry | None]


def task_for_each_slot(view: View, choice: Choice = lambda slot, limit: None) -> Iterator[Place]:
    """Each slot with an empty queue, the tightest first, gets what ``choice`` says, or the first task that fits."""
    while (found := view.tightest_empty(view.priority.shortest())) is not None:
        slot, limit = found
        entry = choice(slot, limit) or view.priority.next_fit(limit)
        if entry is not None:
            yield Place(entry, slot, priority=True)


def slot_for_each_task(view: View, limit: float = inf) -> Iterator[Place]:
    """Each task below ``limit``, in the order of the queue, goes to the tightest slot that has room for it."""
    entry = view.priority.next_fit(min(view.longest_fit(), limit))
    while entry is not None and (slot := view.tightest(entry.runtime)) is not None:
        yield Place(entry, slot, priority=True)
        entry = view.priority.next_fit(min(view.longest_fit(), limit), entry)
