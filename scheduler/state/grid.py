"""The scheduler's state: tasks, workers with their slots, the queues, and where each task is; and how tasks move.

It decides nothing: `deskgrid.scheduler.handlers` and `deskgrid.scheduler.placing` do. They share only this state.
"""

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from deskgrid.scheduler.commands import Command, Stop, Stuck
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.model import Attempt, State
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.prediction.earlier import EarlierBags
from deskgrid.scheduler.prediction.hours import Hours
from deskgrid.scheduler.prediction.prediction_error import PredictionError
from deskgrid.scheduler.prediction.speeds import Speeds
from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.queues.categories import Categories, Category, Needs
from deskgrid.scheduler.queues.shares import Shares
from deskgrid.scheduler.queues.task_ranges import Spans, by_batch, grouped
from deskgrid.scheduler.queues.waiting import NewRuntime
from deskgrid.scheduler.state.avoided import Avoided
from deskgrid.scheduler.state.bags import Bag
from deskgrid.scheduler.state.deadlines import Deadlines
from deskgrid.scheduler.state.failures import Failures
from deskgrid.scheduler.state.gangs import GangTable
from deskgrid.scheduler.state.jobs import JobQueue
from deskgrid.scheduler.state.pauses import Pauses
from deskgrid.scheduler.state.quarantine import Quarantine
from deskgrid.scheduler.state.rests import Rests
from deskgrid.scheduler.state.slots import Away, Copy, Sent, Slot, SlotTable, Worker
from deskgrid.scheduler.state.tasks import TaskTable


class SchedulerState:
    """All of the scheduler's state that its parts share. ``now``: the time of the last event, or of the pass."""

    def __init__(
        self,
        policy: Policy,
        first_attempt: int,
        hours: Hours | None = None,
        speeds: Speeds | None = None,
        earlier: EarlierBags | None = None,
    ) -> None:
        self.now = 0.0
        self.policy = policy
        self.tasks = TaskTable()
        self.slots = SlotTable()
        self.counters = Counters()
        self.prediction_error = PredictionError()
        # How PCs keep their hours; and the workers that are expected to close sooner than they have announced.
        self.hours = Hours() if hours is None else hours
        self.expected: list[tuple[float, str]] = []
        # Workers of which nobody knows when their windows close.
        self.doubted: dict[str, None] = {}
        # How fast PCs really are.
        self.speeds = Speeds() if speeds is None else speeds
        # What predictions were worth in earlier bags.
        self.earlier = EarlierBags() if earlier is None else earlier
        # Workers that are away, by name.
        self.away: dict[str, Away] = {}
        self.quarantine = Quarantine()
        self.rests = Rests()
        self.avoided = Avoided()
        self.failures = Failures()
        # Bags that are to have categories of their own, and have not yet, by number.
        self.moving: dict[int, Bag] = {}
        self.deadlines = Deadlines(self.tasks)
        self.pauses = Pauses()
        self.shares = Shares()
        self.categories = Categories(policy.order)
        # Licences of attempts that were taken back from silent workers, or are being stopped, and may still run.
        self.uncertain_licences: dict[Attempt, Needs] = {}
        # Attempts with licences that workers are to stop or hand back, and have not answered for, by worker.
        self.stopping: dict[str, set[Attempt]] = {}
        # Newest attempts of tasks whose worker is gone or not seen since a restore, by task. Their answers still count.
        self.orphans: dict[int, int] = {}
        # The slot of each task that is bound to one, queued or sent.
        self.bound: dict[int, Slot] = {}
        # The second attempt of each task that has two which count. If the first is on no slot, neither is the second.
        self.copies: dict[int, Copy] = {}
        # Parallel tasks, and what policies for them see.
        self.gangs = GangTable()
        # Slots that changed since the last pass. They are in no index until the next one.
        self.dirty: dict[int, Slot] = {}
        # This number grows with each change that no plan could foresee: of workers, windows, tasks, predictions.
        self.changes = 0
        # Attempts that have left their slots since the last pass, and how many tasks this pass may still hand out or
        # place.
        self.freed = 0
        self.budget = math.inf
        # The number that the next attempt will have.
        self.next_attempt = first_attempt
        # Commands that the driver has not been given yet.
        self.commands: list[Command] = []

    # --- attempts that no slot has -----------------------------------------------------------------------------------

    def is_orphan(self, attempt: Attempt) -> bool:
        """Whether no slot has ``attempt`` nor any other of its task, and its answer still counts."""
        number = self.orphans.get(attempt.task)
        return number is not None and (number == attempt.number or self.is_lost_copy(attempt))

    def claim(self, attempt: Attempt) -> None:
        """The worker of an orphan is back with it, or with its answer: its task need not be done again."""
        task, number = attempt
        self.unqueue(task, self.tasks.state(task))
        other = self.orphans.pop(task)
        if other != number:
            self.copies[task] = Copy(other)
        self.counters.adopted += 1

    def lose(self, attempts: Sequence[Attempt]) -> list[int]:
        """No slot has these attempts any more, but their answers still count. Returns their tasks, which must wait.

        A task whose copy goes on does not have to wait.
        """
        waiting: list[int] = []
        for attempt in attempts:
            if self.copies and self.go_on_with_copy(attempt.task):
                self.copies[attempt.task] = Copy(attempt.number)
            else:
                self.orphans[attempt.task] = attempt.number
                waiting.append(attempt.task)
        return waiting

    def disown(self, tasks: Iterable[int]) -> None:
        """Orphans of these tasks no longer count: the tasks get newer attempts, or none.

        A worker that owes an answer for an orphan, and may still be running it, is told to stop.
        """
        for task in tasks:
            number = self.orphans.pop(task, None)
            if number is not None:
                self._stop_debtor(Attempt(task, number))
                self.drop_copy(task)

    def _stop_debtor(self, attempt: Attempt) -> None:
        """Stop an attempt that no longer counts at the worker that owes an answer for it, if there is one."""
        if self.deadlines.debts and self.deadlines.timeout(attempt.task) is None:
            debtor = self.deadlines.debtor(attempt)
            if debtor is not None:
                self.commands.append(Stop(debtor, [attempt]))

    # --- second attempts ---------------------------------------------------------------------------------------------

    def is_copy(self, attempt: Attempt) -> bool:
        """Whether ``attempt`` is the second of its task that counts."""
        copy = self.copies.get(attempt.task)
        return copy is not None and copy.number == attempt.number

    def is_lost_copy(self, attempt: Attempt) -> bool:
        """Whether ``attempt`` is the second of its task that counts, and no slot has it."""
        return self.copies.get(attempt.task) == Copy(attempt.number)

    def run_copy(self, slot: Slot, attempt: Attempt, started: float) -> None:
        """Note that ``slot``, which is idle, runs ``attempt`` as the second of its task since ``started``."""
        slot.copy = Sent(attempt, self.tasks.runtime(attempt.task), started)
        self.copies[attempt.task] = Copy(attempt.number, slot)

    def end_copy(self, task: int) -> Slot | None:
        """The second attempt of ``task`` has ended. Returns the slot that it was on, if any."""
        slot = self.copies.pop(task).slot
        if slot is not None:
            slot.copy = None
        return slot

    def drop_copy(self, task: int) -> None:
        """The second attempt of ``task``, if it has one, no longer counts, and is stopped."""
        if task in self.copies:
            attempt = Attempt(task, self.copies[task].number)
            slot = self.end_copy(task)
            if slot is None:
                self._stop_debtor(attempt)
            else:
                self.commands.append(Stop(slot.worker.name, [attempt]))

    def go_on_with_copy(self, task: int) -> bool:
        """Make the copy of ``task`` its first attempt, if a slot has one: the first is on no slot any more."""
        copy = self.copies.get(task)
        if copy is None or copy.slot is None or copy.slot.copy is None:
            return False
        started = copy.slot.copy.at
        self.end_copy(task)
        self.change(copy.slot)
        self.resume(copy.slot, Attempt(task, copy.number), started)
        return True

    def doubt(self, attempt: Attempt) -> None:
        """``attempt`` was taken back from a silent worker, or is being stopped, and may still use its licences."""
        if needs := self.tasks.known(attempt.task).bag.category.key.licences:
            self.uncertain_licences[attempt] = needs
            self.categories.licences.use(needs, 1)

    def settle_licences(self, attempt: Attempt) -> None:
        """``attempt`` was answered, or its worker's lease has run out."""
        if needs := self.uncertain_licences.pop(attempt, ()):
            self.changes += 1
            self.categories.licences.use(needs, -1)

    def stop(self, worker: str, attempt: Attempt) -> None:
        """``worker`` is told to stop ``attempt``, or to hand it back, and ``attempt`` keeps its licences until then."""
        self.doubt(attempt)
        if attempt in self.uncertain_licences:
            self.stopping.setdefault(worker, set()).add(attempt)

    def stopped(self, worker: str, attempt: Attempt) -> None:
        """``worker`` has answered for ``attempt``, which may be one that it was told to stop."""
        attempts = self.stopping.get(worker, set())
        if attempt in attempts:
            attempts.remove(attempt)
            if not attempts:
                del self.stopping[worker]
            self.settle_licences(attempt)

    # --- slots -------------------------------------------------------------------------------------------------------

    def change(self, slot: Slot) -> None:
        """``slot`` is about to change: it leaves its index until the next pass."""
        if slot.number not in self.dirty:
            if slot.rows is not None:
                self.slots.unindex(slot)
            self.dirty[slot.number] = slot

    def change_all(self, worker: Worker) -> None:
        """All slots of ``worker`` are about to change, and plans have to take that into account."""
        self.changes += 1
        for slot in worker.slots:
            self.change(slot)

    def resume(self, slot: Slot, attempt: Attempt, started: float) -> None:
        """Note that ``attempt`` is at the worker already, behind the attempts that the slot holds."""
        runtime = self.tasks.runtime(attempt.task)
        if slot.sent:
            slot.ahead_s += runtime
        else:
            slot.started = started
        slot.sent.append(Sent(attempt, runtime, started))
        self.bound[attempt.task] = slot
        if memory := self.tasks.known(attempt.task).bag.category.memory:
            slot.worker.promised[attempt.task] = memory
        self.charge(attempt.task, 1, runtime)
        self.tasks.move(attempt.task, State.SENT)

    def charge(self, task: int, tasks: int, seconds: float) -> None:
        """``tasks`` more tasks of the category of ``task`` are on slots: see `Category.charge`."""
        self.tasks.known(task).bag.category.charge(tasks, seconds)

    def withdraw(self, slot: Slot, place: int, now: float, elapsed: float | None = None) -> Attempt:
        """Take the attempt at ``place`` off ``slot``; the next one there starts now."""
        self.change(slot)
        self.freed += 1
        sent = slot.sent[place]
        del slot.sent[place]
        task, batch = sent.attempt.task, slot.batch
        del self.bound[task]
        if batch is None or not 0 <= task - batch.first < batch.count:
            batch = self.tasks.known(task)
        batch.bag.category.charge(-1, -sent.runtime)
        if elapsed is not None:
            slot.busy_s += elapsed
        elif place == 0:
            slot.busy_s += now - slot.started
        if place == 0:
            slot.started = now
            if slot.sent:
                slot.ahead_s -= slot.sent[0].runtime
        else:
            slot.ahead_s -= sent.runtime
        if len(slot.sent) < 2:
            slot.ahead_s = 0.0
        return sent.attempt

    def unbind(self, slot: Slot, task: int) -> int:
        """Take a queued task off ``slot``; returns it."""
        place = next(i for i, (queued, _) in enumerate(slot.queue) if queued == task)
        runtime = slot.queue[place][1]
        slot.queued_s -= runtime
        del slot.queue[place]
        self.charge(task, -1, -runtime)
        if not slot.queue:
            slot.queued_s = 0.0
        del self.bound[task]
        return task

    def release_queue(self, slot: Slot) -> list[int]:
        """Empty the queue of ``slot``. Returns its tasks in order."""
        tasks = [task for task, _ in slot.queue]
        for task, runtime in slot.queue:
            del self.bound[task]
            self.charge(task, -1, -runtime)
        slot.queue.clear()
        slot.queued_s = 0.0
        return tasks

    # --- queues ------------------------------------------------------------------------------------------------------

    def unqueue(self, task: int, state: State) -> None:
        """Take a task that is not at a worker out of wherever it waits."""
        if state == State.QUEUED:
            self.change(self.bound[task])
            self.unbind(self.bound[task], task)
        elif state == State.WAITING:
            category = self.tasks.known(task).bag.category
            (category.regular if category.regular.holds(task) else category.priority).discard(task)
        elif state == State.PAUSED:
            self.pauses.drop(task)
            self.tasks.known(task).bag.category.elsewhere.pop(task, None)
        elif state == State.HELD:
            self.charge(task, -1, 0.0)

    def jobs(self, category: Category) -> JobQueue:
        """The waiting tasks of a category of parallel tasks."""
        if not self.gangs.awake:
            self.gangs.wake(self.slots.workers.values())
        return self.gangs.queue(category)

    def discard(self, category: Category, first: int, count: int) -> None:
        """``count`` tasks from ``first`` on wait in ``category`` no longer."""
        if category.parallel:
            self.jobs(category).dequeue(first, count)
        else:
            category.discard(first, count)

    def to_priority(self, tasks: Sequence[int]) -> None:
        """Put these tasks into the priority queues: they still need a slot, and have had their turn.

        Those of barred bags wait until their bags are admitted.
        """
        self.changes += bool(tasks)
        chosen: dict[Category, tuple[list[int], list[float]]] = {}
        for batch, part in by_batch(tasks, self.tasks.known):
            its, bag = tasks[part], batch.bag
            for task in its if bag.piece is not None else ():
                self.tasks.go_on(task)
            batch.set_all(its, State.BARRED if bag.barred else State.WAITING)
            if bag.category.parallel and not bag.barred:
                for task in its:
                    self.jobs(bag.category).enqueue(batch, task, 1)
            elif not bag.barred:
                numbers, runtimes = chosen.setdefault(bag.category, ([], []))
                numbers += its
                runtimes += batch.runtimes_of(its)
        for category, (numbers, runtimes) in chosen.items():
            self.categories.add_again(category, grouped(numbers, runtimes))

    def give_up(self, stuck: Sequence[Attempt]) -> None:
        """Tasks that wait, and had these attempts last, fail: too many of their pieces brought no progress."""
        for attempt in stuck:
            self.unqueue(attempt.task, self.tasks.state(attempt.task))
            self.orphans.pop(attempt.task, None)
            self.tasks.move(attempt.task, State.FAILED)
        if stuck:
            self.commands.append(Stuck(stuck))

    def predict(self, category: Category, spans: Spans, before: Collection[float], new: NewRuntime) -> None:
        """Waiting tasks in ``spans`` with a runtime in ``before`` take a new one: see `WaitingQueue.predict`."""
        if category.parallel:
            self.jobs(category).predict(spans, new)
            return
        category.priority.predict(spans, before, new)
        category.regular.predict(spans, before, new)

    def set_policy(self, policy: Policy) -> None:
        """Place by ``policy`` from now on; the priority queues take its order."""
        self.policy = policy
        self.changes += 1
        if self.categories.order != policy.order:
            self.categories.reorder(policy.order)

    # --- windows -----------------------------------------------------------------------------------------------------

    def closing(self, worker: Worker, now: float) -> float:
        """When the window of a worker is expected to close, which is looked at again then."""
        lengths = self.hours.lengths(worker.name, worker.planned_s, worker.opened)
        if not lengths:
            self.doubted.pop(worker.name, None)
            return worker.announced
        self.doubted[worker.name] = None
        likely = closings(worker.opened, worker.announced, lengths, now)
        expected = likely[len(likely) // 2]
        if expected != worker.announced:
            heapq.heappush(self.expected, (expected, worker.name))
        return expected

    def overdue_workers(self, now: float) -> Iterator[Worker]:
        """Workers that are still there although they were expected to have gone."""
        while self.expected and self.expected[0][0] <= now:
            at, name = heapq.heappop(self.expected)
            worker = self.slots.workers.get(name)
            if worker is not None and worker.ends_at == at:
                yield worker
