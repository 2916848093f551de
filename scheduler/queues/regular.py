"""The regular queue: tasks that have not had their turn yet."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from deskgrid.scheduler.queues.by_arrival import OldestFirst
from deskgrid.scheduler.queues.mintree import GONE
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges, cut
from deskgrid.scheduler.queues.waiting import NewRuntime

# With at most this many tasks to each range, on average, tasks are looked up one by one.
_FEW_A_SPAN = 4
# A run is divided into single tasks when at least this many of them take runtimes of their own. Dividing it again and
# again would move all later runs each time.
_DIVIDE_FROM = 8


class Regular(OldestFirst):
    """The regular queue: tasks are added in the order of their numbers, and do not come back.

    So a task is found by its number, and the first and the last task of a run are never ghosts.
    """

    def _extend(self, rows: TaskRanges) -> None:
        end, first = len(self._firsts) - 1, rows.firsts[0] if rows.firsts else -1
        follows = end >= 0 and self._counts[end] and self._firsts[end] + self._counts[end] == first
        if follows and self._tree.levels[0][end] == rows.runtimes[0]:
            # Tasks that are submitted one by one make one run, too.
            self._counts[end] += rows.counts[0]
            self._held += rows.counts[0]
            rows = TaskRanges(rows.firsts[1:], rows.counts[1:], rows.runtimes[1:])
        super()._extend(rows)

    def discard(self, task: int, count: int = 1) -> None:
        self.drop(task, count)

    def tidy(self) -> bool:
        self._make_room()  # a ghost between others costs nothing
        return True

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
        ghosts = list(self._gone.ranges(task, count))
        self._gone.remove(task, count)
        # Only the first and the last run can also hold other tasks.
        if inner := places[1:-1]:
            self._empty_all(slice(inner.start, inner.stop))
        for place in {*places[:1], *places[-1:]}:
            self._drop_part(place, task, end)
        others = cut(task, count, here) if sum([many for _, many in here]) < count else ()
        return [(first, many) for first, many, inside in others if not inside] + ghosts

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
            self._keep(place, min(end, after), after)
        elif end >= after:
            self._keep(place, first, task)
        else:
            self._gone.add(task, end - task)

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
