"""Calendars from servers: real ones, on this machine, that do all that servers do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deskgrid.windows import calendar_process, fetch
from deskgrid.windows.calendar_process import read_in_process
from deskgrid.windows.fetch import CALENDAR_BYTES, Fetched
from deskgrid.windows.from_calendar import CalendarRequest
from deskgrid.windows.ical import CalendarError

TEXT = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nEND:VCALENDAR\r\n"


class CalendarServer(ThreadingHTTPServer):
    """Answers by the path that is asked for. ``hung``: lets the answers that hang go."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.hung = threading.Event()
        self.asked: list[str] = []

    def address(self, path: str, host: str = "127.0.0.1") -> str:
        """The address of a calendar here."""
        return f"http://{host}:{self.server_address[1]}/{path}"


class _Answers(BaseHTTPRequestHandler):
    server: CalendarServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        with suppress(OSError):  # the other side had enough
            getattr(self, self.path[1:].replace("-", "_"))()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _say(self, code: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def room(self) -> None:
        if self.headers.get("If-None-Match") == '"1"' and self.headers.get("If-Modified-Since") == "yesterday":
            self._say(304)
        else:
            self._say(200, TEXT.encode(), ETag='"1"', Last_Modified="yesterday")

    def moved(self) -> None:
        self._say(301, Location="/room")

    def to_file(self) -> None:
        self._say(302, Location="file:///etc/passwd")

    def to_ftp(self) -> None:
        self._say(302, Location="ftp://127.0.0.1/x")

    def elsewhere(self) -> None:
        self._say(302, Location=self.server.address("room", "localhost"))

    def in_circles(self) -> None:
        self._say(302, Location="/in-circles")

    def broken(self) -> None:
        self._say(500)

    def not_modified(self) -> None:
        self._say(304)

    def binary(self) -> None:
        self._say(200, b"\xff\xfe\x00")

    def declared(self) -> None:
        self._say(200, Content_Length=str(50 * 2**20))

    def short(self) -> None:
        self._say(200, TEXT.encode(), Content_Length=str(len(TEXT) + 1))

    def endless(self) -> None:
        self._say(200)
        while not self.server.hung.is_set():
            self.wfile.write(b"x" * 2**16)

    def hangs(self) -> None:
        self.server.hung.wait()

    def trickles(self) -> None:
        self._say(200)
        while not self.server.hung.wait(0.01):
            self.wfile.write(b"x")
            self.wfile.flush()


@contextmanager
def served() -> Iterator[CalendarServer]:
    server = CalendarServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.hung.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CalendarServer]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with served() as running:
        yield running


def read(address: str, etag: str = "", modified: str = "") -> Fetched:
    return fetch.fetch(address, Path(), etag, modified)


def test_a_calendar_is_fetched_again_only_if_it_has_changed(server: CalendarServer) -> None:
    first = read(server.address("room"))
    assert first == Fetched(TEXT, '"1"', "yesterday")
    assert read(server.address("room"), first.etag, first.modified) == Fetched(None, '"1"', "yesterday")
    assert read(server.address("room"), '"0"', "yesterday").text == TEXT


def test_a_server_is_followed_to_another_place_on_itself(server: CalendarServer) -> None:
    assert read(server.address("moved")).text == TEXT


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("to-file", "the server answered 302 Found - Redirection"),
        ("to-ftp", "the server sends us to ftp://127.0.0.1"),
        ("elsewhere", "the server sends us to http://localhost"),
        ("in-circles", "the server answered 302"),
        ("broken", "the server answered 500 Internal Server Error"),
        ("not-modified", "the server answered 304"),
        ("binary", "it is not text in UTF-8"),
        ("declared", "it has 52,428,800 bytes; the limit is 4,194,304"),
        ("endless", "it has more than 4,194,304 bytes"),
        ("short", "the server said less than it had promised"),
    ],
)
def test_what_a_server_may_not_do(server: CalendarServer, path: str, message: str) -> None:
    with pytest.raises(CalendarError) as error:
        read(server.address(path))
    assert str(error.value).startswith(message)
    assert "/room" not in server.asked, "nobody else was asked"


def test_a_server_that_says_nothing_is_given_up(server: CalendarServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "SILENCE_S", 0.05)
    with pytest.raises(CalendarError, match=r"said nothing for 0\.05 s|timed out"):
        read(server.address("hangs"))


def test_a_server_that_is_not_there_is_named_by_nothing_secret() -> None:
    with served() as gone:
        address = gone.address("secret")
    with pytest.raises(CalendarError, match=r"^the server cannot be reached: [A-Z][a-z]") as error:
        read(address)
    assert "secret" not in str(error.value)


def test_a_server_that_says_a_byte_now_and_then_has_its_time(
    server: CalendarServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendar_process, "LIMIT_S", 2.0)
    told = read_in_process(CalendarRequest(server.address("trickles"), "", 0.0, 1.0, []))
    assert told.error == "it takes more than 2 s to read it"


def test_a_file_of_50_mb_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "room.ics").open("wb") as file:
        file.truncate(50 * 2**20)
    with pytest.raises(CalendarError, match=f"more than {CALENDAR_BYTES:,} bytes"):
        fetch.fetch("room.ics", tmp_path, "", "")
