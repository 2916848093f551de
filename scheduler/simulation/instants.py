"""What is to happen in a simulated run, and what of it happens at one instant."""

import heapq
from collections.abc import Callable

from deskgrid.scheduler.simulation.pcs import Order

# (when, in which order at one instant, sequence, what), a heap.
Happenings = list[tuple[float, Order, int, Callable[[], None]]]


def gather(heap: Happenings, now: float, instant_s: float) -> None:
    """What is to happen within ``instant_s`` happens ``now``, in the order of one instant.

    A gang that begins at 0.1 and takes 0.2 s ends at 0.30000000000000004, and another one may arrive at 0.3.
    """
    near = []
    while heap and heap[0][0] <= now + instant_s:
        near.append(heapq.heappop(heap))
    for _, order, number, happens in near:
        heapq.heappush(heap, (now, order, number, happens))
