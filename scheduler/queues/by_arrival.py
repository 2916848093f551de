"""Queues in the order of arrival: first in, first out, or last in, first out.

Tasks are kept as runs of consecutive numbers with one runtime. A task that is taken out of the middle of its run, or is
discarded, stays as a ghost.
"""

import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import compress
from math import inf

from deskgrid.scheduler.model import agree, named
from deskgrid.scheduler.queues.mintree import GONE, MinTree
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges, cut
from deskgrid.scheduler.queues.task_set import TaskSet
from deskgrid.scheduler.queues.waiting import Entry, NewRuntime

# Below this many entries a compaction would not pay.
COMPACT_FROM = 1024
# Going through this many runs costs as much as meeting one ghost.
RUNS_A_GHOST = 16
# The queue is compacted when fewer than one in this many runs holds tasks. Empty runs cost memory, and time to go
# through.
_RUNS_OF_NONE = 8

# A count that is not zero, and a long row of zeros, in the bytes of an array.
_SOME = re.compile(rb"[^\0]")
_NONE = bytes(1024 * array("I").itemsize)


def _parts_with_tasks(counts: "array[int]", start: int) -> Iterator[slice]:
    """Yield the parts of ``counts`` between long rows of zeros, as slices that begin to count at ``start``.

    Of a queue with ten million runs nearly all may be empty. They are skipped at C speed.
    """
    data, size, at = counts.tobytes(), counts.itemsize, 0
    while (found := _SOME.search(data, at)) is not None:
        begin, gap = found.start() // size, data.find(_NONE, found.start())
        # The row of zeros may begin with the zero bytes of a count that is not zero: round up.
        end = len(counts) if gap < 0 else -(-gap // size)
        yield slice(start + begin, start + end)
        at = end * size


def _append(rows: TaskRanges, first: int, count: int, runtime: float) -> None:
    if count:
        rows.firsts.append(first)
        rows.counts.append(count)
        rows.runtimes.append(runtime)


class _Arrivals:
    """What the two orders of arrival share. A position is that of a run; positions grow as tasks arrive."""

    def __init__(self) -> None:
        self._firsts: array[int] = array("q")
        self._counts: array[int] = array("I")
        self._tree = MinTree()
        # How many tasks the runs hold, and which of them are ghosts.
        self._held = 0
        self._gone = TaskSet()
        # How many runs are empty; and the first run that is not, or the number of runs if all are.
        self._empty = 0
        self._head = 0

    def __len__(self) -> int:
        return self._held - self._gone.size

    def shortest(self) -> float:
        return self._tree.least()

    def rows(self) -> TaskRanges:
        return self._living()

    def tasks(self) -> Iterator[tuple[int, float]]:
        for first, held, runtime in zip(*self._living(), strict=True):
            for task in range(first, first + held):
                yield task, runtime

    def _living(self) -> TaskRanges:
        """All tasks, without ghosts."""
        firsts, counts, runtimes = self._held_runs(0, len(self._firsts))
        rows = TaskRanges(list(firsts), list(counts), list(runtimes))
        return self._without_ghosts(rows) if self._gone.size else rows

    def _held_runs(self, start: int, end: int) -> "tuple[array[int], array[int], array[float]]":
        """The first tasks, counts and runtimes of the runs from ``start`` to before ``end``, without empty ones."""
        firsts, counts, runtimes = array("q"), array("I"), array("d")
        for part in _parts_with_tasks(self._counts[start:end], start):
            columns = self._firsts[part], self._counts[part], self._tree.levels[0][part]
            if 0 in columns[1]:
                firsts.extend(compress(columns[0], columns[1]))
                counts.extend(filter(None, columns[1]))
                runtimes.extend(compress(columns[2], columns[1]))
            else:  # by far the quickest way, and the common one after a large cancel
                firsts.extend(columns[0])
                counts.extend(columns[1])
                runtimes.extend(columns[2])
        return firsts, counts, runtimes

    def _without_ghosts(self, rows: TaskRanges) -> TaskRanges:
        kept = TaskRanges([], [], [])
        for first, held, runtime in zip(*rows, strict=True):
            for piece, many in self._gone.gaps(first, held):
                _append(kept, piece, many, runtime)
        return kept

    def ascending(self, limit: int) -> list[float]:
        return sorted(runtime for _, runtime in self.tasks())[:limit]

    def add(self, rows: TaskRanges) -> None:
        # A task that was discarded and is back must not be taken for its own ghost.
        if self._gone.size and any(map(self._gone.count, rows.firsts, rows.counts)):
            self._drop_ghosts()
        self._extend(rows)

    def _extend(self, rows: TaskRanges) -> None:
        self._firsts.extend(rows.firsts)
        self._counts.extend(rows.counts)
        self._tree.extend(rows.runtimes)
        self._held += sum(rows.counts)

    def predict(self, spans: Spans, old: Collection[float], new: NewRuntime) -> None:
        runtimes, parts = self._tree.levels[0], dict[int, TaskRanges]()
        for place in self._near(spans):
            if (runtime := runtimes[place]) in old:
                pieces = list(cut(self._firsts[place], self._counts[place], spans))
                if len(pieces) > 1:
                    firsts, counts, insides = map(list, zip(*pieces, strict=True))
                    new_ones = [
                        new(first) if inside else runtime for first, inside in zip(firsts, insides, strict=True)
                    ]
                    parts[place] = TaskRanges(firsts, counts, new_ones)
                elif pieces[0][2]:
                    self._tree.put(place, new(pieces[0][0]))
        if parts:
            self._cut(parts)

    @property
    def bare(self) -> bool:
        return not self._held

    @property
    def predicting(self) -> bool:
        return False

    def _cut(self, parts: Mapping[int, TaskRanges]) -> None:
        """Replace each run in ``parts`` (ascending) by several runs; later runs move."""
        if self._gone.size:
            parts = {place: self._trimmed(rows) for place, rows in parts.items()}
        begin = place = min(parts)
        firsts, counts, runtimes = array("q"), array("I"), array("d")
        for cut_at in [*parts, len(self._firsts)]:
            firsts.extend(self._firsts[place:cut_at])
            counts.extend(self._counts[place:cut_at])
            runtimes.extend(self._tree.levels[0][place:cut_at])
            if rows := parts.get(cut_at):
                firsts.extend(rows.firsts)
                counts.extend(rows.counts)
                runtimes.extend(rows.runtimes)
            place = cut_at + 1
        self._firsts[begin:], self._counts[begin:] = firsts, counts
        self._tree.splice(begin, runtimes)

    def _trimmed(self, rows: TaskRanges) -> TaskRanges:
        """Runs without the ghosts at their ends."""
        kept = TaskRanges([], [], [])
        for first, held, runtime in zip(*rows, strict=True):
            begin, end = self._trim(first, first + held)
            self._held -= held - (end - begin)
            _append(kept, begin, end - begin, runtime)
        return kept

    def _trim(self, first: int, end: int) -> tuple[int, int]:
        """Forget the ghosts at both ends of a run. Returns what is left of it."""
        begin = self._gone.first_gap(first, end)
        until = self._gone.last_gap(begin, end) + 1
        self._gone.remove(first, begin - first)
        self._gone.remove(until, end - until)
        return begin, until

    def _near(self, spans: Spans) -> Iterable[int]:
        """The places of runs that may hold tasks in ``spans``, ascending."""
        return range(len(self._firsts))

    def take(self, entry: Entry, count: int = 1) -> None:
        place = entry.cursor[1]
        first, end = self._firsts[place], self._firsts[place] + self._counts[place]
        if entry.task == first:
            self._keep(place, first + count, end)
        elif entry.task + count == end:
            self._keep(place, first, entry.task)
        else:
            self._gone.add(entry.task, count)

    def discard(self, task: int, count: int = 1) -> None:
        self._gone.add(task, count)

    def tidy(self) -> bool:
        self._make_room()
        gone = self._gone.size
        if gone > COMPACT_FROM and gone > len(self._firsts) // RUNS_A_GHOST:
            self._drop_ghosts()
        return True

    def _make_room(self) -> None:
        if self._head > COMPACT_FROM and self._head > len(self._firsts) // 2:
            self._behead()
        empty, runs = self._empty, len(self._firsts)
        if empty > COMPACT_FROM and empty > runs - runs // _RUNS_OF_NONE:
            self._compact()

    def _keep(self, place: int, first: int, end: int) -> None:
        """Keep the tasks from ``first`` to before ``end`` of a run; the others are no ghosts."""
        if self._gone.size:
            first, end = self._trim(first, end)
        self._held -= self._counts[place] - (end - first)
        self._firsts[place], self._counts[place] = first, end - first
        if first == end:
            self._tree.clear(place)
            self._empty += 1
            if place == self._head:
                self._advance()

    def _advance(self) -> None:
        """Find the first run that is not empty, from the old one on: all before that are empty."""
        found = self._tree.first_below(GONE, self._head)
        self._head = found if found >= 0 else len(self._firsts)

    def _behead(self) -> None:
        """Drop the empty runs at the front. This is quick, however many runs follow."""
        count = self._tree.behead(self._head)
        del self._firsts[:count], self._counts[:count]
        self._empty -= count
        self._head -= count

    def _clear(self) -> None:
        self._firsts, self._counts, self._tree = array("q"), array("I"), MinTree()
        self._held = self._empty = self._head = 0

    def _compact(self) -> None:
        """Drop empty runs."""
        firsts, counts, runtimes = self._held_runs(0, len(self._firsts))
        self._clear()
        self._firsts, self._counts, self._held = firsts, counts, sum(counts)
        self._tree.extend(runtimes)

    def _drop_ghosts(self) -> None:
        kept = self._living()
        self._clear()
        self._gone = TaskSet()
        self._extend(kept)

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        self._tree.check()
        agree("runs", (len(self._firsts), len(self._tree)), (len(self._counts),) * 2)
        empty = [not held for held in self._counts]
        agree("runs of none", [runtime == GONE for runtime in self._tree.levels[0]], empty)
        agree("how many runs are of none", self._empty, sum(empty))
        agree("the first run", self._head, empty.index(False) if False in empty else len(empty))
        agree("tasks in runs", self._held, sum(self._counts))
        entries = [
            t for first, held in zip(self._firsts, self._counts, strict=True) for t in range(first, first + held)
        ]
        # A task has one entry, and only tasks with an entry can be ghosts. Otherwise, a task that comes back would be
        # hidden.
        agree("entries of one task", len(set(entries)), len(entries))
        agree(
            "discarded tasks without an entry", sum(map(self._gone.count, self._firsts, self._counts)), self._gone.size
        )


class OldestFirst(_Arrivals):
    """First in, first out: one order of the priority queue (``fifo``)."""

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        place = begin = self._head if after is None else after.cursor[1]
        while (place := self._tree.first_below(limit, place)) >= 0:
            task, end = self._firsts[place], self._firsts[place] + self._counts[place]
            if self._gone.size and task in self._gone:
                self._keep(place, task, end)
                task, end = self._firsts[place], self._firsts[place] + self._counts[place]
            if after is not None and place == begin:
                task = self._gone.first_gap(max(task, after.task + 1), end)
            if task < end:
                return named(Entry, ((0.0, place), task, self._tree.levels[0][place], 1))
            place += 1
        return None

    def first_before(self, entry: Entry) -> bool:
        """Whether anything is in front of ``entry``, even if it is only a ghost."""
        return self._head < entry.cursor[1] or self._firsts[entry.cursor[1]] < entry.task

    def pop_before(self, entry: Entry | None, most: float = inf) -> TaskRanges:
        """Take out everything in front of ``entry`` (None: everything), in order; ``most`` ranges at most."""
        if entry is None and most >= self._held:
            popped = self._living()
            self._clear()
            self._gone = TaskSet()
            return popped
        popped, end = TaskRanges([], [], []), len(self._firsts) if entry is None else entry.cursor[1]
        while self._head < end and len(popped.firsts) < most:
            self._pop(self._head, self._firsts[self._head] + self._counts[self._head], most, popped)
        if entry is not None and self._head == end and self._firsts[end] < entry.task:
            self._pop(end, entry.task, most, popped)
        return popped

    def _pop(self, place: int, end: int, most: float, popped: TaskRanges) -> None:
        """Move the tasks before ``end`` from a run to ``popped``, which may become ``most`` ranges long."""
        first, until = self._firsts[place], self._firsts[place] + self._counts[place]
        for begin, many in self._gone.gaps(first, end - first):
            if len(popped.firsts) >= most:
                end = begin
                break
            _append(popped, begin, many, self._tree.levels[0][place])
        self._gone.remove(first, end - first)
        self._keep(place, end, until)


class NewestFirst(_Arrivals):
    """Last in, first out (``newest-first``)."""

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        place = len(self._firsts) if after is None else after.cursor[1] + 1
        begin = place - 1
        while (place := self._tree.last_below(limit, place)) >= 0:
            first, end = self._firsts[place], self._firsts[place] + self._counts[place]
            if self._gone.size and end - 1 in self._gone:
                self._keep(place, first, end)
                first, end = self._firsts[place], self._firsts[place] + self._counts[place]
            task = end - 1
            if after is not None and place == begin:
                task = self._gone.last_gap(first, min(end, after.task))
            if task >= first:
                return Entry((0.0, place), task, self._tree.levels[0][place])
        return None
