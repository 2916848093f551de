"""Slots for checkpointable tasks: a slot needs time for a piece of such a task, not for all of it.

Rule 1: before a policy places its tasks, a checkpointable task gets an idle slot if more of it is left than of any
other task that fits there. The slots with the least time left come first. So these tasks fill windows that no other
task would fill, and a very long one begins early.
Rule 2: what is still idle afterwards gets checkpointable tasks, whatever the policy.
Rule 3: a slot gets one piece, and nothing with it: the piece takes what is left of the window.
"""

from collections.abc import Callable
from math import inf

from deskgrid.scheduler.events import Assignment
from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.model import Attempt
from deskgrid.scheduler.policies.base import Requirement
from deskgrid.scheduler.policy_view import ROUNDING_S
from deskgrid.scheduler.queues.longest_first import LongestFirst
from deskgrid.scheduler.queues.waiting import Entry
from deskgrid.scheduler.state.slots import Sent, Slot
from deskgrid.scheduler.state.tasks import Bag


class Pieces:
    """``hand``: gives work to a worker at the end of the pass. ``settle``: a slot has changed, and is indexed anew."""

    def __init__(
        self,
        grid: GridState,
        hand: Callable[[str, list[Assignment]], None],
        settle: Callable[[Slot, Requirement], int],
    ) -> None:
        self._grid = grid
        self._hand = hand
        self._settle = settle

    def place(self, *, longer: bool) -> None:
        """Give idle slots pieces. ``longer``: only of tasks that have more left than any other that fits there."""
        for piece in sorted(self._grid.pieces.queues, reverse=True):
            queue = self._grid.pieces.queues[piece]
            while len(queue) and self._grid.budget > 0 and self._place_one(queue, longer):
                pass

    def _place_one(self, queue: LongestFirst, longer: bool) -> bool:
        """Give one slot a piece; False if there is none to give, or no slot for it."""
        grid = self._grid
        entry = queue.next_fit(inf)
        if entry is None:
            return False
        row = grid.slots.idle.tightest(self._needs(entry), grid.now)
        if row is None:
            # Tasks that end in less than a piece may still fit.
            entry = queue.next_fit(grid.slots.idle.widest(grid.now) - self._reserve(entry))
            row = None if entry is None else grid.slots.idle.tightest(self._needs(entry), grid.now)
        if entry is None or row is None:
            return False
        left_s, _, number = row
        if longer and self._other(left_s) > entry.runtime:
            return False
        self._begin(queue, entry, grid.slots.slots[number])
        return True

    def _bag(self, entry: Entry) -> Bag:
        return self._grid.tasks.known(entry.task).bag

    def _reserve(self, entry: Entry) -> float:
        return self._bag(entry).reserve_s + self._grid.policy.requirement.margin + 2 * ROUNDING_S

    def _needs(self, entry: Entry) -> float:
        return self._bag(entry).needs_s(entry.runtime) + self._grid.policy.requirement.margin + ROUNDING_S

    def _other(self, left_s: float) -> float:
        """The runtime of the first task in each queue of the policy that fits into ``left_s``: the longer one."""
        limit = left_s - self._grid.policy.requirement.margin
        found = [queue.next_fit(limit) for queue in (self._grid.priority, self._grid.regular)]
        return max([entry.runtime for entry in found if entry is not None], default=0.0)

    def _begin(self, queue: LongestFirst, entry: Entry, slot: Slot) -> None:
        grid = self._grid
        queue.take(entry)
        grid.slots.unindex(slot)
        attempt = Attempt(entry.task, grid.next_attempt)
        slot.started = grid.now
        slot.sent.append(Sent(attempt, entry.runtime, grid.now))
        grid.bound[entry.task] = slot
        self._hand(slot.worker.name, [Assignment(attempt, slot.position, entry.runtime)])
        self._settle(slot, grid.policy.requirement)
