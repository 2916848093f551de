"""The web server by its sockets: what it answers, and what it withstands."""

import gzip
import json
import logging
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from deskgrid.errors import GridUnreachable, RequestFailed
from deskgrid.web import server as web
from deskgrid.web.access import Access
from tests.screen.builders import asked, bag, lab, snapshot, worker
from tests.waiting import eventually
from tests.web.rig import TOKEN, Site, all_of, site

EVENTS = {"events": [], "after": 0}


@pytest.fixture
def shown() -> Iterator[Site]:
    answers: dict[str, Any] = {"events_all": EVENTS, "progress": dict(bag()), "worker": "no worker x"}
    with site(asked(lab(30), **answers)) as found:
        yield found


# --- who is let in ---------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_of_the_grid_is_shown(shown: Site) -> None:
    for path in ("/", "/live", "/metrics", "/history", "/events", "/ask/progress?bag=x", "/nothing"):
        answer, body = shown.get(path, Authorization="")
        assert answer.status == 401
        assert b"lab3" not in body


def test_the_link_gives_a_cookie_and_leaves_no_token_in_the_address(shown: Site) -> None:
    answer, _ = shown.get(f"/?token={TOKEN}", Authorization="")
    assert (answer.status, answer.getheader("Location")) == (303, "./")
    cookie = answer.getheader("Set-Cookie", "")
    assert "HttpOnly" in cookie
    assert TOKEN not in cookie
    page, body = shown.get("/", Authorization="", Cookie=cookie.partition(";")[0])
    assert page.status == 200
    assert b'src="page.js"' in body
    assert json.loads(shown.get("/ask/progress?bag=x", Authorization="", Cookie=cookie)[1])["name"] == "sweep"


def test_a_proxy_that_speaks_https_makes_the_cookie_secure(shown: Site) -> None:
    answer, _ = shown.get(f"/?token={TOKEN}", X_Forwarded_Proto="https")
    assert "Secure" in answer.getheader("Set-Cookie", "")


def test_a_wrong_token_gives_no_cookie(shown: Site) -> None:
    for path in ("/?token=wrong", "/?token=", f"/?token={TOKEN}x"):
        answer, _ = shown.get(path, Authorization="")
        assert answer.status == 401
        assert answer.getheader("Set-Cookie") is None
    assert shown.get("/metrics", Authorization="Bearer wrong")[0].status == 401


def test_a_stolen_cookie_of_an_old_token_lets_nobody_in(shown: Site) -> None:
    old = Access("another-token-of-last-year-long-enough", f"deskgrid-{shown.port}")
    cookie = old.cookie(4e9, secure=False).partition(";")[0]
    assert shown.get("/live", Authorization="", Cookie=cookie)[0].status == 401


def test_a_name_that_was_made_to_lead_here_is_refused(shown: Site) -> None:
    answer, body = shown.get("/metrics", Host="evil.example")
    assert answer.status == 421
    assert b"deskgrid_up" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_nothing_but_get_is_answered(shown: Site, method: str) -> None:
    answer, _ = shown.get("/ask/progress?bag=x", method)
    assert answer.status == 405
    assert answer.getheader("Allow") == "GET, HEAD"
    assert answer.getheader("Access-Control-Allow-Origin") is None


def test_head_has_no_body(shown: Site) -> None:
    answer, body = shown.get("/page.js", "HEAD")
    assert (answer.status, body) == (200, b"")


# --- what is answered ------------------------------------------------------------------------------------------------


def test_every_answer_tells_the_browser_to_be_careful(shown: Site) -> None:
    for path in ("/", "/page.js", "/metrics", "/nothing", "/history"):
        answer, _ = shown.get(path)
        assert answer.getheader("Cache-Control") == "no-store"
        policy = answer.getheader("Content-Security-Policy", "")
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert "Python" not in answer.getheader("Server", "")


def test_the_page_names_nothing_of_the_internet(shown: Site) -> None:
    for name in web.TYPES:
        body = web._file(name).decode().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in body
        assert "innerHTML =" not in body


@pytest.mark.parametrize(
    "path",
    [
        "/../access.py", "/%2e%2e/access.py", "/page/../../access.py", "/..%2faccess.py", "//etc/passwd", "/token.html",
        "/ask/", "/ask/cancel?bag=x", "/ask/keys", "/ask/../metrics", "/page.html/../server.py",
    ],
)  # fmt: skip
def test_other_files_and_orders_are_not_to_be_had(shown: Site, path: str) -> None:
    answer, body = shown.get(path)
    assert answer.status == 404
    assert b"root:" not in body
    assert b"import" not in body


def test_no_question_that_is_shown_is_an_order() -> None:
    from deskgrid.wire.questions import QUESTIONS

    for what, takes in web.QUESTIONS.items():
        assert not QUESTIONS[what].order
        assert not QUESTIONS[what].writes
        assert set(takes) <= set(QUESTIONS[what].takes.fields)


def test_what_the_broker_refuses_is_said(shown: Site) -> None:
    answer, body = shown.get("/ask/worker?name=x")
    assert (answer.status, body) == (404, b"no worker x\n")


@pytest.mark.parametrize("query", ["item=x", "other=1", "bag=a&other=1", "&".join(f"a{n}=1" for n in range(9))])
def test_a_question_with_wrong_arguments_is_refused(shown: Site, query: str) -> None:
    assert shown.get(f"/ask/explain?{query}")[0].status == 400


def test_a_broker_that_is_away_is_said() -> None:
    document = snapshot([worker()])

    def ask(what: str, args: dict[str, Any]) -> dict[str, Any]:
        if what == "plan":
            raise GridUnreachable("no answer")
        return EVENTS if what == "events all" else dict(document)

    with site(ask) as shown:
        assert shown.get("/ask/plan")[0].status == 503


def test_an_answer_is_packed_for_those_who_can_unpack_it(shown: Site) -> None:
    answer, body = shown.get("/page.js", Accept_Encoding="gzip")
    assert answer.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(body) == web._file("page.js")


@pytest.mark.parametrize("packed", [True, False])
def test_the_stream_brings_the_newest_state(shown: Site, packed: bool) -> None:
    with shown.open() as connection:
        accepts = b"Accept-Encoding: gzip\r\n" if packed else b""
        connection.sendall(
            b"GET /live HTTP/1.1\r\nHost: localhost\r\n" + accepts + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        reader = connection.makefile("rb")
        head = b"".join(iter(reader.readline, b"\r\n"))
        assert b"text/event-stream" in head
        unpack = zlib.decompressobj(wbits=31).decompress if packed else bytes
        text = b""
        while b"\n\n" not in text:
            text += unpack(reader.read1(65_536))
        kind, data = text.partition(b"\n\n")[0].split(b"\n")
        assert kind == b"event: status"
        assert len(json.loads(data.removeprefix(b"data: "))["workers"]) == 30
        reader.close()


def test_those_who_may_not_see_all_events_see_those_for_everybody() -> None:
    row = {"number": 7, "age_s": 60.0, "event": "worker-lost", "facts": {"name": "pc1"}}
    answers = iter([{"events": [row], "after": 7}])

    def ask(what: str, args: dict[str, Any]) -> dict[str, Any]:
        if what == "events all":
            raise RequestFailed("for admins")
        if what == "events":
            return next(answers, {"events": [], "after": 7})
        return dict(snapshot())

    with site(ask) as shown:
        (event,) = json.loads(shown.get("/events?after=3")[1])["events"]
        assert event["facts"] == {"name": "pc1"}
        assert json.loads(shown.get("/events?after=7")[1]) == {"events": []}


def test_many_who_ask_the_same_cost_one_question() -> None:
    questions: list[str] = []
    ask = asked(snapshot(), events_all=EVENTS, shares={"shares": []})

    def counting(what: str, args: dict[str, Any]) -> dict[str, Any]:
        questions.append(what)
        return ask(what, args)

    with site(counting) as shown:
        shown.watch._clock = lambda: 1e6  # time stands still
        for _ in range(20):
            assert shown.get("/ask/shares")[0].status == 200
        assert questions.count("shares") == 1


# --- what is withstood -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * 30_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 30_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: 1\r\n" * 2_900 + b"\r\n",
    ],
)
def test_a_huge_head_is_refused(shown: Site, request_head: bytes) -> None:
    assert shown.raw(request_head)[:13] in (b"HTTP/1.0 431 ", b"")  # the rest was not read, so it may be reset
    assert eventually(lambda: shown.places == web.CONNECTIONS)


@pytest.mark.parametrize(
    "request_head", [b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\xff\xfe\r\n\r\n"]
)
def test_what_is_no_request_does_no_harm(shown: Site, request_head: bytes) -> None:
    answer = shown.raw(request_head)
    assert b"200" not in answer.partition(b"\r\n")[0]
    assert shown.get("/metrics")[0].status == 200


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
def test_who_never_finishes_a_request_is_cut_off(
    shown: Site, said: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web, "HEAD_S", 0.2)
    with shown.open() as connection:
        connection.sendall(said)
        assert all_of(connection) == b""
    assert eventually(lambda: shown.places == web.CONNECTIONS)
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == [], "strangers do not fill a log"


def test_who_goes_while_a_refusal_is_sent_is_no_fault_of_the_server(
    shown: Site, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def gone(sending: object, data: bytes) -> int:
        raise ConnectionResetError

    with monkeypatch.context() as patched:
        patched.setattr(web._Sending, "write", gone)
        assert shown.raw(b"GET /" + b"x" * 30_000) == b""
        assert eventually(lambda: shown.places == web.CONNECTIONS)
    assert (capfd.readouterr().err, caplog.records) == ("", [])


def test_who_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "SEND_S", 0.2)
    with site(asked(lab(2_000), events_all=EVENTS)) as shown, shown.open() as connection:
        connection.sendall(f"GET /live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert eventually(lambda: shown.streams < web.STREAMS)
        assert eventually(lambda: shown.streams == web.STREAMS)


def test_the_number_of_streams_is_bounded(shown: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    while shown.server.streams.acquire(blocking=False):
        pass
    assert shown.get("/live")[0].status == 503
    assert shown.get("/metrics")[0].status == 200
    shown.server.streams.release(web.STREAMS)


def test_the_number_of_connections_is_bounded(shown: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert eventually(lambda: shown.places == web.CONNECTIONS)
    waiting = [shown.open() for _ in range(web.CONNECTIONS)]
    assert eventually(lambda: shown.places == 0)
    for _ in range(3):
        with shown.open() as more:
            assert all_of(more) == b""
    assert [record.getMessage() for record in caplog.records] == ["web-full turned-away=1 last=127.0.0.1"]
    for connection in waiting:
        connection.close()
    assert eventually(lambda: shown.places == web.CONNECTIONS)
    assert shown.get("/metrics")[0].status == 200
