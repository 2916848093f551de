"""The join line: all that somebody has to paste on a lab PC or into a client's environment.

``ROLE@HOST:PORT/KEYS``, where KEYS is URL-safe base64 of the broker's public CURVE key and the role's own key pair, 32
bytes each; ``ROLE@HOST:PORT`` alone for a broker without encryption. Nothing in it needs quoting in any shell.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["worker", "client"]

_ADDRESS = re.compile(r"(?P<host>[^/@\s]+):(?P<port>[0-9]{1,5})")
_FORM = re.compile(rf"(?P<role>worker|client)@{_ADDRESS.pattern}(?:/(?P<keys>[\w-]+=*))?")
_KEY_BYTES = 32
_LAST_PORT = 65_535


class JoinLineError(ValueError):
    """Not a join line; one line that says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A broker's public key and one role's key pair, raw bytes."""

    server: bytes
    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JoinLine:
    """Where a broker is and how to be let in; ``keys`` is None without encryption."""

    role: Role
    host: str
    port: int
    keys: Keys | None

    def __str__(self) -> str:
        place = f"{self.role}@{self.host}:{self.port}"
        if self.keys is None:
            return place
        raw = self.keys.server + self.keys.public + self.keys.secret
        return f"{place}/{base64.urlsafe_b64encode(raw).decode()}"

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


def parse_join_line(text: str, role: Role) -> JoinLine:
    """The join line in ``text``, which must be one for ``role``; raises `JoinLineError`."""
    found = _FORM.fullmatch(text.strip())
    if found is None or int(found["port"]) > _LAST_PORT:
        raise JoinLineError(
            "that is not a join line; a broker prints one for workers and one for clients when it starts"
        )
    if found["role"] != role:
        raise JoinLineError(f"that is the join line of a {found['role']}; this needs the one of a {role}")
    return JoinLine(role, found["host"], int(found["port"]), _keys(found["keys"]))


def _keys(text: str | None) -> Keys | None:
    if text is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise JoinLineError("the join line is damaged: its keys cannot be read") from error
    if len(raw) < 3 * _KEY_BYTES:
        raise JoinLineError("the join line was cut: its keys are too short")
    if len(raw) > 3 * _KEY_BYTES:
        raise JoinLineError("the join line is damaged: its keys are too long")
    return Keys(raw[:_KEY_BYTES], raw[_KEY_BYTES : 2 * _KEY_BYTES], raw[2 * _KEY_BYTES :])
