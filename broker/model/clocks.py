"""What time it is, how often something may be done, and how often it was done lately. Pure."""

from collections import deque

# Smaller differences are left as they are: they come from a clock that is being adjusted slowly. Seconds.
JUMP_S = 2.0
# When this many names are in memory, names that have their whole burst again are dropped.
NAMES = 10_000
# Long enough to be steady, short enough to show a change while you watch. Seconds.
OVER_S = 10.0


class WallClock:
    """The broker's own clock only goes forward, while the clock of its machine can be set.

    ``at_zero``: POSIX seconds when the broker's clock was 0.
    """

    def __init__(self, at_zero: float) -> None:
        self._at_zero = at_zero

    def posix(self, now: float) -> float:
        """``now`` of the broker's clock in POSIX seconds."""
        return self._at_zero + now

    def broker_time(self, posix: float) -> float:
        """What the broker's clock showed, or will show, at ``posix`` seconds."""
        return posix - self._at_zero

    def follow(self, now: float, posix: float) -> float:
        """It is ``posix`` seconds by the machine's clock.

        Returns by how many seconds that clock has jumped, or 0. A jump forward may also mean that the machine slept:
        then the broker's clock stood still.
        """
        jump = posix - self.posix(now)
        if abs(jump) < JUMP_S:
            return 0.0
        self._at_zero += jump
        return jump


class RateLimit:
    """How often each name may do something: ``burst`` times at once, and once more every ``every_s`` seconds."""

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst_s = burst * every_s
        self._every_s = every_s
        # When a name will have its whole burst again.
        self._used_until: dict[str, float] = {}

    def take(self, name: str, now: float) -> bool:
        """Whether ``name`` may do it once more; if so, this counts as one use."""
        until = max(now, self._used_until.get(name, now)) + self._every_s
        if until - now > self._burst_s:
            return False
        if len(self._used_until) >= NAMES:
            self._used_until = {other: used for other, used in self._used_until.items() if used > now}
        self._used_until[name] = until
        return True


class SlidingCount:
    """Tasks ended per second, over the last few seconds; one entry per drained batch, not per task."""

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
