"""Large messages that never end, on many connections at once: the broker's memory, and how long others wait."""

import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deskgrid import wire
from tests.counting import COUNTS
from tests.executor.rig import call, python_template
from tests.fuzz import small
from tests.live import BrokerProcess, LiveWorker
from tests.memory import most_resident, resident
from tests.peers import Client, SocketLine
from tests.waiting import PATIENCE_S

CONNECTIONS = 40
# What each sends of its message; then it is silent, and keeps the broker waiting for the rest.
SENT = 60 * 2**20
# Half of what a network of 10 Gbit/s carries; the loopback carries several times that. The more arrives between two
# looks, the more a busy machine decides how much the broker's memory grows. Bytes a second.
RATE = 0.6e9
FLOOD_S = 4.0
# What the broker may have more at any time than before: what may wait, and ten times as much that arrives before it is
# looked at on a busy machine. Were nobody cut off, it would keep 2.3 GiB.
GROWTH = 11 * small.LIMIT
# How many tasks of others, one after the other, are done beside it: at least this part of what was done before.
SHARE = 1 / 20
BEFORE_S = 1.0

# ZMTP 3.1 without encryption: a greeting, READY of a DEALER; and when the other side is READY a first message.
_READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER" + b"\x08Identity" + bytes(4)
_GREETING = b"\xff" + bytes(8) + b"\x7f\3\1" + b"NULL".ljust(20, b"\0") + bytes(32)
_HELLO = wire.encode(wire.Hello(wire.VERSION, "m", "mallory"))
OPENING = _GREETING + bytes([4, len(_READY)]) + _READY
FIRST = bytes([0, len(_HELLO)]) + _HELLO
MORE, LONG = 1, 2


def endless(size: int, flags: int) -> bytes:
    """`SENT` bytes of frames of ``size`` bytes."""
    frame = struct.pack(">BQ", LONG | flags, size) + bytes(min(size, SENT))
    return (frame * (SENT // len(frame) + 1))[:SENT]


# One message of the largest size, by half; one in parts that never end, none of them large.
FLOODS = {"large": endless(wire.MESSAGE_LIMIT, 0), "in-parts": endless(2**20, MORE)}


class Flood:
    """Connections that send as fast as it is taken, and come again when they are cut off, in a thread."""

    def __init__(self, port: int, data: bytes) -> None:
        self._port, self._data = port, memoryview(FIRST + data)
        self._selector = selectors.DefaultSelector()
        self._stop = threading.Event()
        self.sent = self.cut = 0
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _dial(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        try:
            connection.sendall(OPENING)
            heard = b""
            while b"READY" not in heard:
                heard += self._heard(connection)
        except OSError:
            connection.close()  # it came again too often
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, 0)

    @staticmethod
    def _heard(connection: socket.socket) -> bytes:
        data = connection.recv(65_536)
        if not data:
            raise ConnectionResetError
        return data

    def _main(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(max(0.0, self.sent / RATE - (time.monotonic() - began))):
            if len(self._selector.get_map()) < CONNECTIONS:
                self._dial()
            for key, events in self._selector.select(0.05):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                try:
                    self._turn(connection, key.data, events)
                except BlockingIOError:
                    pass
                except OSError:
                    self._hang_up(connection)
                    self.cut += 1
        for connection in [key.fileobj for key in self._selector.get_map().values()]:
            self._hang_up(connection)
        self._selector.close()

    def _turn(self, connection: socket.socket, done: int, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._heard(connection)
        if events & selectors.EVENT_WRITE:
            sent = connection.send(self._data[done : done + 2**18])
            self.sent += sent
            writes = selectors.EVENT_WRITE if done + sent < len(self._data) else 0
            self._selector.modify(connection, selectors.EVENT_READ | writes, done + sent)

    def _hang_up(self, connection: object) -> None:
        assert isinstance(connection, socket.socket)
        self._selector.unregister(connection)
        connection.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, command=("tests.fuzz.small",))
    yield broker
    broker.stop()


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="what has arrived is counted by Linux")
@pytest.mark.parametrize("kind", sorted(FLOODS))
def test_a_flood_of_messages_that_never_end_stays_in_no_memory_and_holds_up_nobody(
    broker: BrokerProcess, kind: str
) -> None:
    with ExitStack() as stack:
        worker = LiveWorker(broker.line("worker"), "honest")
        stack.callback(worker.stop)
        worker.start()
        client = Client(SocketLine(broker.line("client")))
        stack.callback(client.close)
        template = python_template(lambda x: x + 1)

        def done_in(seconds: float) -> int:
            until, count = time.monotonic() + seconds, 0
            while not count or time.monotonic() < until:
                assert client.results(client.submit([call(1)], template, runtime=0.1))
                count += 1
            return count

        done_in(0.0)  # so that everything is loaded
        quiet, before = done_in(BEFORE_S), resident(broker.pid)
        flood = Flood(broker.line("client").port, FLOODS[kind])
        stack.callback(flood.stop)
        done = done_in(FLOOD_S)
        grown = most_resident(broker.pid) - before
    sent = f"{flood.sent / 2**20:,.0f} MiB of messages that never end, {flood.cut} connections cut off"
    rates = f"{done / FLOOD_S:.0f} tasks of another were done in a second, and {quiet / BEFORE_S:.0f} before"
    said = f"{sent}; memory grew by {grown / 2**20:.0f} MiB; {rates}"
    COUNTS.append(f"port: {said}")
    assert flood.cut > CONNECTIONS, said
    assert grown < GROWTH, said
    assert done / FLOOD_S > SHARE * quiet / BEFORE_S, said
