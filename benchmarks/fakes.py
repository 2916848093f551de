"""Many fake workers in one process. They join, send heartbeats, and report all work as done without running it."""

import math
import platform
import secrets
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import zmq
from zmq.utils import z85

from deskgrid import wire
from deskgrid.client.link import Link
from deskgrid.client.replies import ask
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Side, parse_join_line

# Real PCs do not all join at the same moment. So workers join in lots: the seconds that a lot may take, and its size.
JOIN_S = 60.0
LOT = 50
# A worker without an answer introduces itself again after this many seconds, as a real worker does. If too many
# connections come from one address in a second, the broker cuts some of them, and their messages are lost.
AGAIN_S = 2.0
# Real PCs do not all send their heartbeats at the same moment either: one of this many shares of them does.
SHARES = 200
# Sockets that the context needs in addition to one for each worker.
MORE_SOCKETS = 16
# Files that a connection may take, and files of the rest of the process.
FILES_EACH, FILES = 4, 200


class FakeWorkers:
    """``count`` open-ended workers of ``slots`` slots each, for as long as a ``with`` block lasts.

    Each has a key of its own, which is added with the admin's line in the broker's ``home``: enrolling that many takes
    a while.
    """

    def __init__(self, home: Path, count: int, slots: int = 1) -> None:
        _allow_files(FILES_EACH * count + FILES)
        self.finished = self.taken = 0  # tasks reported as done, and reports that the broker has acknowledged
        self._slots = slots
        self._names = f"fake-{secrets.token_hex(3)}-"  # a broker lets in each name with one key only
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, count + MORE_SOCKETS)
        self._poller = zmq.Poller()
        self._line = _line(home, "worker", "worker")
        self._pairs = [new_pair() for _ in range(count)]
        self._admin = _line(home, "admin", "client")
        self._count = count
        self._sockets: list[zmq.Socket[bytes]] = []
        self._introductions: dict[zmq.Socket[bytes], bytes] = {}
        self._strangers: set[zmq.Socket[bytes]] = set()  # workers that were not let in yet
        self._joined: list[zmq.Socket[bytes]] = []  # workers that were let in, in the order of the broker's answers
        self._beat_s = math.inf  # infinite until the broker has said how often
        self._beat_at = math.inf
        self._beating = 0  # the share whose turn it is
        self.beats = 0

    def _connect(self) -> None:
        """Connect one more worker, which introduces itself."""
        line = self._line
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        if line.keys is not None:
            socket.setsockopt(zmq.CURVE_SERVERKEY, z85.encode(line.keys.server))
            public, secret = self._pairs[len(self._sockets)]
            socket.setsockopt(zmq.CURVE_PUBLICKEY, z85.encode(public))
            socket.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(secret))
        socket.connect(line.endpoint)
        self._poller.register(socket, zmq.POLLIN)
        self._introductions[socket] = wire.encode(self._introduction(len(self._sockets)))
        socket.send(self._introductions[socket])
        self._strangers.add(socket)
        self._sockets.append(socket)

    def _add_keys(self) -> None:
        """Add the keys of all workers to the broker."""
        link = Link(self._admin)
        try:
            link.open(JOIN_S)
            for number, (public, _) in enumerate(self._pairs):
                ask(link, "keys add", {"role": "worker", "name": f"{self._names}{number}", "public": public.hex()})
        finally:
            link.close()

    def __enter__(self) -> Self:
        try:
            self._add_keys()
            while len(self._sockets) < self._count:
                self._join_lot()
        except BaseException:
            self._close()
            raise
        return self

    def _join_lot(self) -> None:
        again, end = time.monotonic() + AGAIN_S, time.monotonic() + JOIN_S
        for _ in range(min(LOT, self._count - len(self._sockets))):
            self._connect()
        while len(self._joined) < len(self._sockets):
            if time.monotonic() > end:
                joined = f"{len(self._joined)} of {len(self._sockets)}"
                raise TimeoutError(f"{joined} workers were let in within {JOIN_S:g} s")
            if time.monotonic() > again:
                again += AGAIN_S
                for socket in self._strangers:
                    socket.send(self._introductions[socket])
            self.turn(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for socket in self._sockets:
            socket.close()
        self._context.term()

    def _introduction(self, number: int) -> wire.Join:
        python = ".".join(platform.python_version_tuple()[:2])
        return wire.Join(
            version=wire.VERSION,
            pythons=(python,),
            name=f"{self._names}{number}",
            session=secrets.token_hex(8),
            opening=1,
            host="127.0.0.1",
            site="",
            slots=self._slots,
            kind="open-ended",
            plan="open-ended",
            uptime=None,
            windows=(),
            running=(),
        )

    def turn(self, seconds: float) -> None:
        """Wait for messages, at most ``seconds``, and answer them; send the heartbeats that are due."""
        wait = min(seconds, max(0.0, self._beat_at - time.monotonic()))
        for socket, _ in self._poller.poll(math.ceil(1000 * wait)):
            self._hear(socket, wire.decode(socket.recv()))
        beat = wire.encode(wire.Heartbeat(None, ()))
        while time.monotonic() >= self._beat_at:
            self._beat_at += self._beat_s / SHARES
            self._beating = (self._beating + 1) % SHARES
            for socket in self._joined[self._beating :: SHARES]:
                socket.send(beat)
                self.beats += 1

    def _hear(self, socket: "zmq.Socket[bytes]", message: wire.Message) -> None:
        if isinstance(message, wire.Welcome):
            if socket in self._strangers:
                self._strangers.remove(socket)
                self._joined.append(socket)
            self._beat_s = message.heartbeat
            self._beat_at = min(self._beat_at, time.monotonic() + self._beat_s / SHARES)
        elif isinstance(message, wire.Assign):
            done = int(wire.Outcome.DONE)
            rows = (wire.Result(work.task, work.number, done, 0.0, b"", b"", b"") for work in message.work)
            for batch in wire.in_batches(rows, lambda row: 0, wire.RESULTS_ROWS):
                socket.send(wire.encode(wire.Finished(tuple(batch))))
                self.finished += len(batch)
        elif isinstance(message, wire.Taken):
            self.taken += len(message.attempts)
        elif isinstance(message, wire.Rejoin):  # on a busy machine a connection may break, as any may
            socket.send(self._introductions[socket])
        elif isinstance(message, wire.Refused):
            raise ConnectionError(f"the broker will not have a worker any more: {message}")


def _line(home: Path, name: str, side: Side) -> JoinLine:
    return parse_join_line((home / f"{name}.join").read_text(encoding="utf-8"), side)


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files to ``count``, as far as it may."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < count:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
