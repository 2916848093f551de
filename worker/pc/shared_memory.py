"""What tasks that were killed have left in the memory of a PC: it would stay until the PC is started again.

Rule 1: nothing is removed that may be the owner's of the PC. What a process of ours is known to have made, or had in
use when it was killed, is removed when that process has ended: see `deskgrid.worker.run.process`. What is removed here
beyond that was not there before one of our processes, and no process used it at two looks, a second apart. If the
owner's programs run as the same user, its name must also be one that a library gives, and Python does not.
Rule 2: if tasks run as users of their own, all that belongs to these is theirs. What else they can leave is removed
before somebody else gets the account: see `deskgrid.worker.run.clearing`.
"""

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from deskgrid.worker.run.shared import Entry, remove, used

# Seconds between two looks: a program may be just about to map what it has made.
LOOK_S = 1.0
# The names that MPICH, Open MPI, UCX, NCCL, PyTorch and joblib give.
PATTERNS = (
    "mpich_shm_*",
    "vader_segment.*",
    "sm_segment.*",
    "ucx_shm_posix_*",
    "nccl-*",
    "torch_*",
    "joblib_memmapping_folder_*",
    "sem.loky-*",
)


class Leftovers:
    """``uids``: of the users of tasks, if they have some of their own; empty: our own, perhaps the owner of the PC.

    ``now`` is monotonic seconds.
    """

    def __init__(
        self,
        uids: Collection[int] = (),
        folder: Path = Path("/dev/shm"),
        proc: Path = Path("/proc"),
    ) -> None:
        self._is_theirs = bool(uids)
        self._uids = uids or ([os.getuid()] if hasattr(os, "getuid") else [])
        self._folder = folder
        self._proc = proc
        # Those that may be left, and whether nobody used them at the last look.
        self._suspects: dict[Entry, bool] = {}
        self._next = 0.0
        if self._is_theirs:
            self.ended(())  # what a worker that was killed has left

    def present(self) -> frozenset[Entry]:
        """All entries of this user that are there."""
        found = set()
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):  # it has just been removed
                    told = entry.stat(follow_symlinks=False)
                    if told.st_uid in self._uids:
                        found.add((entry.name, told.st_ino))
        return frozenset(found)

    def ended(self, before: Collection[Entry]) -> None:
        """A process of ours has ended. ``before``: what was present before it began."""
        for entry in self.present().difference(before):
            if self._is_theirs or any(fnmatchcase(entry[0], pattern) for pattern in PATTERNS):
                self._suspects.setdefault(entry, False)

    def sweep(self, now: float, made: Callable[[], Collection[Entry]]) -> None:
        """Remove what nobody uses, if it is time. ``made``: finds what processes of ours have made that live."""
        if self._suspects and now >= self._next:
            self._next = now + LOOK_S
            self._look(made())

    def _look(self, made: Collection[Entry]) -> None:
        in_use, present = self._used(), self.present()
        for entry, was_unused in list(self._suspects.items()):
            is_unused = entry[0] not in in_use and entry not in made
            if entry not in present:
                del self._suspects[entry]
            elif was_unused and is_unused:
                del self._suspects[entry]
                self._remove([entry])
            else:
                self._suspects[entry] = is_unused

    def close(self) -> None:
        """Remove what nobody uses, at once: our processes have ended."""
        if self._suspects:
            in_use = self._used()
            self._remove(entry for entry in self._suspects if entry[0] not in in_use)
        self._suspects.clear()

    def _remove(self, entries: Iterable[Entry]) -> None:
        remove(entries, self._uids, str(self._folder))

    def _used(self) -> set[str]:
        """The names of the entries that a process uses. Processes of other users are not ours to look at."""
        pids = [int(path.name) for path in self._proc.glob("[0-9]*")]
        return used(pids, str(self._proc), str(self._folder))
