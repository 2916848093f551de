"""The unpacked wheels of a PC, which all of its workers share: each once, by its content; the least used go first.

Rule 1: a wheel appears under its name when all of it is there. Until then it is in the folder of the worker that
unpacks it, which the next worker removes if that one is killed.
Rule 2: environments have hard links to these files, which are read-only. A wheel of which an environment has links is
never removed.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deskgrid.worker.environments.install import ABOUT


class WheelStore:
    """``folder``: for all workers of this PC. ``most``: bytes of wheels that no environment uses."""

    def __init__(self, folder: Path, most: int) -> None:
        """Make the folder, if there is none. Raises OSError."""
        self._folder = folder
        self._most = most
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)

    def _path(self, wheel: str) -> Path:
        """Bytecode is of one Python, so each has wheels of its own."""
        return self._folder / f"{wheel}-{sys.implementation.cache_tag}"

    def find(self, wheel: str) -> Path | None:
        """The folder of an unpacked wheel, which counts as used now; None if it is not here."""
        path = self._path(wheel)
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def keep(self, wheel: str, unpacked: Path) -> None:
        """Keep a wheel that was unpacked on the same disk. Raises OSError."""
        path = self._path(wheel)
        size = _size_of(unpacked)
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)  # somebody may have removed it
        try:
            unpacked.rename(path)
        except OSError:
            if not path.is_dir():  # else another worker of this PC was faster
                raise
        self._make_room(size, path)

    def drop(self, path: Path, trash: Path) -> None:
        """Remove the unpacked wheel at ``path``, by way of a new name on the same disk. Raises OSError."""
        path.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _make_room(self, size: int, new: Path) -> None:
        """Remove the wheels that were used least lately, if there are too many bytes with ``size`` new ones."""
        rows = sorted(self._rows())
        total = sum(row[1] for row in rows)
        for _, its, path in rows:
            if total <= self._most:
                return
            if path != new:
                with suppress(OSError):  # another worker removes it
                    self.drop(path, path.with_name(f"gone-{os.getpid()}-{time.monotonic_ns()}"))
                    total -= its

    def _rows(self) -> Iterator[tuple[float, int, Path]]:
        """(when it was used, its bytes, path) of each wheel that no environment uses."""
        for path in self._folder.iterdir():
            with suppress(OSError):
                if path.name.startswith("gone-"):
                    shutil.rmtree(path, ignore_errors=True)
                elif os.stat(path / ABOUT).st_nlink == 1:
                    yield path.stat().st_mtime, _size_of(path), path


def _size_of(path: Path) -> int:
    """The bytes of an unpacked wheel. Raises OSError."""
    return int(json.loads((path / ABOUT).read_text(encoding="utf-8"))["bytes"])
