"""A limit on how often each name may do something: several times at once, and then once per interval. Pure."""

# When this many names are in memory, names that have their whole burst again are dropped.
NAMES = 10_000


class RateLimit:
    """``burst`` times at once, and once more every ``every_s`` seconds."""

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
