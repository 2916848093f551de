"""The web server: the page, a stream of updates, answers about PCs, bags and tasks, and metrics.

Rule 1: it only answers GET (and HEAD), and only asks the broker; no request changes anything.
Rule 2: whoever connects can hold one of a bounded number of connections, for a bounded time, with a bounded request.
Rule 3: what comes from the grid is data, never HTML: it leaves as JSON or as text, and the page puts it in as text.
"""

import gzip
import http.client
import io
import json
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, urlsplit

from deskgrid.errors import DeskgridError, GridUnreachable
from deskgrid.web import metrics
from deskgrid.web.access import Access
from deskgrid.web.watch import GridWatch

log = logging.getLogger("deskgrid.web")

# Connections at a time, and how many of them may be streams.
CONNECTIONS = 128
STREAMS = 64
# A request's line and headers: bytes, and seconds until all of them are there.
HEAD_BYTES = 16_384
HEAD_S = 10.0
# How long a piece of an answer may take to leave. Then whoever does not read is cut off. Seconds.
SEND_S = 20.0
# What the kernel may hold for one who does not read. Bytes.
SEND_BYTES = 262_144
# A stream says at least this often that it is there. Seconds.
QUIET_S = 10.0
# How often at most the log says that there was no room for connections. Seconds.
TELL_S = 60.0

TYPES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# What may be asked about: the question, and its arguments with the type of each.
QUESTIONS: Mapping[str, Mapping[str, Callable[[str], Any]]] = {
    "worker": {"name": str},
    "plan": {},
    "shares": {},
    "bags": {"after": int},
    "progress": {"bag": str},
    "explain": {"bag": str, "item": int},
    "tasks": {"bag": str, "state": str, "after": int},
    "output": {"bag": str, "after": int},
    "logs": {"bag": str, "item": int},
}
# The beginning of a gzip stream, which the packed updates continue.
_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


@cache
def _file(name: str) -> bytes:
    return (files("deskgrid.web") / "page" / name).read_bytes()


class _Head(io.RawIOBase):
    """The request of a connection: at most `HEAD_BYTES` of it, within `HEAD_S`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = HEAD_BYTES
        self._until = time.monotonic() + HEAD_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._until - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        if self._left <= 0:
            raise http.client.LineTooLong("request")
        self._connection.settimeout(left_s)
        read = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= read
        return read


class _Handler(BaseHTTPRequestHandler):
    server: "WebServer"
    server_version, sys_version = "deskgrid", ""

    def setup(self) -> None:
        self.connection = self.request
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self.rfile = io.BufferedReader(_Head(self.connection))
        self.wfile = _Sending(self.connection)

    def handle_one_request(self) -> None:
        self.close_connection = True
        try:
            self._read_and_answer()
        except ConnectionError:
            pass  # the browser has gone
        except TimeoutError as error:
            self.log_error("%s", error)
        except Exception:
            log.exception("web-request-failed peer=%s", self.client_address[0])  # it concerns this connection only

    def _read_and_answer(self) -> None:
        try:
            super().handle_one_request()
        except http.client.HTTPException:
            self._end(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")

    # What anybody can bring about as often as they like is only for who looks for it: a log does not fill a disk.

    def log_error(self, format: str, *args: Any) -> None:
        """The time of a connection is over: nothing else is an error to the library."""
        log.debug("web-cut-off peer=%s", self.client_address[0])

    def log_message(self, format: str, *args: Any) -> None:
        # Not the path: it may have the token.
        log.debug("web-request peer=%s method=%s", self.client_address[0], getattr(self, "command", None))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be read, in the style of all others."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._end(status, status.phrase)

    # --- requests ----------------------------------------------------------------------------------------------------

    def do_HEAD(self) -> None:
        """Answer as to GET, without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a request."""
        access, now = self.server.access, time.time()
        if not access.is_host(self.headers.get("Host", "")):
            self._end(HTTPStatus.MISDIRECTED_REQUEST, "this server is not known by this name")
            return
        try:
            url = urlsplit(self.path)
            given = parse_qs(url.query, keep_blank_values=True, max_num_fields=8)
        except ValueError:
            self._end(HTTPStatus.BAD_REQUEST, "such a query cannot be read")
            return
        query = {name: values[-1] for name, values in given.items()}
        name = url.path.lstrip("/") or "page.html"
        known = access.is_cookie(self.headers.get("Cookie", ""), now)
        if name == "page.html" and "token" in query:
            self._let_in(query["token"].strip(), now)
        elif name in TYPES and (known or name != "page.html"):
            self._send(_file(name), TYPES[name])
        elif known or access.is_bearer(self.headers.get("Authorization", "")):
            self._answer(name, query)
        elif name == "page.html":
            self._send(_file("token.html"), "text/html", HTTPStatus.UNAUTHORIZED)
        else:
            self._end(HTTPStatus.UNAUTHORIZED, "a token is needed")

    def _let_in(self, token: str, now: float) -> None:
        """Exchange the token for a cookie, and send the browser to an address without it."""
        if not self.server.access.is_token(token):
            self._send(_file("token.html"), "text/html", HTTPStatus.UNAUTHORIZED)
            return
        secure = self.headers.get("X-Forwarded-Proto") == "https"
        self._send(b"", "text/plain", HTTPStatus.SEE_OTHER, {
            "Location": "./", "Set-Cookie": self.server.access.cookie(now, secure=secure)
        })  # fmt: skip

    def _answer(self, name: str, query: dict[str, str]) -> None:
        watch = self.server.watch
        if name == "live":
            self._stream()
        elif name == "metrics":
            text = metrics.text(watch.document(), watch.estimates.counts)
            self._send(text.encode(), "text/plain; version=0.0.4")
        elif name == "history":
            self._send_json(watch.history())
        elif name == "events":
            self._send_json(
                {"events": watch.events(int(after) if (after := query.get("after", "")).isdecimal() else 0)}
            )
        elif name.removeprefix("ask/") in QUESTIONS and name.startswith("ask/"):
            self._ask(name.removeprefix("ask/"), query)
        else:
            self._end(HTTPStatus.NOT_FOUND, "there is no such page")

    def _ask(self, what: str, query: dict[str, str]) -> None:
        takes = QUESTIONS[what]
        try:
            args = {name: takes[name](text) for name, text in query.items()}
        except (KeyError, ValueError):
            self._end(HTTPStatus.BAD_REQUEST, f"{what} takes: {', '.join(takes) or 'nothing'}")
            return
        try:
            self._send(self.server.watch.answer(what, args), "application/json")
        except GridUnreachable:
            self._end(HTTPStatus.SERVICE_UNAVAILABLE, "the broker does not answer")
        except DeskgridError as error:
            self._end(HTTPStatus.NOT_FOUND, str(error))

    # --- answers -----------------------------------------------------------------------------------------------------

    def _stream(self) -> None:
        """Send what is published, as it comes, until the browser goes or does not read."""
        if not self.server.streams.acquire(blocking=False):
            self._end(HTTPStatus.SERVICE_UNAVAILABLE, "too many look already")
            return
        try:
            with self.server.watch.looking():
                self._stream_all()
        finally:
            self.server.streams.release()

    def _stream_all(self) -> None:
        packs = self._takes_gzip()
        self._head(HTTPStatus.OK, "text/event-stream", {"X-Accel-Buffering": "no"}, packs)
        self.wfile.write(_GZIP if packs else b"")
        after = 0
        while self.command != "HEAD" and not self.server.ends.is_set():
            news = self.server.watch.updates(after, QUIET_S)
            for update in news:
                self.wfile.write(update.packed if packs else update.plain)
                after = update.number
            if not news:
                self.wfile.write(b"\x00\x00\x00\xff\xff" if packs else b":\n\n")  # an empty piece of deflate

    def _takes_gzip(self) -> bool:
        return "gzip" in self.headers.get("Accept-Encoding", "")

    def _send_json(self, value: object) -> None:
        self._send(json.dumps(value, separators=(",", ":")).encode(), "application/json")

    def _end(self, status: HTTPStatus, text: str) -> None:
        self._send(f"{text}\n".encode(errors="replace"), "text/plain", status)

    def _send(
        self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, more: Mapping[str, str] | None = None
    ) -> None:
        packs = len(body) > 1_000 and self._takes_gzip()
        body = gzip.compress(body, 4) if packs else body
        self._head(status, kind, {**(more or {}), "Content-Length": str(len(body))}, packs)
        if getattr(self, "command", None) != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, more: Mapping[str, str], packs: bool) -> None:
        self.requestline = getattr(self, "requestline", "")
        self.request_version = getattr(self, "request_version", "HTTP/1.0")
        self.send_response(status)
        charset = "" if kind.startswith(("image", "application")) or "charset" in kind else "; charset=utf-8"
        headers = {"Content-Type": kind + charset, "Vary": "Accept-Encoding, Cookie", **HEADERS, **more}
        headers |= {"Content-Encoding": "gzip"} if packs else {}
        headers |= {"Allow": "GET, HEAD"} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


class _Sending(io.BufferedIOBase):
    """What leaves by a connection: each piece within `SEND_S`. Raises `TimeoutError` for a reader that is too slow."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._connection.settimeout(SEND_S)
        self._connection.sendall(data)
        return len(data)


class WebServer(ThreadingHTTPServer):
    """Listens at once; `serve` answers. Raises OSError."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 32
    allow_reuse_address = sys.platform != "win32"  # there, two servers could then have the same port

    def __init__(self, host: str, port: int, watch: GridWatch, access: Callable[[int], Access]) -> None:
        """``access``: given the port that was got, who is let in."""
        self.address_family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        self.watch = watch
        self.ends = threading.Event()
        self.streams = threading.BoundedSemaphore(STREAMS)
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._turned_away, self._tell_at = 0, 0.0
        super().__init__((host.strip("[]"), port), _Handler)
        self.access = access(self.server_address[1])

    def server_bind(self) -> None:
        """Bind, without a look at the machine's names, for which a server of names may be asked."""
        socketserver.TCPServer.server_bind(self)

    def serve(self, stopping: Callable[[], bool]) -> None:
        """Answer until ``stopping()``."""
        self.timeout = 0.5
        while not stopping():
            self.handle_request()
        self.ends.set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is room for one more."""
        if not self._places.acquire(blocking=False):
            self._turned_away += 1
            if time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + TELL_S
                log.warning("web-full turned-away=%d last=%s", self._turned_away, client_address[0])
                self._turned_away = 0
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()
