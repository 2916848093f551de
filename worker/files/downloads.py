"""Parts that come from the broker: which are asked for, and where they go.

Rule 1: only a few parts are on their way at a time, and none is asked for before an earlier one is on the disk. So they
take no memory, and messages of other kinds go between them.
Rule 2: a part is asked for in the name of a task that needs it. If the broker refuses, it is asked for in the name of
another task that waits for the same file.
Rule 3: attempts take turns, so none waits until another has all of its files.
Rule 4: after a new connection, or some silence, the parts that did not come are asked for again.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from deskgrid import wire
from deskgrid.worker.files.background import Background, FileWork
from deskgrid.worker.files.cache import ContentMismatch, FileCache, Partial, PcAtFault
from deskgrid.worker.files.turns import Turns

# Bytes that are on their way, or wait to be written: enough that neither the network nor the disk waits for the other.
# And how many parts: a broker keeps no more of them in mind.
WINDOW_BYTES = 4 * wire.PART_BYTES
WINDOW = 16
# After this long without any part, those that were asked for are asked for again. Seconds.
SILENCE_S = 15.0
# How often a file is looked for that another worker of this PC fetches. Seconds.
OTHERS_S = 0.2

# Called when a file or a tree is here, or with the reason why it cannot come.
Then = Callable[[str], None]


@dataclass(slots=True, eq=False)
class NeededPart:
    """One part that is needed, of at most ``size`` bytes. ``holder``: who it was asked for.

    ``keep`` writes it, on the thread for files.
    """

    goal: "Goal"
    digest: bytes
    size: int
    keep: Callable[[wire.Payload], None]
    holder: str = ""


@dataclass(slots=True, eq=False)
class Goal:
    """A file or a tree that some tasks need. ``holders``: in whose names it is asked for, each with what follows.

    ``payer``: whose turns it takes, the first of them.
    """

    key: str
    payer: str
    looking: FileWork | None = None
    holders: OrderedDict[str, Then] = field(default_factory=OrderedDict)
    partial: Partial | None = None
    left: int = 0
    over: bool = False


class Downloads:
    """``now`` is monotonic seconds."""

    def __init__(self, cache: FileCache, background: Background, numbers: Iterator[int]) -> None:
        """``numbers``: for requests."""
        self._cache = cache
        self._numbers = numbers
        self._background = background
        self._goals: dict[str, Goal] = {}
        self._todo = Turns[NeededPart]()
        # What was asked for, by request; how many parts are being written; and the bytes of both.
        self._flying: dict[int, NeededPart] = {}
        self._writing = 0
        self._bytes = 0
        self._heard = 0.0
        self._now = 0.0
        # Files that other workers of this PC fetch, and when to look for them again.
        self._others: deque[tuple[float, wire.TreeFile, Goal]] = deque()

    # --- what is needed ----------------------------------------------------------------------------------------------

    def tree(self, digest: bytes, holder: str, then: Then) -> None:
        """Fetch a tree for ``holder``, an attempt."""
        goal, is_new = self._goal(f"{digest.hex()}.tree", holder, then)
        if is_new:
            goal.left = 1
            fetch = NeededPart(goal, digest, wire.PART_BYTES, lambda data: self._cache.put_tree(digest, bytes(data)))
            self._todo.add(holder, [fetch])

    def file(self, entry: wire.TreeFile, holder: str, then: Then) -> None:
        """Fetch a file for ``holder``."""
        goal, is_new = self._goal(entry.id, holder, then)
        if is_new:
            self._begin(entry, goal)

    def _goal(self, key: str, holder: str, then: Then) -> tuple[Goal, bool]:
        is_new = key not in self._goals
        goal = self._goals.setdefault(key, Goal(key, holder))
        goal.holders[holder] = then
        return goal, is_new

    def _begin(self, entry: wire.TreeFile, goal: Goal) -> None:
        self._background.do(lambda: self._cache.begin(entry), lambda found: self._begun(entry, goal, found), goal.payer)

    def _begun(self, entry: wire.TreeFile, goal: Goal, found: Partial | Exception | None) -> None:
        if isinstance(found, Exception):
            self._end(goal, _said(found))
        elif found is None:
            self._others.append((self._now + OTHERS_S, entry, goal))
        elif goal.over:
            found.close()
        else:
            goal.partial = found
            goal.looking = self._background.do(
                found.look, lambda end: self._compared(entry, goal, found, end), goal.payer
            )

    def _compared(self, entry: wire.TreeFile, goal: Goal, found: Partial, end: object) -> None:
        """What a file lacks is known."""
        if goal.over or isinstance(end, Exception):
            self._end(goal, _said(end))
            return
        goal.left = len(found.missing)
        size = min(entry.size, wire.PART_BYTES)
        self._todo.add(
            goal.payer,
            [NeededPart(goal, found.digest(number), size, partial(found.write, number)) for number in found.missing],
        )
        if not goal.left:
            self._finish(goal)

    def drop(self, holder: str) -> None:
        """``holder`` was stopped: what only it needs is not asked for any more."""
        for goal in [goal for goal in self._goals.values() if holder in goal.holders]:
            del goal.holders[holder]
            if not goal.holders:
                self._end(goal, "")

    # --- messages ----------------------------------------------------------------------------------------------------

    def say(self, now: float) -> Iterator[wire.Message]:
        """Yield the messages that are due."""
        self._now = now
        self._look_for_others(now)
        if self._flying and now >= self._heard + SILENCE_S:
            self.reconnected()
        while self._todo and len(self._flying) + self._writing < WINDOW and self._bytes < WINDOW_BYTES:
            _, fetch = self._todo.take()
            if fetch.goal.over:
                continue
            self._bytes += fetch.size
            if not self._flying:
                self._heard = now
            number = next(self._numbers)
            self._flying[number] = fetch
            fetch.holder = next(iter(fetch.goal.holders))
            yield wire.Want(number, fetch.holder, fetch.digest)

    def _look_for_others(self, now: float) -> None:
        while self._others and self._others[0][0] <= now:
            _, entry, goal = self._others.popleft()
            if not goal.over:
                self._background.do(partial(self._cache.find, entry), partial(self._looked, entry, goal), goal.payer)

    def _looked(self, entry: wire.TreeFile, goal: Goal, path: object) -> None:
        if path is None or isinstance(path, Exception):
            self._begin(entry, goal)
        else:
            self._end(goal, "")

    def part(self, part: wire.Part, now: float) -> bool:
        """A part has come; False if nobody here asked for it."""
        fetch = self._flying.get(part.request)
        if fetch is None or fetch.digest != part.digest:
            return False
        del self._flying[part.request]
        self._heard = now
        self._writing += 1
        self._background.do(lambda: fetch.keep(part.data), lambda found: self._kept(fetch, found), fetch.goal.payer)
        return True

    def _kept(self, fetch: NeededPart, found: object) -> None:
        self._writing -= 1
        self._bytes -= fetch.size
        goal = fetch.goal
        if goal.over:
            self._close(goal)
        elif isinstance(found, Exception):
            self._end(goal, _said(found))
        else:
            goal.left -= 1
            if not goal.left:
                self._finish(goal)

    def _finish(self, goal: Goal) -> None:
        """All parts are written."""
        done, goal.partial = goal.partial, None
        if done is None:
            self._end(goal, "")
        else:
            self._background.do(done.finish, lambda found: self._end(goal, _said(found)), goal.payer)

    def failed(self, request: int, reason: str) -> bool:
        """The broker refuses a part; False if it was not asked for here."""
        fetch = self._flying.pop(request, None)
        if fetch is None:
            return False
        self._bytes -= fetch.size
        goal = fetch.goal
        if not goal.over:
            then = goal.holders.pop(fetch.holder, None)
            if goal.holders:
                self._todo.put_back(goal.payer, fetch)
            else:
                self._end(goal, reason)
            if then is not None:
                then(reason)
        return True

    def reconnected(self) -> None:
        """Ask again for what has not come."""
        self._bytes -= sum([fetch.size for fetch in self._flying.values()])
        for fetch in reversed(self._flying.values()):
            self._todo.put_back(fetch.goal.payer, fetch)
        self._flying.clear()

    def close(self) -> None:
        """Let go of the locks of all files; the thread has ended."""
        for goal in self._goals.values():
            if goal.partial is not None:
                goal.partial.close()

    def _end(self, goal: Goal, reason: str) -> None:
        """A goal is reached (no ``reason``), or cannot be."""
        if goal.over:
            return
        goal.over = True
        if goal.looking is not None:
            goal.looking.drop()
        del self._goals[goal.key]
        self._close(goal)
        for then in list(goal.holders.values()):
            then(reason)

    def _close(self, goal: Goal) -> None:
        """Let go of the lock of a file when no part of it is being written."""
        if goal.partial is not None:
            closed, goal.partial = goal.partial, None
            self._background.do(closed.close, lambda found: None, goal.payer)


def _said(found: object) -> str:
    """Why work failed, or ""."""
    if not isinstance(found, Exception):
        return ""
    if isinstance(found, OSError):
        return PcAtFault(f"the files cannot be kept on this PC: {found.strerror or found}")
    return str(found) if isinstance(found, ContentMismatch) else repr(found)
