"""Pieces of shared memory that killed MPI programs left: MPICH removes them only when it ends in good order.

Rule: only what may be ours is removed: it belongs to a user of our tasks, was not there before the rank that was
killed, and at two looks, a second apart, no process uses it.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

# Seconds between two looks: a program may be just about to map what it has made.
LOOK_S = 1.0
_PATTERN = "mpich_shm_*"


class Leftovers:
    """``uids``: of the users of our tasks; empty: our own. ``now`` is monotonic seconds."""

    def __init__(self, uids: Collection[int] = (), folder: Path = Path("/dev/shm"), proc: Path = Path("/proc")) -> None:
        self._uids = uids or ([os.getuid()] if hasattr(os, "getuid") else [])
        self._folder = folder
        self._proc = proc
        # Those that may be left, and whether nobody used them at the last look.
        self._suspects: dict[str, bool] = {}
        self._next = 0.0

    def present(self) -> frozenset[str]:
        """The names of the pieces of these users that are there."""
        found = set()
        for path in self._folder.glob(_PATTERN):
            with suppress(OSError):  # it has just been removed
                if path.lstat().st_uid in self._uids:
                    found.add(path.name)
        return frozenset(found)

    def ended(self, before: Collection[str]) -> None:
        """An MPI process of ours has ended, or is about to. ``before``: what was present before it began."""
        for name in self.present().difference(before):
            self._suspects.setdefault(name, False)

    def sweep(self, now: float) -> None:
        """Remove what nobody uses, if it is time to look."""
        if not self._suspects or now < self._next:
            return
        self._next = now + LOOK_S
        used, present = self._used(), self.present()
        for name, was_unused in list(self._suspects.items()):
            if name not in present:
                del self._suspects[name]
            elif was_unused and name not in used:
                del self._suspects[name]
                self._remove(name)
            else:
                self._suspects[name] = name not in used

    def close(self) -> None:
        """Remove what nobody uses, at once: our processes have ended."""
        if self._suspects:
            for name in set(self._suspects).difference(self._used()):
                self._remove(name)
        self._suspects.clear()

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()

    def _used(self) -> set[str]:
        """The names of the pieces that a process has mapped. Processes of other users are not ours to look at."""
        found = set()
        for maps in self._proc.glob("[0-9]*/maps"):
            with suppress(OSError):  # it has ended, or is another user's
                for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
                    _, slash, name = line.rpartition(f"{self._folder}/")
                    if slash:
                        found.add(name.removesuffix(" (deleted)"))
        return found
