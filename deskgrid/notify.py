"""Tells systemd that a service is ready and alive, over the socket that it names. Without systemd, nothing happens."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

from deskgrid.unix_sockets import unix_socket


class Notifier:
    """Call it again and again: the first call says ``READY=1``, and later ones, in time, ``WATCHDOG=1``."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environment.get("WATCHDOG_USEC", "") if watched else ""
        # Twice as often as the watchdog demands. Seconds.
        self._every_s = int(usec) / 2e6 if usec.isdecimal() else float("inf")
        self._due = -float("inf")

    def __call__(self) -> None:
        if not self._address or time.monotonic() < self._due:
            return
        self._say(b"READY=1" if self._due < 0.0 else b"WATCHDOG=1")
        self._due = time.monotonic() + self._every_s

    def stopping(self) -> None:
        """Say that the service ends."""
        if self._address:
            self._say(b"STOPPING=1")

    def _say(self, text: bytes) -> None:
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), unix_socket(socket.SOCK_DGRAM) as told:
            told.sendto(text, address)
