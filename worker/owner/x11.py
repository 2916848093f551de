"""How long an X server has had no input: its extension MIT-SCREEN-SAVER says so, to whoever may connect.

The few requests are written by hand: libX11 ends the whole process when the server goes away. See the X11 protocol and
"saver" in the X.Org documentation.
"""

import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deskgrid.unix_sockets import unix_socket

# How long a server may take to answer. Seconds.
ANSWER_S = 1.0
# The extension, and what authorises a client.
_EXTENSION, _COOKIE = b"MIT-SCREEN-SAVER", b"MIT-MAGIC-COOKIE-1"
_QUERY_EXTENSION, _QUERY_INFO = 98, 1
_REPLY_BYTES = 32
_LOCAL_FAMILY, _WILD_FAMILY = 256, 65535


class NoX11(Exception):
    """There is no X server of this PC that tells; the message says why."""


def display_of(environment: Mapping[str, str]) -> int:
    """Return the number of the display of this session, if its X server sees all input of this PC. Raises `NoX11`."""
    display = environment.get("DISPLAY", "")
    host, _, rest = display.rpartition(":")
    if environment.get("WAYLAND_DISPLAY") or environment.get("XDG_SESSION_TYPE") == "wayland":
        raise NoX11("this is a Wayland session, where an X server sees only some of the input")
    if not display or not rest.partition(".")[0].isdigit():
        raise NoX11("there is no DISPLAY")
    if host not in ("", "unix"):
        raise NoX11(f"the display {display} is of another PC")
    return int(rest.partition(".")[0])


class X11:
    """The X server of a session. ``environment``: of a process in it."""

    def __init__(self, environment: Mapping[str, str], sockets: Path = Path("/tmp/.X11-unix")) -> None:
        self._environment = environment
        self._sockets = sockets
        self._socket: socket.socket | None = None
        self._root = self._opcode = 0

    def idle_s(self) -> float:
        """Return the seconds since the last input. Raises `NoX11`."""
        try:
            if self._socket is None:
                self._connect(display_of(self._environment))
            reply = self._ask(struct.pack("<BBHI", self._opcode, _QUERY_INFO, 2, self._root))
            milliseconds: int = struct.unpack_from("<I", reply, 16)[0]
            return milliseconds / 1000.0
        except (OSError, struct.error) as error:
            self.close()
            raise NoX11(f"the X server does not answer: {error}") from error

    def close(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self, display: int) -> None:
        self._socket = unix_socket()
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(str(self._sockets / f"X{display}"))
        cookie = _cookie(self._environment, display)
        kind = _COOKIE if cookie else b""
        self._socket.sendall(
            struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(kind), len(cookie)) + _even(kind) + _even(cookie)
        )
        status, reason_bytes, words = struct.unpack("<BBxxxxH", self._read(8))
        more = self._read(4 * words)
        if status != 1:
            self.close()
            raise NoX11(
                f"the X server lets nobody in without its cookie: {more[:reason_bytes].decode('latin-1').strip()}"
            )
        (vendor,), formats = struct.unpack_from("<H", more, 16), more[21]
        (self._root,) = struct.unpack_from("<I", more, 32 + len(_even(bytes(vendor))) + 8 * formats)
        length = 2 + len(_even(_EXTENSION)) // 4
        reply = self._ask(struct.pack("<BxHHxx", _QUERY_EXTENSION, length, len(_EXTENSION)) + _even(_EXTENSION))
        if not reply[8]:
            self.close()
            raise NoX11("the X server does not have MIT-SCREEN-SAVER")
        self._opcode = reply[9]

    def _ask(self, request: bytes) -> bytes:
        """Return the answer to a request. Raises OSError."""
        assert self._socket is not None
        self._socket.sendall(request)
        while (reply := self._read(_REPLY_BYTES))[0] != 1:
            if reply[0] == 0:
                raise OSError(f"error {reply[1]}")
        self._read(4 * struct.unpack_from("<I", reply, 4)[0])
        return reply

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < count:
            if not (some := self._socket.recv(count - len(data))):
                raise OSError("it is gone")
            data += some
        return data


def _even(data: bytes) -> bytes:
    """Filled up to a multiple of four bytes."""
    return data + bytes(-len(data) % 4)


def _cookie(environment: Mapping[str, str], display: int) -> bytes:
    """The cookie for a display of this PC in the file of this user; empty if there is none."""
    path = environment.get("XAUTHORITY") or os.path.join(environment.get("HOME", ""), ".Xauthority")
    data = b""
    with suppress(OSError):
        data = Path(path).read_bytes()
    with suppress(struct.error, IndexError):
        while data:
            (family,), data = struct.unpack_from(">H", data), data[2:]
            fields = []
            for _ in range(4):
                (length,) = struct.unpack_from(">H", data)
                fields.append(data[2 : 2 + length])
                data = data[2 + length :]
            _, number, kind, cookie = fields
            here = family in (_LOCAL_FAMILY, _WILD_FAMILY) and number in (b"", str(display).encode())
            if here and kind == _COOKIE:
                return cookie
    return b""
