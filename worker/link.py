"""A worker's connection to its broker, and what ZeroMQ reports of it. It dials out, and never waits."""

import struct
import time
from collections.abc import Callable
from contextlib import suppress

import zmq

from deskgrid import process_memory, wire
from deskgrid.wire.dealer import dealer_for, hear, say
from deskgrid.wire.joinline import JoinLine

# A broker that does not answer is dialled again this often, at first and at most.
RECONNECT_MS = (100, 3_000)
# ZeroMQ gives an address up for good when what answers there makes no sense to it (another program that had the
# broker's port, say). So without a connection it is dialled anew this often: far longer than a handshake. Seconds.
REDIAL_S = 5.0
# A dead connection is noticed after this long.
DEAD_LINK_S = 15.0
# How often somebody who watches the log is told that there still is no broker.
SILENCE_S = 5.0
LINGER_MS = 1_000


class UnknownKey(Exception):
    """The broker does not know the key of this connection."""


class Link:
    """A connection by a join line, for as long as a ``with`` block lasts."""

    def __init__(self, join: JoinLine) -> None:
        process_memory.keep_freed()
        self._join = join
        self._redial_at = time.monotonic() + REDIAL_S
        self._silent_at = time.monotonic() + SILENCE_S
        self.connected = False
        self.context = zmq.Context()
        # IMMEDIATE: without a connection, fail at once rather than queue for a broker that may be another when it is
        # back.
        options: dict[int, int] = {
            zmq.IMMEDIATE: 1,
            zmq.LINGER: LINGER_MS,
            zmq.RECONNECT_IVL: RECONNECT_MS[0],
            zmq.RECONNECT_IVL_MAX: RECONNECT_MS[1],
        }
        self.socket = dealer_for(join, self.context, DEAD_LINK_S, options)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        failures = (
            zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        )
        self.monitor = self.socket.get_monitor_socket(events | failures)
        self._poller = zmq.Poller()
        self._poller.register(self.socket, zmq.POLLIN)
        self._poller.register(self.monitor, zmq.POLLIN)

    def __enter__(self) -> "Link":
        self.socket.connect(self._join.endpoint)
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()
        self.context.term()

    def send(self, message: wire.Message) -> bool:
        """Whether there was a connection to take it."""
        try:
            say(self.socket, message)
        except zmq.Again:
            return False
        return True

    def wait(self, seconds: float) -> None:
        """Wait until something has arrived or changed, ``seconds`` at most."""
        self._poller.poll(int(seconds * 1000))

    def receive(self) -> wire.Message | None:
        """The next message, or None if nothing has arrived; raises `ProtocolError` if it is not a message."""
        return hear(self.socket)

    def changes(self) -> list[bool]:
        """What became of the connection since the last time: whether there is one. Raises `UnknownKey`."""
        found = []
        while self.monitor.poll(0):
            event = struct.unpack_from("=H", self.monitor.recv_multipart()[0])[0]
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise UnknownKey
            found.append(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)
            self.connected = found[-1]
            if not self.connected:
                self._redial_at = time.monotonic() + REDIAL_S
        return found

    def tend(self) -> None:
        """Dial anew if there has been no connection for too long."""
        if self.connected or time.monotonic() <= self._redial_at:
            return
        self._redial_at = time.monotonic() + REDIAL_S
        with suppress(zmq.ZMQError):  # if it was given up, there is nothing to disconnect
            self.socket.disconnect(self._join.endpoint)
        self.socket.connect(self._join.endpoint)

    def heard(self) -> None:
        """The broker has just been there."""
        self._silent_at = time.monotonic() + SILENCE_S

    def complain(self, say: Callable[[str], None]) -> None:
        """Say, now and then, that nobody answers."""
        if time.monotonic() > self._silent_at:
            self._silent_at = time.monotonic() + SILENCE_S * 4
            address = f"{self._join.host}:{self._join.port}"
            ask = "is it running, and is this join line from that broker?"
            if self._join.keys is None:
                ask = "is it running? If it was not started with --insecure, give its join line with --join"
            say(f"no answer from a broker at {address}; still trying ({ask})")
