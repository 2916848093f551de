"""What a program in the session of each user (``deskgrid presence``) tells the workers of a PC: how long it was idle.

Wayland shows input only to programs of the session, so the worker cannot see it itself. On Linux only.

Rule 1: a worker hears datagrams on a socket in the abstract namespace: it has no file, it is gone with the worker, and
nothing outside this PC, or its container, can send to it. The kernel says who sends.
Rule 2: any user of the PC may say that he uses it; what one says does not make up for another. A task may not, though
it runs as such a user: no process that descends from the worker is heard, and none that has ended since it spoke.
Rule 3: whoever has spoken and falls silent cannot be told from somebody who types, unless he has said goodbye, or has
no process left.
"""

import json
import os
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from deskgrid.unix_sockets import unix_socket
from deskgrid.worker.run.scope import with_descendants

# What the names of these sockets begin with.
PREFIX = "deskgrid-presence-"
# How often a helper speaks, and after how long it has fallen silent. Seconds.
SPEAKS_S, SILENT_S = 5.0, 15.0
# Helpers that are remembered, datagrams that are read at once, and bytes of one.
MOST, AT_ONCE, BYTES = 64, 64, 256
_CREDENTIALS = struct.Struct("iii")
_PASS_CREDENTIALS, _OF_CREDENTIALS = 16, 2


class _Helper(NamedTuple):
    idle_s: float
    at: float


class PresenceHelpers:
    """The worker's end. Raises OSError."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._socket = unix_socket(socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, _PASS_CREDENTIALS, 1)
        self._socket.bind(f"\0{PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
        self._helpers: dict[tuple[int, int], _Helper] = {}

    def fileno(self) -> int:
        return self._socket.fileno()

    def idle_s(self, now: float) -> Iterator[tuple[str, float | None]]:
        """Yield the name of each helper, with the seconds since its user's last input; None: it is silent."""
        said = list[tuple[bytes, list[tuple[int, int, bytes]]]]()
        with suppress(BlockingIOError):
            while len(said) < AT_ONCE:
                said.append(self._receive())
        tasks = set(with_descendants(os.getpid())[1:]) if said else set[int]()
        for data, more in said:
            self._hear(data, more, tasks, now)
        silent = [key for key, helper in self._helpers.items() if now - helper.at > SILENT_S]
        if silent:
            users = self._users()
            for key in [key for key in silent if key[0] not in users]:
                del self._helpers[key]
        for (uid, _), helper in self._helpers.items():
            late = now - helper.at
            yield f"helper of user {uid}", None if late > SILENT_S else helper.idle_s + late

    def _receive(self) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        if sys.platform == "win32":
            raise BlockingIOError
        else:
            return self._socket.recvmsg(BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))[:2]

    def _hear(self, data: bytes, more: list[tuple[int, int, bytes]], tasks: Container[int], now: float) -> None:
        found = [its for level, kind, its in more if (level, kind) == (socket.SOL_SOCKET, _OF_CREDENTIALS)]
        with suppress(ValueError, TypeError, KeyError, struct.error, IndexError, RecursionError):
            pid, uid, _ = _CREDENTIALS.unpack(found[0][: _CREDENTIALS.size])
            told = json.loads(data)["idle_s"]
            if pid in tasks or not os.path.exists(f"/proc/{pid}"):
                return
            if told is None:
                self._helpers.pop((uid, pid), None)
            elif 0.0 <= float(told) < 1e9:
                # A helper that was started again takes the place of those of its user that have fallen silent.
                for key in [key for key, each in self._helpers.items() if key[0] == uid and now - each.at > SILENT_S]:
                    del self._helpers[key]
                if (uid, pid) in self._helpers or len(self._helpers) < MOST:
                    self._helpers[uid, pid] = _Helper(float(told), now)

    def _users(self) -> set[int]:
        """Who has processes here."""
        found = set[int]()
        with suppress(OSError):
            for name in os.listdir(self._proc):
                if name.isdigit():
                    with suppress(OSError):
                        found.add(os.stat(self._proc / name).st_uid)
        return found

    def close(self) -> None:
        self._socket.close()


class Speaker:
    """The helper's end: it tells all workers of this PC."""

    def __init__(self, sockets: Path = Path("/proc/net/unix")) -> None:
        self._sockets = sockets
        self._socket = unix_socket(socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def say(self, idle_s: float | None) -> int:
        """Say how many seconds there was no input; None: goodbye. Returns how many workers have been told."""
        told = 0
        for name in self._workers():
            with suppress(OSError):  # it has just ended
                self._socket.sendto(json.dumps({"idle_s": idle_s}).encode(), name)
                told += 1
        return told

    def _workers(self) -> list[str]:
        rows = self._sockets.read_text(encoding="utf-8", errors="replace").splitlines()
        names = [row.rpartition(" ")[2] for row in rows]
        return [f"\0{name[1:]}" for name in names if name.startswith(f"@{PREFIX}")]

    def close(self) -> None:
        """Say goodbye."""
        self.say(None)
        self._socket.close()


def speak(
    ways: Sequence[Callable[[], float | None]], stopping: Callable[[], bool], look_s: float, speaker: Speaker
) -> bool:
    """Tell the workers until ``stopping``, looking every ``look_s``; return whether anything could be told.

    ``ways``: the ways to ask for the seconds without input, the best first; None: it does not work now.
    """
    before, spoke_at, could = 0.0, -SPEAKS_S, False
    try:
        while True:
            now, idle_s = time.monotonic(), next((its for way in ways if (its := way()) is not None), None)
            if idle_s is not None:
                could = True
                if idle_s < before or now - spoke_at >= SPEAKS_S:
                    speaker.say(idle_s)
                    spoke_at = now
                before = idle_s
            elif not could:
                return False
            if stopping():
                break
            time.sleep(look_s)
    finally:
        speaker.close()
    return could
