"""Which heartbeats say the windows to come."""

from deskgrid.wire import Window
from deskgrid.worker.windows.announcements import DRIFT_S, TELL_S, Announcements


def windows(now: float, lasts: float = 50.0) -> tuple[Window, ...]:
    return (Window(1000.0 - now, lasts), Window(2000.0 - now, lasts))


def test_windows_are_announced_once_and_again_after_a_while() -> None:
    told, announced = Announcements(), []
    for beat in range(100):
        now = beat * 2.0
        news = told.news(windows(now), now)
        assert news is None or news == windows(now)
        announced += [now] if news is not None else []
    assert announced == [0.0, TELL_S, 2 * TELL_S, 3 * TELL_S]


def test_windows_that_change_are_announced_at_once() -> None:
    told = Announcements()
    told.news(windows(0.0), 0.0)
    assert told.news(windows(2.0 - DRIFT_S / 2), 2.0) is None
    assert told.news(windows(4.0 - 2 * DRIFT_S), 4.0) is not None
    assert told.news(windows(6.0, lasts=51.0), 6.0) is not None
    assert told.news(windows(8.0, lasts=51.0)[1:], 8.0) is not None
    assert told.news((), 10.0) == ()
    assert told.news((), 12.0) is None
