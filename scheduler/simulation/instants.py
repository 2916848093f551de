"""What is to happen in a simulated run, and what of it happens at one instant."""

import math
from collections.abc import Callable
from heapq import heappop, heappush

from deskgrid.scheduler.simulation.pcs import Order


class Agenda:
    """What is to happen: the first first, and at one instant by `Order`, then in the order in which it was noted."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Order, int, Callable[[], None]]] = []
        self._noted = 0

    @property
    def next(self) -> float:
        """When the next thing happens; infinity if nothing does."""
        return self._heap[0][0] if self._heap else math.inf

    def at(self, time: float, order: Order, happens: Callable[[], None]) -> None:
        """Note what is to happen at ``time``."""
        self._noted += 1
        heappush(self._heap, (time, order, self._noted, happens))

    def gather(self, now: float, instant_s: float) -> None:
        """What is to happen within ``instant_s`` happens ``now``, in the order of one instant.

        A gang that begins at 0.1 and takes 0.2 s ends at 0.30000000000000004, and another one may arrive at 0.3.
        """
        heap, near = self._heap, []
        while heap and heap[0][0] <= now + instant_s:
            near.append(heappop(heap))
        for _, order, number, happens in near:
            heappush(heap, (now, order, number, happens))

    def happen(self, now: float) -> None:
        """All that is to happen by ``now`` happens, also what is noted for then in the meantime."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            heappop(heap)[3]()
