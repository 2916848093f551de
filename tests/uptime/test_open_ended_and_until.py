"""No plan, and one window until a time or for some seconds."""

import math

import pytest

from deskgrid.worker.windows.uptime import Instant, OpenEnded, PlanError, UptimePlan, parse_until
from tests.uptime.builders import BOOT, after, at, machine_zone

NOW = Instant(1_790_000_000.25, BOOT)


def test_open_ended_is_always_up_and_never_changes() -> None:
    plan: UptimePlan = OpenEnded()
    assert plan.kind == "open-ended"
    assert plan.uptime(NOW) == math.inf
    assert plan.coming(NOW) == ()
    assert plan.boundary(NOW) is None
    assert not plan.over(NOW)
    assert plan.describe() == "open-ended"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90.5", 90.5), (" 0.25 ", 0.25), ("1e3", 1000.0)])
def test_seconds_count_down_and_then_it_is_over(text: str, seconds: float) -> None:
    plan: UptimePlan = parse_until(text, NOW)
    assert plan.kind == "until"
    assert plan.uptime(NOW) == pytest.approx(seconds)
    assert plan.boundary(NOW) == plan.uptime(NOW)
    assert plan.coming(NOW) == ()
    assert not plan.over(NOW)
    half = after(seconds / 2, NOW)
    assert plan.uptime(half) == pytest.approx(seconds / 2)
    for later in (Instant(NOW.wall, NOW.mono + seconds), after(seconds + 1e6, NOW)):
        assert plan.uptime(later) == 0.0
        assert plan.boundary(later) is None
        assert plan.over(later)


def test_seconds_do_not_notice_that_the_wall_clock_is_set() -> None:
    assert parse_until("1h30min", NOW).uptime(NOW) == 5400
    plan = parse_until("90", NOW)
    for jump in (-1e9, -3600.0, 3600.0, 1e9):
        assert plan.uptime(Instant(NOW.wall + jump, NOW.mono + 30)) == pytest.approx(60)


def test_a_plan_in_seconds_describes_itself() -> None:
    assert parse_until("90.5", NOW).describe() == "for 1 min 30 s from its start"


@pytest.mark.parametrize(
    ("now", "until", "end"),
    [
        ("2026-11-18T12:00", "18:00", "2026-11-18T18:00"),
        ("2026-11-18T18:00", "18:00", "2026-11-19T18:00"),
        ("2026-11-18T17:59:59.5", "18:00", "2026-11-18T18:00"),
        ("2026-11-18T23:00", "08:00", "2026-11-19T08:00"),
        ("2026-11-18T23:00", "8:00", "2026-11-19T08:00"),
        ("2026-11-18T12:00", "24:00", "2026-11-19T00:00"),
        ("2026-11-18T12:00", "00:00", "2026-11-19T00:00"),
        ("2026-11-18T00:00", "24:00", "2026-11-19T00:00"),
        ("2026-03-28T12:00", "02:30", "2026-03-29T03:00"),  # skipped: the moment of the change
        ("2026-10-24T12:00", "02:30", "2026-10-25T02:30"),  # twice: the first one
        ("2026-10-24T18:00", "17:00", "2026-10-25T17:00"),  # 24 hours long by the sun, 23 by the clock
    ],
)
def test_a_time_is_the_next_one_that_clocks_show(
    monkeypatch: pytest.MonkeyPatch, now: str, until: str, end: str
) -> None:
    with machine_zone(monkeypatch, "Europe/Brussels"):
        plan = parse_until(until, at(now))
    assert plan.kind == "until"
    assert plan.uptime(at(now)) == at(end).wall - at(now).wall
    assert not plan.over(at(now))
    assert plan.over(at(end))
    assert plan.describe() == f"until {until} (local time)"


def test_between_the_two_times_of_a_night_that_gains_an_hour_the_second_is_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = at("2026-10-25T02:45")
    with machine_zone(monkeypatch, "Europe/Brussels"):
        plan = parse_until("02:30", now)
    assert plan.uptime(now) == 45 * 60
    assert plan.over(at("2026-10-25T02:30", fold=1))


def test_where_midnight_comes_twice_the_second_one_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    now = at("2010-11-07T00:00:30", "America/St_Johns")
    with machine_zone(monkeypatch, "America/St_Johns"):
        assert parse_until("24:00", now).uptime(now) == 3570


def test_a_time_follows_the_wall_clock_when_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    now = at("2026-11-18T12:00")
    with machine_zone(monkeypatch, "Europe/Brussels"):
        plan = parse_until("18:00", now)
    assert plan.uptime(Instant(now.wall + 3600, now.mono)) == 5 * 3600
    assert plan.uptime(Instant(now.wall, now.mono + 1e6)) == 6 * 3600


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "not a number"),
        ("soon", "not a number"),
        ("90x", "not a number"),
        ("nan", "not from 0 to 1e+09"),
        ("inf", "not from 0 to 1e+09"),
        ("-5", "not from 0 to 1e+09"),
        ("0", "more than 0"),
        ("25:00", "malformed time '25:00'"),
        ("24:01", "malformed time"),
        ("12:60", "malformed time"),
        ("12:5", "malformed time"),
        ("1:2:3", "malformed time"),
        ("-1:00", "malformed time"),
        ("\u0661\u0662:\u0660\u0660", "malformed time"),
        ("18:00\nx", "malformed time"),
    ],
)
def test_anything_else_is_refused_in_one_line_that_repeats_it(text: str, cause: str) -> None:
    with pytest.raises(PlanError, match=r"^until ") as caught:
        parse_until(text, NOW)
    message = str(caught.value)
    assert cause in message
    assert repr(text) in message
    assert "\n" not in message
