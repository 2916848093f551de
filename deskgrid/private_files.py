"""Folders and files that only their owner can read."""

import os
from contextlib import suppress
from pathlib import Path

_OWNER_ONLY = 0o600
_OWNER_ONLY_FOLDER = 0o700


def make_private(home: Path, name: str) -> None:
    """Make a folder for its owner only, if there is none, and in it the file ``name`` and what belongs to that."""
    home.mkdir(mode=_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    (home / name).touch(mode=_OWNER_ONLY)
    for path in home.glob(f"{name}*"):
        path.chmod(_OWNER_ONLY)  # an earlier version let others read it


def make_private_folder(folder: Path) -> None:
    """Make a folder for its owner only, if there is none."""
    folder.mkdir(mode=_OWNER_ONLY_FOLDER, exist_ok=True)
    folder.chmod(_OWNER_ONLY_FOLDER)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, complete or not at all. One that is as wanted is left alone."""
    with suppress(OSError):  # on a full disk nothing could be written in its place
        if path.read_bytes() == data and path.stat().st_mode & 0o777 == _OWNER_ONLY:
            return
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # one that somebody left there may be readable by others
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
