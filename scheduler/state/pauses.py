"""Tasks that fail again and again: each pauses before its next attempt, longer each time (exponential backoff).

A task that fails at once comes back at once. Without pauses, a few tasks with very many retries would keep all others
out until their retries ran out.
"""

import heapq
import math

from deskgrid.scheduler.model import agree

# After each of its first errors, up to this many, a task is tried again at once: it may well work the next time.
AT_ONCE = 3
# The pause after the next error lasts as long as the failed attempt, but at least LEAST_PAUSE_S. Each pause is twice as
# long as the one before. The limit is MOST_PAUSE_S, or the duration of the attempt if that is longer.
LEAST_PAUSE_S = 1.0
MOST_PAUSE_S = 3600.0
# Tasks that come back in one pass, at most: they take some ten milliseconds.
AT_A_TIME = 5_000
# Entries of tasks that no longer pause are dropped when they outnumber the other entries by more than this.
_STALE = 1024


def pause_after(errors: int, elapsed: float) -> float:
    """The pause, in seconds, of a task that has failed ``errors`` times, the last time after ``elapsed``."""
    doublings = errors - AT_ONCE - 1
    if doublings < 0:
        return 0.0
    longer = max(LEAST_PAUSE_S, elapsed) * 2.0 ** min(doublings, 60)  # a million errors would overflow
    return min(longer, max(MOST_PAUSE_S, elapsed))


class Pauses:
    """When each pausing task is tried again, on the driver's clock."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        # (until, task), the soonest first. Some entries are of tasks that no longer pause.
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
        """Forget the pause of ``task``."""
        del self._until[task]
        if len(self._heap) > 2 * len(self._until) + _STALE:
            self._heap = [(until, task) for task, until in self._until.items()]
            heapq.heapify(self._heap)

    def over(self, now: float) -> list[int]:
        """Take out the tasks whose pause is over, at most `AT_A_TIME` of them. The others remain due."""
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
