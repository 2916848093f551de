"""The join line: the one line that you paste on a lab PC or into a client's environment.

Its form is ``SIDE@HOST:PORT/KEYS``. KEYS is the URL-safe base64 of the broker's public CURVE key and the credential's
own key pair, 32 bytes each, and a checksum of them. Without the checksum, a mistyped key would only lead to silence:
ZeroMQ cannot tell it from a broken link. A broker without encryption has ``SIDE@HOST:PORT/insecure``. No shell needs
quotes around a join line. You may edit the host: trust does not depend on it.

The line of a private grid is ``SIDE@ipc:PATH``: its broker listens on a local socket in a folder of one user, who alone
can open it.

The side is worker or client. The role of the holder is not in the line; the broker knows it from the key. Wherever you
give a line, you may give ``@FILE`` instead, so that no list of processes shows it.
"""

import base64
import binascii
import codecs
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Side = Literal["worker", "client"]

_ADDRESS = re.compile(r"(?P<host>[^/@\s]+):(?P<port>[0-9]{1,5})")
_FORM = re.compile(rf"(?P<side>worker|client)@{_ADDRESS.pattern}(?:/(?P<keys>[\w-]+=*))?")
_KEY_BYTES = 32
# This makes 99 bytes in all, which base64 encodes without padding. One typing error in 16 million goes unnoticed.
_CHECK_BYTES = 3
_INSECURE = "insecure"
# How the host begins that is the path of a local socket.
LOCAL = "ipc:"
_LOCAL_FORM = re.compile(rf"(?P<side>worker|client)@(?P<host>{LOCAL}/[^\0]+)")
_LAST_PORT = 65_535
_ANY_OTHER = 0o077


class JoinLineError(ValueError):
    """The text is not a join line; the message says in one line what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A broker's public key and one credential's key pair, raw bytes."""

    server: bytes
    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JoinLine:
    """A broker's address and the keys for it; ``keys`` is None without encryption."""

    side: Side
    host: str
    port: int
    keys: Keys | None

    def __str__(self) -> str:
        place = f"{self.side}@{self.address}"
        if self.is_local:
            return place
        if self.keys is None:
            return f"{place}/{_INSECURE}"
        raw = self.keys.server + self.keys.public + self.keys.secret
        return f"{place}/{base64.urlsafe_b64encode(raw + _checksum(raw)).decode()}"

    @property
    def is_local(self) -> bool:
        """Whether the broker listens on a local socket; then ``port`` is 0."""
        return self.host.startswith(LOCAL)

    @property
    def address(self) -> str:
        """The address for people: HOST:PORT, or ipc:PATH."""
        return self.host if self.is_local else f"{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        """The ZeroMQ address."""
        return endpoint_of(self.host, self.port)


def endpoint_of(host: str, port: int | str) -> str:
    """Return the ZeroMQ address of a host and a port."""
    return f"ipc://{host.removeprefix(LOCAL)}" if host.startswith(LOCAL) else f"tcp://{host}:{port}"


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``; an IPv6 host is in brackets. Of a local socket, ``ipc:PATH``, the port is 0."""
    if text.startswith(f"{LOCAL}/"):
        return text, 0
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _LAST_PORT:
        raise JoinLineError(f"an address is HOST:PORT, not {text!r}")
    return found["host"], int(found["port"])


def read_join_line(text: str, side: Side) -> JoinLine:
    """Return the join line in ``text``, or in the file that it names as ``@FILE``; raises `JoinLineError`."""
    if not text.startswith("@"):
        return parse_join_line(text, side)
    path = Path(text[1:])
    try:
        path = path.expanduser()
        if is_open_to_others(path):
            raise JoinLineError(f"{path} can be read by others: chmod 600 {path}")
        data = path.read_bytes()
        # What PowerShell writes into a file begins with such marks.
        is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return parse_join_line(data.decode("utf-16" if is_utf_16 else "utf-8-sig"), side)
    except (OSError, UnicodeDecodeError, RuntimeError) as error:  # RuntimeError: ~ of somebody without a home folder
        reason = getattr(error, "strerror", None) or error
        raise JoinLineError(f"{path}, which should hold a join line, cannot be read: {reason}") from error


def is_open_to_others(path: Path) -> bool:
    """Whether a file gives any permission to users other than its owner; raises OSError if there is no such file."""
    return bool(path.stat().st_mode & _ANY_OTHER) and os.name == "posix"


def parse_join_line(text: str, side: Side) -> JoinLine:
    """Parse the join line in ``text``, which must be one for ``side``; raises `JoinLineError`."""
    if local := _LOCAL_FORM.fullmatch(text.strip()):
        return JoinLine(_for_side(local["side"], side), local["host"], 0, None)
    found = _FORM.fullmatch(text.strip())
    if found is None or int(found["port"]) > _LAST_PORT:
        raise JoinLineError(
            "that is not a join line: copy the whole line that begins with worker@ (for PCs) or client@ (for people), "
            "as the broker printed it when it started"
        )
    return JoinLine(_for_side(found["side"], side), found["host"], int(found["port"]), _keys(found["keys"]))


def _for_side(found: str, side: Side) -> Side:
    if found != side:
        raise JoinLineError(f"that is a join line for a {found}; you need the one that begins with {side}@")
    return side


def _keys(text: str | None) -> Keys | None:
    if text == _INSECURE:
        return None
    if text is None:
        raise JoinLineError("the join line was cut: its keys are missing")
    try:
        raw = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise JoinLineError("the join line is damaged: its keys cannot be read") from error
    if len(raw) < 3 * _KEY_BYTES + _CHECK_BYTES:
        raise JoinLineError("the join line was cut: its keys are too short")
    keys, check = raw[: 3 * _KEY_BYTES], raw[3 * _KEY_BYTES :]
    if check != _checksum(keys):
        raise JoinLineError("the join line is damaged: its keys do not match their checksum")
    return Keys(keys[:_KEY_BYTES], keys[_KEY_BYTES : 2 * _KEY_BYTES], keys[2 * _KEY_BYTES :])


def _checksum(keys: bytes) -> bytes:
    return hashlib.sha256(keys).digest()[:_CHECK_BYTES]
