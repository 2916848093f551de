"""Queues in the order of arrival: first in, first out, or last in, first out.

Tasks are kept as runs of consecutive numbers with one runtime. A discarded task stays as a ghost until it is met.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from math import inf
from operator import add

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.queues.mintree import GONE, MinTree
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges, cut, spans_of
from deskgrid.scheduler.queues.waiting import Entry, NewRuntime

# Below this many entries a compaction would not pay.
COMPACT_FROM = 1024
# Going through this many runs costs as much as meeting one ghost.
RUNS_A_GHOST = 16
# The queue is compacted when fewer than one in this many runs holds tasks. Empty runs cost memory, and time to go
# through.
_RUNS_OF_NONE = 8
# With at most this many tasks to each range, on average, tasks are looked up one by one.
_FEW_A_SPAN = 4
# A run is divided into single tasks when at least this many of them take runtimes of their own. Dividing it again and
# again would move all later runs each time.
_DIVIDE_FROM = 8


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


class _Arrivals:
    """What the two orders of arrival share. A position is that of a run; positions grow as tasks arrive."""

    def __init__(self) -> None:
        self._firsts: array[int] = array("q")
        self._counts: array[int] = array("I")
        self._tree = MinTree()
        # How many tasks the runs hold, and which of them are ghosts.
        self._held = 0
        self._gone: set[int] = set()
        # How many runs are empty; and the first run that is not, or the number of runs if all are.
        self._empty = 0
        self._head = 0

    def __len__(self) -> int:
        return self._held - len(self._gone)

    def shortest(self) -> float:
        return self._tree.least()

    def tasks(self) -> Iterator[tuple[int, float]]:
        for first, held, runtime in zip(*self._living(0, len(self._firsts)), strict=True):
            for task in range(first, first + held):
                yield task, runtime

    def _living(self, start: int, end: int) -> TaskRanges:
        """The tasks in the runs from ``start`` to before ``end``, without ghosts."""
        firsts, counts, runtimes = self._held_runs(start, end)
        rows = TaskRanges(list(firsts), list(counts), list(runtimes))
        return self._without_ghosts(rows) if self._gone else rows

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
        ghosts, kept = [(task, 1) for task in sorted(self._gone)], TaskRanges([], [], [])
        for first, held, runtime in zip(*rows, strict=True):
            pieces = cut(first, held, ghosts) if held > 1 else ((first, 1, first in self._gone),)
            for piece, many, gone in pieces:
                if not gone:
                    kept.firsts.append(piece)
                    kept.counts.append(many)
                    kept.runtimes.append(runtime)
        return kept

    def ascending(self, limit: int) -> list[float]:
        return sorted(runtime for _, runtime in self.tasks())[:limit]

    def add(self, rows: TaskRanges) -> None:
        # A task that was discarded and is back must not be taken for its own ghost.
        if self._gone and not self._gone.isdisjoint(
            chain.from_iterable(map(range, rows.firsts, map(add, rows.firsts, rows.counts)))
        ):
            self._compact()
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

    def _cut(self, parts: Mapping[int, TaskRanges]) -> None:
        """Replace each run in ``parts`` (ascending) by several runs; later runs move."""
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

    def _near(self, spans: Spans) -> Iterable[int]:
        """The places of runs that may hold tasks in ``spans``, ascending."""
        return range(len(self._firsts))

    def take(self, entry: Entry, count: int = 1) -> None:
        place = entry.cursor[1]
        first, held = self._firsts[place], self._counts[place]
        if entry.task == first:
            self._shorten(place, count)
        elif entry.task + count == first + held:
            self._shorten(place, count, first)
        else:
            self._gone.update(range(entry.task, entry.task + count))

    def discard(self, task: int, count: int = 1) -> None:
        self._gone.update(range(task, task + count))

    def tidy(self) -> bool:
        if self._head > COMPACT_FROM and self._head > len(self._firsts) // 2:
            self._behead()
        empty, gone, runs = self._empty, len(self._gone), len(self._firsts)
        few_left = empty > COMPACT_FROM and empty > runs - runs // _RUNS_OF_NONE
        if few_left or (gone > COMPACT_FROM and gone > runs // RUNS_A_GHOST):
            self._compact()
        return True

    def _shorten(self, place: int, less: int, first: int | None = None) -> None:
        """Take ``less`` tasks out of a run: the first ones, or the last ones if its unchanged ``first`` is given."""
        self._firsts[place] = self._firsts[place] + less if first is None else first
        self._counts[place] -= less
        self._held -= less
        if not self._counts[place]:
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
        self._gone.clear()

    def _compact(self) -> None:
        """Drop ghosts and empty runs."""
        if self._gone:
            kept = self._living(0, len(self._firsts))
            self._clear()
            self._extend(kept)
            return
        firsts, counts, runtimes = self._held_runs(0, len(self._firsts))
        self._clear()
        self._firsts, self._counts, self._held = firsts, counts, sum(counts)
        self._tree.extend(runtimes)

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
        agree("discarded tasks without an entry", self._gone.difference(entries), set())


class OldestFirst(_Arrivals):
    """First in, first out: one order of the priority queue (``fifo``)."""

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        place = begin = self._head if after is None else after.cursor[1]
        while (place := self._tree.first_below(limit, place)) >= 0:
            while self._counts[place] and self._firsts[place] in self._gone:
                self._gone.remove(self._firsts[place])
                self._shorten(place, 1)
            task, end = self._firsts[place], self._firsts[place] + self._counts[place]
            if after is not None and place == begin:
                task = max(task, after.task + 1)
            while task in self._gone:
                task += 1
            if task < end:
                return Entry((0.0, place), task, self._tree.levels[0][place])
            place += 1
        return None

    def first_before(self, entry: Entry) -> bool:
        """Whether anything is in front of ``entry``, even if it is only a ghost."""
        return self._head < entry.cursor[1] or self._firsts[entry.cursor[1]] < entry.task

    def pop_before(self, entry: Entry | None, most: float = inf) -> TaskRanges:
        """Take out everything in front of ``entry`` (None: everything), in order; of ``most`` runs at most."""
        start, stop = self._head, len(self._firsts) if entry is None else entry.cursor[1]
        end = stop if stop - start <= most else start + int(most)
        popped = self._living(start, end)
        if entry is None and end == stop:
            self._clear()
            return popped
        if entry is not None and end == stop and (part := entry.task - self._firsts[end]):
            ahead = self._without_ghosts(TaskRanges([self._firsts[end]], [part], [entry.runtime]))
            popped.firsts.extend(ahead.firsts)
            popped.counts.extend(ahead.counts)
            popped.runtimes.extend(ahead.runtimes)
            self._leave(end, part)
        for place in range(start, end):
            self._leave(place, self._counts[place])
        return popped

    def _leave(self, place: int, many: int) -> None:
        """Take the first tasks out of a run, ghosts included."""
        if many:
            tasks = range(self._firsts[place], self._firsts[place] + many)
            self._gone -= {task for task in self._gone if task in tasks} if many > len(self._gone) else {*tasks}
            self._shorten(place, many)


class Regular(OldestFirst):
    """The regular queue: tasks are added in the order of their numbers, and do not come back."""

    def holds(self, task: int) -> bool:
        """Whether ``task`` is here."""
        place = bisect_right(self._firsts, task) - 1
        return place >= 0 and task < self._firsts[place] + self._counts[place] and task not in self._gone

    def _near(self, spans: Spans) -> Iterable[int]:
        end = 0
        for first, many in spans:
            start, end = max(end, bisect_right(self._firsts, first) - 1), bisect_left(self._firsts, first + many)
            yield from range(start, end)

    def predict(self, spans: Spans, old: Collection[float], new: NewRuntime) -> None:
        if len(spans) * _FEW_A_SPAN < sum([many for _, many in spans]):
            super().predict(spans, old, new)
        else:
            self._predict_each(chain.from_iterable(range(first, first + many) for first, many in spans), old, new)

    def drop(self, task: int, count: int) -> list[tuple[int, int]]:
        """Take out ``count`` tasks from ``task`` on, as far as they are here. Returns the ranges of the others."""
        end = task + count
        places = range(max(0, bisect_right(self._firsts, task) - 1), bisect_left(self._firsts, end))
        here = self._overlaps(places, task, end)
        ghosts = sorted(self._gone.intersection(range(task, end))) if self._gone else []
        self._gone.difference_update(ghosts)
        # Only the first and the last run can also hold other tasks.
        if inner := places[1:-1]:
            self._empty_all(slice(inner.start, inner.stop))
        for place in {*places[:1], *places[-1:]}:
            self._drop_part(place, task, end)
        others = cut(task, count, here) if sum([many for _, many in here]) < count else ()
        return [(first, many) for first, many, inside in others if not inside] + spans_of(ghosts)

    def _overlaps(self, places: range, task: int, end: int) -> list[tuple[int, int]]:
        """The ranges of tasks, from ``task`` to before ``end``, that these runs hold."""
        firsts, counts = self._firsts[places.start : places.stop], self._counts[places.start : places.stop]
        if places and task <= firsts[0] and firsts[-1] + counts[-1] <= end and sum(counts) == end - task:
            return [(task, end - task)]  # all of them, found out at C speed
        parts = [(max(f, task), min(f + n, end)) for f, n in zip(firsts, counts, strict=True)]
        return [(begin, until - begin) for begin, until in parts if begin < until]

    def _drop_part(self, place: int, task: int, end: int) -> None:
        """Take the tasks from ``task`` to before ``end`` out of a run."""
        first, after = self._firsts[place], self._firsts[place] + self._counts[place]
        if after <= task or first == after:
            return
        if task <= first:
            self._shorten(place, min(end, after) - first)
        elif end >= after:
            self._shorten(place, after - task, first)
        else:
            self._gone.update(range(task, end))

    def _empty_all(self, part: slice) -> None:
        """Take everything out of a part of the runs."""
        counts = self._counts[part]
        self._held -= sum(counts)
        self._empty += len(counts) - counts.count(0)
        self._counts[part] = array("I", [0]) * len(counts)
        self._tree.fill(part.start, array("d", [GONE]) * len(counts))
        if part.start <= self._head < part.stop:
            self._advance()

    def _predict_each(self, tasks: Iterable[int], old: Collection[float], new: NewRuntime) -> None:
        """`predict` for tasks that each have a runtime of their own."""
        runtimes, parts, low = self._tree.levels[0], dict[int, list[int]](), 0
        for task in tasks:
            low = bisect_right(self._firsts, task, low)
            place = low - 1
            if place >= 0 and task - self._firsts[place] < self._counts[place] and runtimes[place] in old:
                if self._counts[place] > 1:
                    parts.setdefault(place, []).append(task)
                else:
                    self._tree.put(place, new(task))
        if parts:
            self._cut({place: self._divided(place, its, new) for place, its in parts.items()})

    def _divided(self, place: int, tasks: Sequence[int], new: NewRuntime) -> TaskRanges:
        """A run with new runtimes for some tasks. If they are several, more will follow: each task gets its own run."""
        first, held, runtime = self._firsts[place], self._counts[place], self._tree.levels[0][place]
        if len(tasks) < _DIVIDE_FROM:
            pieces = list(cut(first, held, [(task, 1) for task in tasks]))
            runtimes = [new(start) if inside else runtime for start, _, inside in pieces]
            return TaskRanges([start for start, _, _ in pieces], [many for _, many, _ in pieces], runtimes)
        runtimes = [runtime] * held
        for task in tasks:
            runtimes[task - first] = new(task)
        return TaskRanges(list(range(first, first + held)), [1] * held, runtimes)


class NewestFirst(_Arrivals):
    """Last in, first out (``newest-first``)."""

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        place = len(self._firsts) if after is None else after.cursor[1] + 1
        begin = place - 1
        while (place := self._tree.last_below(limit, place)) >= 0:
            first = self._firsts[place]
            while self._counts[place] and first + self._counts[place] - 1 in self._gone:
                self._gone.remove(first + self._counts[place] - 1)
                self._shorten(place, 1, first)
            task = first + self._counts[place] - 1
            if after is not None and place == begin:
                task = min(task, after.task - 1)
            while task in self._gone:
                task -= 1
            if task >= first:
                return Entry((0.0, place), task, self._tree.levels[0][place])
        return None
