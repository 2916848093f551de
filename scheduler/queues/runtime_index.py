"""Waiting tasks, longest first, in little memory: runs of tasks in a row of short sorted arrays.

Rule 1: a run is a range of tasks with one runtime that arrived one after the other. A giant bag of one runtime is one
run; a task that is like no other is a run of its own, of 28 bytes.
Rule 2: runs are in the order of their keys: runtimes negated (so that they ascend), then arrival numbers.
Rule 3: a `Leaf` of runs is short, because inserting or removing a run moves the ones behind it.
Rule 4: a task's key stays valid, whatever else comes or goes; its place does not.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator
from itertools import chain, pairwise, repeat
from operator import neg

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.queues.leaf import Leaf, Run, arrived
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges

# Moving this many runs costs less than finding the leaf. For a million tasks, the leaves take a byte for each task.
LEAF = 1024
# A batch of more than a quarter of a leaf (1 / ONE_BY_ONE) is sorted into it at once; a smaller one run by run.
ONE_BY_ONE = 4

# A key and an arrival number; and the one that is before all others.
Fence = tuple[float, int]
START: Fence = (-math.inf, -1)
# A task: runtime, arrival number, number; and how many tasks its run has from this one on.
Found = tuple[float, int, int, int]


class RuntimeIndex:
    """All leaves, each with a fence: keys in the leaf are not below it, and all keys in earlier leaves are.

    A fence stays as it is when the run that it was made from has gone. ``leaf``: the most runs in one leaf.
    """

    def __init__(self, leaf: int = LEAF) -> None:
        self._most = leaf
        # A leaf with fewer runs is joined to its neighbour, if both together have at most `_new`. So joins and cuts are
        # rare, and new leaves have room for more runs.
        self._few = leaf // 4
        self._new = leaf * 3 // 4
        self._leaves = [Leaf()]
        # Fences in two lists: key and arrival.
        self._keys = [-math.inf]
        self._arrivals = [-1]

    def __len__(self) -> int:
        """How many runs there are; of tasks there may be many more."""
        return sum(map(len, self._leaves))

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        return len(self._leaves)

    # --- looking -----------------------------------------------------------------------------------------------------

    def first_below(self, limit: float) -> Found | None:
        """The first task with ``runtime < limit``."""
        place = bisect_right(self._keys, -limit) - 1
        return self._at(place, bisect_right(self._leaves[place].keys, -limit), 0)

    def first_after(self, runtime: float, arrival: int) -> Found | None:
        """The first task behind the one with that runtime and arrival, whether it is still here or not."""
        place, row = self._find(-runtime, arrival)
        leaf = self._leaves[place]
        if row >= 0 and leaf.keys[row] == -runtime:
            nth = arrival + 1 - leaf.arrivals[row]
            if nth < leaf.counts[row]:
                return self._at(place, row, nth)
        return self._at(place, row + 1, 0)

    def _at(self, place: int, row: int, nth: int) -> Found | None:
        leaf = self._leaves[place]
        if row == len(leaf.keys):
            if place + 1 == len(self._leaves):
                return None
            leaf, row = self._leaves[place + 1], 0
        return -leaf.keys[row], leaf.arrivals[row] + nth, leaf.tasks[row] + nth, leaf.counts[row] - nth

    def _find(self, key: float, arrival: int) -> tuple[int, int]:
        """Leaf and row of the last run that begins at that key and arrival or before; row -1: none in the leaf."""
        place = bisect_right(self._keys, key) - 1
        if self._keys[place] == key:
            place = bisect_right(self._arrivals, arrival, bisect_left(self._keys, key), place + 1) - 1
        leaf = self._leaves[place]
        end = bisect_right(leaf.keys, key)
        start = bisect_left(leaf.keys, key, 0, end)
        return place, bisect_right(leaf.arrivals, arrival, start, end) - 1

    def shortest(self) -> float:
        """The smallest runtime, or infinity."""
        keys = self._leaves[-1].keys
        return -keys[-1] if keys else math.inf

    def forwards(self) -> Iterator[Run]:
        """Each run, the longest runtime first."""
        return chain.from_iterable(leaf.rows() for leaf in self._leaves)

    def backwards(self) -> Iterator[Run]:
        """Each run, the shortest runtime first."""
        return chain.from_iterable(leaf.backwards() for leaf in reversed(self._leaves))

    def by_arrival(self) -> Iterator[Run]:
        """Each run, in the order in which they arrived."""
        whole = Leaf()
        for leaf in self._leaves:
            whole.extend(leaf)
        order = sorted(range(len(whole)), key=whole.arrivals.__getitem__)
        columns = (whole.keys, whole.arrivals, whole.tasks, whole.counts)
        return zip(*(map(column.__getitem__, order) for column in columns), strict=True)

    def ascending(self) -> Iterator[float]:
        """The runtime of each task, the shortest first."""
        for leaf in reversed(self._leaves):
            yield from chain.from_iterable(map(repeat, map(neg, reversed(leaf.keys)), reversed(leaf.counts)))

    # --- changing ----------------------------------------------------------------------------------------------------

    def add(self, rows: TaskRanges, arrival: int) -> None:
        """Add tasks that arrive together, the first with the number ``arrival``, which is new."""
        batch, start = arrived(rows, arrival), 0
        while start < len(batch):
            place = bisect_right(self._keys, batch.keys[start]) - 1
            last = place + 1 == len(self._leaves)
            end = len(batch) if last else bisect_left(batch.keys, self._keys[place + 1], start)
            self._put(place, batch, start, end)
            start = end

    def _put(self, place: int, batch: Leaf, start: int, end: int) -> None:
        """Put some runs of ``batch`` into one leaf, and cut it if it is too large then."""
        leaf = self._leaves[place]
        if (end - start) * ONE_BY_ONE <= len(leaf) or end - start == 1:
            leaf.merge(batch, start, end)
        else:
            alone = not leaf
            leaf.extend(batch, start, end)
            if not alone:
                leaf.sort()
        if len(leaf) > self._most:
            self._cut(place)

    def _cut(self, place: int) -> None:
        """Make several leaves of the one at ``place``, all about as large."""
        leaf = self._leaves[place]
        pieces = -(-len(leaf) // self._new)
        edges = [len(leaf) * number // pieces for number in range(pieces + 1)]
        self._leaves[place : place + 1] = [leaf.part(start, end) for start, end in pairwise(edges)]
        self._keys[place + 1 : place + 1] = [leaf.keys[edge] for edge in edges[1:-1]]
        self._arrivals[place + 1 : place + 1] = [leaf.arrivals[edge] for edge in edges[1:-1]]

    def take(self, runtime: float, arrival: int, taken: int = 1) -> None:
        """Take out the task of that runtime and arrival, which is here, or ``taken`` tasks of its run from it on."""
        place, row = self._find(-runtime, arrival)
        leaf = self._leaves[place]
        leaf.take(row, arrival - leaf.arrivals[row], taken)
        if len(leaf.keys) < self._few:
            self._join(place)
        elif len(leaf.keys) > self._most:
            self._cut(place)

    def _join(self, place: int) -> None:
        """Join the leaf at ``place`` to its neighbour, unless both are too large together. A sole leaf may be empty."""
        if len(self._leaves) == 1:
            return
        place = min(place, len(self._leaves) - 2)
        left, right = self._leaves[place : place + 2]
        if left and right and len(left) + len(right) > self._new:
            return
        left.extend(right)
        del self._leaves[place + 1], self._keys[place + 1], self._arrivals[place + 1]

    def predict(self, spans: Spans, old: Collection[float], new: Callable[[int], float]) -> Iterator[int]:
        """Tasks in ``spans`` whose runtime is in ``old`` take a new one, and keep their arrival numbers.

        ``new`` must return the same for all tasks of a span: it is not called for each of them. Yields after each leaf
        how many runs it looked at and moved; in between, the index may change.
        """
        for runtime in old:
            start: int | None = 0
            while start is not None:
                units, start = self._predict_leaf((-runtime, start), spans, new)
                yield units

    def _predict_leaf(self, start: Fence, spans: Spans, new: Callable[[int], float]) -> tuple[int, int | None]:
        """Predict the runs of one key in one leaf, from ``start`` on. Returns units, and the next arrival, if any."""
        key, place = start[0], self._find(*start)[0]
        behind = place + 1 < len(self._leaves) and self._keys[place + 1] == key
        following = self._arrivals[place + 1] if behind else None
        leaf = self._leaves[place]
        looked_at = bisect_right(leaf.keys, key) - bisect_left(leaf.keys, key)
        pulled = leaf.pull(key, spans)
        if len(leaf) > self._most:
            self._cut(place)
        elif len(leaf) < self._few:
            self._join(place)
        for _, arrival, task, held in pulled:
            self._insert(-new(task), arrival, task, held)
        return looked_at + len(pulled), following

    def _insert(self, key: float, arrival: int, task: int, held: int) -> None:
        place, row = self._find(key, arrival)
        self._leaves[place].insert(row + 1, key, arrival, task, held)
        if len(self._leaves[place]) > self._most:
            self._cut(place)

    def sift(self, gone: dict[int, int], numbers: list[int], start: Fence, most: int) -> tuple[int, Fence | None]:
        """Take out tasks whose arrival number is below their number in ``gone``, from the leaf at ``start`` on.

        ``numbers``: the tasks in ``gone``, sorted. ``most``: how many leaves to sift. Returns how many tasks were taken
        out, and where to go on; None at the end. In between the leaves may change, but no task in ``gone`` may move.
        """
        place, taken = self._find(*start)[0], 0
        for _ in range(most):
            taken += self._sift_leaf(place, gone, numbers)
            leaves, held = len(self._leaves), len(self._leaves[place])
            if held > self._most:
                self._cut(place)
                place += len(self._leaves) - leaves
            elif held < self._few:
                self._join(place)
            # If this leaf was joined to the next one, that one has still to be sifted.
            if len(self._leaves) >= leaves:
                place += 1
            if place >= len(self._leaves):
                return taken, None
        return taken, (self._keys[place], self._arrivals[place])

    def _sift_leaf(self, place: int, gone: dict[int, int], numbers: list[int]) -> int:
        leaf = self._leaves[place]
        before = sum(leaf.counts)
        leaf.drop_singles(gone)
        if met := _met(leaf, numbers):
            kept, start = Leaf(), 0
            for row in met:
                kept.extend(leaf, start, row)
                for run in _left(leaf.row(row), gone, numbers):
                    kept.insert(len(kept), *run)
                start = row + 1
            kept.extend(leaf, start)
            self._leaves[place] = leaf = kept
        return before - sum(leaf.counts)

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        fences = list(zip(self._keys, self._arrivals, strict=True))
        agree("fences in order", fences, sorted(fences))
        agree("leaves between fences", len(self._leaves), len(fences))
        for leaf, fence, end in zip(self._leaves, fences, [*fences[1:], (math.inf, 0)], strict=True):
            starts = list(zip(leaf.keys, leaf.arrivals, strict=True))
            agree("runs in order", starts, sorted(starts))
            agree("a leaf of one too many", len(leaf) > self._most, False)
            agree("a leaf that is empty", not leaf and len(fences) > 1, False)
            agree("runs between fences", [start for start in starts if not fence <= start < end], [])
            agree("runs of none", [row for row in leaf.rows() if not row[3]], [])


def _met(leaf: Leaf, numbers: list[int]) -> list[int]:
    """The rows of runs of several tasks that contain at least one of these sorted numbers."""
    if max(leaf.counts, default=0) <= 1:
        return []
    several = [row for row, held in enumerate(leaf.counts) if held > 1]
    return [row for row in several if _any(numbers, leaf.tasks[row], leaf.tasks[row] + leaf.counts[row])]


def _any(numbers: list[int], start: int, end: int) -> bool:
    place = bisect_left(numbers, start)
    return place < len(numbers) and numbers[place] < end


def _left(run: Run, gone: dict[int, int], numbers: list[int]) -> Iterator[Run]:
    """The parts of a run that are left without the tasks in ``gone``."""
    key, arrival, task, held = run
    start = 0
    for number in numbers[bisect_left(numbers, task) : bisect_left(numbers, task + held)]:
        nth = number - task
        if arrival + nth < gone[number]:
            if nth > start:
                yield key, arrival + start, task + start, nth - start
            start = nth + 1
    if start < held:
        yield key, arrival + start, task + start, held - start
