"""The unpacked wheels of a PC, which all of its workers share: each once, by its content; the least used go first.

Rule 1: a wheel appears under its name when all of it is there. Until then it is in the folder of the worker that
unpacks it, which the next worker removes if that one is killed.
Rule 2: what is known of a wheel lies beside its files, in a folder where only workers write. Nothing else is believed,
and it is checked whenever it is read.
Rule 3: environments have hard links to the files, which are read-only. Whoever uses a wheel has a hard link to what is
known of it, too, among its *marks*: then the wheel is not removed.
Rule 4: all wheels together have at most so many bytes as their PC allows, whether they are used or not.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from sys import implementation
from typing import NamedTuple

from deskgrid.disk import remove_tree
from deskgrid.worker.environments.install import ABOUT, FILES, About, WheelChanged, read_about

# What the names of wheels begin with that are being removed.
_GONE = "gone-"


class NoRoom(Exception):
    """There is no room for a wheel; one line."""


class Unpacked(NamedTuple):
    """A wheel that is here."""

    path: Path
    about: About


class WheelStore:
    """``folder``: for all workers of this PC. ``most``: bytes of all wheels."""

    def __init__(self, folder: Path, most: int) -> None:
        """Make the folder, if there is none. Raises OSError."""
        self.folder = folder
        self.most = most
        # Bytes that wheels need which are being unpacked.
        self._reserved = 0
        self._lock = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _path(self, wheel: str) -> Path:
        """Bytecode is of one Python, so each has wheels of its own."""
        return self.folder / f"{wheel}-{implementation.cache_tag}"

    def use(self, wheel: str, marks: Path) -> Unpacked | None:
        """An unpacked wheel, which stays as long as the folder ``marks`` is there; None if it is not here."""
        path = self._path(wheel)
        try:
            # It may have the mark, or not be here, or there are no links, and environments have copies.
            with suppress(OSError):
                os.link(path / ABOUT, marks / wheel)
            about = read_about(path)
            os.utime(path)
            if (path / FILES).is_dir():
                return Unpacked(path, about)
        except WheelChanged:
            pass
        except OSError:
            return None
        self.drop(path, path.with_name(_gone()))
        return None

    def keep(self, wheel: str, unpacked: Path) -> None:
        """Keep a wheel that was unpacked on the same disk. Raises OSError."""
        path = self._path(wheel)
        try:
            unpacked.rename(path)
        except OSError:
            if not path.is_dir():  # else another worker of this PC was faster
                raise

    def drop(self, path: Path, trash: Path) -> None:
        """Remove the unpacked wheel at ``path``, by way of a new name on the same disk."""
        with suppress(OSError):  # another worker removes it
            path.rename(trash)
            remove_tree(trash)

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Have room for ``size`` bytes: wheels that nobody uses go, those first that were used least lately.

        Raises `NoRoom`, and OSError.
        """
        with self._lock:
            self._make_room(size)
            self._reserved += size
        try:
            yield
        finally:
            with self._lock:
                self._reserved -= size

    def _make_room(self, size: int) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # somebody may have removed it
        rows = sorted(self._rows())
        room = self.most - self._reserved - size - sum(row[1] for row in rows)
        for _, its, path, used in rows:
            if room < 0 and not used:
                self.drop(path, path.with_name(_gone()))
                room += its
        if room < 0:
            left, most = max(0, room + size) / 1e6, self.most / 1e6
            raise NoRoom(
                f"it needs {size / 1e6:,.1f} MB, and libraries that are in use leave {left:,.1f} of the {most:,.0f} MB "
                "that all may take on this PC (--env-cache)"
            )

    def _rows(self) -> Iterator[tuple[float, int, Path, bool]]:
        """(when it was used, its bytes, path, whether somebody uses it) of each wheel."""
        for path in self.folder.iterdir():
            with suppress(OSError):
                try:
                    if not path.name.startswith(_GONE):
                        found = os.stat(path / ABOUT)
                        yield path.stat().st_mtime, read_about(path).bytes, path, found.st_nlink > 1
                        continue
                except (WheelChanged, FileNotFoundError):
                    pass  # nobody can use it
                remove_tree(path)


def _gone() -> str:
    return f"{_GONE}{token_hex(8)}"
