"""A queue in the order of runtimes."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, repeat

from deskgrid.scheduler.model import agree, named
from deskgrid.scheduler.queues.by_arrival import COMPACT_FROM, RUNS_A_GHOST
from deskgrid.scheduler.queues.leaf import Run
from deskgrid.scheduler.queues.runtime_index import START, RuntimeIndex
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges, grouped
from deskgrid.scheduler.queues.waiting import Entry, NewRuntime

# How many leaves of the index a pass sifts at least, which takes a few milliseconds; and in how many passes all of them
# are sifted at most.
LEAVES, PASSES = 16, 96
# How many runs are looked at or moved in one step of a prediction, at least: a few milliseconds.
PREDICTED_RUNS = 2_500
# More ghosts than this are sifted out before the queue is asked for a task: meeting them all takes a tenth of a second.
# They are sifted out from a sixteenth of this many runs on, however many runs there are.
GHOSTS_MOST, RUNS_MOST = 50_000, 800_000


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
        # What ``_gone`` was when the queue began to sift its ghosts out, its tasks sorted, and where to go on.
        self._sifted: dict[int, int] = {}
        self._numbers: list[int] = []
        # Predictions that are under way, the oldest first. A bag may have millions of runs here.
        self._predictions: deque[Iterator[int]] = deque()
        self._sift_from = START

    def __len__(self) -> int:
        return self._held - self._ghosts

    def shortest(self) -> float:
        return self._runs.shortest()

    def rows(self) -> TaskRanges:
        if self._ghosts:
            tasks = list(self.tasks())
            return grouped([task for task, _ in tasks], [runtime for _, runtime in tasks])
        rows = TaskRanges([], [], [])
        for key, _, first, held in self._runs.by_arrival():
            rows.firsts.append(first)
            rows.counts.append(held)
            rows.runtimes.append(-key)
        return rows

    def tasks(self) -> Iterator[tuple[int, float]]:
        return self._living(self._runs.by_arrival())

    def ascending(self, limit: int) -> list[float]:
        if not self._ghosts:
            return list(islice(self._runs.ascending(), limit))
        return [runtime for _, runtime in islice(self._living(self._runs.backwards()), limit)]

    def _living(self, runs: Iterable[Run]) -> Iterator[tuple[int, float]]:
        """Number and runtime of each task in these runs that was not discarded."""
        ghosts = self._ghosts
        for key, arrival, first, held in runs:
            for task in range(first, first + held) if held > 1 else (first,):
                if not ghosts or not self._is_ghost(task, arrival + task - first):
                    yield task, -key

    def _is_ghost(self, task: int, number: int) -> bool:
        return number < self._gone.get(task, 0) or number < self._sifted.get(task, 0)

    def add(self, rows: TaskRanges) -> None:
        if rows.firsts:
            self._runs.add(rows, self._arrived)
            count = sum(rows.counts)
            self._arrived += count
            self._held += count

    def predict(self, spans: Spans, old: Collection[float], new: NewRuntime) -> None:
        self._predictions.append(self._runs.predict(spans, old, new))
        self._predict()

    @property
    def bare(self) -> bool:
        return not self._held

    @property
    def predicting(self) -> bool:
        return bool(self._predictions)

    def _predict(self) -> None:
        """Go on with the predictions that are under way."""
        units = 0
        while self._predictions and units < PREDICTED_RUNS:
            done = next(self._predictions[0], None)
            if done is None:
                self._predictions.popleft()
            else:
                units += done
        self._sift_from = START  # a ghost may have moved to where its like were sifted out

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        if not self._held:
            return None
        if after is None or after.runtime >= limit:
            found = self._runs.first_below(limit)
        else:
            found = self._runs.first_after(*after.cursor)
        while found is not None:
            runtime, number, task, held = found
            if not self._ghosts or not self._is_ghost(task, number):
                return named(Entry, ((runtime, number), task, runtime, 1 if self._ghosts else held))
            self._drop_ghost(runtime, number)
            found = self._runs.first_after(runtime, number)
        return None

    def _drop_ghost(self, runtime: float, number: int) -> None:
        """Drop this ghost from the run that holds it."""
        self._runs.take(runtime, number)
        self._drop(1)

    def _drop(self, count: int) -> None:
        """``count`` ghosts are gone."""
        self._held -= count
        self._ghosts -= count
        if not self._ghosts:
            self._gone, self._sifted = {}, {}

    def take(self, entry: Entry, count: int = 1) -> None:
        self._runs.take(*entry.cursor, count)
        self._held -= count

    def discard(self, task: int, count: int = 1) -> None:
        self._gone.update(zip(range(task, task + count), repeat(self._arrived)))
        self._ghosts += count

    def tidy(self) -> bool:
        if self._predictions:
            self._predict()
        return self._make_room() and not self._predictions

    def _make_room(self) -> bool:
        gone = max(self._ghosts, len(self._gone))
        if not self._sifted and gone > COMPACT_FROM and gone * RUNS_A_GHOST > min(len(self._runs), RUNS_MOST):
            self._begin_to_sift()
        if self._sifted:
            self._sift(max(LEAVES, self._runs.leaves // PASSES))
        return self._ghosts <= GHOSTS_MOST

    def _begin_to_sift(self) -> None:
        self._sifted, self._gone = self._gone, {}
        self._numbers, self._sift_from = sorted(self._sifted), START

    def _sift(self, leaves: int) -> None:
        """Sift ghosts out of some leaves: of all at once, it would take a second for ten million tasks."""
        taken, fence = self._runs.sift(self._sifted, self._numbers, self._sift_from, leaves)
        if fence is None:
            self._sifted, self._numbers = {}, []
        else:
            self._sift_from = fence
        self._drop(taken)

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        self._runs.check()
        runs = list(self._runs.forwards())
        agree("tasks in runs", self._held, sum(held for *_, held in runs))
        agree("arrival numbers in use", all(arrival + held <= self._arrived for _, arrival, _, held in runs), True)
        living = [task for task, _ in self._living(runs)]
        agree("ghosts", self._ghosts, self._held - len(living))
        agree("entries of one task", len(set(living)), len(living))
