"""Room on PCs: a worker that had no room for what a task needs gets no tasks of that category for a while.

Rule 1: each failure begins a rest, twice as long as the one before. Other work goes on there, and other workers get
these tasks.
Rule 2: any other end of a task of that category, except a crash, shows that there is room: the next rest is short.
Rule 3: a worker cannot end its rest by joining anew. When its rest has been over for `LONGEST_REST_S`, the failure is
forgotten. Of each worker, the categories that failed last are known, at most `CATEGORIES_LIMIT`.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.slots import Slot

# The first rest, and the longest. Seconds. Somebody may make room at any time, and trying costs little.
FIRST_REST_S = 10.0
LONGEST_REST_S = 600.0
# More than people share a grid, so that what one worker says takes little memory.
CATEGORIES_LIMIT = 100


class _Rest(NamedTuple):
    """``lasts``: seconds. ``over``: it has ended."""

    until: float
    lasts: float
    over: bool = False


# When a rest ends, its number, its worker and its category.
_End = tuple[float, int, str, CategoryKey]


class Room:
    """``next_end``: when the next rest ends; infinity if no worker rests."""

    def __init__(self) -> None:
        self.next_end = math.inf
        # By worker.
        self._rests: dict[str, dict[CategoryKey, _Rest]] = {}
        # How many workers rest from each category.
        self._scarce: Counter[CategoryKey] = Counter()
        # Of each rest, a heap; and of those that are over, in order. Some were forgotten in the meantime.
        self._ends: list[_End] = []
        self._over: deque[_End] = deque()
        self._begun = 0

    def __bool__(self) -> bool:
        """Whether a worker has had no room lately."""
        return bool(self._rests)

    def until(self, key: CategoryKey, worker: str) -> float | None:
        """Until when ``worker`` gets no tasks of a category; None: it gets them."""
        rest = self._rests[worker].get(key) if worker in self._rests else None
        return None if rest is None or rest.over else rest.until

    def rests_until(self, worker: str) -> float | None:
        """Until when ``worker`` gets no tasks of some category; None: it gets all."""
        rests = self._rests.get(worker, {}).values()
        return max([rest.until for rest in rests if not rest.over], default=None)

    def is_scarce(self, key: CategoryKey) -> bool:
        """Whether some worker gets no tasks of a category."""
        return bool(self._scarce) and key in self._scarce

    def lacks(self, key: CategoryKey, worker: str, now: float) -> bool:
        """``worker`` had no room for a task of a category; True if a rest begins."""
        rests = self._rests.setdefault(worker, {})
        before = rests.get(key)
        if before is not None and not before.over:
            return False  # this attempt was under way when the rest began
        lasts = FIRST_REST_S
        if before is not None and now < before.until + LONGEST_REST_S:
            lasts = min(2.0 * before.lasts, LONGEST_REST_S)
        rests.pop(key, None)
        rests[key] = _Rest(now + lasts, lasts)
        self._scarce[key] += 1
        self._begun += 1
        heappush(self._ends, (now + lasts, self._begun, worker, key))
        self.next_end = self._ends[0][0]
        if len(rests) > CATEGORIES_LIMIT:
            self._forget(next(iter(rests)), worker)
        return True

    def _forget(self, key: CategoryKey, worker: str) -> None:
        rest = self._rests[worker].pop(key)
        if not rest.over:
            self._end(key)
        if not self._rests[worker]:
            del self._rests[worker]

    def _end(self, key: CategoryKey) -> None:
        self._scarce[key] -= 1
        if not self._scarce[key]:
            del self._scarce[key]

    def works(self, keys: Iterable[CategoryKey], worker: str) -> None:
        """Tasks of these categories ended on ``worker``, which had room for them. A rest goes on until its end."""
        for key in keys:
            rest = self._rests[worker].get(key) if worker in self._rests else None
            if rest is not None and rest.over:
                self._forget(key, worker)

    def due(self, now: float) -> bool:
        """End the rests that are over, and forget those that were over long ago. Returns whether a rest has ended."""
        if now < self.next_end:
            return False
        while self._ends and self._ends[0][0] <= now:
            self._over.append(end := heappop(self._ends))
            if (rest := self._find(end)) is not None and not rest.over:
                self._rests[end[2]][end[3]] = rest._replace(over=True)
                self._end(end[3])
        self.next_end = self._ends[0][0] if self._ends else math.inf
        while self._over and self._over[0][0] + LONGEST_REST_S <= now:
            end = self._over.popleft()
            if self._find(end) is not None:
                self._forget(end[3], end[2])
        return True

    def _find(self, end: _End) -> _Rest | None:
        """The rest that has this end; None: it was forgotten, or another one has begun since."""
        until, _, worker, key = end
        rest = self._rests.get(worker, {}).get(key)
        return rest if rest is not None and rest.until == until else None

    def check(self, slots: Iterable[Slot], key_of: Mapping[int, CategoryKey]) -> None:
        """Raise `InvariantBroken` if the records contradict each other, or a worker has queued tasks that it had no
        room for. ``key_of``: the categories of queued tasks.
        """
        resting = [(key, rest) for rests in self._rests.values() for key, rest in rests.items() if not rest.over]
        agree("who rests from which category", self._scarce, Counter([key for key, _ in resting]))
        agree("a rest ends unseen", any(rest.until < self.next_end for _, rest in resting), False)
        for slot in slots:
            queued = [task for task, _ in slot.queue if self.until(key_of[task], slot.worker.name) is not None]
            agree(f"tasks queued for {slot.worker.name}, which has no room for them", queued, [])
