"""The broker's bags: which tasks they have, who waits for their results, and how long their tasks take."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from typing import Any, NamedTuple

from deskgrid.broker.model.needs import need_of
from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import JOINED_TASKS, BagRow, BatchRow
from deskgrid.scheduler.events import TasksSubmitted
from deskgrid.scheduler.forecast.correction import Estimate
from deskgrid.scheduler.model import Attempt
from deskgrid.scheduler.need import SINGLE, Need
from deskgrid.scheduler.prediction.runtimes import Prediction
from deskgrid.scheduler.queues.categories import CategoryKey, key_need, rounded_piece
from deskgrid.scheduler.queues.task_ranges import Spans, by_batch, drop_places
from deskgrid.wire import SECONDS_LIMIT, Environment, Saved, TaskOptions
from deskgrid.wire.saving import FIRST_COST_S, reserve_s

# The predicted runtime when the submitter gives none, until the bag has its first results. A minute is long enough that
# a task does not start in the last moments of a window, and short enough for a lunch break.
ASSUMED_RUNTIME_S = 60.0
# A task is not taken back for its timeout before its files could have come this many times as slowly as assumed.
SLOW_TRANSFER = 10.0
# So many tasks of a bag count as the first on a slot, if there are no more slots now.
FIRST_TASKS = 64
# The most runs of a bag that wait until the broker learns from them: very many bags may be open. So many of them are of
# one worker, if others have some: one that answers at once would leave nothing else to be learned.
LATEST, OF_ONE = 50, 12
# A run: how long it took, in seconds, and on which worker.
Run = tuple[float, str]


@dataclass(slots=True)
class OpenBatch:
    """A batch of a bag: ``count`` tasks from number ``first`` on are its items from ``start`` on.

    ``own``: each task has its own runtime, so that small batches that come next may join it. ``rows``: the first tasks
    of its rows in the journal, if it has several.
    """

    first: int
    start: int
    count: int
    own: bool
    rows: "array[int] | None" = None

    def join(self, row: BatchRow) -> None:
        """Add a batch that continues this one."""
        if self.rows is None:
            self.rows = array("q", [self.first])
        self.rows.extend(row.rows or [row.first])
        self.count += row.count

    def row_of(self, task: int) -> tuple[int, int]:
        """The row in the journal that has ``task``: its first task, and how many it has."""
        if self.rows is None:
            return self.first, self.count
        place = bisect_right(self.rows, task)
        end = self.rows[place] if place < len(self.rows) else self.first + self.count
        return self.rows[place - 1], end - self.rows[place - 1]


class ObservedRuntimes:
    """How long the tasks of a bag took lately, until somebody learns from that.

    The first run on each slot loads everything that the tasks need, and may take many times as long as the others. So
    first runs count only as long as there are no others.

    ``count``: all runs so far. ``only_first``: whether only first runs have been taken.
    """

    __slots__ = ("_first", "_others", "count", "only_first")

    def __init__(self) -> None:
        self._first: list[Run] = []
        self._others: list[Run] = []
        self.only_first = True
        self.count = 0

    def add(self, elapsed: Sequence[float], first: int, worker: str) -> None:
        """Add runs on ``worker``, in seconds; the first ``first`` of them were the first on their slots."""
        self.count += len(elapsed)
        if first and self.only_first:
            _append(self._first, elapsed[:first], worker)
        if len(elapsed) > first:
            _append(self._others, elapsed[first:], worker)

    def take(self) -> list[Run]:
        """The runs since the last call, at most `LATEST`."""
        self.only_first = self.only_first and not self._others
        runs = self._first if self.only_first else self._others
        self._first, self._others = [], []
        return _latest(runs)


def _append(runs: list[Run], elapsed: Sequence[float], worker: str) -> None:
    runs.extend(zip(elapsed[-LATEST:], repeat(worker)))
    if len(runs) > 2 * LATEST:
        runs[:] = _latest(runs)


def _latest(runs: Sequence[Run]) -> list[Run]:
    """The latest runs, but of no worker more than `OF_ONE` while others have some; the last one at the end."""
    if len(runs) <= LATEST:
        return list(runs)
    seen, more, kept = Counter[str](), list[int](), list[int]()
    for place in range(len(runs) - 1, -1, -1):
        worker = runs[place][1]
        (kept if seen[worker] < OF_ONE else more).append(place)
        seen[worker] += 1
    return [runs[place] for place in sorted((kept + more)[:LATEST])]


class BegunCheckpoint(NamedTuple):
    """A checkpoint of which the first ``taken`` bytes have come; ``attempt`` and ``serial`` say which it is."""

    attempt: int
    serial: int
    size: int
    taken: int

    def is_continued(self, attempt: Attempt, saved: Saved) -> bool:
        """Whether a message has more of this checkpoint."""
        return (self.attempt, self.serial, self.size) == (attempt.number, saved.serial, saved.size)


class ToldEstimate(NamedTuple):
    """An estimate of when a bag will be done, as of ``made`` by the broker's clock; it had ``total`` tasks then.

    ``raw``: before it was corrected.
    """

    made: float
    raw: Estimate
    total: int


class KeptCheckpoint(NamedTuple):
    """A checkpoint in the journal, by its number there. ``progress``: as in `deskgrid.wire.Saved`; ``size``: bytes."""

    number: int
    progress: float | None
    left_s: float
    size: int


@dataclass(slots=True)
class OpenBag:
    """A bag that is not forgotten.

    ``size``: bytes of its arguments and results.
    ``settled``: tasks that have ended.
    ``estimate_s``: the prediction for its tasks, if its submitter gave none.
    ``first_transfer_s``, ``transfer_s``: how long the files of its first task on a slot, and of each other, should
    take.
    ``prediction``: what this was made of: the kind of runs, and their quantiles.
    ``learned_at``: the number of runs at which it is learned from them next.
    ``checkpoints``: of its tasks that have not ended, by task, the newest last. ``begun_checkpoints``: those of which
    more is to come, by task.
    ``remembered``: its tasks that have not ended and have an attempt in the journal.
    ``alone_since``: when we noticed that its client was gone while the bag was open.
    ``deserted``: it counts as closed because its client stayed away; if the client returns, the bag is open again.
    ``told``: by stage, the first estimate of when it will be done. ``journal_eta_at``: when one is journaled next, by
    the broker's clock.
    ``under_way``: a note for people about the order that is being carried out in slices; empty for none.
    ``paused``: somebody has paused it. ``held``: why the broker has. ``environment``: what it brings, and by what key
    that is known. ``refused``: why PCs cannot prepare that, if some have said that it is at fault and none has prepared
    it. ``waits_for``: the numbers of the bags that it has to wait for.
    ``cannot_run``: why it was cancelled instead, if a bag that it had to wait for did not end well.
    """

    row: BagRow
    closed: bool
    batches: list[OpenBatch] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    total: int = 0
    size: int = 0
    settled: int = 0
    estimate_s: float = ASSUMED_RUNTIME_S
    prediction: tuple[str, Prediction] | None = None
    runs: ObservedRuntimes = field(default_factory=ObservedRuntimes)
    note: str = ""
    sent_note: str = ""  # the last note that its client was sent
    learned_at: int = 1
    first_transfer_s: float = 0.0
    transfer_s: float = 0.0
    remembered: set[int] = field(default_factory=set)
    checkpoints: dict[int, list[KeptCheckpoint]] = field(default_factory=dict)
    begun_checkpoints: dict[int, BegunCheckpoint] = field(default_factory=dict)
    alone_since: float | None = None
    deserted: bool = False
    told: dict[int, ToldEstimate] = field(default_factory=dict)
    journal_eta_at: float = -inf
    under_way: str = ""
    paused: bool = False
    held: str = ""
    environment: Environment | None = None
    environment_key: str = ""
    refused: str = ""
    waits_for: set[int] = field(default_factory=set)
    cannot_run: str = ""
    # What each of its tasks needs beside its seconds.
    need: Need = SINGLE
    # The requests for results that wait: by peer and request, after which block.
    watchers: dict[bytes, dict[int, int]] = field(default_factory=dict)

    @property
    def program(self) -> tuple[str, str]:
        """Whose its processes are, and of which run of a program: no others share them."""
        return self.row.owner, self.row.options.program or self.row.id

    @property
    def is_calls(self) -> bool:
        """Whether these are calls that a program submitted one by one, and does not want to be kept."""
        return self.row.options.program is not None and not self.row.options.keep

    @property
    def complete(self) -> bool:
        """Whether it is closed and all its tasks have ended."""
        return self.closed and self.settled == self.total

    def remark(self, note: str) -> str:
        """What people should know about this bag now; ``note``: the bag's own note, as of now."""
        if self.cannot_run:
            return f"cannot run: {self.cannot_run}"
        arrived = f"{self.total:,} of its items arrived, perhaps not all"
        if self.deserted:
            return f"its client did not return: {arrived}"
        if self.complete:
            return ""
        paused = self.why_paused
        alone = "" if self.alone_since is None else f"its client is gone: {arrived}"
        return "; ".join(filter(None, (paused, alone, "" if self.held else self.refused, note)))

    def submitted(self, batch: BatchRow, **known: Any) -> TasksSubmitted:
        """The scheduler's event for its newest batch. ``known``: what a restored one had ended, or is held."""
        options, numbers = self.row.options, (batch.bag, batch.first, batch.count)
        timeout = options.timeout
        if timeout is not None:
            timeout = min(timeout + SLOW_TRANSFER * self.first_transfer_s, SECONDS_LIMIT)
        key = self.category._replace(files=self.first_transfer_s > 0.0)
        known |= {"need": self.need, "key": key, "barred": self.barred, "grows": self.batches[-1].first != batch.first}
        if self.row.predicted:
            known["names"] = [f"{self.row.owner}\n{name}" for name in (self.row.template, self.row.name)]
        if options.probes:
            places = [item - batch.start for item in dict.fromkeys(options.probes)]
            known["probes"] = [batch.first + place for place in places if 0 <= place < batch.count]
        if options.checkpoint:
            known |= {"min_piece": options.min_piece, "reserve_s": reserve_s(FIRST_COST_S)}
        return TasksSubmitted(*numbers, batch.runtimes, options.retries, timeout, options.copies, **known)

    def with_transfer(self, runtimes: tuple[float, ...], count: int, slots: int) -> tuple[float, ...]:
        """The runtimes of its next ``count`` tasks with the time for their files. ``slots``: there are so many.

        The files that tasks share travel with the first task on each slot, and the first tasks are placed first. If all
        counted, no worker would be given short tasks ahead.
        """
        if not self.first_transfer_s:
            return runtimes
        first = 0 if self.total else min(count, max(slots, FIRST_TASKS))
        each = runtimes if len(runtimes) == count or not first else runtimes * count
        more = (self.first_transfer_s if place < first else self.transfer_s for place in range(len(each)))
        return tuple([min(runtime + extra, SECONDS_LIMIT) for runtime, extra in zip(each, more, strict=True)])

    @property
    def category(self) -> CategoryKey:
        """The category of its tasks, but for files."""
        return category_of(self.row.owner, self.row.options, self.environment_key, self.row.number)

    @property
    def parallel(self) -> bool:
        """Whether each of its tasks needs several slots at once, or is a gang."""
        return self.row.options.gang or self.row.options.slots > 1

    @property
    def why_paused(self) -> str:
        """That it is paused, and why; empty if it is not."""
        if self.held:
            return f"it is held: {self.held}; resume it to try again"
        return "it is paused" if self.paused else ""

    @property
    def barred(self) -> bool:
        """Whether none of its tasks may be placed now."""
        return self.paused or bool(self.waits_for)

    def task(self, item: int) -> int | None:
        """The task number of ``item``; None when there is no such item."""
        if not 0 <= item < self.total:
            return None
        batch = self.batch_of(item)
        return batch.first + item - batch.start

    def batch_of(self, item: int) -> OpenBatch:
        """The batch of an item; the item must exist."""
        return self.batches[bisect_right(self.starts, item) - 1]

    def pieces(self, spans: Spans) -> Iterator[tuple[int, int, int]]:
        """Ranges of items as ranges of tasks, each within a batch: (first task, how many, first item)."""
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
        # How many bags of each owner use each template.
        self._templates: Counter[tuple[str, str]] = Counter()
        self._firsts: list[int] = []
        self._where: list[tuple[OpenBag, OpenBatch]] = []
        # The numbers that come next.
        self.next_task = journal.recovery.next_task()
        self.next_bag = journal.recovery.next_bag()

    def open(self, row: BagRow) -> OpenBag:
        """Add a bag."""
        bag = OpenBag(row, row.closed, need=need_of(row.options))
        self.by_id[row.id] = self.by_number[row.number] = bag
        self.next_bag = max(self.next_bag, row.number + 1)
        self._templates[row.owner, row.template] += 1
        return bag

    def uses(self, owner: str, template: str) -> bool:
        """Whether a bag of this owner has this template."""
        return (owner, template) in self._templates

    def may_join(self, bag: OpenBag) -> bool:
        """Whether a small batch that comes now may join the last one of its bag."""
        last = bag.batches[-1]
        return last.own and last.first + last.count == self.next_task and last.count < JOINED_TASKS

    def extend(self, bag: OpenBag, row: BatchRow) -> bool:
        """Add a batch to a bag; return whether it joined the bag's last one."""
        last = bag.batches[-1] if bag.batches else None
        joins = last is not None and last.own and row.continues(last.first, last.count)
        if last is not None and joins:
            last.join(row)
        else:
            batch = OpenBatch(row.first, row.start, row.count, row.own, array("q", row.rows) if row.rows else None)
            bag.batches.append(batch)
            bag.starts.append(row.start)
            self._firsts.append(row.first)
            self._where.append((bag, batch))
        bag.total += row.count
        bag.size += row.size
        self.next_task = max(self.next_task, row.first + row.count)
        return joins

    def find(self, task: int) -> tuple[OpenBag, OpenBatch, int]:
        """The bag and the batch of a task, and the task's place in the batch; the task must exist."""
        bag, batch = self._where[bisect_right(self._firsts, task) - 1]
        return bag, batch, task - batch.first

    def by_batch(self, tasks: Sequence[int]) -> Iterator[tuple[OpenBag, OpenBatch, slice]]:
        """Split ``tasks``, which must exist, by batch: yield the bag, the batch, and the slice of ``tasks``."""
        for batch, part in by_batch(tasks, lambda task: self.find(task)[1]):
            yield self.find(batch.first)[0], batch, part

    def item(self, task: int) -> tuple[OpenBag, int]:
        """The bag of a task, and its item in that bag; the task must exist."""
        bag, batch, place = self.find(task)
        return bag, batch.start + place

    def forget(self, bag: OpenBag) -> None:
        """Remove a bag, also from the journal."""
        del self.by_id[bag.row.id], self.by_number[bag.row.number]
        self._templates[its := (bag.row.owner, bag.row.template)] -= 1
        if not self._templates[its]:
            del self._templates[its]
        drop_places([bisect_left(self._firsts, batch.first) for batch in bag.batches], self._firsts, self._where)
        self._journal.forget(bag.row.number)


def category_of(owner: str, options: TaskOptions, environment: str, number: int | None = None) -> CategoryKey:
    """The category of a bag with these options, but for files. ``number``: None for one that is not here yet."""
    return CategoryKey(
        owner,
        options.priority,
        options.licence_needs(),
        options.limit or 0,
        None if options.limit is None else number,
        rounded_piece(options.min_piece) if options.checkpoint else None,
        environment,
        key_need(need_of(options)),
    )


def checked_runtimes(runtime: float | None, runtimes: tuple[float, ...], count: int) -> tuple[float, ...] | None:
    """The runtimes of a submitted batch: one for all items, or ``count``; None if their number is wrong."""
    if runtimes:
        return runtimes if len(runtimes) == count else None
    return (ASSUMED_RUNTIME_S if runtime is None else runtime,)
