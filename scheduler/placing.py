"""A scheduling pass: the state that policies read, and how their placements are carried out.

Rule 1: only slots that changed are looked at, and only tasks that could be placed.
Rule 2: fit is tested when a task is placed and again when it is sent, because time has passed between.
Rule 3: what a worker holds ahead is bounded in seconds of predicted work, so that little is lost with it.
Rule 4: a worker that has never answered has one task a slot, and nothing ahead: one that never will swallows little,
and one that works is full from the start and waits for one round trip.
Rule 5: a pass that is bounded stops where it is; nothing is lost by that, and the next one goes on.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from deskgrid.scheduler.events import Assign, Assignment, Command, Stop
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.model import Attempt, State
from deskgrid.scheduler.policies.base import OpenSlot, Place, Policy, Postpone, UpcomingWindows
from deskgrid.scheduler.queues.task_ranges import Spans, grouped
from deskgrid.scheduler.queues.waiting import ORDERS, NewRuntime, Regular, WaitingQueue
from deskgrid.scheduler.state.deadlines import GRACE_S, Deadlines
from deskgrid.scheduler.state.pauses import Pauses
from deskgrid.scheduler.state.prediction_error import PredictionError
from deskgrid.scheduler.state.quarantine import Quarantine
from deskgrid.scheduler.state.slots import NEVER, Away, Sent, Slot, SlotTable, Worker
from deskgrid.scheduler.state.tasks import TaskTable

# Predicted work a worker may hold on one slot, the running task included: enough to hide a round trip, and tasks longer
# than this are never sent ahead.
AHEAD_S = 0.5
# The same in tasks, for those predicted to take no time at all.
AHEAD_TASKS = 2_000
# And on all slots of a worker together: a second of work for the whole grid, and what fits into one message when the
# worker introduces itself again and names all of it (`deskgrid.wire.limits.HELD_ROWS`).
WORKER_TASKS = 32_768

# The same numbers added in another order give another sum. So each test of fit is stricter by this than the one that
# follows it: what is searched for, the slot that is looked up for it, the test when it is sent.
ROUNDING_S = 1e-6
# Of bags of which nothing is known.
_UNKNOWN = PredictionError()
# Looked up once: the name of a member is looked up slowly in Python 3.11.
_SENT = State.SENT


class Placing:
    """The scheduler's state as policies see it (`deskgrid.scheduler.policies.base.View`), and the pass over it."""

    def __init__(self, policy: Policy, first_attempt: int) -> None:
        self.now = 0.0
        self.policy = policy
        self.tasks = TaskTable()
        self.slots = SlotTable()
        self.counters = Counters()
        self.prediction_error = PredictionError()
        # Workers that are away, by name.
        self.away: dict[str, Away] = {}
        self.changes = 0
        self.quarantine = Quarantine()
        self.deadlines = Deadlines(self.tasks)
        self.pauses = Pauses()
        self.regular = Regular()
        self.priority: WaitingQueue = ORDERS[policy.order]()
        # Newest attempts of tasks whose worker is gone, or has not been seen since a restore: still welcome.
        self.orphans: dict[int, int] = {}
        # Where each task is that is bound to a slot, queued or sent.
        self.bound: dict[int, Slot] = {}
        # Slots that changed since the last pass; they are in no index until it.
        self.dirty: dict[int, Slot] = {}
        # The changes that the last pass knew.
        self._passed = -1
        # Attempts that have left their slots since the last pass, and what this one may still hand out or decide.
        self._freed = 0
        self._budget = math.inf
        self._next_attempt = first_attempt
        self._assigns: dict[str, Assign] = {}
        self._commands: list[Command] = []
        # Tasks that no longer fitted when they were to be sent. They wait until the policy is not looking: so it always
        # comes to an end, and what it holds of a queue stays valid.
        self._unfit: list[int] = []

    # --- what policies read ------------------------------------------------------------------------------------------

    def tightest(self, runtime: float) -> int | None:
        """Paper, phase 2: the slot with the smallest tl strictly greater than the runtime (and the margin)."""
        if not self.slots_with_room():
            return None
        needs = self.needs(runtime) + ROUNDING_S
        found = [index.tightest(needs, self.now) for index in self.slots.indexes()]
        fits = [row for row in found if row is not None]
        return min(fits)[2] if fits else None

    def tightest_empty(self, runtime: float) -> tuple[int, float] | None:
        """Paper, phase 1: a slot with an empty queue on which ``runtime`` fits, and the limit on runtimes there."""
        slots = self.slots
        if not slots.rooms or self._budget <= 0:
            return None
        needs = self.needs(runtime) + 2 * ROUNDING_S
        for index in (slots.idle, slots.spare):
            row = index.tightest(needs, self.now)
            if row is not None:
                # Of numbers so large that rounding eats the difference, ``runtime`` still is below the limit.
                return row[2], max(self._limit(row[0]), math.nextafter(runtime, math.inf))
        return None

    def longest_fit(self) -> float:
        """The limit on runtimes that fit anywhere."""
        if not self.slots_with_room():
            return -math.inf
        return self._limit(max(index.widest(self.now) for index in self.slots.indexes()))

    def slots_with_room(self) -> int:
        """How many slots have room; none any more when a bounded pass has done what it may."""
        return self.slots.rooms if self._budget > 0 else 0

    def slot_with_room(self, place: int) -> int:
        """The slot at ``place`` of ``slots_with_room()``."""
        for index in self.slots.indexes():
            if place < len(index):
                return index.at(place)
            place -= len(index)
        raise IndexError(place)

    def waiting(self, limit: int) -> list[float] | None:
        """The runtimes of all waiting tasks, ascending; None when there are more than ``limit``."""
        if len(self.priority) + len(self.regular) > limit:
            return None
        return sorted([*self.priority.ascending(limit), *self.regular.ascending(limit)])

    def prediction_error_with(self, task: int) -> PredictionError:
        """How well the tasks of its bag have been predicted, each by itself."""
        return self.tasks.known(task).bag.prediction_error or _UNKNOWN

    def open_slot(self, slot: int) -> OpenSlot:
        """The slot of that number."""
        return self._open_slot(self.slots.slots[slot])

    def _open_slot(self, slot: Slot) -> OpenSlot:
        worker, now = slot.worker, self.now
        due = slot.started + slot.sent[0].runtime if slot.sent else now
        return OpenSlot(
            worker.name, slot.position, (due if due > now else now) + slot.ahead_s + slot.queued_s, worker.ends_at
        )

    def open_slots(self) -> Iterator[OpenSlot]:
        """Every slot of every worker that is up and does not rest, but for those that owe an answer."""
        slots, rests = self.slots.slots.values(), self.quarantine.rests
        if not (rests or self.deadlines.debts):
            return map(self._open_slot, slots)
        return map(self._open_slot, [slot for slot in slots if slot.owes is None and slot.worker.name not in rests])

    def upcoming(self) -> Iterator[UpcomingWindows]:
        """Every worker's windows to come, announced or by habit."""
        for worker in self.slots.workers.values():
            yield UpcomingWindows(worker.name, len(worker.slots), worker.expected(self.now))
        for name, away in self.away.items():
            yield UpcomingWindows(name, away.slots, away.expected(self.now))

    def needs(self, runtime: float) -> float:
        """Seconds of which a slot must have more left for a task to fit."""
        policy = self.policy
        stretched = runtime * policy.stretch
        return (stretched if stretched <= policy.ample else max(runtime, policy.ample)) + policy.margin

    def _limit(self, left: float) -> float:
        """The limit on runtimes that fit where ``left`` is left: the inverse of `needs`, less what rounding may do."""
        left -= self.policy.margin + 2 * ROUNDING_S
        return left if left > self.policy.ample else left / self.policy.stretch

    # --- the pass ----------------------------------------------------------------------------------------------------

    def place_all(self, now: float, most: float) -> list[Assign]:
        """Decide what can be decided at ``now``; what to hand to which worker. ``most``: as `PassDue` has it."""
        self.now = now
        self._assigns = {}
        self._budget, self._freed = most + self._freed, 0
        self.regular.tidy()
        self.priority.tidy()
        for slot in self.slots.overdue(now):
            self.change(slot)
        if self.quarantine.rests:
            for name in self.quarantine.due(self.slots.workers, now):
                self.change_all(self.slots.workers[name])
        changed, self.dirty = self.dirty, {}
        for slot in changed.values():
            self._settle_slot(slot)
        if self._unfit:
            self._give_back_unfit()
        if self.slots_with_room() and (len(self.priority) or len(self.regular)):
            for step in self.policy.plan(self):
                if isinstance(step, Place):
                    self._carry_out(step)
                else:
                    self._postpone(step)
            if self._unfit:
                self._give_back_unfit()
        self._passed = self.changes
        self._note_attempts()
        return list(self._assigns.values())

    def _note_attempts(self) -> None:
        """Tasks are sent: said once for all of a pass, as nothing in it asks for their states."""
        tasks = [assignment.attempt.task for assign in self._assigns.values() for assignment in assign.work]
        self.counters.attempts += len(tasks)
        if self.orphans:
            self.disown(tasks)
        self.tasks.move_all(tasks, _SENT)

    def disown(self, tasks: Iterable[int]) -> None:
        """The last attempts of these tasks, if somebody is still at them, count no more: newer ones are made, or none.

        Whoever owes an answer for one, and was let go on with it, is told to stop.
        """
        for task in tasks:
            number = self.orphans.pop(task, None)
            if number is not None and self.deadlines.debts and self.deadlines.timeout(task) is None:
                debtor = self.deadlines.debtor(attempt := Attempt(task, number))
                if debtor is not None:
                    self._commands.append(Stop(debtor, [attempt]))

    @property
    def unsettled(self) -> bool:
        """Whether there is something that the last pass did not know."""
        return bool(self.dirty) or self.changes != self._passed or self.unfinished

    def _give_back_unfit(self) -> None:
        """What no longer fitted when its turn came joins the priority queue."""
        tasks, self._unfit = self._unfit, []
        self.counters.unfit += len(tasks)
        self.to_priority(tasks)

    @property
    def unfinished(self) -> bool:
        """Whether the last pass was stopped by its bound: then the next one is due at once."""
        return self._budget <= 0

    def _carry_out(self, place: Place) -> None:
        entry, slot, many = place.entry, self.slots.slots[place.slot], place.many
        task, runtime = entry.task, entry.runtime
        if many > 1:
            many = self._how_many(slot, runtime, many)
        (self.priority if place.priority else self.regular).take(entry, many)
        self.slots.unindex(slot)
        tasks = range(task, task + many)
        for each in tasks:
            slot.queue.append((each, runtime))
            self.bound[each] = slot
        slot.queued_s += runtime * many
        if not self._settle_slot(slot):
            self._budget -= 1
        if slot.queue:
            self.tasks.move_all(tasks[-len(slot.queue) :], State.QUEUED)

    def _how_many(self, slot: Slot, runtime: float, most: int) -> int:
        """How many tasks of one runtime, of which one may be put there, may be put on ``slot`` together."""
        if slot.worker.heard == NEVER:
            return 1
        most = min(most, AHEAD_TASKS - len(slot.queue))
        room_s = min(
            self.policy.queue_s - slot.in_flight_s() - slot.queued_s,
            slot.remaining(self.now) - self.needs(runtime) - 2 * ROUNDING_S,
        )
        if room_s <= 0.0:
            return 1
        return max(1, int(min(most, room_s / runtime)) if runtime else most)

    def _postpone(self, step: Postpone) -> None:
        self.priority.add(self.regular.pop_before(step.entry))

    def _settle_slot(self, slot: Slot) -> int:
        """Send what may be sent, how much, and index the slot if it has room."""
        handed = self._send(slot) if slot.queue else 0
        if slot.sent and slot.look_at > self.now + GRACE_S:
            self.deadlines.watch(slot, self.now)
        if self._budget <= 0 and slot.queue and self.may_send(slot):
            self.dirty[slot.number] = slot  # it is seen to in the next pass
        elif self.has_room(slot):
            self.slots.index(slot, self.now)
        return handed

    def has_room(self, slot: Slot) -> bool:
        """Whether the queue of ``slot`` may take one more task, however long."""
        if slot.owes is not None or slot.position >= slot.worker.width:
            return False
        if self.quarantine.rests and self.quarantine.shuts(slot):
            return False
        sent, held = slot.sent, len(slot.queue)
        if not (sent or held) or held < self.policy.queue_length:
            return True
        if slot.worker.heard == NEVER:
            return False
        in_flight_s = sent[0].runtime + slot.ahead_s if sent else 0.0
        return in_flight_s + slot.queued_s < self.policy.queue_s and held < AHEAD_TASKS

    def _send(self, slot: Slot) -> int:
        handed: list[Assignment] = []
        queue, sent, ends_at, now = slot.queue, slot.sent, slot.worker.ends_at, self.now
        position, number = slot.position, self._next_attempt
        # What tasks one behind the other, which mostly are alike, have in common; when what runs should end.
        timed, alike, needs, due = self.policy.timed, -1.0, 0.0, max(now, slot.due)
        while queue and len(handed) < self._budget and self.may_send(slot):
            task, runtime = queue[0]
            if timed and runtime != alike:
                alike, needs = runtime, self.needs(runtime)
            if timed and needs >= ends_at - due - slot.ahead_s:
                self._unfit.append(self.unbind(slot, task))
                continue
            queue.popleft()
            slot.queued_s -= runtime
            attempt = Attempt(task, number + len(handed))
            handed.append(Assignment(attempt, position, runtime))
            if sent:
                slot.ahead_s += runtime
            else:
                slot.started, due = now, now + runtime
            sent.append(Sent(attempt, runtime, now))
        if not queue:
            slot.queued_s = 0.0
        if handed:
            self._hand(slot.worker.name, handed)
        return len(handed)

    def may_send(self, slot: Slot) -> bool:
        """Whether the first task in the queue of ``slot`` may go to its worker now."""
        sent = slot.sent
        if not sent:
            return True
        if slot.worker.heard == NEVER:
            return False
        most = min(AHEAD_TASKS, WORKER_TASKS // len(slot.worker.slots))
        return sent[0].runtime + slot.ahead_s + slot.queue[0][1] <= AHEAD_S and len(sent) < most

    def _hand(self, name: str, work: list[Assignment]) -> None:
        """This is to be handed to a worker."""
        assign = self._assigns.get(name)
        if assign is None:
            self._assigns[name] = Assign(name, work)
        else:
            assign.work += work
        self._budget -= len(work)
        self._next_attempt += len(work)

    @property
    def next_attempt(self) -> int:
        """The number that the next attempt will have."""
        return self._next_attempt

    def is_new(self, number: int) -> bool:
        """Whether no attempt of that number, or a later one, has been made."""
        return number >= self._next_attempt

    # --- changes the events share ------------------------------------------------------------------------------------

    def set_policy(self, policy: Policy) -> None:
        """Place by ``policy`` from now on; the priority queue takes its order."""
        self.policy = policy
        self.changes += 1
        if type(self.priority) is not ORDERS[policy.order]:
            tasks = [task for task, _ in self.priority.tasks()]
            self.priority = ORDERS[policy.order]()
            self.priority.add(grouped(tasks, self.tasks.runtimes(tasks)))

    def predict(self, spans: Spans, before: Collection[float], new: NewRuntime) -> None:
        """Waiting tasks in ``spans``, which took one of ``before``, take a new one: see `WaitingQueue.predict`."""
        self.priority.predict(spans, before, new)
        self.regular.predict(spans, before, new)

    def change(self, slot: Slot) -> None:
        """``slot`` is about to change: out of the index until the next pass."""
        if slot.number not in self.dirty:
            if slot.rows is not None:
                self.slots.unindex(slot)
            self.dirty[slot.number] = slot

    def change_all(self, worker: Worker) -> None:
        """All slots of ``worker`` are about to change, and with them what a plan could reckon with."""
        self.changes += 1
        for slot in worker.slots:
            self.change(slot)

    def sent(self, slot: Slot, attempt: Attempt, started: float) -> None:
        """``attempt`` is at the worker, behind what the slot already holds."""
        runtime = self.tasks.runtime(attempt.task)
        if slot.sent:
            slot.ahead_s += runtime
        else:
            slot.started = started
        slot.sent.append(Sent(attempt, runtime, started))
        self.bound[attempt.task] = slot
        self.tasks.move(attempt.task, State.SENT)

    def unbind(self, slot: Slot, task: int) -> int:
        """Take a queued task off ``slot``; returns it."""
        place = next(i for i, (queued, _) in enumerate(slot.queue) if queued == task)
        slot.queued_s -= slot.queue[place][1]
        del slot.queue[place]
        if not slot.queue:
            slot.queued_s = 0.0
        del self.bound[task]
        return task

    def release_queue(self, slot: Slot) -> list[int]:
        """Empty the queue of ``slot``; its tasks in order."""
        tasks = [task for task, _ in slot.queue]
        for task in tasks:
            del self.bound[task]
        slot.queue.clear()
        slot.queued_s = 0.0
        return tasks

    def to_priority(self, tasks: Sequence[int]) -> None:
        """These still need a slot, and had their turn."""
        self.changes += bool(tasks)
        self.tasks.move_all(tasks, State.WAITING)
        self.priority.add(grouped(tasks, self.tasks.runtimes(tasks)))
