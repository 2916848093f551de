"""A cable between real processes: it forwards TCP connections, and can be cut, or let nothing through for a while.

When this cable is cut, both ends are told. `tests.chaos.namespaces` has cables that can be pulled, so that neither end
is told.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from deskgrid.wire.joinline import JoinLine

CHUNK = 65_536
# Closed with this option a socket sends a reset, as a machine does that knows nothing of the connection.
_RESET = struct.pack("ii", 1, 0)
JOIN_S = 10.0


class Loopback:
    """The network of one machine, on which every cable is a `Proxy`."""

    listen = "127.0.0.1:0"

    @staticmethod
    def cable(line: JoinLine) -> "Proxy":
        """A cable to the broker of ``line``."""
        return Proxy(line)


class Proxy:
    """Forwards connections from a port on 127.0.0.1 to the broker of ``line``, in threads."""

    # What a command begins with, to run at its end.
    prefix: tuple[str, ...] = ()

    def __init__(self, line: JoinLine) -> None:
        self._target = line.host, line.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._cut = False
        # The bytes that it has carried, in both directions.
        self.carried = 0
        self._closing = False
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def dialled(self, line: JoinLine) -> JoinLine:
        """``line`` as whoever is at its end has to dial it."""
        return replace(line, host="127.0.0.1", port=self._port)

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """What can be done to it, until `mend`."""
        return {"cut": self.cut, "stall": self.stall}

    def cut(self) -> None:
        """All connections break, and nobody is let in until `mend`."""
        with self._lock:
            self._cut = True
            for end in self._ends:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Connections are possible again, and what was stalled flows."""
        self._cut = False
        self._flows.set()

    def stall(self) -> None:
        """Nothing gets through, and nobody is told: what is sent waits until `mend`."""
        self._flows.clear()

    def close(self) -> None:
        """Break everything, and listen no more."""
        self._closing = True
        self._flows.set()
        self.cut()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port), 1.0).close()  # so that `accept` returns
        self._listener.close()
        for thread in self._threads:
            thread.join(JOIN_S)

    def _accept(self) -> None:
        while not self._closing:
            near, _ = self._listener.accept()
            far = None if self._cut else self._far_end()
            if far is None:
                near.close()
                continue
            with self._lock:
                self._ends |= {near, far}
            pair = [threading.Thread(target=self._pump, args=ends, daemon=True) for ends in ((near, far), (far, near))]
            self._threads = [thread for thread in self._threads if thread.is_alive()] + pair
            for thread in pair:
                thread.start()

    def _far_end(self) -> socket.socket | None:
        try:
            far = socket.create_connection(self._target, 1.0)
        except OSError:
            return None
        far.settimeout(None)
        return far

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(CHUNK):
                self._flows.wait()
                far.sendall(data)
                with self._lock:
                    self.carried += len(data)
        with self._lock:
            for end in (near, far):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            # The other thread of the pair may still be reading: whoever comes second closes both.
            if near in self._ends:
                self._ends -= {near, far}
            else:
                near.close()
                far.close()
