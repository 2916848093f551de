"""Slots of PCs that do not keep their hours: tasks that will almost surely end in time come first.

Such a PC is expected to go at the median of what is likely (`SchedulerState.closing`). A task that would end just
before that is killed half of the time. So an idle slot counts on less at first: on what most such windows outlast. If
no task is short enough, it counts on the median, and then on more: an idle hour is lost as much as one of a killed
task.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Slot

# What an idle slot counts on, one after the other: as parts of the windows that close before that instant.
PARTS = (0.15, 0.5, 0.7)
# The most slots that a pass looks at. When a bag comes, or windows open, it looks at the slots of all such PCs.
SLOTS = 200


class Caution:
    """What idle slots count on while the policy is asked. After that, they close when their worker does."""

    def __init__(self, grid: SchedulerState) -> None:
        self._grid = grid
        self._slots: list[Slot] = []

    def look_at(self, changed: Iterable[Slot], everywhere: bool) -> None:
        """The slots of this pass: those that have changed or, ``everywhere``, the first of all that are in doubt."""
        grid, workers = self._grid, self._grid.slots.workers
        if not grid.doubted or not grid.policy.timed:
            self._slots = []
            return
        known = chain.from_iterable([workers[name].slots for name in grid.doubted]) if everywhere else changed
        self._slots = list(islice((slot for slot in known if slot.worker.name in grid.doubted), SLOTS))

    def steps(self) -> Iterator[None]:
        """Let those that are idle, and not kept for a gang, count on little, then on more. Ask the policy at each step.

        The first step comes in any case, the others only while some of them are idle.
        """
        slots = [slot for slot in self._slots if _idle(slot) and slot.closes == slot.worker.ends_at]
        if not slots:
            yield
            return
        likely = {name: self._likely(name) for name in {slot.worker.name: None for slot in slots}}
        for part in PARTS:
            for slot in slots:
                closes = likely[slot.worker.name]
                self._close(slot, closes[int(part * len(closes))])
            yield
            for slot in slots:
                self._close(slot, slot.worker.ends_at)
            slots = [slot for slot in slots if _idle(slot)]
            if not slots:
                return

    def _likely(self, name: str) -> list[float]:
        """When a worker's window may close."""
        grid, worker = self._grid, self._grid.slots.workers[name]
        lengths = grid.hours.lengths(name, worker.planned_s, worker.opened)
        return closings(worker.opened, worker.announced, lengths, grid.now)

    def _close(self, slot: Slot, at: float) -> None:
        slots, has_room = self._grid.slots, slot.rows is not None
        slots.unindex(slot)
        slot.closes = at
        if has_room:
            slots.index(slot, self._grid.now)


def _idle(slot: Slot) -> bool:
    return slot.rows is not None and not slot.sent and not slot.queue
