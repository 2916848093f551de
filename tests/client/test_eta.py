"""When a bag will be done, as a client is told it."""

from datetime import UTC, datetime, timedelta

import pytest

from deskgrid.client.eta import Eta, when_done
from deskgrid.client.grid import Grid
from deskgrid.errors import RequestFailed
from tests.client.fakebroker import FakeGrid

# A Friday.
NOON = datetime(2026, 11, 20, 12, 0).astimezone()
HOUR = 3600.0


@pytest.mark.parametrize(
    ("median", "high", "words"),
    [
        (20.0, 35.0, "done in 20 s, at the latest in 35 s"),
        (20.0, None, "done in 20 s, the latest end is unknown"),
        (HOUR, 2 * HOUR, "done 13:00, at the latest 14:00"),
        (HOUR, 14 * HOUR, "done 13:00, at the latest Sat 02:00"),
        (HOUR, None, "done 13:00, the latest end is unknown"),
        (67 * HOUR, 69.25 * HOUR, "done Mon 07:00, at the latest 09:15"),
        (24 * 20 * HOUR, 24 * 30 * HOUR, "done 10 Dec 2026 12:00, at the latest 20 Dec 2026 12:00"),
    ],
)
def test_it_is_told_in_words(median: float, high: float | None, words: str) -> None:
    assert when_done(median, high, NOON) == words
    assert str(Eta(median, 0.0, high, asked=NOON)) == words


def test_it_is_seconds_and_times_of_the_clock() -> None:
    eta = Eta(HOUR, 60.0, 2 * HOUR, asked=NOON)
    assert eta.known
    assert eta.done_at == NOON + timedelta(hours=1)
    assert eta.earliest == NOON + timedelta(minutes=1)
    assert eta.latest == NOON + timedelta(hours=2)
    assert Eta(1.0, 1.0, 1.0).asked.tzinfo is not None


def test_what_is_unknown_has_no_time_but_a_reason() -> None:
    eta = Eta(None, None, None, why="no PC is up or announced")
    assert (eta.known, eta.done_at, eta.latest) == (False, None, None)
    assert str(eta) == "unknown: no PC is up or announced"


def test_what_has_ended_has_ended() -> None:
    assert str(Eta(0.0, 0.0, 0.0)) == "it has ended"


@pytest.mark.parametrize("seconds", [1e300, float("inf"), 1e13])
def test_times_that_no_calendar_has_are_told_as_durations(seconds: float) -> None:
    eta = Eta(seconds, 0.0, None, asked=datetime(2026, 1, 1, tzinfo=UTC))
    assert eta.done_at is None
    if seconds < 1e300:
        assert str(eta).startswith("done in 115740740 d")


def test_a_bag_asks_the_broker(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(abs, [-1])
    fake.broker.answers["eta"] = {"median_s": 5.0, "low_s": 4.0, "high_s": None, "confidence": 0.9, "why": ""}
    assert bag.eta() == Eta(5.0, 4.0, None)
    fake.broker.answers["eta"] = {"median_s": 5.0}
    with pytest.raises(RequestFailed, match="cannot be read"):
        bag.eta()
