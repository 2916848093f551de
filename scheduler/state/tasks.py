"""Every task the grid knows, by number: batches of them, plus a few dictionaries for the exceptions."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

from deskgrid.scheduler.model import ENDED, IllegalEvent, State, agree, checked_runtime
from deskgrid.scheduler.prediction.prediction_error import ratios
from deskgrid.scheduler.queues.categories import Category
from deskgrid.scheduler.queues.task_ranges import Spans, by_batch, drop_places, joined
from deskgrid.scheduler.state.bags import OPEN, UNSENT, ScheduledBag, TaskBatch
from deskgrid.scheduler.state.progress import IDLE_LIMIT, ProgressTable

# Looked up once: enum members are slow to look up in Python 3.11, and this one is needed for each task.
_DONE = State.DONE

# Of the workers on which a task has failed, so many are known: it may have a million retries.
WORKERS_KNOWN = 8


class TaskTable:
    """Batches by the number of their first task."""

    def __init__(self) -> None:
        self.bags: dict[int, ScheduledBag] = {}
        # The numbers of the bags that have not ended and whose tasks may be copied.
        self.copied: set[int] = set()
        self._firsts: list[int] = []
        self._batches: list[TaskBatch] = []
        self._next = 0
        # By task: how often it has failed otherwise, and on which workers, the last of them at most.
        self._errors: dict[int, tuple[int, tuple[str, ...]]] = {}
        # By task: the workers on which it has crashed, in order.
        self._crashes: dict[int, list[str]] = {}
        # By task: how often it was taken back from a silent worker.
        self._taken: dict[int, int] = {}
        self.progress = ProgressTable()
        # Whether some task has taken longer than any earlier one of its bag. `Trust.look_after` clears this.
        self.longer = False
        # Bags of which tasks have failed, and some were done since `Blame.did` looked.
        self.worked: list[ScheduledBag] = []

    def add(
        self,
        category_of: Callable[[], Category],
        bag: int,
        first: int,
        count: int,
        runtimes: Sequence[float],
        *,
        grows: bool = False,
    ) -> TaskBatch:
        """Add a batch, all waiting, or add its tasks to the bag's last batch, which ``grows``.

        ``category_of``: gives the category of a new bag.

        Raises `IllegalEvent`, and changes nothing, if the batch is impossible.
        """
        if count < 1 or len(runtimes) not in (1, count):
            raise IllegalEvent(f"a batch of {count} tasks with {len(runtimes)} runtimes")
        if first < self._next:
            raise IllegalEvent(f"task numbers grow; {first} is not new")
        values = array("d", [checked_runtime(seconds) for seconds in runtimes])
        owner = self.bags.get(bag)
        if grows and (owner is None or len(values) < count or first != owner.end):
            raise IllegalEvent(f"the tasks from {first} on do not continue the last batch of bag {bag}")
        if owner is None:
            owner = self.bags[bag] = ScheduledBag(bag, category_of())
        owner.bounded |= len(values) < count
        owner.total += count
        owner.left_s += sum(values) if len(values) == count else values[0] * count
        owner.longest = max(owner.longest, max(values))
        self._next = first + count
        if grows:
            owner.batches[-1].grow(values)
            return owner.batches[-1]
        batch = TaskBatch(owner, first, count, values, bytearray(count))
        owner.batches.append(batch)
        self._firsts.append(first)
        self._batches.append(batch)
        return batch

    def known(self, task: int) -> TaskBatch:
        """The batch ``task`` is in; raises `IllegalEvent` when it is unknown."""
        # For a task before all batches, the place is -1. Then the last batch is tested, which does not have it either.
        place = bisect_right(self._firsts, task) - 1
        if self._batches and 0 <= task - (batch := self._batches[place]).first < batch.count:
            return batch
        raise IllegalEvent(f"unknown task {task}")

    def state(self, task: int) -> State:
        batch = self.known(task)
        return State(batch.states[task - batch.first])

    def runtime(self, task: int) -> float:
        return self.known(task).runtime(task)

    def move(self, task: int, state: State) -> None:
        """Change a task's state and the counts that depend on it."""
        batch = self.known(task)
        batch.states[task - batch.first] = state
        if state >= _DONE:  # ended states come last, and a comparison is quicker than a lookup
            self._settle(batch, task, state)

    def move_all(self, tasks: Sequence[int], state: State) -> None:
        """Change the state of tasks to one that is not an ended state."""
        if len(tasks) == 1:
            batch = self.known(tasks[0])
            batch.states[tasks[0] - batch.first] = state
            return
        for batch, part in by_batch(tasks, self.known):
            batch.set_all(tasks[part], state)

    def succeed(self, tasks: Sequence[int], actual: Sequence[float], pc: str, on_slot: bool = False) -> list[float]:
        """Mark tasks as done after ``actual`` seconds: `move` and `ScheduledBag.learn` for each, with fewer lookups.

        ``pc``: where they ran. ``on_slot``: until now they were out (`Category.charge`). Returns the ratios of actual
        to predicted runtimes.
        """
        if len(tasks) == 1:
            return self._succeed(self.known(tasks[0]), tasks, actual, pc, on_slot)
        found: list[float] = []
        for batch, part in by_batch(tasks, self.known):
            found += self._succeed(batch, tasks[part], actual[part], pc, on_slot)
        return found

    def _succeed(
        self, batch: TaskBatch, tasks: Sequence[int], actual: Sequence[float], pc: str, on_slot: bool
    ) -> list[float]:
        """Do what `succeed` does, for tasks of one batch."""
        bag, first, predicted = batch.bag, batch.first, batch.runtimes_of(tasks)
        for task in tasks:
            batch.states[task - first] = _DONE
        longest = max(actual)
        told = ratios(predicted, actual)
        if not bag.bounded:
            first_told = bag.corrected_predictions(tasks, predicted)
            bag.learn(told if first_told is predicted else ratios(first_told, actual), longest, pc)
        if longest > bag.took:
            bag.took, self.longer = longest, True
        if bag.failing:
            self.worked.append(bag)
        foreseen, spent_s = sum(predicted), sum(actual)
        bag.done += len(tasks)
        bag.timed, bag.spent_s = bag.timed + len(tasks), bag.spent_s + spent_s
        bag.foreseen_s += foreseen
        bag.category.account.new_s += spent_s
        self._ended(bag, tasks, foreseen)
        if on_slot:
            bag.category.charge(-len(tasks), -foreseen)
        return told

    def _settle(self, batch: TaskBatch, task: int, state: State) -> None:
        bag = batch.bag
        if state == State.DONE:
            bag.done += 1
        elif state == State.FAILED:
            bag.failed += 1
        else:
            bag.cancelled += 1
        self._ended(bag, (task,), batch.runtime(task))

    def _ended(self, bag: ScheduledBag, tasks: Sequence[int], predicted: float) -> None:
        """Tasks of ``bag`` have ended and are counted already. ``predicted``: the sum of their runtimes."""
        bag.left_s -= predicted
        if bag.done + bag.failed + bag.cancelled == bag.total:
            bag.left_s = 0.0  # removes what rounding left
            bag.teach()
            self.copied.discard(bag.number)
        if self._errors or self._crashes or self._taken or self.progress.of:
            for task in tasks:
                self.progress.drop(task)
                self._errors.pop(task, None)
                self._crashes.pop(task, None)
                self._taken.pop(task, None)

    def pieces(self, spans: Spans) -> Iterator[tuple[TaskBatch, int, int]]:
        """Split ranges of tasks by batch: (batch, first task, count). Raises `IllegalEvent` for an unknown task."""
        for first, many in spans:
            task, end = first, first + many
            while task < end:
                batch = self.known(task)
                count = min(end, batch.first + batch.count) - task
                yield batch, task, count
                task += count

    def open_spans(self, spans: Spans, unsent: bool = False) -> list[tuple[int, int]]:
        """Ranges of the tasks in ``spans`` that have not ended. ``unsent``: only of those that no worker has."""
        states = UNSENT if unsent else OPEN
        return [span for batch, first, many in self.pieces(spans) for span in batch.spans(states, first, many)]

    def bound(self, first: int, count: int) -> int:
        """How many of these tasks of one batch are bound to a slot."""
        batch = self.known(first)
        start = first - batch.first
        return sum([batch.states.count(state, start, start + count) for state in (State.QUEUED, State.SENT)])

    def cancel(self, batch: TaskBatch, spans: Spans) -> int:
        """Cancel tasks of a batch, none of which has ended. Returns how many."""
        bag, before = batch.bag, batch.bag.cancelled
        for first, many in spans:
            batch.set_range(first, many, State.CANCELLED)
            bag.cancelled += many
            self._ended(bag, range(first, first + many), batch.left_s(first, many))
        return bag.cancelled - before

    def predict(self, news: Mapping[int, float]) -> dict[int, float]:
        """Change the predictions of some tasks. Returns the old ones of waiting tasks that changed, ascending by task.

        Raises `IllegalEvent`, and changes nothing, when one is unknown.
        """
        tasks, before = sorted(news), dict[int, float]()
        for batch, part in list(by_batch(tasks, self.known)):
            if len(batch.runtimes) == 1:
                batch.runtimes = array("d", batch.runtimes * batch.count)
            runtimes, states, first, left = batch.runtimes, batch.states, batch.first, 0.0
            for task in tasks[part]:
                place, runtime = task - first, news[task]
                old, state = runtimes[place], states[place]
                if state < _DONE:  # ended states come last
                    left += runtime - old
                if not state and runtime != old:
                    before[task] = old
                runtimes[place] = runtime
            batch.bag.left_s += left
            batch.bag.longest = max(batch.bag.longest, *map(news.__getitem__, tasks[part]))
        return before

    def predict_bag(self, bag: int, runtime: float) -> tuple[Spans, set[float]]:
        """Change the prediction of every task of a bag. Returns the ranges of its tasks, and the old predictions."""
        owner = self.bags.get(bag)
        if owner is None:
            raise IllegalEvent(f"unknown bag {bag}")
        before = set[float]().union(*(batch.runtimes for batch in owner.batches))
        owner.bounded, owner.timed, owner.spent_s, owner.foreseen_s = True, 0, 0.0, 0.0
        owner.longest, owner.left_s = runtime, runtime * (owner.total - owner.settled)
        for batch in owner.batches:
            batch.runtimes = array("d", [runtime])
        return joined([(batch.first, batch.count) for batch in owner.batches]), before

    def waiting(self, bag: int) -> tuple[int, int | None]:
        """How many tasks of a bag wait, and the first of the longest ones."""
        batches = self.bags[bag].batches
        found = [batch.longest() for batch in batches if State.WAITING in batch.states]
        count = sum(batch.states.count(State.WAITING) for batch in batches)
        return count, max(found, key=itemgetter(0))[1] if found else None

    def crashed(self, task: int, worker: str) -> None:
        """Note a crash of ``task`` on ``worker``."""
        self._crashes.setdefault(task, []).append(worker)

    def crashes(self, task: int) -> Sequence[str]:
        """The workers on which ``task``, which has not ended, has crashed."""
        return tuple(self._crashes.get(task, ()))

    def erred(self, task: int, worker: str) -> int:
        """Count an error or timeout of ``task`` on ``worker``. Returns how many it has now."""
        errors, before = self._errors.get(task, (0, ()))
        others = [name for name in before if name != worker]
        self._errors[task] = errors + 1, (*others, worker)[-WORKERS_KNOWN:]
        return errors + 1

    def errors(self, task: int) -> int:
        """How many errors and timeouts ``task`` has had, if it has not ended."""
        return self._errors[task][0] if task in self._errors else 0

    def failed_on(self, task: int) -> set[str]:
        """The workers on which ``task``, which has not ended, has failed, as far as they are known."""
        found = set(self._crashes.get(task, ()))
        return found.union(self._errors[task][1]) if task in self._errors else found

    def go_on(self, task: int, counts: bool = False) -> bool:
        """A checkpointable task waits again: what is left of it is its runtime now.

        ``counts``: its piece had its time. Returns whether it has had too many pieces without progress.
        """
        batch = self.known(task)
        if (progress := self.progress.find(task)) is None:
            if not counts:
                return False
            progress = self.progress.begun(task, batch.runtime(task))
        progress.end_piece(counts)
        self.predict({task: progress.left_s})
        return progress.idle >= IDLE_LIMIT

    def taken(self, task: int) -> None:
        """Note that ``task`` was taken back from a silent worker."""
        self._taken[task] = self._taken.get(task, 0) + 1

    def times_taken(self, task: int) -> int:
        """How often ``task``, which has not ended, was taken back."""
        return self._taken.get(task, 0)

    def forget(self, bag: int) -> Category:
        """Drop a bag whose tasks have all ended. Returns the category that it was in."""
        owner = self.bags.get(bag)
        if owner is None:
            raise IllegalEvent(f"unknown bag {bag}")
        if owner.settled != owner.total:
            raise IllegalEvent(f"bag {bag} has {owner.total - owner.settled} tasks that have not ended")
        del self.bags[bag]
        places = [bisect_left(self._firsts, batch.first) for batch in owner.batches]
        drop_places(places, self._firsts, self._batches)
        owner.batches.clear()  # each refers to its bag: without this cycle, they are freed now
        return owner.category

    def each(self) -> Iterator[tuple[int, State]]:
        """Every task and its state: for checks, not for hot paths."""
        for batch in self._batches:
            for place, state in enumerate(batch.states):
                yield batch.first + place, State(state)

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        agree("first tasks", self._firsts, [batch.first for batch in self._batches])
        edges = [edge for batch in self._batches for edge in (batch.first, batch.first + batch.count)]
        agree("batches follow each other", [*edges, self._next], sorted([*edges, self._next]))
        batches = {id(batch) for bag in self.bags.values() for batch in bag.batches}
        agree("batches of bags", batches, {id(batch) for batch in self._batches})
        self.progress.check()
        tried = [*self._errors, *self._crashes, *self._taken, *self.progress]
        agree(
            "bags with copies",
            self.copied,
            {n for n, bag in self.bags.items() if bag.copies and bag.settled < bag.total},
        )
        agree("tries of ended tasks", [task for task in tried if self.state(task) in ENDED], [])
        for bag in self.bags.values():
            bag.check()
