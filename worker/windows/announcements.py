"""Which heartbeats announce the windows to come: those of a thousand PCs with 64 each are most of what beats cost."""

from collections.abc import Sequence

from deskgrid.wire import Window

# They are announced again after so long, because the broker's clock and ours may run apart, or when they are others by
# more than this. Seconds.
TELL_S = 60.0
DRIFT_S = 0.1


class Announcements:
    """What the broker was told by a heartbeat. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._windows: tuple[Window, ...] = ()
        self._at = -TELL_S

    def news(self, windows: tuple[Window, ...], now: float) -> tuple[Window, ...] | None:
        """``windows``, if they are to be announced now; None when they are those it was told, not long ago."""
        since = now - self._at
        if since < TELL_S and _same(windows, self._windows, since):
            return None
        self._windows, self._at = windows, now
        return windows


def _same(windows: Sequence[Window], told: Sequence[Window], since: float) -> bool:
    """Whether ``windows`` are those that were ``told`` so many seconds ago."""
    return len(windows) == len(told) and all(
        abs(window.starts_in - (before.starts_in - since)) < DRIFT_S and abs(window.lasts - before.lasts) < DRIFT_S
        for window, before in zip(windows, told, strict=True)
    )
