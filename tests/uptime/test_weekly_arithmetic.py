"""The weekly calendar in time: changes of clocks, long closures, and a brute-force clock that samples every minute."""

import time
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from deskgrid.scheduler.model import ANNOUNCED
from deskgrid.wire import WINDOWS_LIMIT
from deskgrid.worker.windows.uptime import COMING_S, HORIZON_S, Instant, UptimePlan, Weekly, weekly_from_table
from tests.pace import pace
from tests.uptime.builders import BRUSSELS, after, at, machine_zone

HOUR = 3600.0
DAY = 24 * HOUR
NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def weekly(zone: str | None, *windows: str, dates: dict[str, object] | None = None) -> Weekly:
    table: dict[str, object] = {"windows": list(windows), "dates": dates or {}}
    if zone:
        table["zone"] = zone
    return weekly_from_table(table, "test")


@pytest.mark.parametrize(
    ("zone", "opening", "hours"),
    [
        (BRUSSELS, "2026-03-29T01:00", 3),
        (BRUSSELS, "2026-10-25T01:00", 5),
        (BRUSSELS, "2026-11-01T01:00", 4),
        ("America/New_York", "2026-03-08T01:00", 3),
        ("America/New_York", "2026-11-01T01:00", 5),  # 01:00 comes twice: it opens at the first
        ("Australia/Lord_Howe", "2026-10-04T01:00", 3.5),
        ("Australia/Lord_Howe", "2026-04-05T01:00", 4.5),
        ("Asia/Kolkata", "2026-03-29T01:00", 4),
    ],
)
def test_one_to_five_lasts_as_long_as_the_night_does(zone: str, opening: str, hours: float) -> None:
    plan = weekly(zone, "daily 01:00-05:00")
    now = at(opening, zone)
    assert plan.uptime(now) == hours * HOUR
    assert (HOUR, hours * HOUR) in plan.coming(after(-HOUR, now))


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("00:00-02:30", [(0, 2)]),  # ends when clocks jump
        ("02:30-05:00", [(2, 4)]),  # starts when clocks jump
        ("02:15-02:45", []),  # does not take place
        ("02:00-03:00", []),
    ],
)
def test_a_time_that_is_skipped_is_the_moment_of_the_change(window: str, expected: list[tuple[int, int]]) -> None:
    plan = weekly(BRUSSELS, dates={"2026-03-29": window, "2026-03-31": "closed"})
    midnight = at("2026-03-29T00:00")
    found = [(starts, starts + lasts) for starts, lasts in plan.coming(after(-HOUR, midnight))]
    assert found == [((first + 1) * HOUR, (last + 1) * HOUR) for first, last in expected]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("00:00-02:30", (0, 2.5)),  # ends at the first 02:30
        ("02:30-05:00", (2.5, 6)),  # starts at the first 02:30
        ("02:15-02:45", (2.25, 2.75)),
    ],
)
def test_a_time_that_comes_twice_is_the_first(window: str, expected: tuple[float, float]) -> None:
    plan = weekly(BRUSSELS, dates={"2026-10-25": window})
    [(starts, lasts)] = plan.coming(at("2026-10-24T23:00"))
    assert (starts - HOUR, starts + lasts - HOUR) == (expected[0] * HOUR, expected[1] * HOUR)


def test_the_zone_of_the_machine_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    with machine_zone(monkeypatch, "America/New_York"):
        plan = weekly(None, "daily 01:00-05:00")
        assert plan.describe() == "daily 01:00-05:00 (local time)"
        for opening, hours in (("2026-03-08T01:00", 3), ("2026-11-01T01:00", 5), ("2026-11-18T01:00", 4)):
            assert plan.uptime(at(opening, "America/New_York")) == hours * HOUR
        skipped = weekly(None, "daily 02:30-05:00")
        assert skipped.uptime(at("2026-03-08T03:00", "America/New_York")) == 2 * HOUR


def test_a_date_that_a_country_skipped_leaves_only_the_tail_of_its_windows() -> None:
    plan = weekly("Pacific/Apia", "fri 18:00-08:00", "sat 12:00-13:00")
    thursday = at("2011-12-29T23:00", "Pacific/Apia")
    assert plan.coming(thursday)[:2] == ((HOUR, 8 * HOUR), (13 * HOUR, HOUR))


def test_always_open_is_eight_days_that_roll_forward() -> None:
    plan: UptimePlan = weekly(BRUSSELS, "mon-sun all day")
    for days in range(0, 400, 7):
        now = after(days * DAY, at("2026-11-16T12:34"))
        assert plan.uptime(now) == HORIZON_S
        assert plan.coming(now) == ()
        assert plan.boundary(now) is None
        assert not plan.over(now)


@pytest.mark.parametrize("year", ["2026", "2027", "2042", "2999"])
def test_an_exception_far_ahead_ends_what_is_always_open(year: str) -> None:
    plan = weekly(BRUSSELS, "daily all day", dates={f"{year}-12-24": "08:00-24:00"})
    now = at("2026-11-16T12:34")
    closing, opening = at(f"{year}-12-24T00:00"), at(f"{year}-12-24T08:00")
    assert plan.boundary(now) == closing.wall - now.wall
    assert plan.uptime(now) == HORIZON_S
    assert plan.uptime(after(-3, closing)) == 3.0
    assert plan.boundary(closing) == 8 * HOUR
    assert plan.coming(after(-3, closing)) == ((8 * HOUR + 3, HORIZON_S),)
    assert plan.boundary(opening) is None


def test_an_exception_far_ahead_that_changes_nothing_is_no_boundary() -> None:
    plan = weekly(BRUSSELS, "daily all day", dates={"2040-12-24": "all day", "2041-12-24": "closed"})
    now = at("2026-11-16T12:34")
    assert plan.boundary(now) == at("2041-12-24T00:00").wall - now.wall


@pytest.mark.parametrize("days", [10, 16, 17, 18, 40, 150])
def test_a_long_closure_is_not_the_end(days: int) -> None:
    monday = date(2026, 11, 16)
    closed: dict[str, object] = {str(monday + timedelta(n)): "closed" for n in range(days)}
    plan = weekly("Asia/Kolkata", "daily 18:00-08:00", dates=closed)
    for now in (at("2026-11-16T00:00", "Asia/Kolkata"), at("2026-11-15T17:00", "Asia/Kolkata")):
        assert not plan.over(now)
    now = at("2026-11-16T05:00", "Asia/Kolkata")
    assert plan.uptime(now) == 0.0
    assert plan.boundary(now) == (days - 1) * DAY + 19 * HOUR + 18 * HOUR
    assert not plan.over(now)


@pytest.mark.parametrize("days", [10, 16, 17, 18, 40, 150])
def test_a_long_opening_ends_when_it_ends(days: int) -> None:
    monday = date(2026, 11, 16)
    opened: dict[str, object] = {str(monday + timedelta(n)): "all day" for n in range(days)}
    plan = weekly("Asia/Kolkata", dates=opened)
    now = at("2026-11-16T05:00", "Asia/Kolkata")
    assert plan.uptime(now) == min(HORIZON_S, days * DAY - 5 * HOUR)
    assert plan.boundary(now) == days * DAY - 5 * HOUR
    end = after(days * DAY - 5 * HOUR, now)
    assert not plan.over(after(-1, end))
    assert plan.over(end)
    assert plan.boundary(end) is None
    assert plan.coming(end) == ()


@pytest.mark.parametrize("days", [16, 17, 18])
def test_a_long_opening_may_be_followed_by_ordinary_days(days: int) -> None:
    monday = date(2026, 11, 16)
    opened: dict[str, object] = {str(monday + timedelta(n)): "all day" for n in range(days)}
    plan = weekly("Asia/Kolkata", "daily 18:00-20:00", dates=opened)
    assert plan.boundary(at("2026-11-16T05:00", "Asia/Kolkata")) == days * DAY - 5 * HOUR


def test_after_a_long_closure_the_next_ordinary_window_is_awaited() -> None:
    mondays: dict[str, object] = {f"2026-11-{day}": "closed" for day in (16, 23, 30)}
    plan = weekly(BRUSSELS, "mon 10:00-11:00", dates=mondays)
    now = at("2026-11-14T10:00")
    assert plan.boundary(now) == 23 * DAY
    assert not plan.over(now)


def test_a_window_that_the_change_of_clocks_skips_is_awaited_a_week_later() -> None:
    plan = weekly(BRUSSELS, "sun 02:15-02:45", dates={"2026-03-15": "closed", "2026-03-22": "closed"})
    now = at("2026-03-09T00:00")
    assert plan.boundary(now) == at("2026-04-05T02:15").wall - now.wall


def test_a_window_at_the_end_of_the_coming_week_counts_in_full() -> None:
    closed: dict[str, object] = {f"2026-11-{day}": "closed" for day in range(17, 23)}
    plan = weekly(BRUSSELS, "daily all day", dates={**closed, "2026-11-23": "23:00-24:00"})
    assert plan.coming(at("2026-11-16T23:30")) == ((7 * DAY - HOUR / 2, HORIZON_S),)


def test_dates_alone_are_awaited_however_far_and_then_it_is_over() -> None:
    plan = weekly(BRUSSELS, dates={"2027-06-01": "22:00-02:00", "2028-06-01": "closed"})
    now, opening = at("2026-11-16T12:00"), at("2027-06-01T22:00")
    assert plan.boundary(now) == opening.wall - now.wall
    assert plan.coming(now) == ()
    assert not plan.over(now)
    assert not plan.over(after(4 * HOUR - 1, opening))
    assert plan.over(after(4 * HOUR, opening))


def test_at_most_64_coming_windows_are_announced() -> None:
    plan = weekly(BRUSSELS, *(f"daily {hour:02}:00-{hour:02}:30" for hour in range(24)))
    coming = plan.coming(at("2026-11-16T00:10"))
    assert len(coming) == WINDOWS_LIMIT == ANNOUNCED  # what the scheduler takes for a week that was cut short
    assert (coming[0], coming[-1]) == ((50 * 60, 30 * 60), (50 * 60 + 63 * HOUR, 30 * 60))


def test_a_window_that_starts_in_seven_days_is_still_announced() -> None:
    plan = weekly(BRUSSELS, "mon 18:00-19:00")
    opening = at("2026-11-16T18:00")
    assert plan.coming(opening) == ((COMING_S, HOUR),)
    assert plan.coming(after(-1, opening)) == ((1.0, HOUR),)
    assert plan.coming(after(0.5, opening)) == ((COMING_S - 0.5, HOUR),)


def test_the_wall_clock_may_be_set_either_way() -> None:
    plan = weekly(BRUSSELS, "daily 18:00-08:00")
    now = at("2026-11-16T12:00")
    for jump, expected in ((0.0, 0.0), (7 * HOUR, 13 * HOUR), (-400 * DAY, 0.0), (400 * DAY - HOUR * 6, 2 * HOUR)):
        assert plan.uptime(Instant(now.wall + jump, now.mono)) == expected
    assert plan.uptime(Instant(now.wall, now.mono + 1e6)) == 0.0


@pytest.mark.alone
def test_a_heartbeat_costs_far_less_than_a_millisecond() -> None:
    plan = weekly(BRUSSELS, "mon-fri 18:00-08:00", "sat-sun all day", dates={"2026-12-25": "all day"})
    instants = [after(2.0 * n, at("2026-11-16T12:00")) for n in range(1000)]
    before = time.process_time()
    for now in instants:
        plan.uptime(now)
        plan.coming(now)
        plan.boundary(now)
    took = (time.process_time() - before) / len(instants)
    assert took < pace(time.process_time) / 2, "a beat is about two milliseconds"


# --- brute force: a clock on the wall, read every minute, and a list of rules -----------------------------------------

# Around changes of clocks: one hour, at 02:00 and at 03:00; half an hour; none; a day that never was; at midnight.
NIGHTS = [
    (BRUSSELS, date(2026, 3, 29)),
    (BRUSSELS, date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Asia/Kolkata", date(2026, 10, 25)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("Pacific/Apia", date(2012, 4, 1)),
    ("America/Sao_Paulo", date(2017, 10, 15)),
    ("America/Sao_Paulo", date(2018, 2, 18)),
    ("America/St_Johns", date(2010, 11, 7)),
]

SAMPLED_DAYS = 18


@dataclass(frozen=True)
class Written:
    """A calendar as a person would write it, which is all that the brute-force clock knows."""

    zone: str
    week: tuple[tuple[int, tuple[int, int]], ...]  # (weekday, (start, end) in minutes, end up to 2880)
    dates: tuple[tuple[date, tuple[tuple[int, int], ...]], ...]  # no window: closed

    def plan(self) -> Weekly:
        windows = [f"{NAMES[day]} {text(*span)}" for day, span in self.week]
        dates = {str(day): [text(*span) for span in spans] or "closed" for day, spans in self.dates}
        return weekly_from_table({"zone": self.zone, "windows": windows, "dates": dates}, "test")

    def spans(self, day: date) -> list[tuple[int, int]]:
        exceptions = dict(self.dates)
        return list(exceptions.get(day, tuple(span for number, span in self.week if number == day.weekday())))

    def is_open(self, shown: datetime) -> bool:
        """Return whether the PC is up when the clock on the wall shows this, or has shown it and was set back."""
        today, minute = shown.date(), shown.hour * 60 + shown.minute
        if any(start <= minute < end for start, end in self.spans(today)):
            return True
        closed = dict(self.dates).get(today) == ()
        yesterday = self.spans(today - timedelta(1))
        return not closed and any(start <= minute + 1440 < end for start, end in yesterday)


def text(start: int, end: int) -> str:
    if (start, end) == (0, 1440):
        return "all day"
    last = end if end <= 1440 else end - 1440
    return f"{start // 60:02}:{start % 60:02}-{last // 60:02}:{last % 60:02}"


def sample(written: Written, first: date) -> tuple[float, list[bool]]:
    """Return the POSIX second of a midnight, and for each minute from there on whether the PC is up.

    The clock is one that is not turned back: in an hour that comes twice it stands still until that is over. It starts
    two days earlier, so that it stands where it should.
    """
    zone = ZoneInfo(written.zone)
    origin = datetime(first.year, first.month, first.day, tzinfo=zone).timestamp()
    highest = datetime.fromtimestamp(origin - 2 * DAY, zone).replace(tzinfo=None)
    states: list[bool] = []
    for minute in range(-2 * 1440, SAMPLED_DAYS * 1440):
        shown = datetime.fromtimestamp(origin + 60 * minute, zone).replace(tzinfo=None)
        highest = max(highest, shown)
        if minute >= 0:
            states.append(written.is_open(highest))
    return origin, states


def runs(states: list[bool]) -> list[tuple[int, int]]:
    """Return the [first, last) minutes of each stretch of True."""
    edges = [n for n in range(1, len(states)) if states[n] != states[n - 1]]
    cuts = [0, *edges, len(states)]
    return [(a, b) for a, b in pairwise(cuts) if states[a]]


minutes = st.one_of(
    st.integers(0, 1439), st.sampled_from([0, 30, 60, 90, 120, 135, 150, 165, 180, 210, 240, 480, 1080, 1410, 1439])
)


@st.composite
def day_spans(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    """Draw up to three windows of one day which do not overlap in its own line of time."""
    if draw(st.integers(0, 4)) == 0:
        return ((0, 1440),)
    starts = sorted(draw(st.sets(minutes, max_size=3)))
    spans = []
    for start, following in zip(starts, [*starts[1:], 2880], strict=False):
        end = min(start + draw(st.one_of(st.integers(1, 1439), st.integers(1, 180))), following)
        spans.append((start, end))
    return tuple(spans)


@st.composite
def calendars(draw: st.DrawFn) -> tuple[Written, date]:
    zone, night = draw(st.sampled_from(NIGHTS))
    first = night - timedelta(draw(st.integers(0, 10)))
    days = draw(st.lists(day_spans(), min_size=7, max_size=7))
    near = st.integers(-3, SAMPLED_DAYS).map(lambda n: first + timedelta(n))
    dates = draw(st.dictionaries(near, day_spans(), max_size=6))
    assume(any(days) or any(dates.values()))
    week = tuple((number, span) for number, spans in enumerate(days) for span in spans)
    return Written(zone, week, tuple(sorted(dates.items()))), first


LAB = (*((n, (1080, 1920)) for n in range(5)), (5, (0, 1440)), (6, (0, 1440)))


@pytest.mark.slow
@settings(max_examples=15)
@given(calendars(), st.lists(st.integers(0, 1439), min_size=1, max_size=20), st.floats(0, 59.75))
@example((Written(BRUSSELS, LAB, ((date(2026, 3, 30), ()),)), date(2026, 3, 27)), list(range(0, 1440, 7)), 0.0)
@example((Written("Pacific/Apia", LAB, ((date(2011, 12, 31), ()),)), date(2011, 12, 29)), list(range(1440)), 0.0)
def test_it_agrees_with_a_clock_that_is_read_every_minute(
    case: tuple[Written, date], asked: list[int], seconds: float
) -> None:
    written, first = case
    plan = written.plan()
    origin, states = sample(written, first)
    windows = runs(states)
    for minute in asked:
        now = Instant(origin + 60 * minute + seconds, 0.0)
        since = 60 * minute + seconds
        uptime = next((60 * b - since for a, b in windows if 60 * a <= since < 60 * b), 0.0)
        assert plan.uptime(now) == pytest.approx(min(uptime, HORIZON_S), abs=1e-6)
        expected = [(60 * a - since, min(60.0 * (b - a), HORIZON_S)) for a, b in windows if 60 * a > since]
        expected = [window for window in expected if window[0] <= COMING_S][:WINDOWS_LIMIT]
        coming = plan.coming(now)
        assert len(coming) == len(expected)
        assert [pytest.approx(window, abs=1e-6) for window in expected] == list(coming)
        edges = [60 * n - since for n in range(1, len(states)) if states[n] != states[n - 1] and 60 * n > since]
        boundary = plan.boundary(now)
        if edges:
            assert boundary == pytest.approx(edges[0], abs=1e-6)
        else:
            assert boundary is None or boundary >= (len(states) * 60 - since) - 1e-6
        assert plan.over(now) == (not uptime and boundary is None)
        # After a boundary comes the other state, and a moment before it nothing has changed.
        if boundary is not None:
            assert (plan.uptime(after(boundary + 1e-3, now)) > 0) != (uptime > 0)
            assert (plan.uptime(after(boundary - 1e-3, now)) > 0) == (uptime > 0)


@settings(max_examples=30)
@given(calendars(), st.lists(st.integers(0, 200), min_size=2, max_size=10))
def test_what_was_asked_before_makes_no_difference(case: tuple[Written, date], hours: list[int]) -> None:
    written, first = case
    used = written.plan()
    origin = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo(written.zone)).timestamp()
    for hour in hours:
        now, fresh = Instant(origin + hour * HOUR + 1.0, 0.0), written.plan()
        assert used.uptime(now) == fresh.uptime(now)
        assert used.coming(now) == fresh.coming(now)
        assert used.boundary(now) == fresh.boundary(now)
