"""What a weekly calendar may say, and what it says back when it may not."""

import json
from pathlib import Path

import pytest

from deskgrid.worker.windows.uptime import (
    PlanError,
    UptimePlan,
    Weekly,
    read_windows,
    weekly_from_json,
    weekly_from_table,
)
from tests.uptime.builders import BRUSSELS, at

HOUR = 3600.0
DAY = 24 * HOUR

# 2026-11-16 is a Monday.
MONDAY = "2026-11-16T00:00"
SUNDAY = "2026-11-15T00:00"


def weekly(*windows: str, dates: dict[str, object] | None = None, zone: str | None = BRUSSELS) -> Weekly:
    table: dict[str, object] = {"windows": list(windows), "dates": dates or {}}
    if zone:
        table["zone"] = zone
    return weekly_from_table(table, "lab.toml")


def hours(plan: UptimePlan, start: str = MONDAY) -> list[tuple[float, float]]:
    """Return the windows of the week after ``start`` as (first hour, last hour), the current one included."""
    now = at(start)
    current = [(0.0, plan.uptime(now))] if plan.uptime(now) else []
    spans = current + [(starts, starts + lasts) for starts, lasts in plan.coming(now)]
    return [(first / HOUR, last / HOUR) for first, last in spans if first < 7 * DAY]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("mon 10:00-16:00", [(10, 16)]),
        ("mon,wed,fri 12:00-13:00", [(12, 13), (60, 61), (108, 109)]),
        ("tue-thu 08:00-09:30", [(32, 33.5), (56, 57.5), (80, 81.5)]),
        ("sat-mon 01:00-02:00", [(1, 2), (121, 122), (145, 146)]),  # a range that wraps
        ("mon-tue,sat 22:00-23:00", [(22, 23), (46, 47), (142, 143)]),
        ("wed 20:00-24:00", [(68, 72)]),
        ("wed 20:00-00:00", [(68, 72)]),
        ("wed 00:00-24:00", [(48, 72)]),
        ("wed all day", [(48, 72)]),
        ("tue 18:00-08:00", [(42, 56)]),
        ("wed-thu all day", [(48, 96)]),  # days that touch are one window
        ("MON , Wed 9:00 - 10:00", [(9, 10), (57, 58)]),
        ("mon - tue   ALL  DAY", [(0, 48)]),
        ("mon,mon-tue 10:00-11:00", [(10, 11), (34, 35)]),
    ],
)
def test_an_entry_means_these_hours_of_a_week(entry: str, expected: list[tuple[float, float]]) -> None:
    assert hours(weekly(entry)) == expected


def test_daily_means_all_seven_days() -> None:
    plan = weekly("daily 20:00-07:00")
    nights = [(20 + 24 * n, 31 + 24 * n) for n in range(7)]
    assert hours(plan) == [(0, 7), *nights]


def test_nights_and_week_ends_of_a_lab_are_five_windows() -> None:
    plan = weekly("mon-fri 18:00-08:00", "sat-sun all day")
    assert hours(plan) == [(18, 32), (42, 56), (66, 80), (90, 104), (114, 168)]
    assert plan.describe() == "mon-fri 18:00-08:00, sat-sun all day (Europe/Brussels)"


def test_windows_of_one_day_may_touch() -> None:
    assert hours(weekly("mon 08:00-12:00", "mon 12:00-14:00")) == [(8, 14)]


def test_a_tail_may_run_into_the_windows_of_the_next_day() -> None:
    assert hours(weekly("mon 18:00-08:00", "tue 06:00-10:00")) == [(18, 34)]
    assert hours(weekly("mon 18:00-08:00", "tue 02:00-04:00")) == [(18, 32)]


def test_a_window_before_dawn_does_not_overlap_the_night_of_its_own_day() -> None:
    assert hours(weekly("mon 02:00-04:00", "mon 18:00-08:00")) == [(2, 4), (18, 32)]


def test_an_exception_replaces_what_starts_on_its_date() -> None:
    nights = {"2026-11-17": "12:00-13:00", "2026-11-18": ["08:00-12:00", "13:00-20:00"]}
    plan = weekly("mon-thu 18:00-08:00", dates={**nights, "2026-11-20": "all day"})
    # Monday's tail stays on Tuesday, Thursday's runs into the whole Friday.
    assert hours(plan) == [(18, 32), (36, 37), (56, 60), (61, 68), (90, 120)]
    assert plan.describe() == "mon-thu 18:00-08:00; 3 dated exceptions (Europe/Brussels)"


def test_closed_also_ends_the_tail_of_the_day_before_at_midnight() -> None:
    plan = weekly("mon-thu 18:00-08:00", dates={"2026-11-17": "closed", "2026-11-19": [" Closed "]})
    assert hours(plan) == [(18, 24), (66, 72)]


def test_an_exception_may_pass_midnight_too() -> None:
    assert hours(weekly("mon 08:00-09:00", dates={"2026-11-17": "22:00 - 02:00"})) == [(8, 9), (46, 50)]


def test_a_calendar_may_have_nothing_but_dates() -> None:
    plan = weekly(dates={"2026-11-17": "all day"})
    assert hours(plan) == [(24, 48)]
    assert plan.describe() == "1 dated exception (Europe/Brussels)"


def test_one_window_may_be_written_without_a_list() -> None:
    assert hours(weekly_from_table({"zone": BRUSSELS, "windows": "mon 08:00-09:00"}, "x")) == [(8, 9)]


def test_the_same_calendar_comes_from_toml_and_from_json(tmp_path: Path) -> None:
    path = tmp_path / "lab3.toml"
    path.write_text(
        f'zone = "{BRUSSELS}"  # a comment\nwindows = ["mon-fri 18:00-08:00", "sat-sun all day"]\n'
        '[dates]\n"2026-11-18" = "closed"\n2026-11-19 = ["08:00-12:00"]\n',
        encoding="utf-8-sig",
    )
    dates = {"2026-11-18": "closed", "2026-11-19": ["08:00-12:00"]}
    table = {"zone": BRUSSELS, "windows": ["mon-fri 18:00-08:00", "sat-sun all day"], "dates": dates}
    from_file, from_json = read_windows(path), weekly_from_json(json.dumps(table))
    assert from_file.kind == from_json.kind == "windows"
    assert hours(from_file) == hours(from_json) == [(18, 32), (42, 48), (80, 84), (114, 168)]
    assert from_file.describe() == from_json.describe()


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ("", "expected days and times"),
        ("18:00-08:00", "expected days and times"),
        ("all day", "expected days and times"),
        ("funday 18:00-08:00", "unknown day 'funday'"),
        ("monday 18:00-08:00", "unknown day 'monday'"),
        ("mon-xyz 18:00-08:00", "unknown day 'xyz'"),
        ("mon- 18:00-08:00", "expected days and times"),
        ("mon,,tue 18:00-08:00", "unknown day ''"),
        ("mon tue 18:00-08:00", "unknown day 'mon tue'"),
        ("mon 1800-0800", "malformed time '1800'"),
        ("mon 18:00", "malformed times '18:00'"),
        ("mon", "expected days and times"),
        ("mon closed", "malformed times 'closed'"),
        ("mon 18:00-25:00", "malformed time '25:00'"),
        ("mon 18:00-08:60", "malformed time '08:60'"),
        ("mon 18:00-08:00-09:00", "malformed time '08:00-09:00'"),
        ("mon 24:00-08:00", "24:00 can end a window, not start one"),
        ("mon 08:00-08:00", "a window of no length"),
        ("mon 00:00-00:00", "a window of no length"),
        ("mon 18:00-08:00\nx", "unknown day 'mon 18:00'"),
    ],
)
def test_a_malformed_window_is_named_with_its_file(entry: str, cause: str) -> None:
    with pytest.raises(PlanError) as caught:
        weekly(entry)
    message = str(caught.value)
    assert message.startswith(f"lab.toml: window {entry!r}: ")
    assert cause in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("windows", "cause"),
    [
        (["mon-fri 18:00-08:00", "wed 20:00-22:00"], "wed: windows 'mon-fri 18:00-08:00' and 'wed 20:00-22:00'"),
        (["sat all day", "fri-sun 10:00-11:00"], "sat: windows 'sat all day' and 'fri-sun 10:00-11:00'"),
        (["daily 08:00-12:00", "sun 11:59-13:00"], "sun: windows 'daily 08:00-12:00' and 'sun 11:59-13:00'"),
        (["mon 08:00-09:00", "mon 08:00-09:00"], "mon: windows"),
    ],
)
def test_windows_that_overlap_on_a_day_are_named_both(windows: list[str], cause: str) -> None:
    with pytest.raises(PlanError, match="overlap") as caught:
        weekly(*windows)
    assert str(caught.value).startswith(f"lab.toml: {cause}")


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("2026-12-25", "18:00", "malformed times '18:00'"),
        ("2026-12-25", "08:00-08:00", "a window of no length"),
        ("2026-12-25", [], 'no windows (to keep it shut, write "closed")'),
        ("2026-12-25", ["closed", "08:00-09:00"], "malformed times 'closed'"),
        ("2026-12-25", ["08:00-12:00", "11:00-13:00"], "'08:00-12:00' and '11:00-13:00' overlap"),
        ("2026-12-25", 5, "expected text or a list of texts, got 5"),
        ("2026-12-25", [5], "expected text or a list of texts, got [5]"),
        ("2026-13-25", "closed", "no such date as '2026-13-25'"),
        ("2026-02-29", "closed", "no such date as '2026-02-29'"),
        ("20261225", "closed", "malformed date '20261225'"),
        ("25/12/2026", "closed", "malformed date '25/12/2026'"),
        ("1999-12-31", "closed", "malformed date '1999-12-31'"),
        ("3000-01-01", "closed", "malformed date '3000-01-01'"),
    ],
)
def test_a_malformed_exception_is_named(key: str, value: object, cause: str) -> None:
    with pytest.raises(PlanError) as caught:
        weekly("mon all day", dates={key: value})
    message = str(caught.value)
    assert message.startswith("lab.toml: date")
    assert repr(key) in message
    assert cause in message


@pytest.mark.parametrize(
    "zone",
    ["Europe/Atlantis", "", "../etc/passwd", "/etc/passwd", "Europe", "Europe/\x00", "CEST+", "\ud800", "zone.tab"],
)
def test_an_unknown_zone_is_named(zone: str) -> None:
    with pytest.raises(PlanError) as caught:
        weekly_from_table({"zone": zone, "windows": ["mon all day"]}, "lab.toml")
    assert str(caught.value) == f"lab.toml: unknown zone {zone!r}"


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        ({}, "no windows, and no dates that open"),
        ({"windows": []}, "no windows, and no dates that open"),
        ({"windows": [], "dates": {"2026-12-25": "closed"}}, "no windows, and no dates that open"),
        ({"window": ["mon all day"]}, "unknown key 'window' (known: zone, windows, except, closed, dates, grace)"),
        ({"windows": None}, "windows: expected text or a list of texts, got None"),
        ({"windows": {"mon": "all day"}}, "windows: expected text or a list of texts"),
        ({"windows": ["mon all day"], "zone": 1}, "zone: expected a name"),
        ({"windows": ["mon all day"], "dates": ["2026-12-25"]}, "dates: expected a table of dates"),
    ],
)
def test_a_table_of_another_form_is_refused(table: dict[str, object], cause: str) -> None:
    with pytest.raises(PlanError) as caught:
        weekly_from_table(table, "lab.toml")
    assert str(caught.value).startswith("lab.toml: ")
    assert cause in str(caught.value)


def test_what_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('zone = "Europe/Brussels"\nwindows = [oops]\n', encoding="utf-8")
    with pytest.raises(PlanError, match=r"bad\.toml: .*line 2"):
        read_windows(path)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = 1" + "0" * 10_000, "a = \x00"])
def test_hostile_toml_is_refused_like_any_other(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError, match=r"bad\.toml: "):
        read_windows(path)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('["mon all day"]', "expected a table, got list"),
        ("null", "expected a table, got NoneType"),
        ('{"windows": ["mon 8-9x"]}', "window 'mon 8-9x': malformed time '9x'"),
    ],
)
def test_json_that_is_no_calendar_is_refused(text: str, cause: str) -> None:
    with pytest.raises(PlanError) as caught:
        weekly_from_json(text)
    assert str(caught.value).startswith("windows from the broker: ")
    assert cause in str(caught.value)


# --- what is left out, what is closed, and ranges of dates ------------------------------------------------------------


def test_times_may_be_hours() -> None:
    assert hours(weekly("mon 9-16", "tue 9:30-16")) == [(9, 16), (33.5, 40)]


def excepting(windows: object, cuts: object, **more: object) -> Weekly:
    return weekly_from_table({"windows": windows, "except": cuts, "zone": BRUSSELS} | more, "lab.toml")


def test_what_is_excepted_is_cut_out_of_the_windows_of_every_week() -> None:
    plan = excepting("mon-fri 08:00-18:00", ["tue 10-12", "fri 17-24"])
    assert hours(plan) == [(8, 18), (32, 34), (36, 42), (56, 66), (80, 90), (104, 113)]
    assert plan.describe() == "mon-fri 08:00-18:00, except tue 10-12, fri 17-24 (Europe/Brussels)"


def test_what_is_excepted_is_cut_out_of_nights_too() -> None:
    assert hours(excepting("mon 18-08", "tue 06-07")) == [(18, 30), (31, 32)]
    assert hours(excepting("mon 18-08", "mon 22-06")) == [(18, 22), (30, 32)]
    assert hours(excepting("mon 18-08", ["mon 22-06", "tue 05-08"])) == [(18, 22)], "exceptions may overlap"
    assert hours(excepting("sun 18-08", "mon 00-01"), SUNDAY) == [(18, 24), (25, 32)]


def test_of_a_date_nothing_is_excepted() -> None:
    plan = excepting("mon 18-08", "tue 06-07", dates={"2026-11-17": "05:00-06:30"})
    assert hours(plan) == [(18, 30.5), (31, 32)]


@pytest.mark.parametrize(
    ("windows", "cuts", "cause"),
    [
        ("mon 10-12", "mon 9-13", "no windows, and no dates that open"),
        ("mon 10-12", "sometimes", "except 'sometimes': expected days and times"),
        ("mon 10-12", 3, "except: expected text or a list of texts"),
    ],
)
def test_an_exception_that_makes_no_sense_is_refused(windows: object, cuts: object, cause: str) -> None:
    with pytest.raises(PlanError, match=cause):
        excepting(windows, cuts)


def test_what_is_closed_never_opens_unless_a_date_does() -> None:
    plan = weekly_from_table({"closed": True}, "lab.toml")
    assert (hours(plan), plan.over(at(MONDAY)), plan.describe()) == ([], True, "closed (local time)")
    plan = weekly_from_table({"closed": True, "dates": {"2026-11-18": "all day"}, "zone": BRUSSELS}, "lab.toml")
    assert hours(plan) == [(48, 72)]
    with pytest.raises(PlanError, match="closed = true leaves nothing for windows and except"):
        weekly_from_table({"closed": True, "windows": "mon 1-2"}, "lab.toml")
    with pytest.raises(PlanError, match="closed: expected true or false, got 1"):
        weekly_from_table({"closed": 1}, "lab.toml")


def test_a_range_of_dates_is_each_of_its_dates() -> None:
    plan = weekly("daily 10:00-11:00", dates={"2026-11-17..2026-11-19": "closed", "2026-11-21 .. 2026-11-22": "1-2"})
    assert hours(plan) == [(10, 11), (106, 107), (121, 122), (145, 146)]


def test_of_ranges_that_meet_the_shorter_one_counts() -> None:
    dates: dict[str, object] = {
        "2026-11-16..2026-11-22": "closed",
        "2026-11-17": "1-2",
        "2026-11-17..2026-11-18": "3-4",
    }
    assert hours(weekly("daily 10-11", dates=dates)) == [(25, 26), (51, 52)]


@pytest.mark.parametrize(
    ("dates", "cause"),
    [
        (["2026-11-17..2026-11-16"], "'2026-11-17..2026-11-16' ends before it starts"),
        (["2026-11-17.."], "malformed date ''"),
        (["2026-11-17..2026-11-18..2026-11-19"], "malformed date '2026-11-18..2026-11-19'"),
        (["2026-11-16..2026-11-17", "2026-11-17..2026-11-18"], "2026-11-17 is both in '2026-11-16..2026-11-17' and in"),
        (["2000-01-01..2999-12-31"], "more than 3,660 days"),
    ],
)
def test_a_range_of_dates_that_makes_no_sense_is_refused(dates: list[str], cause: str) -> None:
    with pytest.raises(PlanError) as caught:
        weekly("daily 10-11", dates=dict.fromkeys(dates, "closed"))
    assert cause in str(caught.value)
