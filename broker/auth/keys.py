"""The CURVE keys of a broker, in its home: its own pair, the home's credentials, added credentials, and PCs.

A new home has three credentials: ``worker``, with which PCs enrol, ``client``, and ``admin``, for whoever can read the
home. Each credential is a file with one pair: the public key, then the secret key, 32 bytes each. For other credentials
the broker knows only the public key: the file ``added`` has their names, roles and keys. Each PC has a file of its own,
because there are many (`deskgrid.broker.auth.pcs`).

Rule 1: every file is readable by its owner only, written whole or not at all, and refused if others can access it.
Rule 2: a revoked key is invalid at once and for good. If it belonged to one of the home's own credentials, that
credential gets a new pair and a new join line.
Rule 3: a key means one thing: the broker's own, or one that somebody has or had, is no PC's and nobody else's.
Rule 4: the name of a PC stays taken when its key is revoked, until the PC is forgotten.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from zmq.utils import z85

from deskgrid.broker.auth.pcs import EnrolledPC, PCs
from deskgrid.broker.auth.roles import (
    CREDENTIALS_LIMIT,
    ENROLLED_LIMIT,
    Credential,
    CredentialError,
    Known,
    Role,
    checked_credential,
)
from deskgrid.private_files import write_private
from deskgrid.wire import KEY_BYTES
from deskgrid.wire.dealer import KeyPair, new_pair
from deskgrid.wire.joinline import JoinLine, Keys, Side, is_open_to_others

# The credentials that every home has.
OWN: Mapping[str, Role] = {"worker": "lab", "client": "submitter", "admin": "admin"}
_PAIR_BYTES = 64


class KeysError(Exception):
    """The keys in the home cannot be used; one line that says why."""


class KeyRing:
    """The keys that one broker knows. ``changes`` grows whenever a credential is revoked or forgotten."""

    def __init__(self, home: Path) -> None:
        """Read the keys in ``home``, or make them; raises `KeysError`."""
        self.changes = 0
        self._home = home
        self._folder = home / "keys"
        self._address: tuple[str, int] | None = None
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self.server = self._pair("broker")
            self._own = {name: self._pair(name) for name in OWN}
            self._added = self._read_added()
            self._pcs = PCs(self._folder / "pcs")
            self._enrolling = not self._closed.exists()
        except OSError as error:
            raise KeysError(f"cannot use {self._folder}: {error.strerror}") from error
        except ValueError as error:
            raise KeysError(str(error)) from error
        self._index()

    @property
    def _closed(self) -> Path:
        """This file exists while no new PCs may enrol."""
        return self._folder / "enrol-off"

    def _index(self) -> None:
        self._who = {pair[0]: Credential(name, OWN[name]) for name, pair in self._own.items()}
        self._who |= {public: credential for credential, public in self._added.values()}

    def who(self, public: bytes) -> Credential | None:
        """Whose public key this is; None for an unknown one."""
        return self._who.get(public) or self._pcs.who(public)

    def line(self, name: str, host: str, port: int) -> JoinLine:
        """The join line of one of the home's own credentials."""
        return JoinLine(_side(OWN[name]), host, port, Keys(self.server[0], *self._own[name]))

    def announce(self, host: str, port: int) -> None:
        """Write the join lines into the home, where clients and workers on this machine find them.

        The client's join line is written last: a program that waited for it finds the others, too.
        """
        self._address = host, port
        for name in sorted(OWN, key=lambda name: name == "client"):
            self._write_line(name)

    def _write_line(self, name: str) -> Path:
        path = self._home / f"{name}.join"
        if self._address is not None:
            write_private(path, f"{self.line(name, *self._address)}\n".encode())
        return path

    # --- changes -----------------------------------------------------------------------------------------------------

    @property
    def enrolling(self) -> bool:
        """Whether new PCs may enrol."""
        return self._enrolling

    def rows(self) -> list[Known]:
        """All credentials sorted by name, including PCs whose key was revoked."""
        pcs = [Known(Credential(pc.name, "worker"), pc.since, pc.revoked) for pc in self._pcs.rows()]
        return sorted([*map(Known, self._who.values()), *pcs], key=lambda known: known.credential.name)

    def add(self, credential: Credential, public: bytes, when: float) -> None:
        """Let in whoever has the secret key of ``public``. Repeating it changes nothing. Raises `CredentialError`."""
        if credential.name not in self._own and self.who(public) == credential:
            return
        self._check_new(credential, public)
        if credential.role == "worker":
            self._put(EnrolledPC(credential.name, public, when, by=""))
        else:
            self._replace({**self._added, credential.name: (credential, public)})

    def enrol(self, line: Credential, name: str, public: bytes, when: float) -> tuple[str, bytes]:
        """Let in a PC that came with ``line``, and return its name and key from now on. Raises `CredentialError`.

        If an admin added ``line`` for one PC, the key of the line already is that PC's key.
        """
        pc = self._pcs.get(name)
        if line.role == "worker":
            if pc is None or pc.name != line.name:
                raise CredentialError(f"this line is for the PC {line.name} alone: start its worker with that --name")
            return pc.name, pc.public
        if pc is None:
            pc = self._enrolled(line, checked_credential(name, "worker"), public, when)
        elif pc.revoked:
            raise CredentialError(f"{pc.name} was revoked: only `deskgrid keys forget {pc.name}` frees the name")
        elif pc.public != public:
            again = f"`deskgrid keys forget {pc.name}` if the PC was reinstalled or moved"
            raise CredentialError(f"{pc.name} is enrolled with another key: {again}")
        return pc.name, pc.public

    def _enrolled(self, line: Credential, credential: Credential, public: bytes, when: float) -> EnrolledPC:
        """Enrol a PC that was not known before."""
        if not self._enrolling:
            raise CredentialError("no new PCs may enrol: an admin can change that with `deskgrid keys enrol on`")
        if self._pcs.enrolled_by[line.name] >= ENROLLED_LIMIT:
            raise CredentialError(f"{ENROLLED_LIMIT} PCs have enrolled with this line; forget those that are not yours")
        self._check_new(credential, public)
        pc = EnrolledPC(credential.name, public, when, line.name)
        self._put(pc)
        return pc

    def _check_new(self, credential: Credential, public: bytes) -> None:
        """Raise `CredentialError` unless there is room for one more, with this name and key."""
        name = credential.name
        if len(public) != KEY_BYTES:
            raise CredentialError("that is not a public key")
        for same in (public, _other_form(public)):
            if same == self.server[0]:
                raise CredentialError("that key is already in use, as the broker's own")
            if (known := self._who.get(same) or self._pcs.holder(same)) is not None:
                raise CredentialError(f"that key is already in use, as {known.name}")
        if name in {*self._own, *self._added}:
            raise CredentialError(f"there is a key {name!r} already; revoke it first: deskgrid keys revoke {name}")
        if self._pcs.get(name) is not None:
            raise CredentialError(f"there is a PC {name!r} already; forget it first")
        if len(self._added) + len(self._pcs) >= CREDENTIALS_LIMIT:
            raise CredentialError(f"there are {CREDENTIALS_LIMIT} credentials; revoke or forget those that nobody uses")

    def revoke(self, name: str) -> str:
        """Keep a credential out; return the file with the new join line for one of the home's own, otherwise "".

        Raises `CredentialError`.
        """
        if name in self._own:
            return self._renew(name)
        if name in self._added:
            self._replace({other: entry for other, entry in self._added.items() if other != name})
        elif (pc := self._pcs.get(name)) is None or pc.name != name:
            raise CredentialError(f"there is no key {name!r}: see deskgrid keys list")
        elif pc.revoked:
            raise CredentialError(f"{pc.name} was revoked before; `deskgrid keys forget {pc.name}` frees the name")
        else:
            self._put(replace(pc, revoked=True))
            self.changes += 1
        return ""

    def forget(self, name: str) -> None:
        """Keep a PC out, and free its name. Raises `CredentialError`."""
        if (pc := self._pcs.get(name)) is None or pc.name != name:
            raise CredentialError(f"there is no PC {name!r}: see deskgrid keys list")
        with self._writing():
            try:
                self._pcs.drop(name)
            except FileNotFoundError as error:
                gone = "its file was moved or removed: put it back, or restart the broker"
                raise CredentialError(f"there is no PC {name!r} in {self._pcs.folder}: {gone}") from error
        self.changes += 1

    def let_enrol(self, on: bool) -> None:
        """Let new PCs enrol from now on, or not, also after a restart. Raises `CredentialError`."""
        with self._writing():
            if on:
                self._closed.unlink(missing_ok=True)
            else:
                write_private(self._closed, b"")
        self._enrolling = on

    def _put(self, pc: EnrolledPC) -> None:
        with self._writing():
            self._pcs.put(pc)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an OSError into a `CredentialError`: a change that cannot be written does not count."""
        try:
            yield
        except OSError as error:
            raise CredentialError(f"cannot write to {self._folder}: {error.strerror}") from error

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
        with self._writing():
            write_private(self._folder / "added", json.dumps(rows, indent=1).encode())
        self._added = added
        self._index()
        self.changes += 1

    # --- files -------------------------------------------------------------------------------------------------------

    def _pair(self, name: str) -> KeyPair:
        path = self._folder / name
        if not path.exists():
            return self._make(name)
        _check_private(path)
        raw = path.read_bytes()
        if len(raw) != _PAIR_BYTES:
            raise KeysError(f"{path} is not a key file; remove it to have new keys made")
        return raw[:KEY_BYTES], raw[KEY_BYTES:]

    def _make(self, name: str) -> KeyPair:
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


def _other_form(public: bytes) -> bytes:
    """The other bytes that mean the same key: Curve25519 does not look at the highest bit."""
    return public[:-1] + bytes([public[-1] ^ 0x80])


def _public(text: str) -> bytes:
    public = z85.decode(text.encode())
    if len(public) != KEY_BYTES:
        raise ValueError(f"{text!r:.80} is not a public key")
    return public


def _side(role: Role) -> Side:
    return "worker" if role in ("lab", "worker") else "client"


def _check_private(path: Path) -> None:
    if is_open_to_others(path):
        raise KeysError(f"{path} can be read by others: chmod 600 {path}, or remove it to have new keys made")
