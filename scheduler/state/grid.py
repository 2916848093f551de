"""The scheduler's state: tasks, workers with their slots, the queues, and where each task is; and how tasks move.

It decides nothing: `deskgrid.scheduler.handlers` and `deskgrid.scheduler.placing` do. They share only this state.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from deskgrid.scheduler.commands import Command, Stop, Stuck
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.model import Attempt, AttemptState, State
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.prediction.earlier import EarlierBags
from deskgrid.scheduler.prediction.hours import Hours
from deskgrid.scheduler.prediction.prediction_error import PredictionError
from deskgrid.scheduler.prediction.speeds import Speeds
from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.queues.categories import Categories, Category
from deskgrid.scheduler.queues.shares import Shares
from deskgrid.scheduler.queues.task_ranges import Spans, by_batch, grouped
from deskgrid.scheduler.queues.waiting import NewRuntime
from deskgrid.scheduler.state.avoided import Avoided
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.deadlines import Deadlines
from deskgrid.scheduler.state.failures import Failures
from deskgrid.scheduler.state.gangs import GangTable
from deskgrid.scheduler.state.jobs import JobQueue
from deskgrid.scheduler.state.quarantine import Quarantine
from deskgrid.scheduler.state.rests import Rests
from deskgrid.scheduler.state.slots import NOWHERE, Away, LiveAttempt, Owed, Slot, SlotTable, Worker
from deskgrid.scheduler.state.tasks import TaskTable
from deskgrid.scheduler.state.timers import Timer, Timers

# Why a worker that is up gets no work.
Shut = Literal["", "drained", "paused", "quarantined"]


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
        self.timers = Timers()
        # How PCs keep their hours.
        self.hours = Hours() if hours is None else hours
        # Workers of which nobody knows when their windows close.
        self.doubted: dict[str, None] = {}
        # How fast PCs really are.
        self.speeds = Speeds() if speeds is None else speeds
        # What predictions were worth in earlier bags.
        self.earlier = EarlierBags() if earlier is None else earlier
        # Workers that are away, by name.
        self.away: dict[str, Away] = {}
        # Workers that have stopped their tasks, and since when.
        self.paused: dict[str, float] = {}
        # Workers that are up and get nothing new, because somebody drains their PCs.
        self.drained: set[str] = set()
        self.quarantine = Quarantine(self.timers)
        self.rests = Rests(self.timers)
        self.avoided = Avoided(self.timers)
        self.failures = Failures()
        # Bags that are to have categories of their own, and have not yet, by number.
        self.moving: dict[int, ScheduledBag] = {}
        self.deadlines = Deadlines(self.tasks)
        self.shares = Shares()
        self.categories = Categories(policy.order)
        # The live attempts of single tasks, by task: the first one of each, if it is on a slot; the first one, if it is
        # lost; and the second one, if there are two. If the first is lost, so is the second.
        self.bound: dict[int, LiveAttempt] = {}
        self.lost: dict[int, LiveAttempt] = {}
        self.copies: dict[int, LiveAttempt] = {}
        # Attempts that workers were told to stop or hand back, and have not answered for, if something waits for that.
        self.owed: dict[str, dict[Attempt, Owed]] = {}
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
        first = self.lost.get(attempt.task)
        return first is not None and (first.number == attempt.number or self.is_lost_copy(attempt))

    def claim(self, attempt: Attempt) -> LiveAttempt:
        """The worker of an orphan is back with it, or with its answer: its task need not be done again."""
        task, number = attempt
        self.unqueue(task, self.tasks.state(task))
        live = self.lost.pop(task)
        if live.number != number:
            live, self.copies[task] = self.copies[task], live
        self.counters.adopted += 1
        return live

    def lose(self, sent: Iterable[LiveAttempt]) -> list[int]:
        """No slot has these attempts any more, but their answers still count. Returns their tasks, which must wait.

        A task whose copy goes on does not have to wait.
        """
        waiting: list[int] = []
        for live in sent:
            live.state, live.slot = AttemptState.LOST, NOWHERE
            if self.copies and self.go_on_with_copy(live.task):
                self.copies[live.task] = live
            else:
                self.lost[live.task] = live
                waiting.append(live.task)
        return waiting

    def disown(self, tasks: Iterable[int]) -> None:
        """Orphans of these tasks no longer count: the tasks get newer attempts, or none.

        A worker that owes an answer for an orphan, and may still be running it, is told to stop.
        """
        for task in tasks:
            first = self.lost.pop(task, None)
            if first is not None:
                self._stop_debtor(first.attempt)
                self.drop_copy(task)

    def _stop_debtor(self, attempt: Attempt) -> None:
        """Stop an attempt that no longer counts on the slot that owes an answer for it, if there is one."""
        if self.owed and self.deadlines.timeout(attempt.task) is None:
            for name, owed in self.owed.items():
                if attempt in owed and owed[attempt].slot is not None:
                    self.commands.append(Stop(name, [attempt]))

    # --- second attempts ---------------------------------------------------------------------------------------------

    def is_copy(self, attempt: Attempt) -> bool:
        """Whether ``attempt`` is the second of its task that counts."""
        copy = self.copies.get(attempt.task)
        return copy is not None and copy.number == attempt.number

    def is_lost_copy(self, attempt: Attempt) -> bool:
        """Whether ``attempt`` is the second of its task that counts, and no slot has it."""
        return self.is_copy(attempt) and self.copies[attempt.task].state == AttemptState.LOST

    def run_copy(self, copy: LiveAttempt, slot: Slot, started: float) -> None:
        """Note that ``slot``, which is idle, runs ``copy`` as the second attempt of its task since ``started``."""
        copy.slot, copy.at, copy.state = slot, started, AttemptState.COPY
        copy.runtime = self.tasks.runtime(copy.task)
        slot.copy = self.copies[copy.task] = copy

    def end_copy(self, task: int) -> LiveAttempt:
        """The second attempt of ``task`` has ended."""
        copy = self.copies.pop(task)
        if copy.state == AttemptState.COPY:
            copy.slot.copy = None
        return copy

    def drop_copy(self, task: int) -> None:
        """The second attempt of ``task``, if it has one, no longer counts, and is stopped."""
        if task in self.copies:
            copy = self.end_copy(task)
            if copy.state == AttemptState.LOST:
                self._stop_debtor(copy.attempt)
            else:
                self.commands.append(Stop(copy.slot.worker.name, [copy.attempt]))

    def go_on_with_copy(self, task: int) -> bool:
        """Make the copy of ``task`` its first attempt, if a slot has one: the first is on no slot any more."""
        copy = self.copies.get(task)
        if copy is None or copy.state == AttemptState.LOST:
            return False
        self.end_copy(task)
        self.change(copy.slot)
        self.resume(copy, copy.slot, copy.at)
        return True

    # --- answers owed ------------------------------------------------------------------------------------------------

    def stop(self, worker: str, attempt: Attempt) -> None:
        """``worker`` is told to stop ``attempt``, or to hand it back, and ``attempt`` keeps its licences until then."""
        if licences := self.tasks.known(attempt.task).bag.category.key.licences:
            self.owed.setdefault(worker, {})[attempt] = Owed(None, licences)
            self.categories.licences.use(licences, 1)

    def block(self, slot: Slot, attempt: Attempt) -> None:
        """``attempt`` was taken back from ``slot``, which gets nothing more until its worker answers for it."""
        slot.owes = attempt
        owed = self.owed.setdefault(slot.worker.name, {})
        owed[attempt] = Owed(slot, owed[attempt].licences if attempt in owed else ())

    def acknowledge(self, worker: str, attempt: Attempt) -> Slot | None:
        """``worker`` has answered for ``attempt``, or its lease has run out. Returns the slot that owed the answer."""
        slot, licences = self.owed.get(worker, {}).pop(attempt, (None, None))
        if licences is None:
            return None
        if not self.owed[worker]:
            del self.owed[worker]
        if licences:
            self.changes += 1
            self.categories.licences.use(licences, -1)
        if slot is not None:
            slot.owes = None
        return slot

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

    def resume(self, live: LiveAttempt, slot: Slot, started: float) -> None:
        """Note that an attempt is at the worker already, behind the attempts that the slot holds."""
        live.slot, live.at, live.state = slot, started, AttemptState.SENT
        live.runtime = runtime = self.tasks.runtime(live.task)
        if slot.sent:
            slot.ahead_s += runtime
        else:
            slot.started = started
        slot.sent.append(live)
        self.bound[live.task] = live
        if amounts := self.tasks.known(live.task).bag.category.amounts:
            slot.worker.promised[live.task] = amounts
        self.charge(live.task, 1, runtime)
        self.tasks.move(live.task, State.SENT)

    def charge(self, task: int, tasks: int, seconds: float) -> None:
        """``tasks`` more tasks of the category of ``task`` are on slots: see `Category.charge`."""
        self.tasks.known(task).bag.category.charge(tasks, seconds)

    def withdraw(self, live: LiveAttempt, now: float, elapsed: float | None = None) -> None:
        """Take an attempt off its slot; the next one there starts now."""
        slot = live.slot
        self.change(slot)
        self.freed += 1
        running = slot.sent[0] is live
        slot.sent.remove(live)
        task, batch = live.task, slot.batch
        del self.bound[task]
        if batch is None or not 0 <= task - batch.first < batch.count:
            batch = self.tasks.known(task)
        batch.bag.category.charge(-1, -live.runtime)
        if elapsed is not None:
            slot.busy_s += elapsed
        elif running:
            slot.busy_s += now - slot.started
        if running:
            slot.started = now
            if slot.sent:
                slot.ahead_s -= slot.sent[0].runtime
        else:
            slot.ahead_s -= live.runtime
        if len(slot.sent) < 2:
            slot.ahead_s = 0.0

    def unbind(self, live: LiveAttempt) -> int:
        """Take a queued task off its slot; returns it."""
        slot, task = live.slot, live.task
        slot.queued_s -= live.runtime
        slot.queue.remove(live)
        self.charge(task, -1, -live.runtime)
        if not slot.queue:
            slot.queued_s = 0.0
        del self.bound[task]
        return task

    def release_queue(self, slot: Slot) -> list[int]:
        """Empty the queue of ``slot``. Returns its tasks in order."""
        tasks = [live.task for live in slot.queue]
        for live in slot.queue:
            del self.bound[live.task]
            self.charge(live.task, -1, -live.runtime)
        slot.queue.clear()
        slot.queued_s = 0.0
        return tasks

    # --- workers that get no work ------------------------------------------------------------------------------------

    def shut(self, worker: Worker) -> Shut:
        """Why ``worker`` gets nothing new; empty if it does. In quarantine, one task at a time may be tried there."""
        if worker.name in self.drained:
            return "drained"
        if worker.name in self.paused:
            return "paused"
        return "quarantined" if worker.name in self.quarantine.workers else ""

    def shuts(self, slot: Slot) -> bool:
        """Whether ``slot`` gets nothing because of that."""
        why = self.shut(slot.worker)
        return self.quarantine.shuts(slot) if why == "quarantined" else bool(why)

    def shuts_out_gangs(self, worker: Worker) -> bool:
        """Whether ``worker`` gets no gang because of that."""
        why = self.shut(worker)
        return self.quarantine.shuts_out(worker) if why == "quarantined" else bool(why)

    def opens_s(self, worker: Worker, now: float) -> float:
        """In how many seconds ``worker`` gets work again, as far as anybody knows; 0.0: it does."""
        if worker.name in self.drained:
            return math.inf
        stay = self.quarantine.workers.get(worker.name)
        # Whoever uses the PC will go on for as long again: nothing else is known of that.
        paused_s = now - self.paused.get(worker.name, now)
        return max(0.0, paused_s, 0.0 if stay is None else stay.until - now)

    def is_alone(self, name: str = "") -> bool:
        """Whether no worker that is up gets work, but for that of this name."""
        up = self.slots.workers
        if len(up) > 1 + len(self.drained) + len(self.paused) + len(self.quarantine.workers):
            return False
        return all(each == name or self.shut(worker) for each, worker in up.items())

    # --- pauses ------------------------------------------------------------------------------------------------------

    def is_stopped(self, slot: Slot) -> bool:
        """Whether what ``slot`` runs is stopped, or waits for a rank of its gang that is."""
        if not self.paused:
            return False
        slots = [slot] if slot.gang is None else slot.gang.slots
        return any(each.worker.name in self.paused for each in slots)

    def ran_s(self, slot: Slot, now: float) -> float:
        """How long the running task of ``slot`` has run, without a pause that goes on. Seconds."""
        return max(0.0, min(now, self.paused.get(slot.worker.name, now)) - slot.started)

    def end_pause(self, worker: Worker, now: float) -> None:
        """What ``worker`` runs goes on, or ends: the time that it was stopped is nobody's."""
        since = self.paused.pop(worker.name, None)
        if since is None:
            return
        its = [slot for slot in worker.slots if slot.gang is None]
        gangs = dict.fromkeys([slot.gang for slot in worker.slots if slot.gang is not None])
        for slot in [*its, *(slot for gang in gangs for slot in gang.slots)]:
            self.change(slot)
            slot.started = min(now, slot.started + now - max(since, slot.started))
            if slot.copy is not None:
                slot.copy.at = min(now, slot.copy.at + now - max(since, slot.copy.at))

    # --- queues ------------------------------------------------------------------------------------------------------

    def unqueue(self, task: int, state: State) -> None:
        """Take a task that is not at a worker out of wherever it waits."""
        if state == State.QUEUED:
            self.change(self.bound[task].slot)
            self.unbind(self.bound[task])
        elif state == State.WAITING:
            category = self.tasks.known(task).bag.category
            (category.regular if category.regular.holds(task) else category.priority).discard(task)
        elif state == State.PAUSED:
            self.timers.drop(Timer.PAUSE, task)
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
            self.lost.pop(attempt.task, None)
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
            self.timers.set(Timer.CLOSING, (worker.name, expected), expected)
        return expected
