"""Credentials whose messages made the broker fail, and for how long they are kept out. Pure.

A fault is an unexpected exception while a message was handled: a bug in the broker that somebody found. The peer loses
its connection. A credential with several faults is kept out for a while, because after each fault the broker starts
again from the journal, and everybody waits for that.
"""

from collections import deque

# A credential that causes `FAULTS` faults within `WITHIN_S` seconds is kept out.
FAULTS = 3
WITHIN_S = 60.0
# How long a credential is kept out the first time, and at most. It doubles each time. Seconds.
BAR_S = 60.0
BAR_MOST_S = 3600.0
# Faults are forgotten after this long without another. Seconds.
FORGIVEN_S = 86_400.0
_NEVER = float("-inf")


class Penalties:
    """Penalties by the name of the credential; ``now`` is the broker's clock."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[float]] = {}
        # When each penalty ends, and how long it is.
        self._bars: dict[str, tuple[float, float]] = {}

    def add(self, name: str, now: float) -> None:
        """A message of this credential made the broker fail."""
        self._forgive(now)
        recent = self._recent.setdefault(name, deque(maxlen=FAULTS))
        recent.append(now)
        if len(recent) == FAULTS and recent[0] > now - WITHIN_S:
            _, lasted = self._bars.get(name, (_NEVER, 0.0))
            lasts = min(2 * lasted or BAR_S, BAR_MOST_S)
            self._bars[name] = now + lasts, lasts
            recent.clear()

    def barred_s(self, name: str, now: float) -> float:
        """How many seconds this credential is still kept out."""
        until, _ = self._bars.get(name, (_NEVER, 0.0))
        return max(0.0, until - now)

    def _forgive(self, now: float) -> None:
        self._recent = {name: times for name, times in self._recent.items() if times and times[-1] > now - FORGIVEN_S}
        self._bars = {name: bar for name, bar in self._bars.items() if bar[0] > now - FORGIVEN_S}
