"""Waiting tasks, indexed so that a pass touches only those that can be placed.

A queue answers one question: "the next task in your order, after this one, whose runtime is below a limit", in
O(log n). So tasks that are too long for every slot are never looked at one by one.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, Protocol

from scheduler.model import agree
from scheduler.runs import Run, Runs

# Sixteen children a node: four or five levels for a million tasks, built at C speed by min() over slices.
_SHIFT = 4
_FAN = 1 << _SHIFT
_MASK = _FAN - 1
_GONE = math.inf
# Below this many entries a compaction would not pay.
_COMPACT_FROM = 1024
# Going through so many runs costs as much as meeting one discarded task.
_RUNS_A_GHOST = 16


class Entry(NamedTuple):
    """One waiting task, and where its queue keeps it; valid as long as a pass lasts."""

    cursor: tuple[float, int]
    task: int
    runtime: float


class WaitingQueue(Protocol):
    """What policies read, and the core changes."""

    def __len__(self) -> int: ...

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        """The first task after ``after`` (None: from the front) with ``runtime < limit``."""

    def shortest(self) -> float:
        """The smallest runtime here, or infinity. May be that of a discarded task not yet met: a lower bound."""

    def tasks(self) -> Iterator[tuple[int, float]]:
        """Every (task, runtime), in the order they were added."""

    def ascending(self, limit: int) -> list[float]:
        """The shortest runtimes, ascending, ``limit`` of them: those of all tasks, where no more wait."""

    def add(self, tasks: Sequence[int], runtimes: Sequence[float]) -> None: ...

    def take(self, entry: Entry) -> None: ...

    def discard(self, task: int) -> None:
        """Forget a task that is known to be here; its entry is dropped when it is next met."""

    def tidy(self) -> None:
        """Drop what is kept of tasks that are gone, when that pays. Not during a pass: entries are not valid then."""

    def check(self) -> None:
        """Raise `InvariantBroken` where what is kept contradicts itself."""


class MinTree:
    """Minimum over an array of runtimes, sixteen to a node, searched for "first (or last) below a limit"."""

    def __init__(self) -> None:
        self.levels: list[array[float]] = [array("d")]

    def __len__(self) -> int:
        return len(self.levels[0])

    def extend(self, values: Sequence[float]) -> None:
        """Append ``values``; only the nodes above them are computed again."""
        start = len(self.levels[0])
        self.levels[0].extend(values)
        level = 0
        while len(self.levels[level]) > _FAN or level + 1 < len(self.levels):
            below = self.levels[level]
            level, start = level + 1, start >> _SHIFT
            if level == len(self.levels):
                self.levels.append(array("d"))
                start = 0
            node = self.levels[level]
            del node[start:]
            node.extend(min(below[i : i + _FAN]) for i in range(start << _SHIFT, len(below), _FAN))

    def clear(self, position: int) -> None:
        """Take the value at ``position`` out."""
        below = self.levels[0]
        below[position] = _GONE
        for node in self.levels[1:]:
            position >>= _SHIFT
            start = position << _SHIFT
            least = min(below[start : start + _FAN])
            if node[position] == least:
                return
            node[position] = least
            below = node

    def least(self) -> float:
        """The minimum, or infinity."""
        top = self.levels[-1]
        return min(top) if top else _GONE

    def first_below(self, limit: float, start: int) -> int:
        """The first position from ``start`` on with a value below ``limit``, or -1."""
        position, top = start, len(self.levels) - 1
        for level, values in enumerate(self.levels):
            end = len(values) if level == top else min(len(values), (position | _MASK) + 1)
            while position < end and values[position] >= limit:
                position += 1
            if position < end:
                return self._descend_first(level, position, limit)
            position = (end + _MASK) >> _SHIFT
        return -1

    def _descend_first(self, level: int, position: int, limit: float) -> int:
        for values in reversed(self.levels[:level]):
            position <<= _SHIFT
            while values[position] >= limit:
                position += 1
        return position

    def last_below(self, limit: float, stop: int) -> int:
        """The last position before ``stop`` with a value below ``limit``, or -1."""
        position, top = stop - 1, len(self.levels) - 1
        for level, values in enumerate(self.levels):
            start = 0 if level == top else max(0, position & ~_MASK)
            while position >= start and values[position] >= limit:
                position -= 1
            if position >= start:
                return self._descend_last(level, position, limit)
            position = (start >> _SHIFT) - 1
        return -1

    def _descend_last(self, level: int, position: int, limit: float) -> int:
        for values in reversed(self.levels[:level]):
            position = min(len(values), (position + 1) << _SHIFT) - 1
            while values[position] >= limit:
                position -= 1
        return position

    def check(self) -> None:
        """Raise `InvariantBroken` unless every node is the least of those below it."""
        for below, node in pairwise(self.levels):
            agree("nodes", list(node), [min(below[i : i + _FAN]) for i in range(0, len(below), _FAN)])
        agree("one node at the top", len(self.levels[-1]) <= _FAN, True)


def _too_many(discarded: set[int], entries: int) -> bool:
    """Whether a pass could meet so many discarded tasks, one by one, that all entries are better gone through once."""
    return len(discarded) > max(_COMPACT_FROM, entries // 8)


def _check_ghosts(discarded: set[int], entries: Sequence[int]) -> None:
    """A task has one entry, and only one that has an entry can be a ghost: it would hide the task when it is back."""
    agree("entries of one task", len(set(entries)), len(entries))
    agree("discarded tasks without an entry", discarded.difference(entries), set())


class _Arrivals:
    """What the two orders of arrival share: positions grow as tasks arrive."""

    def __init__(self) -> None:
        self._tasks: array[int] = array("q")
        self._tree = MinTree()
        self._discarded: set[int] = set()
        self._held = 0

    def __len__(self) -> int:
        return self._held - len(self._discarded)

    def shortest(self) -> float:
        return self._tree.least()

    def tasks(self) -> Iterator[tuple[int, float]]:
        runtimes = self._tree.levels[0]
        for position, task in enumerate(self._tasks):
            if runtimes[position] != _GONE and task not in self._discarded:
                yield task, runtimes[position]

    def ascending(self, limit: int) -> list[float]:
        return sorted(runtime for _, runtime in self.tasks())[:limit]

    def add(self, tasks: Sequence[int], runtimes: Sequence[float]) -> None:
        # A task that was discarded and is back must not be taken for its own ghost.
        if not self._discarded.isdisjoint(tasks):
            self._compact()
        self._tasks.extend(tasks)
        self._tree.extend(runtimes)
        self._held += len(tasks)

    def take(self, entry: Entry) -> None:
        self._drop(entry.cursor[1])

    def discard(self, task: int) -> None:
        self._discarded.add(task)

    def tidy(self) -> None:
        if len(self._tasks) > max(_COMPACT_FROM, 2 * self._held) or _too_many(self._discarded, self._held):
            self._compact()

    def _drop(self, position: int) -> None:
        self._tree.clear(position)
        self._held -= 1

    def _compact(self) -> None:
        kept = list(self.tasks())
        self._tasks = array("q", [task for task, _ in kept])
        self._tree = MinTree()
        self._tree.extend([runtime for _, runtime in kept])
        self._discarded.clear()
        self._held = len(kept)

    def check(self) -> None:
        """Raise `InvariantBroken` where what is kept contradicts itself."""
        self._tree.check()
        agree("runtimes", len(self._tree), len(self._tasks))
        runtimes = self._tree.levels[0]
        entries = [task for task, runtime in zip(self._tasks, runtimes, strict=True) if runtime != _GONE]
        agree("entries", self._held, len(entries))
        _check_ghosts(self._discarded, entries)

    def _entry(self, position: int) -> Entry | None:
        """The entry at ``position``, or None when it had been discarded and is dropped now."""
        task = self._tasks[position]
        if task in self._discarded:
            self._discarded.remove(task)
            self._drop(position)
            return None
        return Entry((0.0, position), task, self._tree.levels[0][position])


class OldestFirst(_Arrivals):
    """First in, first out: the regular queue, and one order of the priority queue (``fifo``)."""

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        position = 0 if after is None else after.cursor[1] + 1
        while (position := self._tree.first_below(limit, position)) >= 0:
            if (entry := self._entry(position)) is not None:
                return entry
        return None

    def holds(self, task: int) -> bool:
        """Whether ``task`` is here. Only where tasks are added in the order of their numbers (the regular queue)."""
        position = bisect_left(self._tasks, task)
        here = position < len(self._tasks) and self._tasks[position] == task
        return here and self._tree.levels[0][position] != _GONE and task not in self._discarded

    def first_before(self, entry: Entry) -> bool:
        """Whether anything waits in front of ``entry``, be it a discarded task not yet met."""
        return self._front() < entry.cursor[1]

    def pop_before(self, entry: Entry | None) -> tuple[list[int], list[float]]:
        """Take out everything in front of ``entry`` (None: everything); the tasks and their runtimes, in order."""
        end = len(self._tasks) if entry is None else entry.cursor[1]
        runtimes = self._tree.levels[0]
        waiting = [i for i in range(self._front(), end) if runtimes[i] != _GONE]
        kept = [i for i in waiting if self._tasks[i] not in self._discarded]
        popped = [self._tasks[i] for i in kept], [runtimes[i] for i in kept]
        self._discarded.difference_update(self._tasks[i] for i in waiting)
        if entry is None:
            self._tasks, self._tree, self._held = array("q"), MinTree(), 0
        else:
            for position in waiting:
                self._drop(position)
        return popped

    def _front(self) -> int:
        return max(0, self._tree.first_below(_GONE, 0))


class NewestFirst(_Arrivals):
    """Last in, first out (``newest-first``)."""

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        position = len(self._tasks) if after is None else after.cursor[1]
        while (position := self._tree.last_below(limit, position)) >= 0:
            if (entry := self._entry(position)) is not None:
                return entry
        return None


class LongestFirst:
    """The longest runtime first, the older of equals first (``longest-first``).

    Each task that is added gets the next arrival number. An entry is a ghost if its number is smaller than the one that
    ``_gone`` has for its task: so a task that is back is not taken for its own ghost.
    """

    def __init__(self) -> None:
        self._runs = Runs()
        self._arrived = 0
        # Tasks in runs, and how many of those are ghosts.
        self._held = 0
        self._ghosts = 0
        self._gone: dict[int, int] = {}

    def __len__(self) -> int:
        return self._held - self._ghosts

    def shortest(self) -> float:
        return self._runs.shortest()

    def tasks(self) -> Iterator[tuple[int, float]]:
        return self._living(self._runs.by_arrival())

    def ascending(self, limit: int) -> list[float]:
        if not self._ghosts:
            return list(islice(self._runs.ascending(), limit))
        return [runtime for _, runtime in islice(self._living(self._runs.backwards()), limit)]

    def _living(self, runs: Iterable[Run]) -> Iterator[tuple[int, float]]:
        """Number and runtime of each task in these runs that was not discarded."""
        gone = self._gone
        for key, arrival, first, held in runs:
            for task in range(first, first + held) if held > 1 else (first,):
                if not gone or arrival + task - first >= gone.get(task, 0):
                    yield task, -key

    def add(self, tasks: Sequence[int], runtimes: Sequence[float]) -> None:
        if len(tasks):
            self._runs.add(tasks, runtimes, self._arrived)
            self._arrived += len(tasks)
            self._held += len(tasks)

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        if after is None or after.runtime >= limit:
            found = self._runs.first_below(limit)
        else:
            found = self._runs.first_after(*after.cursor)
        while found is not None:
            runtime, number, task = found
            if number >= self._gone.get(task, 0):
                return Entry((runtime, number), task, runtime)
            self._lay(runtime, number)
            found = self._runs.first_after(runtime, number)
        return None

    def _lay(self, runtime: float, number: int) -> None:
        """Drop a ghost."""
        self._runs.take(runtime, number)
        self._held -= 1
        self._ghosts -= 1
        if not self._ghosts:
            self._gone.clear()

    def take(self, entry: Entry) -> None:
        self._runs.take(*entry.cursor)
        self._held -= 1

    def discard(self, task: int) -> None:
        self._gone[task] = self._arrived
        self._ghosts += 1

    def tidy(self) -> None:
        gone = max(self._ghosts, len(self._gone))
        if gone > _COMPACT_FROM and gone * _RUNS_A_GHOST > len(self._runs):
            self._compact()

    def _compact(self) -> None:
        self._runs.sift(self._gone)
        self._held -= self._ghosts
        self._ghosts = 0
        self._gone.clear()

    def check(self) -> None:
        """Raise `InvariantBroken` where what is kept contradicts itself."""
        self._runs.check()
        runs = list(self._runs.forwards())
        agree("tasks in runs", self._held, sum(held for *_, held in runs))
        agree("arrival numbers in use", all(arrival + held <= self._arrived for _, arrival, _, held in runs), True)
        living = [task for task, _ in self._living(runs)]
        agree("ghosts", self._ghosts, self._held - len(living))
        agree("entries of one task", len(set(living)), len(living))


# The orders of the priority queue, by the name a policy's option has.
ORDERS: dict[str, type[WaitingQueue]] = {
    "newest-first": NewestFirst,
    "longest-first": LongestFirst,
    "fifo": OldestFirst,
}
