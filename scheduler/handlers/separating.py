"""A bag that fails on some workers only becomes a category of its own, so that others of its person go on there.

Rule 1: its waiting tasks leave their queues a part at a time, because there may be millions. Until the last one has,
none is placed. Then they enter the queues of the new category, a part at a time again.
Rule 2: of each owner, at most `OWN_CATEGORIES` bags become categories in this way. A pass looks at each category.
"""

import math
from collections.abc import Iterator

from deskgrid.scheduler.handlers.people import bar
from deskgrid.scheduler.model import State
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.bags import BARRED, OUT, ScheduledBag
from deskgrid.scheduler.state.grid import SchedulerState

# Tasks that one step of a bounded pass moves: a few milliseconds.
SLICE_TASKS = 2_500
# As many as an owner may have by the options of bags (`deskgrid.broker.work.gates`).
OWN_CATEGORIES = 64


class Separating:
    """Moves the tasks of bags on ``grid``."""

    def __init__(self, grid: SchedulerState) -> None:
        self._grid = grid
        self._steps: dict[int, Iterator[int]] = {}

    def begin(self, bag: ScheduledBag) -> bool:
        """Let ``bag`` have a category of its own, unless it has; False if its owner has too many already."""
        grid, key = self._grid, bag.own_key
        if bag.category.key != key and bag.number not in grid.moving:
            own = [each for each in grid.categories.by_key if each.owner == key.owner and each.bag is not None]
            if len(own) + len(grid.moving) >= OWN_CATEGORIES:
                return False
            bag.moving, grid.moving[bag.number] = True, bag
            self._steps[bag.number] = self._move(bag, key)
        return True

    def go_on(self, most: float) -> None:
        """Move about so many tasks."""
        grid = self._grid
        for number, steps in list(self._steps.items()):
            for moved in steps:
                most -= moved
                if most <= 0:
                    return
            del self._steps[number], grid.moving[number]

    def _move(self, bag: ScheduledBag, key: CategoryKey) -> Iterator[int]:
        """Move the tasks of ``bag``; yields after each step how many tasks it has looked at."""
        grid = self._grid
        for first, many in self._slices(bag):
            batch = grid.tasks.known(first)
            for span in bar(batch, first, many):
                grid.discard(bag.category, *span)
            yield many
        self._enter(bag, key)
        for first, many in self._slices(bag):
            if bag.barred:
                return  # they come back when it is resumed
            batch = grid.tasks.known(first)
            for span in batch.spans(BARRED, first, many):
                batch.set_range(*span, State.WAITING)
                grid.categories.add_again(bag.category, batch.rows(*span))
            yield many

    def _slices(self, bag: ScheduledBag) -> Iterator[tuple[int, int]]:
        """The tasks of a bag, in ranges of one batch; none once it is forgotten."""
        for batch in list(bag.batches):
            for start in range(0, batch.count, SLICE_TASKS):
                if self._grid.tasks.bags.get(bag.number) is not bag:
                    return
                yield batch.first + start, min(SLICE_TASKS, batch.count - start)

    def _enter(self, bag: ScheduledBag, key: CategoryKey) -> None:
        """No task of ``bag`` is in a queue: its category is a new one from now on."""
        grid, old = self._grid, bag.category
        bag.moving = False
        if grid.tasks.bags.get(bag.number) is not bag:
            return
        new = grid.categories.enter(key, old.account)
        out = sum([batch.states.count(state) for batch in bag.batches for state in OUT])
        old.out, new.out = old.out - out, new.out + out
        if (probes := old.probing.pop(bag.number, None)) is not None:
            new.probing[bag.number] = probes
        for task in [task for task in old.elsewhere if grid.tasks.known(task).bag is bag]:
            new.elsewhere[task] = old.elsewhere.pop(task)
        bag.category = new
        if new.elsewhere:
            grid.categories.waiting[key] = new
        grid.categories.leave(old)
        grid.changes += 1


def most_moved(budget: float) -> float:
    """How many tasks a pass with this budget moves."""
    return math.inf if budget == math.inf else SLICE_TASKS
