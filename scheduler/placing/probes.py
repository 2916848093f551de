"""Probes: the few tasks with which a bag begins, so that it shows early how long its tasks take.

Rule 1: before the policy is asked, the probes of the categories whose turn it is get slots with empty queues, in their
order, the tightest slot in which a probe fits.
Rule 2: a probe comes first once. If it has to wait again, it waits like any other task.
Rule 3: a pass looks at the probes of a few bags only; in the next one, it is the turn of others.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from deskgrid.scheduler.model import State
from deskgrid.scheduler.placing.view import PolicyView
from deskgrid.scheduler.policies.base import Place
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.waiting import Entry
from deskgrid.scheduler.state.grid import SchedulerState

# The most bags of a category whose probes are looked at in one turn.
BAGS = 4


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
