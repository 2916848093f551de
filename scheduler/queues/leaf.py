"""Some runs of waiting tasks, in a few short sorted arrays.

A run is a range of tasks with one runtime that arrived one after the other. Its key is the runtime negated, so that
keys ascend when the longest tasks come first; runs of one key are in the order of their arrival.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, compress, islice
from operator import neg

from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges, cut

# A run: its key, the arrival number and the number of its first task, and how many tasks it has.
Run = tuple[float, int, int, int]


class Leaf:
    """Sorted runs in four arrays, and the operations on a few runs."""

    __slots__ = ("arrivals", "counts", "keys", "tasks")

    def __init__(self) -> None:
        self.keys: array[float] = array("d")
        self.arrivals: array[int] = array("q")
        self.tasks: array[int] = array("q")
        self.counts: array[int] = array("I")  # no grid has four thousand million tasks

    def __len__(self) -> int:
        return len(self.keys)

    def insert(self, row: int, key: float, arrival: int, task: int, held: int) -> None:
        """Put a run in front of the one at ``row``."""
        self.keys.insert(row, key)
        self.arrivals.insert(row, arrival)
        self.tasks.insert(row, task)
        self.counts.insert(row, held)

    def merge(self, batch: "Leaf", start: int, end: int) -> None:
        """Put new runs of a sorted batch behind runs of the same key, or lengthen the last of those."""
        keys, row = self.keys, 0
        for key, arrival, task, held in batch.rows(start, end):
            row = bisect_right(keys, key, row)
            if not row or keys[row - 1] != key or not self._lengthen(row - 1, arrival, task, held):
                self.insert(row, key, arrival, task, held)

    def _lengthen(self, row: int, arrival: int, task: int, held: int) -> bool:
        here = self.counts[row]
        if self.tasks[row] + here != task or self.arrivals[row] + here != arrival:
            return False
        self.counts[row] = here + held
        return True

    def take(self, row: int, nth: int, taken: int) -> None:
        """Take ``taken`` tasks, from the ``nth`` on, out of the run at ``row``."""
        held = self.counts[row]
        if held == taken:
            del self.keys[row], self.arrivals[row], self.tasks[row], self.counts[row]
            return
        end = nth + taken
        arrival, task, behind = self.arrivals[row] + end, self.tasks[row] + end, held - end
        if nth == 0:
            self.arrivals[row], self.tasks[row], self.counts[row] = arrival, task, behind
            return
        self.counts[row] = nth
        if behind:
            self.insert(row + 1, self.keys[row], arrival, task, behind)

    def row(self, row: int) -> Run:
        """The run at ``row``."""
        return self.keys[row], self.arrivals[row], self.tasks[row], self.counts[row]

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[Run]:
        """Each run, or those from ``start`` to before ``end``."""
        part = slice(start, end)
        return zip(self.keys[part], self.arrivals[part], self.tasks[part], self.counts[part], strict=True)

    def backwards(self) -> Iterator[Run]:
        """Each run, from the last to the first."""
        columns = reversed(self.keys), reversed(self.arrivals), reversed(self.tasks), reversed(self.counts)
        return zip(*columns, strict=True)

    def extend(self, other: "Leaf", start: int = 0, end: int | None = None) -> None:
        """Append runs of another leaf."""
        self.keys.extend(other.keys[start:end])
        self.arrivals.extend(other.arrivals[start:end])
        self.tasks.extend(other.tasks[start:end])
        self.counts.extend(other.counts[start:end])

    def part(self, start: int, end: int) -> "Leaf":
        """A leaf of the runs from ``start`` to before ``end``."""
        leaf = Leaf()
        leaf.extend(self, start, end)
        return leaf

    def pull(self, key: float, spans: Spans) -> list[Run]:
        """Take out the tasks in ``spans`` of runs with ``key``."""
        start, end = bisect_left(self.keys, key), bisect_right(self.keys, key)
        pulled, kept = list[Run](), Leaf()
        for _, arrival, task, held in self.rows(start, end):
            for piece, many, inside in cut(task, held, spans):
                run = key, arrival + piece - task, piece, many
                if inside:
                    pulled.append(run)
                else:
                    kept.insert(len(kept), *run)
        if pulled:
            rest = self.part(end, len(self))
            for column in (self.keys, self.arrivals, self.tasks, self.counts):
                del column[start:]
            self.extend(kept)
            self.extend(rest)
        return pulled

    def sort(self) -> None:
        """Sort the runs by key; equal ones keep their order. Linear for two sorted parts, one behind the other."""
        order = sorted(range(len(self)), key=self.keys.__getitem__)
        self.keys = array("d", map(self.keys.__getitem__, order))
        self.arrivals = array("q", map(self.arrivals.__getitem__, order))
        self.tasks = array("q", map(self.tasks.__getitem__, order))
        if max(self.counts) > 1:
            self.counts = array("I", map(self.counts.__getitem__, order))

    def drop_singles(self, gone: dict[int, int]) -> None:
        """Take out each run of a single task whose arrival number is below its number in ``gone``."""
        if not gone.keys().isdisjoint(self.tasks):
            least, columns = gone.get, (self.arrivals, self.tasks, self.counts)
            kept = [held > 1 or arrival >= least(task, 0) for arrival, task, held in zip(*columns, strict=True)]
            self.keys = array("d", compress(self.keys, kept))
            self.arrivals = array("q", compress(self.arrivals, kept))
            self.tasks = array("q", compress(self.tasks, kept))
            self.counts = array("I", compress(self.counts, kept))


def arrived(rows: TaskRanges, arrival: int) -> Leaf:
    """Runs that arrive together; ``arrival`` is the number of the first task."""
    leaf = Leaf()
    leaf.keys.extend(map(neg, rows.runtimes))
    leaf.arrivals.extend(accumulate(islice(rows.counts, len(rows.counts) - 1), initial=arrival))
    leaf.tasks.extend(rows.firsts)
    leaf.counts.extend(rows.counts)
    if len(leaf) > 1:
        leaf.sort()
    return leaf
