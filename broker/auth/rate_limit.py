"""How often something is allowed, to each name: many times at once, and then once every so often. Pure."""

# Names are only remembered while they matter; it is looked at them when there are so many.
NAMES = 10_000


class RateLimit:
    """``burst`` times at once, and once more every ``every_s`` seconds."""

    def __init__(self, burst: int, every_s: float) -> None:
        self._burst_s = burst * every_s
        self._every_s = every_s
        # When everything that a name was allowed will count no more.
        self._used_until: dict[str, float] = {}

    def take(self, name: str, now: float) -> bool:
        """Whether it is allowed to ``name`` once more."""
        until = max(now, self._used_until.get(name, now)) + self._every_s
        if until - now > self._burst_s:
            return False
        if len(self._used_until) >= NAMES:
            self._used_until = {other: used for other, used in self._used_until.items() if used > now}
        self._used_until[name] = until
        return True
