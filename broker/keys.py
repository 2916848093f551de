"""The CURVE keys of a broker, in its home: its own pair, those of the home, and the credentials that were added.

The home has a credential for each role, made with it: ``worker`` and ``client``, whose lines the broker prints, and
``admin``, for whoever can read the home. Each is a file with one pair, public key then secret key, 32 bytes each. Of
credentials that were added the broker knows the public key only: the file ``added`` is their names, roles and keys.

Rule 1: every file is readable by its owner only, written whole or not at all, and refused when others can touch it.
Rule 2: revoked is revoked, at once and for good. One of the home's own is replaced by a new pair, with a new line.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import zmq
from zmq.utils import z85

from broker.joinline import JoinLine, Keys, Side, is_open_to_others
from broker.private import write_private
from broker.roles import CREDENTIALS_LIMIT, Credential, CredentialError, Role, checked_credential

Pair = tuple[bytes, bytes]

# The credentials that every home has.
OWN: Mapping[str, Role] = {"worker": "worker", "client": "submitter", "admin": "admin"}
_PAIR_BYTES = 64
_KEY_BYTES = 32


class KeysError(Exception):
    """The keys in the home cannot be used; one line that says why."""


class KeyRing:
    """All that one broker knows of keys. ``changes`` grows when somebody is let in or kept out."""

    def __init__(self, home: Path) -> None:
        """The keys in ``home``, made now where there are none; raises `KeysError`."""
        self.changes = 0
        self._home = home
        self._folder = home / "keys"
        self._address: tuple[str, int] | None = None
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self.server = self._pair("broker")
            self._own = {name: self._pair(name) for name in OWN}
            self._added = self._read_added()
        except OSError as error:
            raise KeysError(f"cannot use {self._folder}: {error.strerror}") from error
        self._index()

    def _index(self) -> None:
        self._who = {pair[0]: Credential(name, OWN[name]) for name, pair in self._own.items()}
        self._who |= {public: credential for credential, public in self._added.values()}

    def who(self, public: bytes) -> Credential | None:
        """Whose public key this is, or None for an unknown one."""
        return self._who.get(public)

    def line(self, name: str, host: str, port: int) -> JoinLine:
        """The join line of one of the home's own credentials."""
        return JoinLine(_side(OWN[name]), host, port, Keys(self.server[0], *self._own[name]))

    def announce(self, host: str, port: int) -> None:
        """Write the home's join lines into it, where clients and workers of this machine find them."""
        self._address = host, port
        for name in OWN:
            self._write_line(name)

    def _write_line(self, name: str) -> Path:
        path = self._home / f"{name}.join"
        if self._address is not None:
            write_private(path, f"{self.line(name, *self._address)}\n".encode())
        return path

    # --- changes -----------------------------------------------------------------------------------------------------

    def rows(self) -> list[Credential]:
        """All credentials, in the order of their names."""
        return sorted(self._who.values(), key=lambda credential: credential.name)

    def add(self, credential: Credential, public: bytes) -> None:
        """Let in whoever has the secret of ``public``. Raises `CredentialError`. Once more changes nothing."""
        if len(public) != _KEY_BYTES:
            raise CredentialError("that is not a public key")
        known = self._who.get(public)
        if known == credential and credential.name in self._added:
            return
        if known is not None:
            raise CredentialError(f"that key is already in use, as {known.name}")
        if credential.name in {*self._own, *self._added}:
            raise CredentialError(f"there is a credential {credential.name!r} already; revoke it first")
        if len(self._added) >= CREDENTIALS_LIMIT:
            raise CredentialError(f"there are {CREDENTIALS_LIMIT} credentials; revoke those that nobody uses")
        self._replace({**self._added, credential.name: (credential, public)})

    def revoke(self, name: str) -> str:
        """Forget a credential; of the home's own, the file with its new join line, else "". `CredentialError`."""
        if name in self._own:
            return self._renew(name)
        if name not in self._added:
            raise CredentialError(f"there is no credential {name!r}")
        self._replace({other: entry for other, entry in self._added.items() if other != name})
        return ""

    def _renew(self, name: str) -> str:
        try:
            self._own[name] = self._make(name)
            path = self._write_line(name)
        except OSError as error:
            raise CredentialError(f"cannot write to {self._home}: {error.strerror}") from error
        finally:
            self._index()
            self.changes += 1
        return str(path)

    def _replace(self, added: dict[str, tuple[Credential, bytes]]) -> None:
        rows = {name: [credential.role, z85.encode(public).decode()] for name, (credential, public) in added.items()}
        try:
            write_private(self._folder / "added", json.dumps(rows, indent=1).encode())
        except OSError as error:
            raise CredentialError(f"cannot write to {self._folder}: {error.strerror}") from error
        self._added = added
        self._index()
        self.changes += 1

    # --- files -------------------------------------------------------------------------------------------------------

    def _pair(self, name: str) -> Pair:
        path = self._folder / name
        if not path.exists():
            return self._make(name)
        _check_private(path)
        raw = path.read_bytes()
        if len(raw) != _PAIR_BYTES:
            raise KeysError(f"{path} is not a key file; remove it to have new keys made")
        return raw[:_KEY_BYTES], raw[_KEY_BYTES:]

    def _make(self, name: str) -> Pair:
        pair = new_pair()
        write_private(self._folder / name, pair[0] + pair[1])
        return pair

    def _read_added(self) -> dict[str, tuple[Credential, bytes]]:
        path = self._folder / "added"
        if not path.exists():
            return {}
        _check_private(path)
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
            return {name: (checked_credential(name, role), _public(text)) for name, (role, text) in rows.items()}
        except (ValueError, TypeError, AttributeError, CredentialError) as error:
            raise KeysError(f"{path} is not a list of credentials: {error}") from error


def new_pair() -> Pair:
    """A new key pair: public, secret."""
    public, secret = zmq.curve_keypair()
    return z85.decode(public), z85.decode(secret)


def _public(text: str) -> bytes:
    public = z85.decode(text.encode())
    if len(public) != _KEY_BYTES:
        raise ValueError(f"{text!r:.80} is not a public key")
    return public


def _side(role: Role) -> Side:
    return "worker" if role == "worker" else "client"


def _check_private(path: Path) -> None:
    if is_open_to_others(path):
        raise KeysError(f"{path} can be read by others: chmod 600 {path}, or remove it to have new keys made")
