"""What a task needs before it can run: the folders of tasks, filled with stored files that are fetched if necessary."""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial

from deskgrid import wire
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.background import Background, FileWork
from deskgrid.worker.files.cache import FileCache, PcAtFault, bytes_of
from deskgrid.worker.files.claims import Claims
from deskgrid.worker.files.downloads import Downloads
from deskgrid.worker.files.places import Places
from deskgrid.worker.run.pool import NoAccount
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
    work: FileWork | None = None


@dataclass(slots=True)
class _InputLookup:
    """What is not in the cache. ``files_missing``: by id. ``claimed``: the parts of each tree that is to be claimed."""

    trees_missing: list[bytes]
    files_missing: dict[str, wire.TreeFile] = field(default_factory=dict)
    claimed: dict[bytes, list[bytes]] = field(default_factory=dict)


class Inputs:
    """``places``: where the folders of tasks are, on the disk of the cache."""

    def __init__(
        self, cache: FileCache, places: Places, background: Background, downloads: Downloads, claims: Claims
    ) -> None:
        self._cache = cache
        self._places = places
        self._background = background
        self._downloads = downloads
        self._claims = claims
        self._getting: dict[str, _Getting] = {}
        # Those whose files are here, and that wait for an account.
        self._unplaced: list[_Getting] = []

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

    def poll(self) -> None:
        """Look whether there are accounts for the attempts that wait for one."""
        unplaced, self._unplaced = self._unplaced, []
        for getting in unplaced:
            if self._is_wanted(getting):
                self._unpack(getting)

    def drop(self, holder: str) -> None:
        """An attempt was stopped: nobody needs its files."""
        getting = self._getting.pop(holder, None)
        if getting is not None and getting.work is not None:
            getting.work.drop()
        self._downloads.drop(holder)
        self._claims.drop(holder)

    def tidy(self, holder: str) -> None:
        """Remove an attempt's folder, and let go of its place."""
        if (place := self._places.of(holder)) is not None:
            removal = partial(task_folder.remove, place.area, holder)
            self._background.do(removal, lambda found: self._places.release(holder), holder)

    def _look(self, getting: _Getting) -> None:
        """Find out what an attempt lacks."""
        getting.rounds += 1
        claimed = {tree for tree in getting.trees if not self._claims.knows(getting.owner, tree)}
        getting.work = self._background.do(
            lambda: _lookup(self._cache, getting.trees, claimed),
            lambda found: self._found(getting, found),
            getting.holder,
        )

    def _found(self, getting: _Getting, found: _InputLookup | Exception) -> None:
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
        try:
            place = self._places.take(getting.holder, getting.owner)
        except NoAccount as error:
            self._end(getting, PcAtFault(str(error)))
            return
        if place is None:
            self._unplaced.append(getting)
            return
        command, source, cache = getting.template.outputs is not None, getting.template.source, self._cache
        area, account = place.area, place.account
        digests = [digest for digest in getting.trees if source is None or digest != source[0]]

        def unpack() -> Generator[None, None, bool]:
            is_laid_out = source is None or len(digests) == len(getting.trees)
            if source is not None and not is_laid_out and not (yield from task_folder.lay_out(*source, cache)):
                return False
            trees = task_folder.trees_in(cache, digests)
            return (yield from task_folder.unpack(area, getting.holder, trees, cache, account, command=command))

        getting.work = self._background.do(unpack, lambda found: self._unpacked(getting, found), getting.holder)

    def _unpacked(self, getting: _Getting, found: bool | Exception) -> None:
        if not self._is_wanted(getting):
            self.tidy(getting.holder)
        elif isinstance(found, Exception) and not isinstance(found, task_folder.Gone):
            self._end(getting, PcAtFault(f"its folder cannot be made on this PC: {found}"))
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


def _why(found: _InputLookup | Exception) -> str:
    """Why the files of an attempt cannot be here."""
    if isinstance(found, Exception):
        return PcAtFault(str(found)) if isinstance(found, OSError) else str(found)
    return PcAtFault("its files do not fit on this PC")


def has_files(payload: wire.Payload) -> bool:
    """Whether a payload begins with the mark of those that need files, or leave some."""
    first = payload if isinstance(payload, bytes) else payload.frames()[0]
    return first[:1] == wire.MARK


def _lookup(
    cache: FileCache, digests: Sequence[bytes], claimed: Collection[bytes]
) -> Generator[None, None, _InputLookup]:
    """Look for trees and their files. Raises `TreeRefused` if they have too many names, and `NoRoomHere`.

    ``claimed``: the trees of which nobody has said that they are their owner's.
    """
    found, names = _InputLookup([]), 0
    for digest in dict.fromkeys(digests):
        data = cache.tree(digest)
        if data is None:
            found.trees_missing.append(digest)
            continue
        tree = wire.read_tree(data)
        names += len(tree.entries) + len(tree.folders)
        if names > task_folder.NAMES_LIMIT:
            raise wire.TreeRefused(f"the task needs more than {task_folder.NAMES_LIMIT:,} files and folders")
        for some in task_folder.batched(tree.entries):
            missing = [entry for entry in some if cache.find(entry) is None]
            found.files_missing.update((entry.id, entry) for entry in missing)
            yield
        if digest in claimed:
            found.claimed[digest] = [part for entry in tree.entries for part in wire.split_digests(entry.parts)]
    cache.check_room(sum([bytes_of(entry) for entry in found.files_missing.values()]))
    return found
