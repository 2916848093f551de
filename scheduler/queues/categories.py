"""Categories: the tasks of bags alike in owner, priority, limit, licences and what they need of PCs.

Each has queues of its own.

Grid Engine calls this a job category. A policy is given those whose turn it is (`deskgrid.scheduler.placing.turns`).
A category whose limit is reached, or whose licences are in use, costs a pass one look, however many tasks wait there.
So does one whose tasks suit no worker with room. A grid with a single owner and no such bags has a single
category.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.need import NOTHING, Need
from deskgrid.scheduler.queues.by_arrival import NewestFirst, OldestFirst
from deskgrid.scheduler.queues.longest_first import LongestFirst
from deskgrid.scheduler.queues.regular import Regular
from deskgrid.scheduler.queues.shares import Account
from deskgrid.scheduler.queues.task_ranges import TaskRanges
from deskgrid.scheduler.queues.waiting import WaitingQueue

# The orders that a priority queue may have, by the name that a policy's ``order`` has.
ORDERS: dict[str, type[WaitingQueue]] = {
    "newest-first": NewestFirst,
    "longest-first": LongestFirst,
    "fifo": OldestFirst,
}
# The order of checkpointable tasks.
LONGEST_FIRST = "longest-first"
# Names of licences, and how many of each a task needs.
Needs = tuple[tuple[str, int], ...]


class CategoryKey(NamedTuple):
    """What the bags of a category have in common. ``bag``: if it is a category of its own, because it has a limit, or
    because it fails on some workers only (`deskgrid.scheduler.handlers.separating`).

    ``priority``: bags of higher numbers come first among those of their owner. ``piece``: for checkpointable tasks, how
    many seconds a piece has at least. They wait longest first, whatever the policy is (`scheduler/placing/pieces.py`).
    ``environment``: names what must be ready on a worker for these tasks; empty: nothing. ``need``: labels and amounts
    that they need; `GANGS` for all parallel tasks, whatever they need; None: nothing. ``files``: they need files, so a
    PC may have no room for them (`deskgrid.scheduler.state.avoided`).
    """

    owner: str = ""
    priority: int = 0
    licences: Needs = ()
    limit: int = 0
    bag: int | None = None
    piece: float | None = None
    environment: str = ""
    need: Need | None = None
    files: bool = False


# The need that stands for all parallel tasks.
GANGS = Need(gang=True)


def key_need(need: Need) -> Need | None:
    """What a category's key has of the need of a bag."""
    if need.parallel:
        return GANGS
    return Need(amounts=need.amounts, labels=need.labels) if need.amounts or need.labels else None


# Of checkpointable tasks, the shortest pieces are rounded up to this many seconds times a power of two, between these
# two: so there are few categories, and a submitter who asks for very long pieces only keeps its own tasks waiting.
PIECE_S = 60.0
_LEAST, _MOST = -6, 14


def rounded_piece(seconds: float) -> float:
    """The shortest piece that is asked for when ``seconds`` were wished: from about a second to eleven days."""
    parts = seconds / PIECE_S  # 0.0 also of seconds that are hardly any
    power = math.ceil(math.log2(parts)) if parts > 0.0 else _LEAST
    return PIECE_S * 2.0 ** min(max(power, _LEAST), _MOST)


class Licences:
    """``total``: how many the grid has of each; ``used``: by tasks that are on slots, or may still run."""

    def __init__(self) -> None:
        self.total: Mapping[str, int] = {}
        self.used: Counter[str] = Counter()

    def use(self, needs: Needs, tasks: int) -> None:
        """``tasks`` more tasks with these needs use their licences; fewer if negative."""
        for name, many in needs:
            self.used[name] += many * tasks

    def free(self, name: str) -> int:
        """How many are free of one; less than none if there were more before."""
        return self.total.get(name, 0) - self.used[name]

    def room(self, needs: Needs) -> int:
        """For how many more tasks with these needs there are licences."""
        return max(0, min([self.free(name) // many for name, many in needs]))


class Category:
    """``out``: how many of its tasks are on slots, or run on workers that have not come back yet. ``elsewhere``: tasks
    that have failed, and wait for another worker (`scheduler/placing/first.py`), and since when.

    ``probing``: by bag, the probes that may still come first (`deskgrid.scheduler.placing.first`). ``parallel``: its
    tasks wait as jobs (`deskgrid.scheduler.state.jobs`), not in its queues.
    """

    __slots__ = (
        "_licences",
        "account",
        "amounts",
        "elsewhere",
        "key",
        "out",
        "parallel",
        "priority",
        "probing",
        "regular",
        "restricted",
    )

    def __init__(self, key: CategoryKey, account: Account, order: str, licences: Licences) -> None:
        self.key = key
        self.account = account
        self.out = 0
        self.probing: dict[int, list[int]] = {}
        self.elsewhere: dict[int, float] = {}
        self.restricted = bool(key.limit or key.licences)
        self.parallel = key.need == GANGS
        self.amounts = NOTHING if key.need is None else key.need.amounts
        self._licences = licences
        self.clear(order)

    def __len__(self) -> int:
        return len(self.regular) + len(self.priority) + len(self.elsewhere)

    def clear(self, order: str) -> None:
        """Empty queues, the priority queue in this order."""
        self.regular = Regular()
        self.priority: WaitingQueue = self._queue(order)

    def _queue(self, order: str) -> WaitingQueue:
        return ORDERS[order if self.key.piece is None else LONGEST_FIRST]()

    def reorder(self, order: str) -> None:
        """The priority queue takes this order."""
        rows = self.priority.rows()
        self.priority = self._queue(order)
        self.priority.add(rows)

    def discard(self, first: int, count: int) -> None:
        """Forget ``count`` tasks from ``first`` on, which wait here."""
        for others in self.regular.drop(first, count):
            self.priority.discard(*others)

    def room(self) -> int:
        """How many more of its tasks, which are restricted, may be put on slots."""
        rooms = [self.key.limit - self.out] if self.key.limit else []
        if self.key.licences:
            rooms.append(self._licences.room(self.key.licences))
        return max(0, min(rooms))

    @property
    def open(self) -> bool:
        """Whether any of its tasks may be put on a slot."""
        return not self.restricted or self.room() > 0

    def begin(self, tasks: int, seconds: float, now: float) -> None:
        """``tasks`` of its tasks get onto slots: see `charge`."""
        self.charge(tasks, seconds)
        self.account.share.began = now

    def charge(self, tasks: int, seconds: float) -> None:
        """``tasks`` more of its tasks are on slots, with ``seconds`` predicted for all of them; fewer if negative."""
        account = self.account
        self.out += tasks
        account.out += tasks
        account.out_s = account.out_s + seconds if account.out else 0.0  # without what rounding left
        if self.key.licences:
            self._licences.use(self.key.licences, tasks)


class Categories:
    """All categories, by key. ``waiting``: those that may have waiting tasks."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.licences = Licences()
        self.by_key: dict[CategoryKey, Category] = {}
        self.waiting: dict[CategoryKey, Category] = {}
        self._bags: Counter[CategoryKey] = Counter()

    def __len__(self) -> int:
        """How many tasks wait."""
        return sum(map(len, self.waiting.values()))

    def enter(self, key: CategoryKey, account: Account) -> Category:
        """The category for a new bag."""
        self._bags[key] += 1
        category = self.by_key.get(key)
        if category is None:
            category = self.by_key[key] = Category(key, account, self.order, self.licences)
        return category

    def leave(self, category: Category) -> None:
        """A bag of ``category``, of which no task is left, is forgotten."""
        self._bags[category.key] -= 1
        if not self._bags[category.key]:
            del self._bags[category.key], self.by_key[category.key]
            self.waiting.pop(category.key, None)

    def add_new(self, category: Category, rows: TaskRanges) -> None:
        """New tasks wait in the regular queue of ``category``, or, if checkpointable, in its priority queue."""
        (category.regular if category.key.piece is None else category.priority).add(rows)
        self.waiting[category.key] = category

    def add_again(self, category: Category, rows: TaskRanges) -> None:
        """Tasks wait in the priority queue of ``category``."""
        category.priority.add(rows)
        self.waiting[category.key] = category

    def reorder(self, order: str) -> None:
        """All priority queues take this order."""
        self.order = order
        for category in self.by_key.values():
            category.reorder(order)

    def drop_empty(self, category: Category) -> None:
        """No task waits in ``category`` any more; discarded ones, which it may still have entries of, are dropped."""
        if not (category.regular.bare and category.priority.bare and not category.priority.predicting):
            category.clear(self.order)
        del self.waiting[category.key]

    def tasks(self) -> Iterator[tuple[int, float]]:
        """Every waiting task with its runtime, except in queues of which some have still to take new ones."""
        for category in self.waiting.values():
            yield from category.regular.tasks()
            if not category.priority.predicting:
                yield from category.priority.tasks()

    @property
    def predicting(self) -> bool:
        """Whether some tasks have still to take their new runtimes."""
        return any(category.priority.predicting for category in self.waiting.values())

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        for key, category in self.by_key.items():
            agree(f"tasks of {key} wait unseen", bool(len(category)) and key not in self.waiting, False)
            order = self.order if key.piece is None else LONGEST_FIRST
            agree(f"order of the priority queue of {key}", type(category.priority), ORDERS[order])
            agree(f"bags without probes in {key}", [bag for bag, probes in category.probing.items() if not probes], [])
            category.regular.check()
            category.priority.check()

    def check_counts(
        self, bags: Mapping[CategoryKey, int], out: Mapping[CategoryKey, int], doubts: Mapping[str, int]
    ) -> None:
        """Raise `InvariantBroken` unless the categories have these bags and tasks out. ``doubts``: of licences."""
        agree("bags in categories", dict(self._bags), dict(bags))
        agree("categories with bags", set(self.by_key), set(bags))
        used = Counter(doubts)
        for key, category in self.by_key.items():
            agree(f"tasks out of {key}", category.out, out.get(key, 0))
            for name, many in key.licences:
                used[name] += many * category.out
        agree("licences in use", +self.licences.used, +used)
