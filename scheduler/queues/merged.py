"""Queues of several categories as one, for a policy to read. Each entry is one of the category that has the task."""

from collections.abc import Callable, Sequence
from math import inf, nextafter

from deskgrid.scheduler.queues.by_arrival import OldestFirst
from deskgrid.scheduler.queues.waiting import Entry, ReadableQueue

# The place, among the queues, of the one that has a task.
PlaceOf = Callable[[int], int]


class OneAfterAnother:
    """First all tasks of the first queue, in its order, then those of the next one."""

    def __init__(self, queues: Sequence[ReadableQueue], place_of: PlaceOf) -> None:
        self._queues = queues
        self._place_of = place_of

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        start = 0 if after is None else self._place_of(after.task)
        for queue in self._queues[start:]:
            if (entry := queue.next_fit(limit, after)) is not None:
                return entry
            after = None
        return None

    def shortest(self) -> float:
        return min([queue.shortest() for queue in self._queues], default=inf)


class RegularQueues(OneAfterAnother):
    """The regular queues of several categories."""

    def __init__(self, queues: Sequence[OldestFirst], place_of: PlaceOf) -> None:
        super().__init__(queues, place_of)
        self._regular = queues

    def first_before(self, entry: Entry) -> bool:
        place = self._place_of(entry.task)
        return any(map(len, self._regular[:place])) or self._regular[place].first_before(entry)


class LongestOfAll(OneAfterAnother):
    """The longest runtime first; of equals, those of the first queue."""

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        best: Entry | None = None
        here = -1 if after is None else self._place_of(after.task)
        for place, queue in enumerate(self._queues):
            most = limit
            if after is not None and place != here:
                # As in one queue: equal ones of later queues come after it, and of earlier ones before it.
                most = min(limit, nextafter(after.runtime, inf) if place > here else after.runtime)
            entry = queue.next_fit(most, after if place == here else None)
            if entry is not None and (best is None or entry.runtime > best.runtime):
                best = entry
        return best
