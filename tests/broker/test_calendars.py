"""Calendars that ``windows.toml`` names: when they are read, what is kept of them, and what people are told."""

from contextlib import closing
from pathlib import Path

from deskgrid.broker.model.calendar_reader import CalendarTicket
from deskgrid.broker.work.calendars import AGAIN_S, CALENDARS, FETCH_S, PREFIX
from deskgrid.broker.work.home_watch import HomeWatch
from deskgrid.windows.calendar_process import answer
from deskgrid.windows.from_calendar import CalendarAnswer, CalendarRequest
from deskgrid.windows.windows_file import WINDOWS, windows_file
from tests.broker.office import Office

EVENT = "BEGIN:VEVENT\nUID:1\nSUMMARY:Class\nDTSTART:20270120T100000Z\nDTEND:20270120T110000Z\nEND:VEVENT\n"
ROOM = f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n{EVENT}END:VCALENDAR\n"
PLAN = '["lab-*"]\nwindows = "room.ics"\n'


class Reader:
    """Reads calendars at once, or says what a test wants. ``waits``: not yet."""

    def __init__(self) -> None:
        self.asked: list[CalendarRequest] = []
        self.answer: CalendarAnswer | None = None
        self.waits = False
        self.tickets: list[CalendarTicket] = []

    def read(self, request: CalendarRequest) -> CalendarTicket:
        self.asked.append(request)
        ticket = CalendarTicket(None if self.waits else self.answer or answer(request))
        self.tickets.append(ticket)
        return ticket


class Room:
    """A broker whose file names a calendar."""

    def __init__(self, office: Office) -> None:
        self.state = office.sessions.state
        self.state.windows_file = windows_file(self.state.journal.home)
        self.reader = Reader()
        self.state.calendar_reader = self.reader
        self.watch = HomeWatch(self.state, office.sessions.workers, office.sessions.usage)
        self.watch.restore()

    def look(self, now: float) -> str:
        """The windows of a PC, after two looks: one that asks, and one that takes."""
        self.watch.look(now)
        self.watch.look(now)
        return self.state.windows_file.content.table_for("lab-1") or ""


def test_a_calendar_is_read_and_its_windows_reach_workers(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(PLAN)
    (tmp_path / "room.ics").write_text(ROOM)
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        room.reader.waits = True
        worker = office.worker("lab-1")
        assert room.look(0.0) == '{"closed": true}'
        assert len(room.reader.asked) == 1, "it is asked for once"
        assert worker.join().windows == '{"closed": true}'
        room.reader.tickets[0].answer = answer(room.reader.asked[0])
        assert '"2027-01-20": ["10:00-11:00"]' in room.look(1.0)
        assert "when something is in room.ics" in room.state.windows_file.content.said_for("lab-1")
        assert room.state.problems == []


def test_a_file_is_read_when_it_changes_and_a_calendar_hourly(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(PLAN)
    (tmp_path / "room.ics").write_text(ROOM)
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        room.look(0.0)
        room.look(FETCH_S - 1.0)
        assert len(room.reader.asked) == 1
        room.look(FETCH_S)
        assert len(room.reader.asked) == 2
        (tmp_path / "room.ics").write_text(ROOM.replace("T11", "T12") + "\n")
        assert '"2027-01-20": ["10:00-12:00"]' in room.look(FETCH_S + 1.0)
        (tmp_path / WINDOWS).write_text(PLAN + 'grace = "1h"\n')
        assert '"grace": "1h"' in room.look(FETCH_S + 2.0)


def test_while_a_calendar_cannot_be_read_what_was_read_last_counts(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(PLAN)
    (tmp_path / "room.ics").write_text(ROOM)
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        before = room.look(0.0)
        (tmp_path / "room.ics").write_text("<html>please log in</html>")
        assert room.look(60.0) == before
        (problem,) = room.state.problems
        assert problem.startswith("windows.toml: [lab-*] room.ics has failed since ")
        assert "not a calendar" in problem
        assert "; what was fetched on " in problem
        assert any("home-file-wrong" in line for line in room.state.take_notices())
        asked = len(room.reader.asked)
        room.look(60.0 + AGAIN_S)
        assert len(room.reader.asked) == asked + 1
        (tmp_path / "room.ics").write_text(ROOM)
        room.look(90.0 + AGAIN_S)
        assert room.state.problems == []


def test_what_was_read_survives_a_restart_without_the_calendar(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(PLAN)
    (tmp_path / "room.ics").write_text(ROOM)
    with closing(Office(tmp_path)) as office:
        before = Room(office).look(0.0)
        office.settle()
    (tmp_path / "room.ics").unlink()
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        room.reader.waits = True
        assert room.look(0.0) == before, "before anything was read"
        assert room.reader.asked[0].text == ROOM
        room.reader.tickets[0].answer = answer(room.reader.asked[0])
        assert room.look(1.0) == before
        assert "there is no file" in room.state.problems[0]


def test_an_answer_of_the_server_is_sent_with_the_next_question(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text('["lab-*"]\nwindows = "https://example.org/secret.ics"\n')
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        room.reader.answer = CalendarAnswer(etag='"1"', modified="yesterday", text=ROOM)
        room.look(0.0)
        room.reader.answer = CalendarAnswer(etag='"1"', modified="yesterday")
        room.look(FETCH_S)
        request = room.reader.asked[1]
        assert (request.etag, request.modified, request.text) == ('"1"', "yesterday", ROOM)
        assert "secret" not in room.state.windows_file.content.describe()


def test_a_calendar_that_was_never_read_closes_its_pcs_and_people_are_told(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(PLAN)
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        assert room.look(0.0) == '{"closed": true}'
        (problem,) = room.state.problems
        assert "until it can be read, its PCs have the windows that they had before, or are closed" in problem


def test_a_change_of_the_file_stops_nothing_while_its_calendar_is_read(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text('["lab-*"]\nwindows = "daily 20-07"\n')
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        room.look(0.0)
        (tmp_path / WINDOWS).write_text(PLAN)
        assert room.look(1.0) == '{"windows": "daily 20-07"}'


def test_doubts_are_said_and_forgotten_with_the_calendar(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(PLAN + 'events = "nothing*"\n')
    (tmp_path / "room.ics").write_text(ROOM)
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        room.look(0.0)
        said = "windows.toml: [lab-*] room.ics: no event is called 'nothing*' in the coming weeks: PCs are closed"
        assert room.state.problems == [said]
        assert PREFIX + "room.ics" in room.state.journal.recovery.home_files()
        (tmp_path / WINDOWS).unlink()
        room.look(1.0)
        assert room.state.problems == []
        assert PREFIX + "room.ics" not in room.state.journal.recovery.home_files()


def test_too_many_calendars_are_not_read(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text("".join(f'["lab-{n}"]\nwindows = "{n}.ics"\n' for n in range(CALENDARS + 2)))
    with closing(Office(tmp_path)) as office:
        room = Room(office)
        room.reader.waits = True
        room.look(0.0)
        assert len(room.reader.asked) == CALENDARS
        assert room.state.problems == ["windows.toml: more than 100 calendars: PCs of the last 2 are closed"]


def test_what_another_version_has_kept_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(PLAN)
    (tmp_path / "room.ics").write_text(ROOM)
    with closing(Office(tmp_path)) as office:
        for text in ("oops", '{"other": 1}\n'):
            office.journal.keep_file(PREFIX + "room.ics", text)
            assert '"2027-01-20": ["10:00-11:00"]' in Room(office).look(0.0)
