"""A queue in the order of runtimes."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice, repeat

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.queues.by_arrival import COMPACT_FROM, RUNS_A_GHOST
from deskgrid.scheduler.queues.runtime_index import Run, RuntimeIndex
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges
from deskgrid.scheduler.queues.waiting import Entry, NewRuntime


class LongestFirst:
    """The longest runtime first, the older of equals first (``longest-first``).

    Each task that is added gets the next arrival number. An entry is a ghost if its number is smaller than the one that
    ``_gone`` has for its task. So a task that is back is not mistaken for its own ghost.
    """

    def __init__(self) -> None:
        self._runs = RuntimeIndex()
        self._arrived = 0
        # How many tasks the runs hold, and how many of those are ghosts.
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

    def add(self, rows: TaskRanges) -> None:
        if rows.firsts:
            self._runs.add(rows, self._arrived)
            count = sum(rows.counts)
            self._arrived += count
            self._held += count

    def predict(self, spans: Spans, old: Collection[float], new: NewRuntime) -> None:
        self._runs.predict(spans, old, new)

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        if not self._held:
            return None
        if after is None or after.runtime >= limit:
            found = self._runs.first_below(limit)
        else:
            found = self._runs.first_after(*after.cursor)
        while found is not None:
            runtime, number, task, held = found
            if number >= self._gone.get(task, 0):
                return Entry((runtime, number), task, runtime, 1 if self._gone else held)
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

    def take(self, entry: Entry, count: int = 1) -> None:
        self._runs.take(*entry.cursor, count)
        self._held -= count

    def discard(self, task: int, count: int = 1) -> None:
        self._gone.update(zip(range(task, task + count), repeat(self._arrived)))
        self._ghosts += count

    def tidy(self) -> None:
        gone = max(self._ghosts, len(self._gone))
        if gone > COMPACT_FROM and gone * RUNS_A_GHOST > len(self._runs):
            self._compact()

    def _compact(self) -> None:
        self._runs.sift(self._gone)
        self._held -= self._ghosts
        self._ghosts = 0
        self._gone.clear()

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        self._runs.check()
        runs = list(self._runs.forwards())
        agree("tasks in runs", self._held, sum(held for *_, held in runs))
        agree("arrival numbers in use", all(arrival + held <= self._arrived for _, arrival, _, held in runs), True)
        living = [task for task, _ in self._living(runs)]
        agree("ghosts", self._ghosts, self._held - len(living))
        agree("entries of one task", len(set(living)), len(living))
