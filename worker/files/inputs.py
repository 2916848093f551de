"""What a task needs before it can run: the folders of tasks, filled with stored files that are fetched if necessary."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deskgrid import wire
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.cache import FileCache, ThisPc
from deskgrid.worker.files.claims import Claims
from deskgrid.worker.files.downloads import Downloads
from deskgrid.worker.files.errands import Errands
from deskgrid.worker.run.accounts import Account
from deskgrid.worker.run.templates import UnpackedTemplate

# How often the files of a task may turn out to be gone from the cache again before it fails.
ROUNDS_LIMIT = 10
# Called once: with the reason if the files cannot be there, else with "". A `ThisPc` is this PC's fault.
Then = Callable[[str], None]


@dataclass(slots=True, eq=False)
class _Getting:
    """``left``: files and trees that have yet to come, or answers. ``owner``: whose task it is."""

    holder: str
    owner: str
    trees: tuple[bytes, ...]
    template: UnpackedTemplate
    then: Then
    rounds: int = 0
    left: int = 0


@dataclass(slots=True)
class _Lookup:
    """What is not in the cache. ``files_missing``: by id. ``claimed``: the parts of each tree that is to be claimed."""

    trees_missing: list[bytes]
    files_missing: dict[str, wire.Entry] = field(default_factory=dict)
    claimed: dict[bytes, list[bytes]] = field(default_factory=dict)


class Inputs:
    """``area``: where the folders of tasks are, on the disk of the cache. ``account``: the user that tasks run as."""

    def __init__(
        self,
        cache: FileCache,
        area: Path,
        errands: Errands,
        downloads: Downloads,
        *,
        claims: Claims,
        account: Account | None,
    ) -> None:
        self._cache = cache
        self._area = area
        self._errands = errands
        self._downloads = downloads
        self._claims = claims
        self._account = account
        self._getting: dict[str, _Getting] = {}

    def get(self, holder: str, owner: str, template: UnpackedTemplate, payload: wire.Payload, then: Then) -> bool:
        """Make the folder of an attempt of ``owner``; False if it needs none. Raises `TreeRefused`."""
        trees = self._trees(owner, template, payload)
        if not trees and template.outputs is None:
            return False
        getting = self._getting[holder] = _Getting(holder, owner, trees, template, then)
        self._look(getting)
        return True

    def _trees(self, owner: str, template: UnpackedTemplate, payload: wire.Payload) -> tuple[bytes, ...]:
        """The trees that an attempt needs: not that of the program's own modules if it is laid out, and its owner's."""
        source = () if template.source is None else template.source[:1]
        if template.source is not None and template.source[1].is_dir() and self._claims.knows(owner, *source):
            source = ()
        return (*source, *template.inputs, *wire.unwrap(payload).trees)

    def drop(self, holder: str) -> None:
        """An attempt was stopped: nobody needs its files."""
        self._getting.pop(holder, None)
        self._downloads.drop(holder)
        self._claims.drop(holder)

    def tidy(self, holder: str) -> None:
        """Remove an attempt's folder."""
        self._errands.do(lambda: task_folder.remove(self._area, holder), lambda found: None)

    def _look(self, getting: _Getting) -> None:
        """Find out what an attempt lacks."""
        getting.rounds += 1
        claimed = {tree for tree in getting.trees if not self._claims.knows(getting.owner, tree)}
        self._errands.do(
            lambda: _lookup(self._cache, getting.trees, claimed), lambda found: self._found(getting, found)
        )

    def _found(self, getting: _Getting, found: _Lookup | Exception) -> None:
        if not self._is_wanted(getting):
            return
        if isinstance(found, Exception) or getting.rounds > ROUNDS_LIMIT:
            self._end(getting, _why(found))
        elif found.trees_missing or found.files_missing:
            getting.left = len(found.trees_missing) + len(found.files_missing)
            for digest in found.trees_missing:
                self._downloads.tree(digest, getting.holder, lambda reason: self._came(getting, reason))
            for entry in found.files_missing.values():
                self._downloads.file(entry, getting.holder, lambda reason: self._came(getting, reason))
        elif found.claimed:
            getting.left = len(found.claimed)
            for tree, parts in found.claimed.items():
                self._claims.ask(getting.holder, getting.owner, tree, parts, lambda reason: self._came(getting, reason))
        else:
            self._unpack(getting)

    def _came(self, getting: _Getting, reason: str) -> None:
        if reason:
            self._end(getting, reason)
        elif self._is_wanted(getting):
            getting.left -= 1
            if not getting.left:
                self._look(getting)

    def _unpack(self, getting: _Getting) -> None:
        command, source = getting.template.outputs is not None, getting.template.source
        area, cache, account = self._area, self._cache, self._account
        digests = [digest for digest in getting.trees if source is None or digest != source[0]]

        def unpack() -> bool:
            if len(digests) < len(getting.trees) and source is not None and not task_folder.lay_out(*source, cache):
                return False
            trees = task_folder.trees_in(cache, digests)
            return task_folder.unpack(area, getting.holder, trees, cache, account, command=command)

        self._errands.do(unpack, lambda found: self._unpacked(getting, found))

    def _unpacked(self, getting: _Getting, found: bool | Exception) -> None:
        if not self._is_wanted(getting):
            self.tidy(getting.holder)
        elif isinstance(found, Exception) and not isinstance(found, task_folder.Gone):
            self._end(getting, ThisPc(f"its folder cannot be made on this PC: {found}"))
        elif found is not True:
            self._look(getting)
        else:
            self._end(getting, "")

    def _is_wanted(self, getting: _Getting) -> bool:
        return self._getting.get(getting.holder) is getting

    def _end(self, getting: _Getting, reason: str) -> None:
        if self._is_wanted(getting):
            del self._getting[getting.holder]
            if reason:
                self._downloads.drop(getting.holder)
                self._claims.drop(getting.holder)
            getting.then(reason)


def _why(found: _Lookup | Exception) -> str:
    """Why the files of an attempt cannot be here."""
    if isinstance(found, Exception):
        return ThisPc(str(found)) if isinstance(found, OSError) else str(found)
    return ThisPc("its files do not fit on this PC")


def has_files(payload: wire.Payload) -> bool:
    """Whether a payload begins with the mark of those that need files, or leave some."""
    first = payload if isinstance(payload, bytes) else payload.frames()[0]
    return first[:1] == wire.MARK


def _lookup(cache: FileCache, digests: Sequence[bytes], claimed: Collection[bytes]) -> _Lookup:
    """Look for trees and their files. Raises `TreeRefused` if they have too many names.

    ``claimed``: the trees of which nobody has said that they are their owner's.
    """
    found, names = _Lookup([]), 0
    for digest in dict.fromkeys(digests):
        data = cache.tree(digest)
        if data is None:
            found.trees_missing.append(digest)
            continue
        tree = wire.read_tree(data)
        names += len(tree.entries) + len(tree.folders)
        if names > task_folder.NAMES_LIMIT:
            raise wire.TreeRefused(f"the task needs more than {task_folder.NAMES_LIMIT:,} files and folders")
        missing = [entry for entry in tree.entries if cache.find(entry) is None]
        found.files_missing.update((entry.id, entry) for entry in missing)
        if digest in claimed:
            found.claimed[digest] = [part for entry in tree.entries for part in wire.split_digests(entry.parts)]
    return found
