"""The environments that a worker has, and how it gets them: files come, wheels are unpacked, a folder is made.

Rule 1: the worker's loop waits for nothing here. Threads look at the disk, and processes that give way to everybody
else do the work (`install.py`). If tasks run as another user, these processes run as a third one, which is neither root
nor theirs.
Rule 2: one environment is made at a time, the most urgent first. It is made in the worker's own folder, so what a
killed worker leaves is removed by the next.
Rule 3: each submitter has folders of its own. A folder with a process in it stays.
Rule 4: what this worker reads again or follows lies where only workers write: the marks of wheels in use, and what is
known of these, are outside of the folders that wheels fill.
Rule 5: the environments of one submitter take at most a share of what all may take on this PC.
"""

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from deskgrid import wire
from deskgrid.disk import remove_tree
from deskgrid.worker.environments.helpers import Helpers, Stopped
from deskgrid.worker.environments.install import ABOUT, FILES, about_of
from deskgrid.worker.environments.installer import find_installer
from deskgrid.worker.environments.site import EnvironmentSite
from deskgrid.worker.environments.store import NoRoom, Unpacked, WheelStore
from deskgrid.worker.files.background import Background
from deskgrid.worker.files.cache import FileCache, link
from deskgrid.worker.files.claims import Claims
from deskgrid.worker.files.downloads import Downloads

# How many wheels are unpacked at a time: more would only share the disk.
AT_ONCE = max(1, min(4, os.cpu_count() or 1))
# How often a wheel may turn out to be gone from the disk again before this counts as trouble.
ROUNDS_LIMIT = 5
# Wheels of one environment: five times the largest that we know.
WHEELS_LIMIT = 2_000
# Environments that are kept although no bag needs them: the next bag may, and a folder costs a few megabytes.
KEPT = 4
# One submitter's environments take at most so much of what all wheels of the PC may take.
SHARE = 0.5
# The folders below the worker's own one; and in each of them the marks of the wheels that it uses, and the environment.
PLACE = "environments"
MARKS, ENVIRONMENT = "used", "env"
# The programs of an environment; and what its Python may be called.
_PROGRAMS = "Scripts" if os.name == "nt" else "bin"
_PYTHON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(slots=True, eq=False)
class _Making:
    """An environment that is being made in ``folder``. ``left``: wheels that are not unpacked, by id.

    ``sizes``: bytes of its wheels that are unpacked, or are being, by id. ``size``: bytes of work.
    """

    wanted: wire.EnvironmentWanted
    began: float
    folder: Path
    left: dict[str, wire.TreeFile] = field(default_factory=dict)
    wheels: list[str] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    size: int = 0
    rounds: int = 0


@dataclass(slots=True)
class _Lookup:
    """The wheels of an environment: those that are here, and those that are not, by id. ``parts``: of all of them."""

    here: dict[str, Unpacked]
    left: dict[str, wire.TreeFile]
    parts: list[bytes]


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
        claims: Claims,
        *,
        wake: Callable[[], None],
        in_use: Callable[[str], bool],
        nice: int = 0,
        apart: bool = False,
        interpreters: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``interpreters``: the other Pythons of this PC, by version. ``apart``: tasks run as other users, who are let
        into what is theirs later. Raises `AccountError`.
        """
        self.ready: dict[str, EnvironmentSite] = {}
        self._store = store
        self._cache = cache
        self._place = area / PLACE
        self._downloads = downloads
        self._claims = claims
        self._in_use = in_use
        self._apart = apart
        self._installer = find_installer() if apart else None
        if self._installer is not None:
            self._installer.let_pass(store.folder)
        self._helpers = Helpers(nice, self._installer)
        self._background = Background(wake, AT_ONCE)
        self._wanted: dict[str, wire.EnvironmentWanted] = {}
        self._failed: set[str] = set()
        self._making: _Making | None = None
        # The owner of each environment that is here, and the bytes of its wheels, by id.
        self._parts: dict[str, tuple[str, dict[str, int]]] = {}
        # What is reserved while wheels are unpacked is counted in several threads.
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._news: list[wire.Prepared] = []
        self._resting = False
        self._system = wire.this_system()
        self._interpreters = interpreters
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
        self._background.poll()

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
        self._background.close()

    # --- one after another -------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin to make the most urgent environment that is not here."""
        if self._making is not None or self._resting:
            return
        todo = (key for key in self._wanted if key not in self.ready and key not in self._failed)
        key = next(todo, None)
        if key is not None:
            self._making = _Making(self._wanted[key], self._now, self._place / f"{next(self._numbers)}")
            self._look(self._making)

    def _let_go(self) -> None:
        """Remove environments that are not wanted any more and have no process, but for the last few."""
        for key in self._spare()[: -KEPT or None]:
            self._background.do(partial(_remove, [self._drop(key)]), _nothing)

    def _spare(self) -> list[str]:
        """The environments that are not wanted any more and have no process."""
        return [key for key in self.ready if key not in self._wanted and not self._in_use(key)]

    def _drop(self, key: str) -> Path:
        """Forget an environment, and return its folder, which is to be removed."""
        self._parts.pop(key, None)
        return Path(self.ready.pop(key).folder).parent

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
        self._leave(making)
        if making.wanted.key not in self.ready:
            self._background.do(partial(_remove, [making.folder]), _nothing)
        self._go_on()

    def _leave(self, making: _Making) -> None:
        """Nothing more is asked for in the name of an environment."""
        self._downloads.drop(making.wanted.bag)
        self._claims.drop(making.wanted.bag)

    def _make_room(self, making: _Making, error: NoRoom) -> None:
        """There was no room for a wheel: without the environments that no bag needs, there may be."""
        spare = self._spare()
        if not self._is_current(making):
            return
        if not spare:
            self._fail(making, str(error), this_pc=True)
            return
        self._making = None
        self._leave(making)
        folders = [*map(self._drop, spare), making.folder]
        self._background.do(partial(_remove, folders), lambda found: self._go_on())

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
        self._background.do(lambda: self._lookup(making), lambda found: self._looked(making, found))

    def _lookup(self, making: _Making) -> _Lookup | None:
        """Look for all wheels; None if the tree is not here. Raises `TreeRefused`, and OSError."""
        marks = making.folder / MARKS
        self._place.mkdir(mode=0o711, exist_ok=True)
        making.folder.mkdir(mode=0o711, exist_ok=True)
        marks.mkdir(mode=0o700, exist_ok=True)
        data = self._cache.tree(making.wanted.tree)
        if data is None:
            return None
        entries = {entry.id: entry for entry in wire.read_tree(data).entries}
        if len(entries) > WHEELS_LIMIT:
            raise wire.TreeRefused(f"it has {len(entries):,} wheels; at most {WHEELS_LIMIT:,}")
        found = {wheel: self._store.use(wheel, marks) for wheel in entries}
        here = {wheel: unpacked for wheel, unpacked in found.items() if unpacked is not None}
        parts = [part for entry in entries.values() for part in wire.split_digests(entry.parts)]
        return _Lookup(here, {wheel: entry for wheel, entry in entries.items() if wheel not in here}, parts)

    def _looked(self, making: _Making, found: _Lookup | Exception | None) -> None:
        if not self._is_current(making):
            return
        if isinstance(found, Exception):
            self._fail(making, str(found), this_pc=isinstance(found, OSError))
        elif found is None:
            bag = making.wanted.bag
            self._downloads.tree(making.wanted.tree, bag, lambda reason: self._came(making, None, reason))
        elif not self._claims.knows(making.wanted.owner, making.wanted.tree):
            wanted = making.wanted
            self._claims.ask(
                wanted.bag, wanted.owner, wanted.tree, found.parts, lambda reason: self._came(making, None, reason)
            )
        else:
            making.wheels, making.left = sorted([*found.here, *found.left]), found.left
            making.paths = {wheel: unpacked.path for wheel, unpacked in found.here.items()}
            making.sizes = {wheel: unpacked.about.bytes for wheel, unpacked in found.here.items()}
            making.size += sum(entry.size for entry in making.left.values())
            try:
                self._check_share(making, {})
            except NoRoom as error:
                self._make_room(making, error)
                return
            for entry in list(making.left.values()):
                self._fetch(making, entry)
            if not making.left:
                self._make(making)

    def _fetch(self, making: _Making, entry: wire.TreeFile) -> None:
        def found(path: "Path | Exception | None") -> None:
            if not self._is_current(making):
                return
            if isinstance(path, Path):
                self._unpack(making, entry, path)
            else:
                bag = making.wanted.bag
                self._downloads.file(entry, bag, lambda reason: self._came(making, entry, reason))

        self._background.do(lambda: self._cache.find(entry), found)

    def _came(self, making: _Making, entry: wire.TreeFile | None, reason: str) -> None:
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

    def _unpack(self, making: _Making, entry: wire.TreeFile, wheel: Path) -> None:
        target = self._place / f"new-{next(self._numbers)}"

        def unpack() -> dict[str, Any]:
            with ExitStack() as stack:
                stack.callback(_remove, [target])
                target.mkdir(mode=0o711)
                link(wheel, target / "wheel", executable=False)
                self._new(target / FILES)
                said = self._helpers.run(
                    "unpack",
                    str(target / "wheel"),
                    str(target / FILES),
                    needs=lambda size: stack.enter_context(self._room(making, entry.id, size)),
                )
                if "unpacked" in said and not {"refused", "trouble"} & said.keys():
                    compiled = int(said.get("compiled", said["needs"] - said["bytes"]))  # it may have taken too long
                    about = about_of(said | {"bytes": said["bytes"] + compiled})
                    (target / ABOUT).write_text(about.text(), encoding="utf-8")
                    (target / "wheel").unlink()
                    self._store.keep(entry.id, target)
                    if self._installer is not None:  # somebody may have removed the folder of all wheels
                        self._installer.let_pass(self._store.folder)
                    said["used"] = self._store.use(entry.id, making.folder / MARKS)
                return said

        self._background.do(unpack, lambda said: self._unpacked(making, entry, said))

    def _new(self, folder: Path) -> None:
        """Make a folder for a helper to fill. Raises OSError."""
        folder.mkdir(mode=0o755)
        if self._installer is not None:
            self._installer.own(folder)

    @contextmanager
    def _room(self, making: _Making, wheel: str, size: int) -> Iterator[None]:
        """Have room for a wheel of an environment. Raises `NoRoom`, and OSError."""
        self._check_share(making, {wheel: size})
        with self._store.room_for(size):
            yield

    def _check_share(self, making: _Making, more: dict[str, int]) -> None:
        """Count bytes of wheels, by id, in the share of an environment's owner. Raises `NoRoom`."""
        owner, most = making.wanted.owner, int(self._store.most * SHARE)
        with self._lock:
            sizes = dict[str, int]()
            for its, wheels in self._parts.values():
                sizes |= wheels if its == owner else {}
            takes = sum((sizes | making.sizes | more).values())
            if takes > most:
                raise NoRoom(
                    f"with it, the libraries of {owner} would take {takes / 1e6:,.1f} MB here, and those of one person "
                    f"may take {most / 1e6:,.0f} MB (half of --env-cache)"
                )
            making.sizes |= more

    def _unpacked(self, making: _Making, entry: wire.TreeFile, said: dict[str, Any] | Exception) -> None:
        if not self._is_current(making):
            return
        if isinstance(said, NoRoom):
            self._make_room(making, said)
            return
        if self._failed_by(making, said, entry.path):
            return
        assert isinstance(said, dict)
        used: Unpacked | None = said["used"]
        if used is None:
            self._look(making)
            return
        making.size += used.about.bytes
        making.sizes[entry.id], making.paths[entry.id] = used.about.bytes, used.path
        making.left.pop(entry.id, None)
        if not making.left:
            self._make(making)

    def _make(self, making: _Making) -> None:
        target = making.folder / ENVIRONMENT
        paths = [making.paths[wheel] for wheel in making.wheels]

        def make() -> dict[str, Any]:
            _remove([target])
            self._new(target)
            said = self._helpers.run(
                "make", str(target), *map(str, paths), python=self._interpreters.get(making.wanted.python)
            )
            if said.get("damaged", len(paths)) < len(paths):
                self._store.drop(paths[said["damaged"]], self._place / f"old-{next(self._numbers)}")
            if self._apart and "python" in said:
                making.folder.chmod(0o700)
            return said

        self._background.do(make, lambda said: self._made(making, target, said))

    def _made(self, making: _Making, target: Path, said: dict[str, Any] | Exception) -> None:
        if not self._is_current(making):
            self._background.do(partial(_remove, [making.folder]), _nothing)
        elif isinstance(said, dict) and ("damaged" in said or "gone" in said):
            self._look(making)
        elif not self._failed_by(making, said):
            assert isinstance(said, dict)
            if not _PYTHON.fullmatch(said.get("python", "")):
                self._fail(making, "its helper said something that makes no sense", this_pc=True)
                return
            key, identity, programs = making.wanted.key, self._identity(making), target / _PROGRAMS
            self.ready[key] = EnvironmentSite(identity, str(programs / said["python"]), str(target), str(programs))
            self._parts[key] = making.wanted.owner, making.sizes
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

    def _identity(self, making: _Making) -> str:
        named = [making.wanted.python, self._system.platform, *making.wheels]
        return sha256("\n".join(named).encode()).hexdigest()


def _remove(folders: Iterable[Path]) -> None:
    """Remove folders of this worker, as far as possible. Links in them are not followed."""
    for folder in folders:
        remove_tree(folder)


def _nothing(found: object) -> None:
    pass
