"""The identities of this user's PCs: for each grid and name, the key that admits the PC to the broker.

An identity is a file, ``HOME/identities/HOST/GRID/NAME.join``: a join line with the PC's own key pair. GRID is the
beginning of the broker's public key, so that identities for several grids and workers can coexist.

Rule 1: only their user can read the files and their folders. A file that others can read is refused.
Rule 2: an identity belongs to its HOST. PCs that share a home do not look at each other's.
Rule 3: it also belongs to the machine that made it, whose id is in ``HOME/identities/HOST/machine``. A copy of that
machine's disk has no identity, even if it has the same name: two PCs with one key would be one for the broker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deskgrid.homes import this_host, this_machine
from deskgrid.private_files import make_private_folder, write_private
from deskgrid.wire.joinline import JoinLine, JoinLineError, Keys, read_join_line
from deskgrid.wire.text import name_error

_SUFFIX = ".join"
# Number of hexadecimal digits of a broker's public key in its folder's name. `find` compares the whole key.
_GRID_DIGITS = 16
# How many other hosts an error names.
_SHOWN = 3


class IdentityError(Exception):
    """There is no usable identity, or it cannot be read or kept; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class PcIdentity:
    """``line``: the broker's address, its public key, and the PC's own key pair."""

    name: str
    line: JoinLine

    @property
    def keys(self) -> Keys:
        """The keys in ``line``."""
        assert self.line.keys is not None  # every identity has keys
        return self.line.keys

    @property
    def address(self) -> str:
        """HOST:PORT of the broker."""
        return self.line.address


class Identities:
    """The identities of this host in the folder ``home``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._all = home / "identities"
        self._folder = self._all / this_host()
        self._machine = self._folder / "machine"
        self._here = this_machine()

    @property
    def copied(self) -> str:
        """Why the identities of this host are not for this machine, and what to do; empty if they are."""
        if not self._made_on or self._here in ("", self._made_on):
            return ""
        return (
            f"the identities in {self._folder} were made on another machine: this PC is a copy of it, and needs one of "
            f"its own; if it is the same PC, installed anew, remove {self._machine}"
        )

    @property
    def _made_on(self) -> str:
        """The machine that made them; empty if it did not know."""
        try:
            return self._machine.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""

    def find(self, server: bytes, name: str) -> PcIdentity | None:
        """Return the identity called ``name`` in the grid of the broker ``server``. Raises `IdentityError`."""
        path = self._path(server, name)
        identity = _read(path) if not (name_error(name) or self.copied) and path.exists() else None
        return identity if identity is not None and identity.keys.server == server else None

    def keep(self, identity: PcIdentity) -> None:
        """Write an identity to its file. Raises `IdentityError`."""
        path = self._path(identity.keys.server, identity.name)
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.copied:  # they stay, for the machine that made them, if that shares this home
                self._folder.rename(self._all / f"{self._folder.name}.{self._made_on}")
            for folder in (self._all, self._folder, path.parent):
                make_private_folder(folder)
            if self._here and not self._machine.exists():
                write_private(self._machine, self._here.encode())
            write_private(path, f"{identity.line}\n".encode())
        except OSError as error:
            raise IdentityError(f"cannot keep this PC's identity in {path}: {error.strerror}") from error

    def drop(self, identity: PcIdentity) -> None:
        """Remove an identity. Raises `IdentityError`."""
        path = self._path(identity.keys.server, identity.name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise IdentityError(f"cannot remove {path}: {error.strerror}") from error

    def choose(self, name: str | None, address: str | None) -> PcIdentity | None:
        """Return the only identity with this name and broker address, where given; None if there is none.

        Raises `IdentityError` if several match.
        """
        known = [] if self.copied else [_read(path) for path in sorted(self._folder.glob(f"*/*{_SUFFIX}"))]
        found = [each for each in known if name in (None, each.name) and address in (None, each.address)]
        if len(found) > 1:
            which = ", ".join(f"{each.name} at {each.address}" for each in found)
            raise IdentityError(f"this PC has several identities ({which}): choose one with --broker and --name")
        return found[0] if found else None

    def why_none(self) -> str:
        """Return whose the identities in the home are, if none is this PC's, and what to do; "" if there are none."""
        if copied := self.copied:
            return copied
        hosts = {path.parent.parent.name for path in self._all.glob(f"*/*/*{_SUFFIX}")}
        if others := sorted(hosts - {self._folder.name}):
            return (
                f"the identities there belong to other hosts ({_some(others)}), and this one is {self._folder.name}; "
                f"if this PC had one of these host names, rename its folder in {self._all}"
            )
        return ""

    def _path(self, server: bytes, name: str) -> Path:
        return self._folder / server.hex()[:_GRID_DIGITS] / f"{name}{_SUFFIX}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _read(path: Path) -> PcIdentity:
    try:
        line = read_join_line(f"@{path}", "worker")
    except JoinLineError as error:
        raise IdentityError(str(error)) from error
    if line.keys is None:
        raise IdentityError(f"{path} is not the identity of a PC: it has no keys")
    return PcIdentity(path.name.removesuffix(_SUFFIX), line)
