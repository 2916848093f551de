"""Bags and their batches of tasks: the rows of `deskgrid.scheduler.state.tasks`, nine bytes a task."""

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import not_

from deskgrid.scheduler.model import ENDED, State, agree, near
from deskgrid.scheduler.need import SINGLE, Need
from deskgrid.scheduler.prediction.earlier import NO_PAST, Past
from deskgrid.scheduler.prediction.prediction_error import ENOUGH
from deskgrid.scheduler.prediction.ratios import Ratios, Shown
from deskgrid.scheduler.prediction.spread import EXACT, RatioSpread
from deskgrid.scheduler.queues.categories import Category, CategoryKey
from deskgrid.scheduler.queues.task_ranges import TaskRanges, grouped

# Runs of tasks by their states, found at C speed.
OPEN = re.compile(b"[%c-%c]+" % (State.WAITING, State.HELD))
UNSENT = re.compile(b"[%c-%c]+" % (State.WAITING, State.QUEUED))
WAITING = re.compile(b"%c+" % State.WAITING)
QUEUED = re.compile(b"%c" % State.QUEUED)  # single tasks
BARRED = re.compile(b"%c+" % State.BARRED)
# States of tasks that are out (`Category.out`).
OUT = (State.QUEUED, State.SENT, State.HELD)
# Single tasks, not runs: each pauses, is bound to a slot, or is held.
NOT_IN_QUEUE = re.compile(b"[%c-%c]" % (State.PAUSED, State.HELD))


@dataclass(slots=True)
class ScheduledBag:
    """What the core counts for one bag. ``left_s``: predicted seconds of work not yet ended.

    ``timeout``: the timeout of each of its tasks. ``took``: the longest actual time of a task that is done.
    ``bounded``: many tasks share one prediction, which is then an upper bound for all and not an estimate of each.
    ``past``: what predictions were worth in earlier bags that were like it. ``ratios``: how its own compare with what
    its tasks took, once some have ended.
    ``timed``: tasks that were done since the last change of the bag's prediction; ``spent_s`` and ``foreseen_s``: their
    actual and predicted seconds.
    ``copies``: whether its tasks may be copied.
    ``category``: where its tasks wait, unless it is ``barred``: then none of them may be placed, because it is
    ``gated`` or its tasks are ``moving`` to another category. ``barred_at``: since when it has been gated, or was last;
    ``barred_s``: for how long it was before. ``reserve_s``: for checkpointable tasks,
    what a slot must have left beside a piece, to begin it and to save its end.
    ``need``: what each of its tasks needs beside its seconds. ``failing``: some of its tasks have failed
    (`deskgrid.scheduler.state.failures`).
    """

    number: int
    category: Category
    retries: int = 0
    timeout: float | None = None
    total: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    left_s: float = 0.0
    longest: float = 0.0
    took: float = 0.0
    batches: list["TaskBatch"] = field(default_factory=list)
    bounded: bool = False
    gated: bool = False
    moving: bool = False
    barred_at: float = 0.0
    barred_s: float = 0.0
    past: Past = NO_PAST
    ratios: Ratios | None = None
    copies: bool = False
    timed: int = 0
    spent_s: float = 0.0
    foreseen_s: float = 0.0
    reserve_s: float = 0.0
    need: Need = SINGLE
    failing: bool = False

    @property
    def end(self) -> int:
        """The number after that of its last task."""
        return self.batches[-1].first + self.batches[-1].count

    @property
    def piece(self) -> float | None:
        """How many seconds a piece of its tasks has at least; None: they are not checkpointable."""
        return self.category.key.piece

    @property
    def own_key(self) -> CategoryKey:
        """The key of the category that is its own, if it needs one."""
        return self.category.key._replace(bag=self.number)

    def needs_s(self, runtime: float) -> float:
        """What one of its tasks needs of a slot at once, if ``runtime`` seconds are left of it."""
        return runtime if self.piece is None else min(runtime, self.piece) + self.reserve_s

    @property
    def pace(self) -> float:
        """Actual over predicted seconds of the tasks that are done; 1.0 while there are too few."""
        return self.spent_s / self.foreseen_s if self.timed >= ENOUGH and self.foreseen_s > 0.0 else 1.0

    def bar(self, barred: bool, now: float) -> None:
        """From now on, its tasks may not be placed; or they may."""
        if barred and not self.gated:
            self.barred_at = now
        elif self.gated and not barred:
            self.barred_s += now - self.barred_at
        self.gated = barred

    @property
    def barred(self) -> bool:
        """Whether none of its tasks may be placed."""
        return self.gated or self.moving

    @property
    def settled(self) -> int:
        """Tasks that have ended, one way or another."""
        return self.done + self.failed + self.cancelled

    def learn(self, told: Sequence[float], longest: float, pc: str) -> None:
        """Note the ratios of actual to predicted runtimes of tasks that took ``longest`` seconds or less on a PC."""
        if self.ratios is None:
            self.ratios = Ratios(self.past)
        self.ratios.add(told, longest, pc)

    def teach(self) -> None:
        """Tell later bags what its predictions were worth."""
        if self.ratios is not None and not self.bounded:
            self.ratios.teach()

    def corrected_predictions(self, tasks: Sequence[int], predicted: Sequence[float]) -> Sequence[float]:
        """The first predictions of tasks that are done, of which ``predicted`` are the newest."""
        if self.ratios is None or not (shown := self.ratios.shown):
            return predicted
        pairs = zip(tasks, predicted, strict=True)
        return [shown.pop(task)[1] if task in shown else seconds for task, seconds in pairs]

    def show(self, task: int, elapsed: float, predicted: float) -> None:
        """One of its tasks was killed after ``elapsed`` seconds."""
        if not self.bounded:
            self.ratios = self.ratios or Ratios(self.past)
            self.ratios.show(task, elapsed, predicted)

    def spread(self, running: Callable[[], Iterable[Shown]] = tuple) -> RatioSpread:
        """What its predictions are worth. ``running``: its running tasks, looked up if they are needed."""
        if self.bounded or (self.ratios is None and not self.past.wide):
            return EXACT
        self.ratios = self.ratios or Ratios(self.past)
        return self.ratios.spread(running)

    @property
    def alike(self) -> bool:
        """Whether nothing has ever shown that its predictions differ in what they are worth."""
        return not self.past.wide if self.ratios is None else self.ratios.alike

    def check(self) -> None:
        """Raise `InvariantBroken` unless the counts match the batches."""
        states = [State(state) for batch in self.batches for state in batch.states]
        runtimes = [batch.runtime(batch.first + place) for batch in self.batches for place in range(batch.count)]
        left = [seconds for seconds, state in zip(runtimes, states, strict=True) if state not in ENDED]
        kept = (self.total, self.done, self.failed, self.cancelled)
        counted = (State.DONE, State.FAILED, State.CANCELLED)
        agree(f"counts of bag {self.number}", kept, (len(states), *(states.count(state) for state in counted)))
        near(f"work left of bag {self.number}", self.left_s, sum(left), largest=self.longest * self.total)
        agree(f"longest of bag {self.number} is long enough", self.longest >= max(left, default=0.0), True)


@dataclass(slots=True)
class TaskBatch:
    """Consecutive tasks submitted together. ``runtimes`` has one entry when all tasks share it.

    ``came``: when, by the clock of its bag, which stands still while the bag is barred.
    """

    bag: ScheduledBag
    first: int
    count: int
    runtimes: "array[float]"
    states: bytearray
    came: float = 0.0

    @property
    def arrived(self) -> float:
        """When its tasks came; as much later as their bag has been barred since, because nobody could run them."""
        return self.came + self.bag.barred_s

    def runtime(self, task: int) -> float:
        return self.runtimes[0 if len(self.runtimes) == 1 else task - self.first]

    def runtimes_of(self, tasks: Sequence[int]) -> Sequence[float]:
        """The runtimes of some of its tasks."""
        if len(self.runtimes) == 1:
            return [self.runtimes[0]] * len(tasks)
        return [self.runtimes[task - self.first] for task in tasks]

    def evidence(self, task: int) -> tuple[float, float]:
        """What a task was predicted to take at first, and how many seconds of it were in vain."""
        ratios = self.bag.ratios
        if ratios is not None and task in ratios.shown:
            elapsed, predicted = ratios.shown[task]
            return predicted, elapsed
        return self.runtime(task), 0.0

    def longest(self) -> tuple[float, int]:
        """The longest runtime of its waiting tasks, and the first task that has it. At least one task must wait."""
        if len(self.runtimes) == 1:
            return self.runtimes[0], self.first + self.states.index(State.WAITING)
        # At C speed, because the batch may be a bag of a million: waiting is state zero.
        longest = max(compress(self.runtimes, map(not_, self.states)))
        place = self.runtimes.index(longest)
        while self.states[place]:
            place = self.runtimes.index(longest, place + 1)
        return longest, self.first + place

    def spans(self, states: re.Pattern[bytes], first: int, count: int) -> list[tuple[int, int]]:
        """Ranges of the tasks whose states match, among ``count`` tasks from ``first`` on."""
        start = first - self.first
        found = states.finditer(self.states, start, start + count)
        return [(self.first + match.start(), match.end() - match.start()) for match in found]

    def left_s(self, first: int, count: int) -> float:
        """The sum of the predicted runtimes of some of its tasks."""
        if len(self.runtimes) == 1:
            return self.runtimes[0] * count
        return sum(self.runtimes[first - self.first : first - self.first + count])

    def set_all(self, tasks: Sequence[int], state: State) -> None:
        """Change the state of some of its tasks."""
        for task in tasks:
            self.states[task - self.first] = state

    def set_range(self, first: int, count: int, state: State) -> None:
        """Change the state of ``count`` tasks from ``first`` on."""
        start = first - self.first
        self.states[start : start + count] = bytes([state]) * count

    def rows(self, first: int, count: int) -> TaskRanges:
        """``count`` tasks from ``first`` on, as they enter a queue."""
        if len(self.runtimes) == 1:
            return TaskRanges([first], [count], list(self.runtimes))
        tasks = range(first, first + count)
        return grouped(tasks, self.runtimes_of(tasks))

    def waiting(self, first: int, count: int) -> TaskRanges:
        """Those of ``count`` tasks from ``first`` on that wait, in order."""
        states = self.states[first - self.first : first - self.first + count]
        if not any(states):
            return self.rows(first, count)
        tasks = [task for task, state in enumerate(states, first) if state == State.WAITING]
        return grouped(tasks, self.runtimes_of(tasks))

    def grow(self, runtimes: "array[float]") -> None:
        """Add tasks at its end, all waiting, each with its runtime."""
        if len(self.runtimes) < self.count:
            self.runtimes *= self.count
        self.runtimes.extend(runtimes)
        self.states.extend(bytes(len(runtimes)))
        self.count += len(runtimes)
