"""Parallel tasks that wait, in the order in which they came.

They become jobs as late as possible: a bag of a hundred thousand makes a thousand at a time.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from deskgrid.scheduler.model import State, agree
from deskgrid.scheduler.parallel.base import Job
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.task_ranges import Spans
from deskgrid.scheduler.state.bags import WAITING, TaskBatch

# The most jobs of a category that a policy sees, unless tasks that were lost come back to them.
MOST = 1_000


class JobQueue:
    """The waiting parallel tasks of a category. ``jobs``: the first of them, by their numbers; ``tasks``: these.

    All waiting tasks with numbers below ``_frontier`` are among them. ``_later``: the first tasks of batches that may
    have others, a heap.
    """

    def __init__(self, category: Category) -> None:
        self.category = category
        self.jobs: list[Job] = []
        self.tasks: list[int] = []
        self._frontier = 0
        self._later: list[int] = []
        self._batches: dict[int, TaskBatch] = {}

    @property
    def waits(self) -> bool:
        """Whether a task may wait, with a job or without one yet."""
        return bool(self.jobs or self._later)

    def __len__(self) -> int:
        """How many tasks wait, counted at C speed."""
        later = [self._batches[first] for first in self._later]
        return len(self.tasks) + sum(
            [batch.states.count(State.WAITING, max(0, self._frontier - batch.first)) for batch in later]
        )

    def come(self, batch: TaskBatch, first: int, count: int) -> None:
        """``count`` tasks of ``batch`` from ``first`` on wait now."""
        for task in range(first, min(first + count, self._frontier)):
            place = bisect_left(self.tasks, task)
            self.tasks.insert(place, task)
            self.jobs.insert(place, _job(batch, task))
        if first + count > self._frontier and batch.first not in self._batches:
            self._batches[batch.first] = batch
            heappush(self._later, batch.first)

    def go(self, first: int, count: int) -> None:
        """``count`` tasks from ``first`` on no longer wait. Those that have no job are known by their states."""
        start, end = bisect_left(self.tasks, first), bisect_left(self.tasks, first + count)
        del self.tasks[start:end], self.jobs[start:end]

    def predict(self, spans: Spans, runtime: Callable[[int], float]) -> None:
        """Tasks in these ranges may have other runtimes: their jobs take them."""
        for first, count in spans:
            for place in range(bisect_left(self.tasks, first), bisect_left(self.tasks, first + count)):
                self.jobs[place].runtime = runtime(self.tasks[place])

    def fill(self) -> None:
        """Make jobs of the next tasks, as long as there are fewer than `MOST`."""
        while self._later and len(self.jobs) < MOST:
            batch = self._batches[self._later[0]]
            end = batch.first + batch.count
            for match in WAITING.finditer(batch.states, max(0, self._frontier - batch.first)):
                start = batch.first + match.start()
                tasks = range(start, start + min(match.end() - match.start(), MOST - len(self.jobs)))
                self.tasks += tasks
                self.jobs += [_job(batch, task) for task in tasks]
                if len(self.jobs) == MOST:
                    end = tasks[-1] + 1
                    break
            self._frontier = end
            if end == batch.first + batch.count:
                del self._batches[heappop(self._later)]

    def check(self, waiting: Sequence[int]) -> None:
        """Raise `InvariantBroken` unless the jobs are the first of the ``waiting`` tasks, and the others are known."""
        agree("jobs in order", [job.task for job in self.jobs], self.tasks)
        agree("waiting parallel tasks", self.tasks, [task for task in waiting if task < self._frontier])
        known = [range(batch.first, batch.first + batch.count) for batch in self._batches.values()]
        unseen = [task for task in waiting if task >= self._frontier and not any(task in some for some in known)]
        agree("parallel tasks that no job will be made of", unseen, [])
        agree("how many parallel tasks wait", len(self), len(waiting))
        agree("batches with parallel tasks", sorted(self._later), sorted(self._batches))


def _job(batch: TaskBatch, task: int) -> Job:
    return Job(task, batch.bag.need, batch.runtime(task), batch.arrived)
