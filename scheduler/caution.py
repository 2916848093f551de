"""Slots of PCs that do not keep their hours: tasks that will almost surely end in time come first.

Such a PC is expected to go at the median of what is likely (`GridState.closing`). A task that would end just before
that is killed half of the time. So an idle slot counts on less at first: on what most such windows outlast. If no task
is short enough, it counts on the median, and then on more: an idle hour is lost as much as one of a killed task.
"""

from collections.abc import Iterable
from itertools import islice

from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.state.slots import Slot

# What an idle slot counts on, one after the other: as parts of the windows that close before that instant.
PARTS = (0.15, 0.5, 0.7)
# Slots that are looked at when something has changed that concerns all of them, such as a bag that has come.
SLOTS = 200


class Caution:
    """What idle slots count on while the policy is asked. After that, they close when their worker does."""

    def __init__(self, grid: GridState) -> None:
        self._grid = grid
        self._slots: list[Slot] = []
        self._parts: list[float] = []

    def look_at(self, changed: Iterable[Slot], everywhere: bool) -> None:
        """The slots of this pass: those that have changed or, ``everywhere``, the first of all that are in doubt."""
        grid = self._grid
        if not grid.doubted or not grid.policy.timed:
            self._slots = []
        elif everywhere:
            workers = grid.slots.workers
            self._slots = list(islice((slot for name in grid.doubted for slot in workers[name].slots), SLOTS))
        else:
            self._slots = [slot for slot in changed if slot.worker.name in grid.doubted]

    def begin(self) -> None:
        """Let those that are idle, and not kept for a gang, count on little."""
        self._slots = [slot for slot in self._slots if _idle(slot) and slot.closes == slot.worker.ends_at]
        self._parts = [*PARTS[::-1]]
        self.count_on_more()

    def count_on_more(self) -> bool:
        """Let those that are still idle count on more. Returns whether they do; if not, all is as it was."""
        for slot in self._slots:
            self._close(slot, slot.worker.ends_at)
        self._slots = [slot for slot in self._slots if _idle(slot)] if self._parts else []
        if not self._slots:
            return False
        part, closes = self._parts.pop(), dict[str, float]()
        for slot in self._slots:
            worker = slot.worker
            if worker.name not in closes:
                lengths = self._grid.hours.lengths(worker.name, worker.planned_s, worker.opened)
                likely = closings(worker.opened, worker.announced, lengths, self._grid.now)
                closes[worker.name] = likely[int(part * len(likely))]
            self._close(slot, closes[worker.name])
        return True

    def _close(self, slot: Slot, at: float) -> None:
        slots, has_room = self._grid.slots, slot.rows is not None
        slots.unindex(slot)
        slot.closes = at
        if has_room:
            slots.index(slot, self._grid.now)


def _idle(slot: Slot) -> bool:
    return slot.rows is not None and not slot.sent and not slot.queue
