"""The broker's CURVE keys: made once in its home, one pair for itself and one for each role it lets in.

A file holds one pair, public key then secret key, 32 bytes each, and is readable by its owner only. Whoever holds the
worker's pair may be a worker, whoever holds the client's may submit: they are what the join lines carry.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import zmq
from zmq.utils import z85

from broker.joinline import JoinLine, Keys, Role

_PAIR_BYTES = 64
_OWNER_ONLY = 0o600
_ANY_OTHER = 0o077


class KeysError(Exception):
    """The keys in the home cannot be used; one line that says why."""


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The broker's own pair and those of the roles, each as (public, secret)."""

    server: tuple[bytes, bytes]
    roles: Mapping[Role, tuple[bytes, bytes]]

    def role_of(self, public: bytes) -> Role | None:
        """Which role a connecting peer's public key stands for."""
        return next((role for role, pair in self.roles.items() if pair[0] == public), None)

    def line(self, role: Role, host: str, port: int) -> JoinLine:
        """The join line of a role."""
        public, secret = self.roles[role]
        return JoinLine(role, host, port, Keys(self.server[0], public, secret))


def load_keys(home: Path) -> KeyRing:
    """The keys in ``home``, made now if there are none; raises `KeysError`."""
    folder = home / "keys"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        roles: dict[Role, tuple[bytes, bytes]] = {role: _pair(folder / role) for role in get_args(Role)}
        return KeyRing(_pair(folder / "broker"), roles)
    except OSError as error:
        raise KeysError(f"cannot use {folder}: {error.strerror}") from error


def _pair(path: Path) -> tuple[bytes, bytes]:
    if not path.exists():
        public, secret = zmq.curve_keypair()
        write_private(path, z85.decode(public) + z85.decode(secret))
    if os.name == "posix" and path.stat().st_mode & _ANY_OTHER:
        raise KeysError(f"{path} can be read by others: chmod 600 {path}, or remove it to have new keys made")
    raw = path.read_bytes()
    if len(raw) != _PAIR_BYTES:
        raise KeysError(f"{path} is not a key file; remove it to have new keys made")
    return raw[: _PAIR_BYTES // 2], raw[_PAIR_BYTES // 2 :]


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, complete or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # one that somebody left there may be readable by others
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb") as file:
        file.write(data)
    part.replace(path)
