"""When to look at slots, in a heap: no pass looks at all of them.

The time of a look may be too early. Then the slot goes back into the heap.
"""

import heapq
import math
from collections.abc import Iterator, Mapping
from typing import Literal

from deskgrid.scheduler.state.slots import Slot

# The heap is rebuilt when it has this many entries for each slot: all but one of them are out of date.
ENTRIES = 4


class Looks:
    """``field``: the attribute of a slot that holds the time of its next look, in seconds; infinity if there is none.

    ``entries``: these times, and the numbers of the slots.
    """

    def __init__(self, field: Literal["look_at", "copy_look_at"]) -> None:
        self._field = field
        self.entries: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def next(self) -> float:
        """When a pass has to look at a slot; infinity if at none."""
        return self.entries[0][0] if self.entries else math.inf

    def add(self, slot: Slot, at: float) -> None:
        """Look at ``slot`` at the time ``at``, unless an earlier look is scheduled."""
        if at < getattr(slot, self._field):
            setattr(slot, self._field, at)
            heapq.heappush(self.entries, (at, slot.number))

    def due(self, slots: Mapping[int, Slot], most: int, now: float) -> Iterator[Slot]:
        """Take the slots whose look is due off the heap, and yield them; after ``most`` entries it stops."""
        if len(self.entries) > ENTRIES * (len(slots) + most):
            times = ((getattr(slot, self._field), number) for number, slot in slots.items())
            self.entries = [entry for entry in times if entry[0] < math.inf]
            heapq.heapify(self.entries)
        for _ in range(most):
            if self.next > now:
                return
            at, number = heapq.heappop(self.entries)
            slot = slots.get(number)
            if slot is not None and getattr(slot, self._field) == at:
                setattr(slot, self._field, math.inf)
                yield slot
