"""A web server on a free port of 127.0.0.1 for tests, on answers that a test gives, and requests to it."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from deskgrid.web.access import Access
from deskgrid.web.server import WebServer
from deskgrid.web.watch import Ask, GridWatch
from tests.waiting import PATIENCE_S, eventually

TOKEN = "t0ken-of-the-tests-which-nobody-knows"


class Site:
    """A web server that runs."""

    def __init__(self, server: WebServer, watch: GridWatch) -> None:
        self.server, self.watch = server, watch
        self.port = int(server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/"

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer to a request, with the token unless an Authorization is given; an empty header is left out."""
        given = {"Authorization": f"Bearer {TOKEN}", **{name.replace("_", "-"): of for name, of in headers.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers={name: of for name, of in given.items() if of})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def open(self) -> socket.socket:
        """A connection on which nothing has been said."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def raw(self, request: bytes) -> bytes:
        """All that comes back for these bytes."""
        with self.open() as connection:
            connection.sendall(request)
            return all_of(connection)

    @property
    def streams(self) -> int:
        """How many more streams there is room for."""
        return self.server.streams._value

    @property
    def places(self) -> int:
        """How many more connections there is room for."""
        return self.server._places._value


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionError:
        pass
    return found


@contextmanager
def site(ask: Ask) -> Iterator[Site]:
    """A web server on these answers, which has published something."""
    watch = GridWatch(ask)
    with WebServer("127.0.0.1", 0, watch, lambda port: Access(TOKEN, f"deskgrid-{port}")) as server, watch:
        stop = threading.Event()
        thread = threading.Thread(target=server.serve, args=(stop.is_set,), daemon=True)
        thread.start()
        found = Site(server, watch)
        try:
            assert eventually(lambda: bool(watch.updates(0, 0.0)))
            yield found
        finally:
            stop.set()
            found.open().close()  # it looks whether to stop when somebody comes
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
