"""Tasks that have failed on a worker, and are tried on another one next.

Rule 1: such a task waits for a slot of a worker on which it has not failed. It comes before the policy is asked, when
its category has its turn. How long it waits for that: `deskgrid.scheduler.handlers.retrying`.
Rule 2: a pass looks at a few of them only; in the next one, it is the turn of others.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from deskgrid.scheduler.placing.view import PolicyView
from deskgrid.scheduler.policies.base import Place
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.waiting import Entry
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.suitable import without

# Tasks of a category that are looked at in one turn.
LOOKS = 64
# Slots that are hidden in a pass, of workers on which tasks have failed: each takes some microseconds.
HIDDEN = 500


def place_elsewhere(grid: SchedulerState, categories: Sequence[Category]) -> Iterator[Place]:
    """Placements of tasks in these categories that have failed, on other workers than those."""
    requirement, hidden = grid.policy.requirement, 0
    for category in categories:
        view = PolicyView(grid, (category,), (category,))
        for task in list(islice(category.elsewhere, LOOKS)):
            if hidden > HIDDEN or not view.slots_with_room():
                return
            batch = grid.tasks.known(task)
            category.elsewhere[task] = category.elsewhere.pop(task)  # the last one from now on
            if batch.bag.barred:
                continue
            runtime = batch.runtime(task)
            failed_on = grid.tasks.failed_on(task)
            hidden += sum([len(grid.slots.workers[name].slots) for name in failed_on if name in grid.slots.workers])
            with without(grid, failed_on):
                found = view.tightest(runtime, requirement)
            if found is not None:
                grid.changes += 1  # no plan could foresee this
                yield Place(Entry((runtime, task), task, runtime), found, None, requirement)
