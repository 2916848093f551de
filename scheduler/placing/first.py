"""Tasks that come before the policy is asked, when their category has its turn.

Probes are the few tasks with which a bag begins, so that it shows early how long its tasks take.

Rule 1: a task that has failed on a worker waits for a slot of a worker on which it has not. How long it waits for that:
`deskgrid.scheduler.handlers.retrying`.
Rule 2: probes get slots with empty queues, in their order, the tightest slot in which a probe fits. A probe comes first
once. If it has to wait again, it waits like any other task.
Rule 3: a pass looks at a few of such tasks only, and at the probes of a few bags; in the next one, it is the turn of
others.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from deskgrid.scheduler.model import State
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
# The most bags of a category whose probes are looked at in one turn.
BAGS = 4


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


def place_probes(grid: SchedulerState, categories: Sequence[Category]) -> Iterator[Place]:
    """Placements of waiting probes in these categories."""
    for category in categories:
        for bag in list(islice(category.probing, BAGS)):
            yield from _place_probes_of(grid, category, bag)


def _place_probes_of(grid: SchedulerState, category: Category, bag: int) -> Iterator[Place]:
    probes = category.probing[bag] = category.probing.pop(bag)  # the last one from now on
    if grid.tasks.bags[bag].barred:
        return
    view, requirement = PolicyView(grid, (category,), (category,)), grid.policy.requirement
    for task in list(probes):
        # During a pass, the states of tasks that were sent are not up to date.
        waits = grid.tasks.state(task) == State.WAITING and task not in grid.bound
        runtime = grid.tasks.runtime(task)
        found = view.tightest_empty(runtime, requirement) if waits else None
        if waits and found is None:
            continue
        probes.remove(task)
        if not probes:
            del category.probing[bag]
        if found is not None:
            grid.changes += 1  # no plan could foresee this
            yield Place(Entry((runtime, task), task, runtime), found[0], None, requirement)
