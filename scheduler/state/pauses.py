"""Tasks that fail again and again: each pauses before its next attempt, longer each time (exponential backoff).

What fails at once is back at once. Without pauses, a few tasks with very many retries would keep all others out for as
long as their retries last.
"""

import heapq
import math

from deskgrid.scheduler.model import agree

# Errors after which a task is tried again at once: what goes wrong now and then may well work the next time.
AT_ONCE = 3
# The pause after the next error lasts as long as the attempt that failed, and this at least. Each is twice as long as
# the one before, but none is longer than an hour, or than the attempt. Seconds.
LEAST_PAUSE_S = 1.0
MOST_PAUSE_S = 3600.0
# Tasks that come back at a time: some ten milliseconds.
AT_A_TIME = 5_000
# Entries of tasks that no longer pause are dropped when there are so many of them, and more than of others.
_STALE = 1024


def pause_after(errors: int, elapsed: float) -> float:
    """How long a task pauses that has failed so often, the last time after ``elapsed``. Seconds."""
    doublings = errors - AT_ONCE - 1
    if doublings < 0:
        return 0.0
    longer = max(LEAST_PAUSE_S, elapsed) * 2.0 ** min(doublings, 60)  # a million errors would overflow
    return min(longer, max(MOST_PAUSE_S, elapsed))


class Pauses:
    """When each of them is tried again, on the driver's clock."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        # (until, task), the soonest first; also of tasks that no longer pause.
        self._heap: list[tuple[float, int]] = []

    @property
    def next_end(self) -> float:
        """When to look again; infinity if no task waits here."""
        return self._heap[0][0] if self._heap else math.inf

    def until(self, task: int) -> float | None:
        """When ``task`` is tried again; None if it does not wait here."""
        return self._until.get(task)

    def begin(self, task: int, until: float) -> None:
        self._until[task] = until
        heapq.heappush(self._heap, (until, task))

    def drop(self, task: int) -> None:
        """``task`` is not to be tried again."""
        del self._until[task]
        if len(self._heap) > 2 * len(self._until) + _STALE:
            self._heap = [(until, task) for task, until in self._until.items()]
            heapq.heapify(self._heap)

    def over(self, now: float) -> list[int]:
        """Take out tasks whose pause is over: at most `AT_A_TIME`, the others are due at once."""
        found: list[int] = []
        while self._heap and self._heap[0][0] <= now and len(found) < AT_A_TIME:
            until, task = heapq.heappop(self._heap)
            if self._until.get(task) == until:
                del self._until[task]
                found.append(task)
        return found

    def check(self, paused: set[int]) -> None:
        """Raise `InvariantBroken` unless ``paused`` are the tasks that wait here."""
        agree("tasks that pause", set(self._until), paused)
        agree("ends of pauses", {(until, task) for task, until in self._until.items()} <= set(self._heap), True)
