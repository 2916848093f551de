"""A worker's connection to its broker, and ZeroMQ's reports about it. It dials out, and sends without waiting."""

import struct
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import zmq

from deskgrid import process_memory, wire
from deskgrid.addresses import endpoints
from deskgrid.wire.dealer import connect, dealer_for, hear, say
from deskgrid.wire.joinline import JoinLine

# The first and the longest interval at which ZeroMQ dials a broker that does not answer.
RECONNECT_MS = (100, 3_000)
# ZeroMQ gives up an address for good if the peer's answer makes no sense to it (another program had the broker's port,
# say). So without a connection we dial anew at this interval, which is far longer than a handshake. Seconds.
REDIAL_S = 5.0
# Time after which a dead connection is noticed.
DEAD_LINK_S = 15.0
# Silence after which the log says that no broker answers; repeated at four times this interval.
SILENCE_S = 5.0
# How long dialling waits for the addresses of the broker's host. Seconds.
LOOK_UP_S = 0.2
LINGER_MS = 1_000


class UnknownKey(Exception):
    """The broker does not know the key of this connection."""


class BrokerLink:
    """A connection to the broker of a join line, open during a ``with`` block."""

    def __init__(self, join: JoinLine) -> None:
        process_memory.keep_freed()
        self._join = join
        self._endpoints = [join.endpoint]
        self._endpoint = join.endpoint
        self._dials = 0
        self._looks = Thread()
        self._redial_at = time.monotonic() + REDIAL_S
        self._silent_at = time.monotonic() + SILENCE_S
        self.connected = False
        self.context = zmq.Context()
        # IMMEDIATE: without a connection, fail at once rather than queue messages: the broker may have restarted by the
        # time it is back.
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

    def __enter__(self) -> "BrokerLink":
        self._dial()
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()
        self.context.term()

    def send(self, message: wire.Message) -> bool:
        """Send ``message``; return False if there is no connection."""
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
        """Return the changes of the connection since the last call, True for each that connected.

        Raises `UnknownKey`.
        """
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
        with suppress(zmq.ZMQError):  # ZeroMQ may have given up the address: then there is nothing to disconnect
            self.socket.disconnect(self._endpoint)
        self._dial()

    def _dial(self) -> None:
        """Dial the next of the broker's addresses."""
        if not self._looks.is_alive():
            self._looks = Thread(target=self._look_up, name="deskgrid-addresses", daemon=True)
            self._looks.start()
            # Mostly the answer is there at once, but what a PC does must not wait for a name server.
            self._looks.join(LOOK_UP_S)
        self._endpoint = self._endpoints[self._dials % len(self._endpoints)]
        self._dials += 1
        connect(self.socket, self._endpoint)

    def _look_up(self) -> None:
        self._endpoints = endpoints(self._join)

    def heard(self) -> None:
        """Note that the broker was reachable just now."""
        self._silent_at = time.monotonic() + SILENCE_S

    def complain(self, say: Callable[[str], None]) -> None:
        """Report from time to time that no broker answers."""
        if time.monotonic() > self._silent_at:
            self._silent_at = time.monotonic() + SILENCE_S * 4
            address = self._join.address
            ask = "is it running, and is this join line from that broker?"
            if self._join.keys is None:
                ask = "is it running? If it was not started with --insecure, give its join line with --join"
            say(f"no answer from a broker at {address}; still trying ({ask})")
