"""The PCs that have a key of their own: one small file for each, in the broker's home.

Rule 1: a name belongs to its key until the PC is forgotten, even when the key was revoked.
Rule 2: names that differ only in case are the same name, as in many file systems.
Rule 3: a PC is known only once its whole file is on the disk.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from deskgrid.broker.auth.roles import Credential
from deskgrid.private_files import make_private_folder, write_private
from deskgrid.wire import KEY_BYTES
from deskgrid.wire.joinline import is_open_to_others
from deskgrid.wire.text import name_error

_SUFFIX = ".pc"


@dataclass(frozen=True, slots=True)
class EnrolledPC:
    """``since``: POSIX seconds. ``by``: the credential whose line it enrolled with; empty when an admin added it."""

    name: str
    public: bytes
    since: float
    by: str
    revoked: bool = False


class PCs:
    """The PCs in ``folder``, which is made if there is none. Raises OSError, and ValueError for a damaged file."""

    def __init__(self, folder: Path) -> None:
        make_private_folder(folder)
        self.folder = folder
        self._by_name: dict[str, EnrolledPC] = {}
        self._by_key: dict[bytes, EnrolledPC] = {}
        self._let_in: dict[bytes, Credential] = {}
        self.enrolled_by: Counter[str] = Counter()
        for path in folder.glob(f"*{_SUFFIX}"):
            self._learn(_read(path))

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> EnrolledPC | None:
        """The PC of that name."""
        return self._by_name.get(name.lower())

    def holder(self, public: bytes) -> EnrolledPC | None:
        """The PC that has this key, revoked or not."""
        return self._by_key.get(public)

    def who(self, public: bytes) -> Credential | None:
        """Whose key this is; None for an unknown or a revoked one."""
        return self._let_in.get(public)

    def rows(self) -> list[EnrolledPC]:
        """All of them."""
        return list(self._by_name.values())

    def put(self, pc: EnrolledPC) -> None:
        """Write a new or changed PC to its file. Raises OSError."""
        row = asdict(pc) | {"public": pc.public.hex()}
        write_private(self._path(pc.name), json.dumps(row).encode())
        self._forget(pc.name)
        self._learn(pc)

    def drop(self, name: str) -> None:
        """Forget a PC. Raises OSError; FileNotFoundError if somebody removed the PC's file."""
        self._path(name).unlink()
        self._forget(name)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name.lower()}{_SUFFIX}"

    def _learn(self, pc: EnrolledPC) -> None:
        self._by_name[pc.name.lower()] = pc
        self._by_key[pc.public] = pc
        self.enrolled_by[pc.by] += 1
        if not pc.revoked:
            self._let_in[pc.public] = Credential(pc.name, "worker")

    def _forget(self, name: str) -> None:
        if (pc := self._by_name.pop(name.lower(), None)) is not None:
            self.enrolled_by[pc.by] -= 1
            del self._by_key[pc.public]
            self._let_in.pop(pc.public, None)


def _read(path: Path) -> EnrolledPC:
    if is_open_to_others(path):
        raise ValueError(f"{path} can be read by others: chmod 600 {path}")
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        pc = EnrolledPC(
            row["name"], bytes.fromhex(row["public"]), float(row["since"]), str(row["by"]), row["revoked"] is True
        )
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{path} is not the key of a PC; remove it to forget the PC") from error
    if name_error(pc.name) or len(pc.public) != KEY_BYTES or f"{pc.name.lower()}{_SUFFIX}" != path.name:
        raise ValueError(f"{path} is not the key of a PC; remove it to forget the PC")
    return pc
