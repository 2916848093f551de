"""Workers earn trust: tasks are taken back from silent workers, and their answers, if they come, are believed.

Rule 1: a task that is taken back waits again. This does not count against the task. The late answer counts as long as
no other worker has begun the task.
Rule 2: an attempt with a timeout is stopped. An attempt without one may be long and honest work: it goes on until
another worker begins the task.
Rule 3: the slot gets nothing until its worker has answered for the attempt, if only by saying that it has stopped.
Rule 4: each attempt taken back counts towards a quarantine as a crash does (`deskgrid.scheduler.state.quarantine`).
Rule 5: an answer clears the worker. It gets back the attempts without a timeout that were taken from it, unless another
worker has begun the task. It also gets back an attempt that turns out not to be late, because other tasks of its bag
took as long.
Rule 6: a worker is doubted only if it has said, after an answer was due, that it is there. As long as its heartbeats do
not arrive, its answers may not arrive either, and its lease decides. No worker is doubted for a task without a timeout
while no other worker could do the task.
Rule 7: a gang is stopped as a whole if one of its workers is overdue, and the slot there owes the answer.
Rule 8: whose fault a failure is, is decided in `deskgrid.scheduler.handlers.blame`.
Rule 9: a worker that has never answered gets one task on each of a few slots, and soon on all of them. Its first answer
lifts this limit.
"""

from collections.abc import Sequence

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.blame import Blame
from deskgrid.scheduler.handlers.gangs import GangHandler
from deskgrid.scheduler.model import Attempt, AttemptOutcome
from deskgrid.scheduler.state.deadlines import GRACE_S
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import NEVER, Gang, Slot, Worker
from deskgrid.scheduler.state.timers import Timer

# How many slots of a new worker are used at once, as many as a common PC has, and after how many seconds that number
# doubles. In that time, other workers do most of the short tasks and show how long they take. 64 slots are in use after
# eight seconds.
FIRST_SLOTS = 4
WIDER_S = 2.0
# Slots that one pass looks at, at most, so that ten thousand slots that began together do not delay it. The next passes
# look at the others.
LOOKS = 500
# How soon to look again at a slot if its worker has not said since its attempt was due that it is there. Seconds.
AGAIN_S = 1.0
# Ends of attempts that do not show that the worker works.
_OF_THE_WORKER = frozenset({AttemptOutcome.CRASH, AttemptOutcome.NO_ROOM, AttemptOutcome.NO_START})


class Trust:
    """Doubts the workers of ``grid`` that are silent, and clears those that answer."""

    def __init__(self, grid: SchedulerState, gangs: GangHandler, blame: Blame) -> None:
        self._grid = grid
        self._gangs = gangs
        self._blame = blame
        self._deadlines = grid.deadlines
        # When each worker that is not up last answered.
        self.heard: dict[str, float] = {}

    # --- new workers -------------------------------------------------------------------------------------------------

    def admit(self, worker: Worker) -> None:
        """``worker`` has joined, for the first time or again."""
        worker.heard = self.heard.pop(worker.name, NEVER)
        if worker.heard == NEVER and len(worker.slots) > FIRST_SLOTS:
            worker.width = FIRST_SLOTS
            self._grid.timers.set(Timer.WIDENING, worker.name, worker.joined_at + WIDER_S)

    def dismiss(self, worker: Worker) -> None:
        """``worker`` has gone, and its slots with it."""
        self.heard[worker.name] = worker.heard
        self._grid.timers.drop(Timer.WIDENING, worker.name)
        for attempt in list(self._grid.owed.get(worker.name, ())):
            self._grid.acknowledge(worker.name, attempt)

    def widen(self, name: str, at: float) -> None:
        """Use twice as many slots of a new worker, or all."""
        worker = self._grid.slots.workers[name]
        for slot in worker.slots[worker.width : 2 * worker.width]:
            self._grid.change(slot)
        worker.width *= 2
        if worker.width < len(worker.slots):
            self._grid.timers.set(Timer.WIDENING, name, at + WIDER_S)

    def forget(self, name: str) -> None:
        """Forget the worker of that name, which is away and will not be back."""
        self.heard.pop(name, None)

    # --- taking back -------------------------------------------------------------------------------------------------

    def look_after(self, now: float) -> None:
        """Before a pass: take back overdue attempts, and give back those that were taken needlessly."""
        grid = self._grid
        if grid.tasks.longer:
            grid.tasks.longer = False
            for slot in [each.slot for owed in grid.owed.values() for each in owed.values() if each.slot is not None]:
                self._reconsider(slot, now)
        for slot in self._deadlines.looks.due(grid.slots.slots, LOOKS, now):
            if slot.sent:
                self._look_at(slot, now)

    def _look_at(self, slot: Slot, now: float) -> None:
        if self._grid.is_stopped(slot):
            return  # it changes when it goes on, and then it is watched again
        deadlines, worker, due = self._deadlines, slot.worker, self._deadlines.due(slot)
        if now < due:
            deadlines.looks.add(slot, due)
        elif worker.seen < due:
            deadlines.looks.add(slot, now + AGAIN_S)
        elif slot.gang is not None:
            self._look_at_gang(slot.gang, slot, now)
        elif deadlines.timeout(slot.sent[0].task) is not None:
            self._take_back([slot], now, stop=True)
        elif (
            deadlines.runs_late(slot, now)
            and not self._grid.is_alone(worker.name)
            and (late := deadlines.late(worker, now))
        ):
            self._take_back(late, now, stop=False)
        else:
            deadlines.look_again(slot, now)

    def _look_at_gang(self, gang: Gang, slot: Slot, now: float) -> None:
        """A gang should have ended on ``slot``, and the worker there is silent: it is stopped, and waits again."""
        deadlines, worker, attempt = self._deadlines, slot.worker, gang.attempt
        if not gang.began:  # whoever drives this knows how long that may take
            deadlines.looks.add(slot, now + GRACE_S)
            return
        if deadlines.timeout(attempt.task) is None and not deadlines.runs_late(slot, now):
            deadlines.look_again(slot, now)
            return
        grid, since = self._grid, slot.started
        self._gangs.lose(gang, now)
        grid.tasks.taken(attempt.task)
        grid.gangs.touched.add(worker.name)
        slot.started = since
        grid.block(slot, attempt)
        grid.counters.overdue += 1
        if self._blame.silent(worker, slot.position, gang.bag, now):
            self._relieve(worker)

    def _take_back(self, slots: Sequence[Slot], now: float, *, stop: bool) -> None:
        """Take back all tasks on these slots of one worker; they wait again."""
        grid, worker, taken, changed = self._grid, slots[0].worker, list[Attempt](), False
        for slot in slots:
            since, sent = slot.started, list(slot.sent)
            for live in sent:  # by now the worker may be at any of them
                grid.withdraw(live, now, elapsed=0.0)
                grid.stop(worker.name, live.attempt)
            slot.started = since
            grid.block(slot, sent[0].attempt)
            grid.tasks.taken(sent[0].task)
            grid.to_priority([*grid.lose(sent), *grid.release_queue(slot)])
            grid.counters.overdue += 1
            changed |= self._blame.silent(worker, slot.position, grid.tasks.known(sent[0].task).bag, now)
            taken += [live.attempt for live in sent]
        before = grid.commands[-1] if grid.commands else None
        if isinstance(before, cmd.GiveUp) and (before.worker, before.stop) == (worker.name, stop):
            before.attempts.extend(taken)
        else:
            grid.commands.append(cmd.GiveUp(worker.name, taken, stop))
        if changed:
            self._relieve(worker)

    # --- believing ---------------------------------------------------------------------------------------------------

    def hear(self, worker: Worker, now: float) -> None:
        """``worker`` has answered: it is there, and at work."""
        new, at_once, worker.heard = worker.heard == NEVER, worker.heard == now, now
        if new:
            worker.width = len(worker.slots)
            self._grid.timers.drop(Timer.WIDENING, worker.name)
            for slot in worker.slots:  # not `change_all`: plans stay valid
                self._grid.change(slot)
        # Of ten thousand answers in one message the first is enough.
        if self._grid.owed and not at_once:
            for owed in list(self._grid.owed.get(worker.name, {}).values()):
                if owed.slot is not None:
                    self._believe(owed.slot)

    def clear(self, worker: Worker, now: float) -> None:
        """``worker`` has answered, and not with a failure that may be its own: it works."""
        self.hear(worker, now)
        if self._grid.quarantine.works(worker.name):
            self._grid.change_all(worker)

    def acknowledge(self, name: str, attempt: Attempt) -> Worker | None:
        """Note that the worker ``name`` no longer has ``attempt``. Returns the worker if it owed an answer for it."""
        slot = self._grid.acknowledge(name, attempt)
        if slot is None:
            return None
        self._grid.change(slot)
        return slot.worker

    def _reconsider(self, slot: Slot, now: float) -> None:
        """Give ``slot`` its attempt back if that was taken too soon: now its bag is known to take longer."""
        attempt = slot.owes
        if attempt is not None and self._grid.is_orphan(attempt):
            times = self._grid.tasks.times_taken(attempt.task) - 1
            if not self._deadlines.is_late(slot.worker, attempt.task, slot.started, times, now):
                self._believe(slot)

    def _believe(self, slot: Slot) -> None:
        """Give ``slot`` its attempt back, if that was not stopped and no other worker has begun the task."""
        attempt, since = slot.owes, slot.started
        if attempt is None or not self._grid.is_orphan(attempt):
            return
        if self._deadlines.timeout(attempt.task) is None:
            self.acknowledge(slot.worker.name, attempt)
            self._grid.resume(self._grid.claim(attempt), slot, since)

    # --- drained -----------------------------------------------------------------------------------------------------

    def drained(self, event: ev.WorkerDrained, now: float) -> None:
        """A worker gets nothing new, or does again. What has not begun there is taken back."""
        grid = self._grid
        worker = grid.slots.workers.get(event.worker)
        if worker is not None and (worker.name in grid.drained) != event.drained:
            (grid.drained.add if event.drained else grid.drained.discard)(worker.name)
            grid.gangs.touched.add(worker.name)
            self._relieve(worker)

    # --- quarantine --------------------------------------------------------------------------------------------------

    def judge(self, name: str, slot: int, ended: ev.EndedAttempt, now: float) -> None:
        """Learn from an ended attempt what does not work on its worker."""
        worker, excused = self._grid.slots.workers.get(name), ended.outcome in _OF_THE_WORKER
        relieve = self._blame.judge(name, slot, ended, now)
        if worker is None:
            if not excused:
                self._grid.quarantine.works(name)
            return
        (self.hear if excused else self.clear)(worker, now)
        if relieve:
            self._relieve(worker)

    def refused(self, event: ev.GangRefused, now: float) -> None:
        """A gang could not begin. Gangs must not be tried for ever on a worker that never gets ready."""
        grid, gang = self._grid, self._gangs.find(event.attempt)
        self._gangs.refused(event, now)
        workers = [] if gang is None else [rank.worker for rank in gang.ranks]
        for name in dict.fromkeys(workers):
            if name in event.blamed:
                grid.rests.not_ready(name, grid.tasks.known(event.attempt.task).bag, now, silent=event.silent)
                grid.gangs.touched.add(name)

    def gave_back(self, name: str, gang: Gang, now: float) -> None:
        """A worker gave up ranks of a gang that had begun."""
        if any(rank.worker == name for rank in gang.ranks):
            self._grid.rests.not_kept(name, now)
            self._grid.gangs.touched.add(name)

    def _relieve(self, worker: Worker) -> None:
        """Take back what has not begun on a worker whose quarantine, rest or drain begins or ends."""
        grid = self._grid
        grid.change_all(worker)
        for slot in worker.slots:
            grid.to_priority(grid.release_queue(slot))
            if len(slot.sent) > 1:
                grid.commands.append(cmd.Recall(worker.name, [sent.attempt for sent in list(slot.sent)[1:]]))
