"""The environments that a worker has, and how it gets them: files come, wheels are unpacked, a folder is made.

Rule 1: the worker's loop waits for nothing here. Threads look at the disk, and processes that give way to everybody
else do the work (`install.py`).
Rule 2: one environment is made at a time, the most urgent first. It is made in the worker's own folder, so what a
killed worker leaves is removed by the next.
Rule 3: each submitter has folders of its own. A folder with a process in it stays.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from deskgrid import wire
from deskgrid.worker.environments.helpers import Helpers, Stopped
from deskgrid.worker.environments.site import Site
from deskgrid.worker.environments.store import WheelStore
from deskgrid.worker.files.cache import FileCache
from deskgrid.worker.files.downloads import Downloads
from deskgrid.worker.files.errands import Errands

# How many wheels are unpacked at a time: more would only share the disk.
AT_ONCE = max(1, min(4, os.cpu_count() or 1))
# How often a wheel may turn out to be gone from the disk again before this counts as trouble.
ROUNDS_LIMIT = 5
# Wheels of one environment: five times the largest that we know.
WHEELS_LIMIT = 2_000
# Environments that are kept although no bag needs them: the next bag may, and a folder costs a few megabytes.
KEPT = 4
# The folders below the worker's own one.
PLACE = "environments"


@dataclass(slots=True, eq=False)
class _Making:
    """An environment that is being made. ``left``: wheels that are not unpacked, by id; ``size``: bytes of work."""

    wanted: wire.EnvironmentWanted
    began: float
    left: dict[str, wire.Entry] = field(default_factory=dict)
    wheels: list[str] = field(default_factory=list)
    size: int = 0
    rounds: int = 0


class Environments:
    """``ready``: those that processes can run in, by key. ``in_use``: whether a process runs in one.

    ``nice``: how far its helpers give way to others on this PC.
    """

    def __init__(
        self,
        store: WheelStore,
        cache: FileCache,
        area: Path,
        downloads: Downloads,
        *,
        wake: Callable[[], None],
        in_use: Callable[[str], bool],
        nice: int = 0,
    ) -> None:
        self.ready: dict[str, Site] = {}
        self._store = store
        self._cache = cache
        self._place = area / PLACE
        self._downloads = downloads
        self._in_use = in_use
        self._helpers = Helpers(nice)
        self._errands = Errands(wake, AT_ONCE)
        self._wanted: dict[str, wire.EnvironmentWanted] = {}
        self._failed: set[str] = set()
        self._making: _Making | None = None
        self._numbers = itertools.count(1)
        self._news: list[wire.Prepared] = []
        self._resting = False
        self._system = wire.this_system()
        self._now = 0.0

    # --- what the stage calls ----------------------------------------------------------------------------------------

    def prepare(self, message: wire.Prepare, now: float) -> None:
        """The broker says which environments this worker is to have."""
        self._now = now
        self._wanted = {wanted.key: wanted for wanted in message.environments}
        self._failed.clear()
        for key in self._wanted:
            if self._has(key):
                self.ready[key] = self.ready.pop(key)  # the last one that would be let go
                self._say(key, wire.Readiness.READY)
        self._let_go()
        self._go_on()

    def lacks(self, key: str) -> bool:
        """Whether an environment is not ready, although the broker believes it: then it is told."""
        if self._has(key):
            return False
        if key not in self._wanted:
            self._say(key, wire.Readiness.GONE)
        return True

    def _has(self, key: str) -> bool:
        """Whether an environment is ready. If somebody has removed it, the broker is told."""
        if key not in self.ready:
            return False
        if os.path.isdir(self.ready[key].folder):
            return True
        del self.ready[key]
        self._say(key, wire.Readiness.GONE)
        return False

    def poll(self) -> None:
        """Pass on what threads have done."""
        self._errands.poll()

    def say(self, now: float) -> Iterable[wire.Prepared]:
        """Return the messages that are due."""
        self._now = now
        if len(self.ready) > len(self._wanted) + KEPT:
            self._let_go()
        news, self._news = self._news, []
        return news

    def rest(self) -> None:
        """Prepare nothing, because the PC's window is closed."""
        self._resting = True
        self._helpers.stop()

    def start(self) -> None:
        """Go on."""
        if self._resting:
            self._resting = False
            self._helpers.go_on()
            self._go_on()

    def close(self) -> None:
        """End the threads and the helpers."""
        self._helpers.stop()
        self._errands.close()

    # --- one after another -------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin to make the most urgent environment that is not here."""
        if self._making is not None or self._resting:
            return
        todo = (key for key in self._wanted if key not in self.ready and key not in self._failed)
        key = next(todo, None)
        if key is not None:
            self._making = _Making(self._wanted[key], self._now)
            self._look(self._making)

    def _let_go(self) -> None:
        """Remove environments that are not wanted any more and have no process, but for the last few."""
        for key in [key for key in self.ready if key not in self._wanted and not self._in_use(key)][: -KEPT or None]:
            folder = self.ready.pop(key).folder
            self._errands.do(partial(shutil.rmtree, folder, ignore_errors=True), _nothing)

    def _say(self, key: str, readiness: wire.Readiness, package: str = "", reason: str = "", **facts: Any) -> None:
        facts = {"seconds": 0.0, "size": 0} | facts
        self._news.append(
            wire.Prepared(key, int(readiness), wire.cut(package, wire.NAME_BYTES), wire.cut(reason, 1000), **facts)
        )

    def _is_current(self, making: _Making) -> bool:
        """Whether an environment is still to be made; if not, the next one is begun."""
        if self._making is not making:
            return False
        if making.wanted.key in self._wanted and not self._resting:
            return True
        self._end(making)
        return False

    def _end(self, making: _Making) -> None:
        self._making = None
        self._downloads.drop(making.wanted.bag)
        self._go_on()

    def _fail(self, making: _Making, reason: str, package: str = "", *, this_pc: bool) -> None:
        if not self._is_current(making):
            return
        key, asked = making.wanted.key, making.wanted.bag
        if self._wanted[key].bag == asked:
            self._failed.add(key)
            readiness = wire.Readiness.TROUBLE if this_pc else wire.Readiness.REFUSED
            self._say(key, readiness, package, reason)
        # Otherwise the bag in whose name files were asked for is over, and another one needs them.
        self._end(making)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _look(self, making: _Making) -> None:
        """Find out which wheels are here."""
        making.rounds += 1
        if making.rounds > ROUNDS_LIMIT:
            self._fail(making, "its wheels do not stay on this PC's disk", this_pc=True)
            return
        digest = making.wanted.tree
        self._errands.do(lambda: self._lookup(digest), lambda found: self._looked(making, found))

    def _lookup(self, digest: bytes) -> "tuple[list[str], dict[str, wire.Entry]] | None":
        """The ids of all wheels, and those that are not unpacked; None if the tree is not here."""
        data = self._cache.tree(digest)
        if data is None:
            return None
        entries = {entry.id: entry for entry in wire.read_tree(data).entries}
        if len(entries) > WHEELS_LIMIT:
            raise wire.TreeRefused(f"it has {len(entries):,} wheels; at most {WHEELS_LIMIT:,}")
        return sorted(entries), {wheel: each for wheel, each in entries.items() if self._store.find(wheel) is None}

    def _looked(self, making: _Making, found: "tuple[list[str], dict[str, wire.Entry]] | Exception | None") -> None:
        if not self._is_current(making):
            return
        if isinstance(found, Exception):
            self._fail(making, str(found), this_pc=isinstance(found, OSError))
        elif found is None:
            bag = making.wanted.bag
            self._downloads.tree(making.wanted.tree, bag, lambda reason: self._came(making, None, reason))
        else:
            making.wheels, making.left = found[0], found[1]
            making.size += sum(entry.size for entry in making.left.values())
            for entry in list(making.left.values()):
                self._fetch(making, entry)
            if not making.left:
                self._make(making)

    def _fetch(self, making: _Making, entry: wire.Entry) -> None:
        def found(path: "Path | Exception | None") -> None:
            if not self._is_current(making):
                return
            if isinstance(path, Path):
                self._unpack(making, entry, path)
            else:
                bag = making.wanted.bag
                self._downloads.file(entry, bag, lambda reason: self._came(making, entry, reason))

        self._errands.do(lambda: self._cache.find(entry), found)

    def _came(self, making: _Making, entry: wire.Entry | None, reason: str) -> None:
        """The tree, or the file of a wheel, has come, or cannot come."""
        if not self._is_current(making):
            return
        if reason:
            # Not the wheel's fault: the disk's, or the broker's, who may have asked for it and forgotten that.
            self._fail(making, reason, "" if entry is None else entry.path, this_pc=True)
        elif entry is None:
            making.rounds -= 1
            self._look(making)
        else:
            self._fetch(making, entry)

    def _unpack(self, making: _Making, entry: wire.Entry, wheel: Path) -> None:
        target = self._place / f"new-{next(self._numbers)}"

        def unpack() -> dict[str, Any]:
            self._place.mkdir(mode=0o755, exist_ok=True)
            try:
                said = self._helpers.run("unpack", str(wheel), str(target))
                if "bytes" in said:
                    self._store.keep(entry.id, target)
                return said
            finally:
                shutil.rmtree(target, ignore_errors=True)

        self._errands.do(unpack, lambda said: self._unpacked(making, entry, said))

    def _unpacked(self, making: _Making, entry: wire.Entry, said: dict[str, Any] | Exception) -> None:
        if not self._is_current(making):
            return
        if self._failed_by(making, said, entry.path):
            return
        assert isinstance(said, dict)
        making.size += int(said["bytes"])
        making.left.pop(entry.id, None)
        if not making.left:
            self._make(making)

    def _make(self, making: _Making) -> None:
        target = self._place / f"{next(self._numbers)}"
        found = [self._store.find(wheel) for wheel in making.wheels]
        paths = [path for path in found if path is not None]
        if len(paths) < len(found):
            self._look(making)
            return

        def make() -> dict[str, Any]:
            self._place.mkdir(mode=0o755, exist_ok=True)
            said: dict[str, Any] = {}
            try:
                said = self._helpers.run("make", str(target), *map(str, paths))
            finally:
                if "python" not in said:
                    shutil.rmtree(target, ignore_errors=True)
            if "damaged" in said:
                with suppress(OSError):
                    self._store.drop(Path(said["damaged"]), self._place / f"old-{next(self._numbers)}")
            return said

        self._errands.do(make, lambda said: self._made(making, target, said))

    def _made(self, making: _Making, target: Path, said: dict[str, Any] | Exception) -> None:
        if not self._is_current(making):
            self._errands.do(lambda: shutil.rmtree(target, ignore_errors=True), _nothing)
        elif isinstance(said, dict) and ("damaged" in said or "gone" in said):
            self._look(making)
        elif not self._failed_by(making, said):
            assert isinstance(said, dict)
            key, identity = making.wanted.key, self._identity(making.wheels)
            self.ready[key] = Site(identity, str(target), said["python"], said["programs"])
            seconds = max(0.0, self._now - making.began)
            self._say(key, wire.Readiness.READY, seconds=seconds, size=making.size)
            self._end(making)

    def _failed_by(self, making: _Making, said: dict[str, Any] | Exception, package: str = "") -> bool:
        """Whether a helper failed; then so has the environment, unless the window has closed."""
        if isinstance(said, Stopped):
            self._end(making)
        elif isinstance(said, Exception):
            self._fail(making, getattr(said, "strerror", None) or str(said), package, this_pc=True)
        elif "refused" in said:
            self._fail(making, said["refused"], package, this_pc=False)
        elif "trouble" in said:
            self._fail(making, said["trouble"], package, this_pc=True)
        else:
            return False
        return True

    def _identity(self, wheels: Iterable[str]) -> str:
        named = [self._system.python, self._system.platform, *wheels]
        return sha256("\n".join(named).encode()).hexdigest()


def _nothing(found: object) -> None:
    pass
