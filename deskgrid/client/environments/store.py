"""The wheels that this user's programs have sent, and what requirements were resolved to, in the user's cache folder.

Rule 1: a wheel is known by its SHA-256, and comes into its place by a rename. So programs may share the store, and one
that is killed leaves at most a folder that the next one removes.
Rule 2: losing the store costs time and nothing else.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from deskgrid.errors import BagRejected
from deskgrid.homes import NoHome, user_home

# How long a resolution is used again: then newer versions that a requirement allows are looked for. Seconds.
RESOLVED_S = 7 * 86_400.0
# Wheels that were not used for so long are removed, and the oldest if there are more bytes than this. Seconds, bytes.
KEPT_S = 60 * 86_400.0
KEPT_BYTES = 10 * 2**30
# What a killed program left is removed after this time. Seconds.
_LEFT_S = 86_400.0


class Wheel(NamedTuple):
    """A wheel in the store. ``size``: its bytes; ``unpacked``: the bytes of the files in it."""

    name: str
    sha256: str
    path: str
    size: int
    unpacked: int


def cache_folder() -> Path:
    """Return our folder in the user's cache folder. Raises `BagRejected` if the user has none."""
    try:
        return _cache() / "deskgrid"
    except NoHome as error:
        raise BagRejected(f"environments need a cache, and {error}: set HOME, or XDG_CACHE_HOME") from error


def _cache() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or user_home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = user_home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or user_home() / ".cache"
    return Path(base)


class WheelFolder:
    """``folder``: made when it is first needed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = cache_folder() if folder is None else folder

    @contextmanager
    def room(self) -> Iterator[Path]:
        """A fresh folder for a moment, on the disk of the store. Raises `BagRejected`."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            room = tempfile.TemporaryDirectory(prefix="new-", dir=self._folder, ignore_cleanup_errors=True)
        except OSError as error:
            raise BagRejected(f"no wheels can be kept in {self._folder}: {error.strerror}") from error
        with room as path:
            yield Path(path)

    def add(self, folder: Path) -> list[Wheel]:
        """Move the wheels in a folder into the store, if PCs can unpack them. Raises `BagRejected`."""
        _check(folder)
        return [self._add(path) for path in folder.glob("*.whl")]

    def _add(self, path: Path) -> Wheel:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            place = self._folder / "wheels" / digest
            place.mkdir(parents=True, exist_ok=True)
            os.replace(path, place / path.name)
            return _wheel(place / path.name, digest)
        except (OSError, zipfile.BadZipFile) as error:
            raise BagRejected(f"{path.name} cannot be kept in {self._folder}: {error}") from error

    # --- what was resolved -------------------------------------------------------------------------------------------

    def resolved(self, key: object) -> list[Wheel] | None:
        """Return the wheels that something was resolved to; None if it has to be resolved (again)."""
        try:
            found = json.loads(self._note(key).read_text("utf-8"))
            if not 0 <= time.time() - found["at"] <= RESOLVED_S:
                return None
            wheels = [_wheel(self._folder / "wheels" / digest / name, digest) for digest, name in found["wheels"]]
            for wheel in wheels:
                os.utime(Path(wheel.path).parent)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None
        return wheels

    def note(self, key: object, wheels: Sequence[Wheel]) -> None:
        """Note what something was resolved to."""
        note = self._note(key)
        text = json.dumps({"at": time.time(), "wheels": [(wheel.sha256, wheel.name) for wheel in wheels]})
        with suppress(OSError, BagRejected):
            note.parent.mkdir(parents=True, exist_ok=True)
            with self.room() as room:  # another machine may share the folder, and write the same note
                part = room / note.name
                part.write_text(text, "utf-8")
                os.replace(part, note)
        self._tidy()

    def forget(self, names: Collection[str]) -> None:
        """Forget what was resolved to exactly the wheels of these names, and the wheels that nothing else needs."""
        with suppress(OSError):
            needed: set[str] = set()
            for note in (self._folder / "resolved").iterdir():
                its = json.loads(note.read_text("utf-8"))["wheels"]
                if {name for _, name in its} == set(names):
                    note.unlink()
                else:
                    needed.update(digest for digest, _ in its)
            for place in (self._folder / "wheels").iterdir():
                if place.name not in needed:
                    shutil.rmtree(place, ignore_errors=True)

    def _note(self, key: object) -> Path:
        return self._folder / "resolved" / hashlib.sha256(json.dumps(key).encode()).hexdigest()

    def _tidy(self) -> None:
        """Remove what was not used for long, and the oldest if there is too much."""
        now, total = time.time(), 0
        with suppress(OSError):
            for left in self._folder.glob("new-*"):
                if now - left.stat().st_mtime > _LEFT_S:
                    shutil.rmtree(left, ignore_errors=True)
            found = [(place.stat().st_mtime, place) for place in (self._folder / "wheels").iterdir()]
            for used, place in sorted(found, reverse=True):
                total += sum(file.stat().st_size for file in place.iterdir())
                if now - used > KEPT_S or total > KEPT_BYTES:
                    shutil.rmtree(place, ignore_errors=True)
            for note in (self._folder / "resolved").iterdir():
                if now - note.stat().st_mtime > RESOLVED_S:
                    note.unlink(missing_ok=True)


def _check(folder: Path) -> None:
    """Have a PC's program look at the wheels in a folder: no task would ever start with one that it refuses."""
    program = [sys.executable, "-P", "-m", "deskgrid.worker.environments.install", "0", "check", str(folder)]
    said: dict[str, str] = {}
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        for line in process.stdout:
            said |= json.loads(line)
    if "refused" in said:
        raise BagRejected(f"no PC can unpack {said['wheel']}: {said['refused']}")


def _wheel(path: Path, digest: str) -> Wheel:
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(info.file_size for info in archive.infolist())
    return Wheel(path.name, digest, str(path), path.stat().st_size, unpacked)
