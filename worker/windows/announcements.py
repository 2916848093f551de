"""Decides which heartbeats announce the coming windows.

Announcing 64 windows for each of a thousand PCs would be most of the cost of heartbeats.
"""

from collections.abc import Sequence

from deskgrid.wire import Window

# Windows are announced again after TELL_S, because the broker's clock and ours may drift apart, or as soon as they
# differ from the announced ones by more than DRIFT_S. Seconds.
TELL_S = 60.0
DRIFT_S = 0.1


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


def _same(windows: Sequence[Window], told: Sequence[Window], since: float) -> bool:
    """Whether ``windows`` are the same as those ``told`` ``since`` seconds ago."""
    return len(windows) == len(told) and all(
        abs(window.starts_in - (before.starts_in - since)) < DRIFT_S and abs(window.lasts - before.lasts) < DRIFT_S
        for window, before in zip(windows, told, strict=True)
    )
