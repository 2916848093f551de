"""Folders and files that only their owner can read."""

import os
import sys
from contextlib import suppress
from pathlib import Path

_OWNER_ONLY = 0o600
_OWNER_ONLY_FOLDER = 0o700


def make_private(home: Path, name: str) -> None:
    """Make the folder ``home``, if needed, and the file ``name`` in it, both for their owner only.

    Files whose names begin with ``name`` are also made private.
    """
    home.mkdir(mode=_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    (home / name).touch(mode=_OWNER_ONLY)
    for path in home.glob(f"{name}*"):
        path.chmod(_OWNER_ONLY)  # an earlier version of deskgrid let others read these files


def make_private_folder(folder: Path) -> None:
    """Make ``folder``, if needed, and let only its owner read it."""
    folder.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
    folder.chmod(_OWNER_ONLY_FOLDER)


def is_private_folder(folder: Path) -> bool:
    """Whether only this user can open ``folder``; never on Windows, where modes do not say. Raises OSError."""
    if sys.platform == "win32":
        return False
    else:
        found = folder.stat()
        return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, completely or not at all. An identical file is left alone."""
    with suppress(OSError):  # no such file; the check is for a full disk, on which the file could not be replaced
        if path.read_bytes() == data and path.stat().st_mode & 0o777 == _OWNER_ONLY:
            return
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # an old file might be readable by others
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
