"""When the environment of a bag is ready on each PC of a picture.

Rule: as the broker has it prepared (`deskgrid.broker.work.environments`): on a few PCs at a time, first on those that
are there first, and of these on those that stay longest.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from deskgrid.scheduler.forecast.picture import PicturePC

# PCs that prepare one environment at a time: the broker's network is shared by all of them.
PREPARING_AT_ONCE = 8


def ready_at(pcs: Sequence[PicturePC], environment: str, needs_s: float = 0.0) -> dict[int, float]:
    """By places of PCs: when an environment is ready on those where it is not ready now. Infinity: never.

    Each prepares it in a window that has ``needs_s`` left after that.
    """
    takes = {place: takes_s for place, pc in enumerate(pcs) if (takes_s := pc.prepares_s(environment)) > 0.0}
    # When each could begin if it were alone; and when PCs that prepare it now are done.
    heap = [(pcs[place].room_at(takes_s + needs_s), -pcs[place].stays_s, place) for place, takes_s in takes.items()]
    heapify(heap)
    lanes, found = [0.0] * PREPARING_AT_ONCE, dict[int, float]()
    while heap:
        begins, stays, place = heappop(heap)
        if begins < lanes[0]:
            begins = pcs[place].room_at(takes[place] + needs_s, lanes[0])
            if begins > lanes[0]:  # its window has too little left then: others come before its next one
                heappush(heap, (begins, stays, place))
                continue
        found[place] = begins + takes[place]
        heapreplace(lanes, found[place])
    return found
