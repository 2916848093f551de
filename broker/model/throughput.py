"""Tasks ended per second, over the last few seconds."""

from collections import deque

# Long enough to be steady, short enough to show a change while you watch. Seconds.
OVER_S = 10.0


class SlidingCount:
    """A sliding count; one entry per drained batch, not per task."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self._total = 0

    def add(self, count: int, now: float) -> None:
        """``count`` tasks ended at ``now``."""
        if count:
            self._counts.append((now, count))
            self._total += count
        self._drop(now)

    def per_second(self, now: float) -> float:
        """Tasks per second over the last `OVER_S` seconds."""
        self._drop(now)
        return self._total / OVER_S

    def _drop(self, now: float) -> None:
        while self._counts and self._counts[0][0] <= now - OVER_S:
            self._total -= self._counts.popleft()[1]
