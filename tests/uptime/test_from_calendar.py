"""Windows from calendars: each trap that calendars hold has a file in ``calendars/``."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from deskgrid.windows.calendar_process import Process, answer, read_in_process
from deskgrid.windows.from_calendar import CalendarAnswer, CalendarRequest, horizon, shown
from deskgrid.windows.ical import EVENT_S, MISSING, CalendarError, read_calendar
from deskgrid.windows.weekly import PlanError
from deskgrid.windows.windows_file import calendar_of, read_tables

CALENDARS = Path(__file__).parent / "calendars"
MONDAY = "2026-11-16"
ALL_WEEK = "2026-11-15", "2026-11-22"
BRUSSELS = ZoneInfo("Europe/Brussels")


def posix(day: str) -> float:
    """The midnight of a day, in UTC."""
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def made(name: str, around: str = MONDAY, /, **table: object) -> CalendarAnswer:
    """What comes of a table with the calendar in this file."""
    whole = json.dumps({"zone": "Europe/Brussels", "windows": f"{name}.ics", **table})
    return answer(CalendarRequest(f"{name}.ics", str(CALENDARS), *horizon(posix(around)), [whole]))


def times(told: CalendarAnswer, first: str = ALL_WEEK[0], last: str = ALL_WEEK[1]) -> list[str]:
    """The windows for workers between two days, in the local time of Brussels."""
    assert not told.error
    (table,) = told.made.values()
    calendar = calendar_of(table, "test")
    day = datetime.fromisoformat(first).date()
    windows = calendar.windows(day, (datetime.fromisoformat(last).date() - day).days)
    return [
        f"{datetime.fromtimestamp(opening, BRUSSELS):%d %H:%M} {datetime.fromtimestamp(closing, BRUSSELS):%d %H:%M}"
        for opening, closing in windows
    ]


def test_pcs_are_there_during_events_or_when_there_is_none() -> None:
    assert times(made("weekly_class")) == ["17 10:00 17 12:00", "19 14:00 19 17:00"]
    free = made("weekly_class", invert=True, lead="10m")
    assert times(free, "2026-11-16", "2026-11-20") == ["16 01:00 17 09:50", "17 12:00 19 13:50", "19 17:00 20 01:00"]


def test_only_events_of_a_name_count() -> None:
    assert times(made("weekly_class", events="lecture*")) == ["17 10:00 17 12:00"]
    assert times(made("weekly_class", events=["EXAM", "x"])) == ["19 14:00 19 17:00"]
    told = made("weekly_class", events="seminar*")
    assert told.doubts == ["weekly_class.ics: no event is called 'seminar*' in the coming weeks: PCs are closed"]


def test_exceptions_cut_and_dates_replace() -> None:
    dates = {"2026-11-19": "08-09", "2026-11-20": "all day"}
    expected = ["17 10:00 17 11:00", "17 11:30 17 12:00", "19 08:00 19 09:00", "20 00:00 21 00:00"]
    assert times(made("weekly_class", MONDAY, **{"except": "tue 11-11:30", "dates": dates})) == expected
    assert times(made("weekly_class", dates={"2026-11-17": "closed"})) == ["19 14:00 19 17:00"]


def test_a_table_for_workers_has_windows_for_eight_weeks_and_the_other_keys() -> None:
    told = made("weekly_class", owner="leave", grace="30m")
    (text,) = told.made.values()
    table = json.loads(text)
    assert (table["owner"], table["grace"], table["zone"], table["closed"]) == ("leave", "30m", "UTC", True)
    assert list(table["dates"])[-1] == "2027-01-12"
    assert told.made == made("weekly_class", "2026-11-19", owner="leave", grace="30m").made, "it changes once a week"
    said = calendar_of(text, "test").describe()
    assert said == "when something is in weekly_class.ics; grace 30 min (Europe/Brussels)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cancelled_and_transparent", ["17 13:00 17 14:00"]),
        ("unknown_zone", ["17 10:00 17 11:00"]),
        ("zone_of_its_own", ["17 08:00 17 09:00"]),
        ("until_is_a_date", ["17 10:00 17 11:00", "18 10:00 18 11:00", "19 10:00 19 11:00"]),
        ("moved_and_cancelled_occurrences", ["16 10:00 16 11:00", "20 10:00 20 11:00", "21 15:00 21 17:00"]),
        ("one_bad_rule", ["17 09:00 17 10:00", "17 11:00 17 12:00"]),
        ("every_second", ["17 09:00 17 10:00"]),
        ("interval_of_nothing", ["17 09:00 17 10:00"]),
        ("wrong_start", ["17 11:00 17 12:00"]),
        ("all_day", ["17 00:00 19 00:00"]),
        ("floating", ["17 10:00 17 11:00"]),
        ("over_midnight", ["17 22:00 18 02:00"]),
    ],
)
def test_the_times_of_events(name: str, expected: list[str]) -> None:
    assert times(made(name)) == expected


def test_an_event_in_the_gap_of_summer_time_begins_when_clocks_change() -> None:
    assert times(made("in_the_gap", "2026-03-25"), "2026-03-28", "2026-03-31") == ["29 03:00 29 04:00"]


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("unknown_zone", "unknown zone Campus Time: taken for the zone of the table"),
        ("one_bad_rule", "only the first time counts of 'Bad': nobody can say when it repeats"),
        ("every_second", "only the first time counts of 'Tick': nobody can say when it repeats"),
        ("wrong_start", "left out, because its times are wrong: 'Nowhen'"),
    ],
)
def test_people_are_told_what_is_wrong_with_an_event(name: str, doubt: str) -> None:
    assert made(name).doubts == [f"{name}.ics: {doubt}"]


def test_what_is_no_calendar_or_not_whole_is_refused() -> None:
    error = made("login_page").error
    assert error.startswith("not a calendar: it begins with '<!DOCTYPE html>")
    assert error.endswith("it is a page for a browser, maybe one to log in")
    assert made("cut_short").error == "not a whole calendar: its end is missing"
    assert made("empty").error == "it is empty"
    assert made("missing").error == f"there is no file {CALENDARS / 'missing.ics'}"
    assert "it is not a file" in answer(CalendarRequest(".", str(CALENDARS), 0.0, 1.0, [])).error


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of a process")
def test_an_event_that_takes_too_long_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from deskgrid.windows import ical

    def stuck(event: object) -> None:
        while "tick" in str(event).lower():
            pass

    assert EVENT_S > 0.1
    monkeypatch.setattr(ical, "EVENT_S", 0.05)
    monkeypatch.setattr(ical, "_check_rule", stuck)
    assert times(made("every_second")) == ["17 09:00 17 10:00"]


def test_too_many_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.windows.ical.OCCURRENCES", 3)
    assert made("weekly_class").error == "more than 3 events in the coming weeks"


def test_too_many_windows_close_the_weeks_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.windows.from_calendar.TABLE_BYTES", 2_040)
    told = made("weekly_class")
    assert times(told) == ["17 10:00 17 12:00"]
    assert told.doubts == ["weekly_class.ics: too many windows: closed from 2026-11-19 on"]


def test_a_calendar_without_events_is_doubtful() -> None:
    told = made("in_the_gap", invert=True)
    assert told.doubts == ["in_the_gap.ics: it has no events in the coming weeks: PCs are always there"]


def test_what_was_kept_counts_if_the_calendar_cannot_be_read() -> None:
    whole = json.dumps({"zone": "Europe/Brussels", "windows": "login_page.ics"})
    kept = (CALENDARS / "all_day.ics").read_text(encoding="utf-8")
    span = horizon(posix(MONDAY))
    told = answer(CalendarRequest("login_page.ics", str(CALENDARS), *span, [whole], text=kept))
    assert told.error.startswith("not a calendar")
    assert told.text is None
    assert '"2026-11-17": ["00:00-24:00"]' in told.made[whole]


def test_what_was_kept_counts_if_the_process_that_reads_the_calendar_is_ended() -> None:
    whole = json.dumps({"zone": "Europe/Brussels", "windows": "weekly_class.ics"})
    kept = (CALENDARS / "all_day.ics").read_text(encoding="utf-8")
    request = CalendarRequest("weekly_class.ics", str(CALENDARS), *horizon(posix(MONDAY)), [whole], "tag", text=kept)
    processes: list[Process] = []

    def started(process: Process) -> None:
        if not processes:
            process.kill()
        processes.append(process)

    told = read_in_process(request, started)
    assert told.error.startswith("the process that reads it has ended")
    assert (told.text, told.etag, len(processes)) == (None, "", 2)
    assert '"2026-11-17": ["00:00-24:00"]' in told.made[whole]


def test_without_the_libraries_people_are_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "recurring_ical_events", None)
    with pytest.raises(CalendarError, match="pip install icalendar recurring-ical-events"):
        read_calendar((CALENDARS / "all_day.ics").read_text(encoding="utf-8"), 0.0, 1.0)
    assert "where the broker runs" in MISSING


def test_a_process_reads_a_calendar_as_it_is_read_here() -> None:
    whole = json.dumps({"windows": "weekly_class.ics"})
    request = CalendarRequest("weekly_class.ics", str(CALENDARS), *horizon(posix(MONDAY)), [whole])
    assert read_in_process(request) == answer(request)


def test_what_is_said_of_a_calendar_is_one_line_that_no_terminal_obeys(tmp_path: Path) -> None:
    (tmp_path / "room.ics").write_text("BEGIN:VCALENDAR\n\x1b]0;taken\x07\u202e\nEND:VCALENDAR\n")
    told = read_in_process(CalendarRequest("room.ics", str(tmp_path), 0.0, 1.0, []))
    assert "?]0;taken?" in told.error
    assert told.error.isprintable()


def test_a_process_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.windows.calendar_process.LIMIT_S", 0.0)
    told = read_in_process(CalendarRequest("all_day.ics", str(CALENDARS), 0.0, 1.0, []))
    assert told.error == "it takes more than 0 s to read it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('windows = "a.ics"\ninvert = 1', "invert: expected true or false"),
        ('windows = "a.ics"\ninvert = true\nlead = "soon"', "lead: expected a duration below a day"),
        ('windows = "a.ics"\ninvert = true\nlead = 600', "lead: expected a duration below a day"),
        ('windows = "a.ics"\nlead = "10m"', "lead needs invert = true"),
        ('windows = "a.ics"\nclosed = true', "closed = true leaves nothing"),
        ('windows = "a.ics"\nevents = 3', "events: expected text"),
        ('windows = "https://"', "no address of a calendar"),
        ('windows = "https://[x/a"', "no address of a calendar"),
        ('windows = "https://me:secret@host/a"', "an address with a name or a password in it"),
        ('windows = ["a.ics", "b.ics"]', "a calendar stands alone"),
        ('windows = "daily 20-07"\ninvert = true', "invert is for windows from a calendar"),
        ('windows = "a.ics"\nexcept = "tue"', "except"),
        ('windows = "a.ics"\ndates."2026-11-17" = "oops"', "malformed times"),
        ('windows = "a.ics"\nzone = "Nowhere"', "unknown zone"),
        ('window = "a.ics"', "unknown key 'window' (known: zone, windows, except, closed, dates, grace, invert"),
    ],
)
def test_what_a_table_may_not_say(text: str, message: str) -> None:
    import tomllib

    with pytest.raises(PlanError) as error:
        read_tables(tomllib.loads(f'["room-*"]\n{text}'))
    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_until_a_calendar_has_been_read_its_pcs_keep_their_windows_or_are_closed() -> None:
    before = read_tables({"a-*": {"windows": "daily 20-07"}})
    planned = read_tables({name: {"windows": "room.ics", "owner": "leave"} for name in ("a-*", "b-*")})
    assert planned.describe().startswith("[a-*] closed until room.ics has been read")
    resolved = planned.with_calendars({}, before)
    assert resolved.table_for("a-1") == '{"windows": "daily 20-07"}'
    assert resolved.table_for("b-1") == '{"closed": true, "owner": "leave"}'


def test_an_address_is_shown_without_its_secret() -> None:
    assert shown("https://example.org/private-123/basic.ics") == "the calendar at example.org"
    assert shown("calendars/room.ics") == "room.ics"


def test_times_of_a_file_for_one_pc_come_from_no_calendar() -> None:
    from deskgrid.worker.windows.uptime import weekly_from_table

    with pytest.raises(PlanError, match="only in the broker's windows"):
        weekly_from_table({"windows": "room.ics"}, "pc.toml")
