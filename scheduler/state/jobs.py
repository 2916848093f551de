"""Parallel tasks that wait, in the order in which they came.

They become jobs as late as possible: a bag of a hundred thousand makes a thousand at a time. Those that can start at no
time that is known, whatever else ends, are left out: no job is made of them before that changes.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from deskgrid.scheduler.model import State, agree
from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.possible import Possible
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.task_ranges import Spans
from deskgrid.scheduler.state.bags import WAITING, TaskBatch

# The most jobs of a category that a policy sees, unless tasks that were lost come back to them; and the most if there
# are others that it has found to be able to start at no time that is known.
MOST, MOST_ASIDE = 1_000, 4_000


@dataclass(slots=True)
class _LeftOut:
    """A batch some of whose tasks were left out. ``least``: the shortest of their runtimes, or less."""

    batch: TaskBatch
    least: float


class JobQueue:
    """The waiting parallel tasks of a category. ``jobs``: the first of them, by their numbers; ``tasks``: these.

    All waiting tasks with numbers below ``_frontier`` are among them, or belong to a batch in ``_left_out``.
    ``_later``: the first tasks of batches that may have others, a heap. ``_homes``: the batch of each job.
    """

    def __init__(self, category: Category) -> None:
        self.category = category
        self.jobs: list[ParallelJob] = []
        self.tasks: list[int] = []
        self._homes: list[TaskBatch] = []
        self._frontier = 0
        self._later: list[int] = []
        self._batches: dict[int, TaskBatch] = {}
        # By their first tasks, and these in order.
        self._left_out: dict[int, _LeftOut] = {}
        self._firsts: list[int] = []
        # What was left out agrees with this; None: some jobs have not been looked at.
        self._possible: Possible | None = None
        # Whether there was no room for all that need not have been left out: then they come before others.
        self._owes = False

    @property
    def waits(self) -> bool:
        """Whether a task may wait, with a job or without one yet."""
        return bool(self.jobs or self._later or self._left_out)

    def __len__(self) -> int:
        """How many tasks wait, counted at C speed."""
        later = [self._batches[first] for first in self._later]
        return (
            len(self.tasks)
            + sum([batch.states.count(State.WAITING, max(0, self._frontier - batch.first)) for batch in later])
            + sum([self._count_left_out(each.batch) for each in self._left_out.values()])
        )

    def _count_left_out(self, batch: TaskBatch) -> int:
        """How many of its tasks were left out."""
        jobs = bisect_left(self.tasks, batch.first + batch.count) - bisect_left(self.tasks, batch.first)
        return batch.states.count(State.WAITING, 0, max(0, self._frontier - batch.first)) - jobs

    def enqueue(self, batch: TaskBatch, first: int, count: int) -> None:
        """``count`` tasks of ``batch`` from ``first`` on wait now."""
        for task in range(first, min(first + count, self._frontier)):
            self._insert(batch, task)
            self._possible = None
        if first + count > self._frontier and batch.first not in self._batches:
            self._batches[batch.first] = batch
            heappush(self._later, batch.first)

    def _insert(self, batch: TaskBatch, task: int) -> None:
        place = bisect_left(self.tasks, task)
        self.tasks.insert(place, task)
        self.jobs.insert(place, _job(batch, task))
        self._homes.insert(place, batch)

    def dequeue(self, first: int, count: int) -> None:
        """``count`` tasks from ``first`` on no longer wait. Those that have no job are known by their states."""
        start, end = bisect_left(self.tasks, first), bisect_left(self.tasks, first + count)
        del self.tasks[start:end], self.jobs[start:end], self._homes[start:end]
        if end - start < count:
            self._look_again(first, count)

    def predict(self, spans: Spans, runtime: Callable[[int], float]) -> None:
        """Tasks in these ranges may have other runtimes: their jobs take them."""
        for first, count in spans:
            for place in range(bisect_left(self.tasks, first), bisect_left(self.tasks, first + count)):
                self.jobs[place].runtime = runtime(self.tasks[place])
                self._possible = None
            self._look_again(first, count)

    def _look_again(self, first: int, count: int) -> None:
        """Some of these tasks may have been left out, and may be so no longer."""
        place = max(0, bisect_right(self._firsts, first) - 1)
        while place < len(self._firsts) and self._firsts[place] < first + count:
            self._left_out[self._firsts[place]].least = -inf
            self._possible = None
            place += 1

    # --- jobs are made -----------------------------------------------------------------------------------------------

    def fill(self, possible: Possible) -> bool:
        """Make jobs of the next tasks, as long as there are fewer than `MOST` that a policy has not put aside.

        Returns whether it made any.
        """
        if changed := possible is not self._possible:
            self._leave_out(possible)
            self._possible = possible
        before, most = len(self.jobs), self._most()
        if changed or (self._owes and most - before >= MOST // 2):
            self._owes = False
            for each in list(self._left_out.values()):
                if each.least <= possible.longest(each.batch.bag.need) and not self._owes:
                    self._take_back(each, possible, most)
        while self._later and len(self.jobs) < most and not self._owes:
            batch = self._batches[self._later[0]]
            self._frontier = self._make(batch, self._frontier, possible, most)
            if self._frontier == batch.first + batch.count:
                del self._batches[heappop(self._later)]
        return len(self.jobs) > before

    def _most(self) -> int:
        if len(self.jobs) < MOST and not self._owes:
            return MOST
        return min(MOST_ASIDE, MOST + sum([job.aside > 0 for job in self.jobs]))

    def _make(self, batch: TaskBatch, start: int, possible: Possible, most: int) -> int:
        """Make jobs of tasks of a batch from ``start`` on. Returns up to where."""
        longest, least, end = possible.longest(batch.bag.need), inf, batch.first + batch.count
        if _alike(batch) > longest:
            self._note_left_out(batch, -inf)
            return end
        for task, runtime in _waiting(batch, start, end):
            if runtime > longest:
                least = min(least, runtime)
            elif len(self.jobs) < most:
                self.tasks.append(task)
                self.jobs.append(_job(batch, task))
                self._homes.append(batch)
            else:
                end = task
                break
        self._note_left_out(batch, least)
        return end

    def _leave_out(self, possible: Possible) -> None:
        """Drop the jobs that can start in no known window."""
        keep, need, longest = list[int](), None, inf
        for place, job in enumerate(self.jobs):
            if job.need is not need:
                need, longest = job.need, possible.longest(job.need)
            if job.runtime <= longest:
                keep.append(place)
            else:
                self._note_left_out(self._homes[place], job.runtime)
        if len(keep) < len(self.jobs):
            self.jobs[:] = [self.jobs[place] for place in keep]
            self.tasks[:] = [self.tasks[place] for place in keep]
            self._homes[:] = [self._homes[place] for place in keep]

    def _note_left_out(self, batch: TaskBatch, least: float) -> None:
        """Tasks of a batch were left out; the shortest takes ``least`` seconds; inf: none was."""
        if (known := self._left_out.get(batch.first)) is not None:
            known.least = min(known.least, least)
        elif least < inf:
            self._left_out[batch.first] = _LeftOut(batch, least)
            insort(self._firsts, batch.first)

    def _take_back(self, left_out: _LeftOut, possible: Possible, most: int) -> None:
        """Make jobs of tasks of a batch that were left out."""
        batch, least = left_out.batch, inf
        longest, alike = possible.longest(batch.bag.need), _alike(batch)
        if alike > longest:
            least = alike if self._count_left_out(batch) else inf
        else:
            known = set(self.tasks)
            for task, runtime in _waiting(batch, batch.first, self._frontier):
                if task in known:
                    continue
                if runtime > longest:
                    least = min(least, runtime)
                elif len(self.jobs) < most:
                    self._insert(batch, task)
                else:
                    least, self._owes = -inf, True
                    break
        left_out.least = least
        if least == inf:
            del self._left_out[batch.first]
            self._firsts.remove(batch.first)

    def check(self, waiting: Sequence[int]) -> None:
        """Raise `InvariantBroken` unless the jobs are the first of the ``waiting`` tasks, and the others are known."""
        agree("jobs in order", [job.task for job in self.jobs], self.tasks)
        agree(
            "batches of jobs",
            [
                batch.first <= task < batch.first + batch.count
                for task, batch in zip(self.tasks, self._homes, strict=True)
            ],
            [True] * len(self.tasks),
        )
        agree("batches with tasks that were left out", self._firsts, sorted(self._left_out))
        out = [range(first, first + each.batch.count) for first, each in self._left_out.items()]
        had = set(self.tasks)
        made = [
            task for task in waiting if task < self._frontier and (task in had or not any(task in some for some in out))
        ]
        agree("waiting parallel tasks", self.tasks, made)
        known = [range(batch.first, batch.first + batch.count) for batch in self._batches.values()]
        unseen = [task for task in waiting if task >= self._frontier and not any(task in some for some in known)]
        agree("parallel tasks that no job will be made of", unseen, [])
        agree("how many parallel tasks wait", len(self), len(waiting))
        agree("batches with parallel tasks", sorted(self._later), sorted(self._batches))


def _job(batch: TaskBatch, task: int) -> ParallelJob:
    return ParallelJob(task, batch.bag.need, batch.runtime(task), batch.arrived)


def _alike(batch: TaskBatch) -> float:
    """The runtime of all tasks of a batch, if they have the same; else 0."""
    return batch.runtimes[0] if len(batch.runtimes) == 1 else 0.0


def _waiting(batch: TaskBatch, start: int, end: int) -> Iterator[tuple[int, float]]:
    """The waiting tasks of a batch from ``start`` to ``end``, with their runtimes."""
    first = batch.first
    for match in WAITING.finditer(batch.states, max(0, start - first), max(0, end - first)):
        for task in range(first + match.start(), first + match.end()):
            yield task, batch.runtime(task)
