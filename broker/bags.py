"""Bags as the broker knows them: whose tasks are which, who waits for results, what is predicted where nobody did."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import BagRow, BatchRow
from deskgrid.scheduler.events import TasksSubmitted
from deskgrid.scheduler.queues.task_ranges import Spans, by_batch, drop_places

# What a task is assumed to take when its submitter does not say, until the bag's first results tell: a minute, long
# enough that it is not started in the last moments of a window, short enough for a lunch break.
ASSUMED_RUNTIME_S = 60.0
# Of the tasks of a bag that nobody predicted, all but one in a thousand take no longer than so many standard deviations
# more than the mean, where they are spread like most things; of any, all but one in ten.
DEVIATIONS = 3.0


@dataclass(slots=True)
class OpenBatch:
    """A batch of a bag: ``count`` tasks from number ``first`` on are its items from ``start`` on."""

    first: int
    start: int
    count: int


@dataclass(slots=True)
class Watcher:
    """A client that waits for results after ``after``."""

    peer: bytes
    request: int
    after: int


@dataclass(slots=True)
class _Some:
    """Some runs: number, the longest, their sum, the sum of their squares. Seconds."""

    count: int = 0
    longest: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, elapsed: Sequence[float]) -> None:
        """Some more, one at least."""
        self.count += len(elapsed)
        self.longest = max(self.longest, *elapsed)
        self.total += sum(elapsed)
        self.squares += sum([seconds * seconds for seconds in elapsed])

    def usual(self) -> float:
        """What nearly all take: three deviations more than the mean, but no more than the longest.

        So of few runs it is the longest. Of many, one that a busy PC held up for a moment must not make a thousand
        short tasks look long, for then few of them are handed out at once.
        """
        mean = self.total / self.count
        variance = max(0.0, self.squares / self.count - mean * mean)
        return min(self.longest, mean + DEVIATIONS * math.sqrt(variance))


@dataclass(slots=True)
class ObservedRuntimes:
    """The runs of a bag's tasks that have ended.

    ``first``: the first one of a slot, which loads what such tasks need, and may take many times as long for that;
    ``others``: what they take then.
    """

    first: _Some = field(default_factory=_Some)
    others: _Some = field(default_factory=_Some)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.first.count + self.others.count

    def add(self, elapsed: Sequence[float], first: int) -> None:
        """Some more, seconds, of which so many were the first of their slots."""
        if first:
            self.first.add(elapsed[:first])
        if len(elapsed) > first:
            self.others.add(elapsed[first:])

    def usual(self) -> float:
        """What nearly all take, as far as is known."""
        return (self.others if self.others.count else self.first).usual()


@dataclass(slots=True)
class OpenBag:
    """A bag that is not forgotten. ``runs``: what it has shown of how long its tasks take.

    ``size``: bytes of its arguments, and of its results.
    ``learned_at``: how many runs it takes until its prediction is looked at again, if nobody gave one.
    ``remembered``: those of its tasks that have not ended and of which the journal knows an attempt at a worker.
    ``alone_since``: when it was seen that the client which submitted it, and had not said that this was all, is gone.
    ``deserted``: it counts as closed, because that client stayed away; if it returns, the bag is open again.
    ``under_way``: what is being done to it in slices, for people; empty for nothing.
    """

    row: BagRow
    closed: bool
    batches: list[OpenBatch] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    total: int = 0
    size: int = 0
    settled: int = 0
    estimate_s: float = ASSUMED_RUNTIME_S
    runs: ObservedRuntimes = field(default_factory=ObservedRuntimes)
    note: str = ""
    told_note: str = ""  # what it was told of that
    learned_at: int = 1
    remembered: set[int] = field(default_factory=set)
    alone_since: float | None = None
    deserted: bool = False
    under_way: str = ""
    watchers: list[Watcher] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Nothing more will end here."""
        return self.closed and self.settled == self.total

    @property
    def remark(self) -> str:
        """What people should know of it now."""
        if self.deserted:
            return f"its client did not return: {self.total:,} items arrived, perhaps not all"
        if self.complete:
            return ""
        alone = "" if self.alone_since is None else f"its client is gone: {self.total:,} items arrived, perhaps not all"
        return "; ".join(filter(None, (alone, self.note)))

    def submitted(self, batch: BatchRow, **known: Any) -> TasksSubmitted:
        """What the scheduler is told of a batch. ``known``: of tasks that a restored grid knows something of."""
        options, numbers = self.row.options, (batch.bag, batch.first, batch.count)
        return TasksSubmitted(*numbers, batch.runtimes, options.retries, options.timeout, **known)

    def task(self, item: int) -> int | None:
        """The task number of item ``item``, or None when there is no such item."""
        if not 0 <= item < self.total:
            return None
        batch = self.batch_of(item)
        return batch.first + item - batch.start

    def batch_of(self, item: int) -> OpenBatch:
        """The batch of an item that exists."""
        return self.batches[bisect_right(self.starts, item) - 1]

    def pieces(self, spans: Spans) -> Iterator[tuple[int, int, int]]:
        """Ranges of its items as ranges of tasks: the first task, how many, the first item; each of one batch."""
        for first, many in spans:
            item, end = first, first + many
            while item < end:
                batch = self.batch_of(item)
                count = min(end, batch.start + batch.count) - item
                yield batch.first + item - batch.start, count, item
                item += count


class BagBook:
    """All bags, by id, by number and by task."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.by_id: dict[str, OpenBag] = {}
        self.by_number: dict[int, OpenBag] = {}
        self._firsts: list[int] = []
        self._where: list[tuple[OpenBag, OpenBatch]] = []
        self.next_task = journal.recovery.next_task()
        self._next_bag = journal.recovery.next_bag()

    def open(self, row: BagRow) -> OpenBag:
        """Make a bag known."""
        bag = OpenBag(row, row.closed)
        self.by_id[row.id] = self.by_number[row.number] = bag
        self._next_bag = max(self._next_bag, row.number + 1)
        return bag

    def new_number(self) -> int:
        """For a bag that is about to be opened."""
        return self._next_bag

    def extend(self, bag: OpenBag, row: BatchRow) -> OpenBatch:
        """Add a batch to a bag."""
        batch = OpenBatch(row.first, row.start, row.count)
        bag.batches.append(batch)
        bag.starts.append(row.start)
        bag.total += row.count
        bag.size += row.size
        self._firsts.append(row.first)
        self._where.append((bag, batch))
        self.next_task = max(self.next_task, row.first + row.count)
        return batch

    def find(self, task: int) -> tuple[OpenBag, OpenBatch, int]:
        """The bag of a task that exists, its batch, and its place in that."""
        bag, batch = self._where[bisect_right(self._firsts, task) - 1]
        return bag, batch, task - batch.first

    def by_batch(self, tasks: Sequence[int]) -> Iterator[tuple[OpenBag, OpenBatch, slice]]:
        """Tasks that exist in pieces, in order: the bag and the batch of each, and where in ``tasks`` it is."""
        for batch, part in by_batch(tasks, lambda task: self.find(task)[1]):
            yield self.find(batch.first)[0], batch, part

    def item(self, task: int) -> tuple[OpenBag, int]:
        """The bag of a task that exists, and its index there."""
        bag, batch, place = self.find(task)
        return bag, batch.start + place

    def forget(self, bag: OpenBag) -> None:
        """Drop a bag."""
        del self.by_id[bag.row.id], self.by_number[bag.row.number]
        drop_places([bisect_left(self._firsts, batch.first) for batch in bag.batches], self._firsts, self._where)
        self._journal.forget(bag.row.number)


def checked_runtimes(runtime: float | None, runtimes: tuple[float, ...], count: int) -> tuple[float, ...] | None:
    """The runtimes of a submitted batch: one or ``count``; None when they do not match it."""
    if runtimes:
        return runtimes if len(runtimes) == count else None
    return (ASSUMED_RUNTIME_S if runtime is None else runtime,)
