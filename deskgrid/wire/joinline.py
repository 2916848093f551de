"""The join line: all that somebody has to paste on a lab PC or into a client's environment.

``SIDE@HOST:PORT/KEYS``, where KEYS is URL-safe base64 of the broker's public CURVE key and the credential's own pair,
32 bytes each, and of a checksum of them. Without the checksum, a key that was typed or pasted wrongly would only lead
to silence: ZeroMQ cannot tell it from a broken link. ``SIDE@HOST:PORT/insecure`` for a broker without encryption.
Nothing in it needs quoting in any shell. You may edit the host: it is not what is trusted.

The side says where the line belongs: to a worker, or to a client. What its holder may do is not in it; the broker knows
that from the key. Wherever you give a line, you may give ``@FILE`` instead, so that no list of processes shows it.
"""

import base64
import binascii
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
# Makes 99 bytes in all, which base64 needs no padding for; one typing error in 16 million goes unnoticed.
_CHECK_BYTES = 3
_INSECURE = "insecure"
_LAST_PORT = 65_535
_ANY_OTHER = 0o077


class JoinLineError(ValueError):
    """Not a join line; one line that says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A broker's public key and one credential's key pair, raw bytes."""

    server: bytes
    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JoinLine:
    """Where a broker is and how to be let in; ``keys`` is None without encryption."""

    side: Side
    host: str
    port: int
    keys: Keys | None

    def __str__(self) -> str:
        place = f"{self.side}@{self.host}:{self.port}"
        if self.keys is None:
            return f"{place}/{_INSECURE}"
        raw = self.keys.server + self.keys.public + self.keys.secret
        return f"{place}/{base64.urlsafe_b64encode(raw + _checksum(raw)).decode()}"

    @property
    def endpoint(self) -> str:
        """The ZeroMQ address."""
        return f"tcp://{self.host}:{self.port}"


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``; an IPv6 host stands in brackets."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > _LAST_PORT:
        raise JoinLineError(f"an address is HOST:PORT, not {text!r}")
    return found["host"], int(found["port"])


def read_join_line(text: str, side: Side) -> JoinLine:
    """The join line that ``text`` is, or that is in the file it names as ``@FILE``; raises `JoinLineError`."""
    if not text.startswith("@"):
        return parse_join_line(text, side)
    path = Path(text[1:]).expanduser()
    try:
        if is_open_to_others(path):
            raise JoinLineError(f"{path} can be read by others: chmod 600 {path}")
        return parse_join_line(path.read_text(encoding="utf-8"), side)
    except (OSError, UnicodeDecodeError) as error:
        raise JoinLineError(f"{path}, which should hold a join line, cannot be read: {error}") from error


def is_open_to_others(path: Path) -> bool:
    """Whether anybody but its owner may do anything with a file; raises OSError when it is not there."""
    return bool(path.stat().st_mode & _ANY_OTHER) and os.name == "posix"


def parse_join_line(text: str, side: Side) -> JoinLine:
    """The join line in ``text``, which must be one for ``side``; raises `JoinLineError`."""
    found = _FORM.fullmatch(text.strip())
    if found is None or int(found["port"]) > _LAST_PORT:
        raise JoinLineError(
            "that is not a join line; a broker prints one for workers and one for clients when it starts"
        )
    if found["side"] != side:
        raise JoinLineError(f"that is the join line of a {found['side']}; this needs the one of a {side}")
    return JoinLine(side, found["host"], int(found["port"]), _keys(found["keys"]))


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
