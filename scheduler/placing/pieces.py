"""Slots for checkpointable tasks: a slot needs time for a piece of such a task, not for all of it.

Rule 1: before a policy places its tasks, a checkpointable task gets an idle slot if more of it is left than of any
other task that fits there. The slots with the least time left come first. So these tasks fill windows that no other
task would fill, and a very long one begins early.
Rule 2: what is still idle afterwards gets checkpointable tasks, whatever the policy.
Rule 3: a slot gets one piece, and nothing with it: the piece takes what is left of the window.
Rule 4: whoever has nothing on a slot comes first, then whoever has used least of the grid.
"""

from collections.abc import Callable, Sequence
from math import inf

from deskgrid.scheduler.commands import Assignment
from deskgrid.scheduler.fitting import ROUNDING, Requirement, fits
from deskgrid.scheduler.model import Attempt, AttemptState, State
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.waiting import Entry
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import LiveAttempt, Slot
from deskgrid.scheduler.state.suitable import promise


class Pieces:
    """``hand``: gives work to a worker at the end of the pass. ``settle``: a slot has changed, and is indexed anew."""

    def __init__(
        self,
        grid: SchedulerState,
        hand: Callable[[str, list[Assignment]], None],
        settle: Callable[[Slot, Requirement], int],
    ) -> None:
        self._grid = grid
        self._hand = hand
        self._settle = settle

    def place(self, categories: Sequence[Category], others: Sequence[Category], *, longer: bool) -> None:
        """Give idle slots pieces of the tasks in ``categories``.

        ``longer``: only of tasks that have more left than any task in ``others`` that fits there.
        """
        waiting = [category for category in categories if category.open]
        while waiting and self._grid.budget > 0:
            category = min(waiting, key=self._turn)
            if not (category.open and self._place_one(category, others if longer else ())):
                waiting.remove(category)

    def _turn(self, category: Category) -> tuple[tuple[bool, float], int, float]:
        """Categories with less come first."""
        return category.account.share.turn(self._grid.now), -category.key.priority, -(category.key.piece or 0.0)

    def _place_one(self, category: Category, others: Sequence[Category]) -> bool:
        """Give one slot a piece; False if there is none to give, or no slot for it."""
        grid = self._grid
        entry = category.priority.next_fit(inf)
        if entry is None:
            return False
        found = self._tightest(self._needs(entry))
        if found is None:
            # Tasks that end in less than a piece may still fit.
            entry = category.priority.next_fit(grid.slots.idle.widest(grid.now) - self._reserve(entry))
            found = None if entry is None else self._tightest(self._needs(entry))
        if entry is None or found is None:
            return False
        if self._bag(entry).barred:  # it waits in no queue from now on
            category.priority.take(entry)
            grid.tasks.move_all([entry.task], State.BARRED)
            grid.budget -= 1
            return True
        left_s, slot = found
        if self._longest(others, left_s) > entry.runtime:
            return False
        self._begin(category, entry, slot)
        return True

    def _tightest(self, needs: float) -> tuple[float, Slot] | None:
        """The idle slot with the least time above ``needs``: pieces end when a window is announced to close."""
        grid = self._grid
        for number in grid.slots.idle.above(needs, grid.now):
            slot = grid.slots.slots[number]
            if slot.closes < slot.worker.ends_at:
                continue  # it is kept for a gang, and a piece goes on until the window closes
            left_s = slot.left_s(grid.now)
            if fits(needs, min(left_s, (slot.worker.announced - grid.now) * slot.speed)):
                return left_s, slot
        return None

    def _bag(self, entry: Entry) -> ScheduledBag:
        return self._grid.tasks.known(entry.task).bag

    def _reserve(self, entry: Entry) -> float:
        return self._bag(entry).reserve_s + self._grid.policy.requirement.margin + 2 * ROUNDING

    def _needs(self, entry: Entry) -> float:
        return self._bag(entry).needs_s(entry.runtime) + self._grid.policy.requirement.margin + ROUNDING

    def _longest(self, categories: Sequence[Category], left_s: float) -> float:
        """The longest runtime among the first tasks of these categories' queues that fit into ``left_s``."""
        limit = self._grid.policy.requirement.limit(left_s)
        found = [
            queue.next_fit(limit)
            for category in categories
            if category.open
            for queue in (category.priority, category.regular)
        ]
        return max([entry.runtime for entry in found if entry is not None], default=0.0)

    def _begin(self, category: Category, entry: Entry, slot: Slot) -> None:
        grid = self._grid
        category.priority.take(entry)
        category.begin(1, entry.runtime, grid.now)
        if slot.copy is not None:
            grid.drop_copy(slot.copy.task)
        grid.slots.unindex(slot)
        attempt = Attempt(entry.task, grid.next_attempt)
        slot.started = grid.now
        live = LiveAttempt(entry.task, slot, entry.runtime, attempt.number, grid.now, AttemptState.SENT)
        slot.sent.append(live)
        grid.bound[entry.task] = live
        self._hand(slot.worker.name, [Assignment(attempt, slot.position, entry.runtime)])
        self._settle(slot, grid.policy.requirement)
        if category.amounts:
            promise(grid, slot.worker, entry.task, category.amounts)
