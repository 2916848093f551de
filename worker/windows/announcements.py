"""Decides which heartbeats announce the coming windows, how fast the PC is, and what others use of it.

Announcing 64 windows for each of a thousand PCs would be most of the cost of heartbeats.
"""

from collections.abc import Sequence

from deskgrid.wire import Window

# Windows are announced again after TELL_S, because the broker's clock and ours may drift apart, or as soon as they
# differ from the announced ones by more than DRIFT_S. Seconds.
TELL_S = 60.0
DRIFT_S = 0.1
# Loads are announced again when one of them differs by more than this. Smaller changes decide nothing.
CHANGED = 0.05


class Announcements:
    """The windows that heartbeats last announced to the broker. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._windows: tuple[Window, ...] = ()
        self._at = -TELL_S

    def news(self, windows: tuple[Window, ...], now: float) -> tuple[Window, ...] | None:
        """Return ``windows`` if they have to be announced now; None if the same windows were announced recently."""
        since = now - self._at
        if since < TELL_S and _same(windows, self._windows, since):
            return None
        self._windows, self._at = windows, now
        return windows


class Powers:
    """How fast this PC is (``speed``), and what others than our tasks use of its processors (``loads``).

    ``given``: its user has given the speed. ``loads``: the means of the last 1, 30 and 120 s; empty: nobody measures
    them here.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.speed, self.given = speed, False
        self.loads: tuple[float, ...] = ()
        self._told_speed = speed
        self._told_loads: tuple[float, ...] = ()

    def introduced(self) -> float:
        """Return the speed, for an introduction."""
        self._told_speed, self._told_loads = self.speed, ()
        return self.speed

    def news(self) -> tuple[float | None, tuple[float, ...] | None]:
        """Return the speed and the loads for a heartbeat; None for what has hardly changed since it was last said."""
        speed = None if self.speed == self._told_speed else self.speed
        told = self._told_loads or (0.0,) * len(self.loads)
        changed = any(abs(load - before) > CHANGED for load, before in zip(self.loads, told, strict=True))
        self._told_speed = self.speed
        if not changed:
            return speed, None
        self._told_loads = self.loads
        return speed, self.loads


def _same(windows: Sequence[Window], told: Sequence[Window], since: float) -> bool:
    """Whether ``windows`` are the same as those ``told`` ``since`` seconds ago."""
    return len(windows) == len(told) and all(
        abs(window.starts_in - (before.starts_in - since)) < DRIFT_S and abs(window.lasts - before.lasts) < DRIFT_S
        for window, before in zip(windows, told, strict=True)
    )
