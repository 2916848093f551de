"""Answers from workers: each frees its slot, and counts if it is for the newest attempt of its task.

Rule 1: a task is done if and only if the answer was of its newest attempt, or of one of two that count.
Rule 2: a departure or a loss never counts against a task, nor does a PC without room or on which nothing starts;
crashes and errors do. A task that fails is tried on another PC next (`deskgrid.scheduler.handlers.retrying`); one that
fails again and again pauses.
Rule 3: if a task has a copy, the first success of the two counts, and the other attempt is stopped. If one of the two
fails, the other goes on, and the failure does not count against the task.
"""

from collections.abc import Sequence

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.blame import Blame
from deskgrid.scheduler.handlers.comparing import ran
from deskgrid.scheduler.handlers.gangs import GangHandler
from deskgrid.scheduler.handlers.retrying import pause_after, try_again
from deskgrid.scheduler.handlers.trust import Trust
from deskgrid.scheduler.model import Attempt, AttemptOutcome, AttemptState, State
from deskgrid.scheduler.prediction.speeds import SHORTEST
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Gang, Slot
from deskgrid.scheduler.state.timers import Timer

# What an attempt that ends its process is charged for the next one to start: measured on a busy PC of two cores, from
# the end of one task to the beginning of the next. Seconds.
RESTART_S = 0.15
_KILLS = frozenset({AttemptOutcome.CRASH, AttemptOutcome.TIMEOUT})
# Ends that say nothing of the task.
_OF_THE_PC = frozenset({AttemptOutcome.NO_ROOM, AttemptOutcome.NO_START})


class Answers:
    """``crash_limit``: a task that has crashed its process this many times is given up."""

    def __init__(self, grid: SchedulerState, trust: Trust, blame: Blame, gangs: GangHandler, crash_limit: int) -> None:
        self._grid = grid
        self._trust = trust
        self._blame = blame
        self._gangs = gangs
        self._crash_limit = crash_limit

    def ended(self, event: ev.AttemptsEnded, now: float) -> None:
        """Attempts ended at a worker."""
        settled, others = (self._take_next if len(event.ended) == 1 else self._take_runs)(event.ended, now)
        for each in others:
            gang = self._gangs.find(each.attempt) if self._grid.gangs.running else None
            if gang is not None:
                where, ended = self._take_gang(gang, each, event.worker, now)
            elif (found := self._take(each, event.worker, now)) is not None:
                where, ended = found, each
                if not each.outcome and (worker := self._grid.slots.workers.get(where[0])) is not None:
                    ran(self._grid, worker, each.attempt.task, each.elapsed)
                if self._grid.slots.uneven:
                    ended = each._replace(elapsed=each.elapsed * self._speed(where[0]))
            else:
                self._grid.counters.stale += 1
                continue
            self._trust.judge(*where, ended, now)
            if self._judge(where[0], ended, now):
                settled.append(ended.attempt)
        if settled:
            self._grid.commands.append(cmd.Settle(settled))

    def _speed(self, name: str) -> float:
        """The speed of a worker. What is learned from tasks is how long they take at speed 1."""
        worker = self._grid.slots.workers.get(name)
        return 1.0 if worker is None else worker.speed

    def _take_next(
        self, ended: Sequence[ev.EndedAttempt], now: float
    ) -> tuple[list[Attempt], Sequence[ev.EndedAttempt]]:
        """Do what `_take_runs` does for a single answer, which most are."""
        attempt, outcome, *_ = ended[0]
        live = self._grid.bound.get(attempt.task)
        if outcome or live is None or live.number != attempt.number or live.slot.sent[0] is not live:
            return [], ended
        self._succeed(live.slot, ended, now)
        return [attempt], ()

    def _take_runs(
        self, all_ended: Sequence[ev.EndedAttempt], now: float
    ) -> tuple[list[Attempt], Sequence[ev.EndedAttempt]]:
        """Handle successes that came in the order of their slots, all of one slot together.

        Returns the attempts that were handled, and the answers that are left to handle one by one: all of them if any
        attempt failed.
        """
        if any(ended.outcome for ended in all_ended):
            return [], all_ended
        runs: dict[int, tuple[Slot, list[ev.EndedAttempt]]] = {}
        settled: list[Attempt] = []
        others: list[ev.EndedAttempt] = []
        bound = self._grid.bound
        for ended in all_ended:
            task, number = ended.attempt
            live = bound.get(task)
            if live is None or live.number != number:
                others.append(ended)
                continue
            slot = live.slot
            run = runs.setdefault(slot.number, (slot, []))[1]
            is_next = len(run) < len(slot.sent) and slot.sent[len(run)] is live
            (run if is_next else others).append(ended)
            if is_next:
                settled.append(ended.attempt)
        for slot, run in runs.values():
            if run:
                self._succeed(slot, run, now)
        return settled, others

    def _succeed(self, slot: Slot, run: Sequence[ev.EndedAttempt], now: float) -> None:
        """Do for successes on a slot what `_take`, `Trust.judge` and `_judge` do for each."""
        grid, sent, tasks, elapsed = self._grid, slot.sent, list[int](), list[float]()
        grid.change(slot)
        grid.freed += len(run)
        for (task, _), _, seconds, waited in run:
            if seconds >= SHORTEST and not waited:  # others tell nothing about the PC, and are spared the call
                ran(grid, slot.worker, task, seconds)
            del grid.bound[task]
            tasks.append(task)
            elapsed.append(seconds if waited else seconds * slot.speed)
            slot.busy_s += seconds
            sent.popleft()
            if sent:  # it was ahead, and runs now
                slot.ahead_s -= sent[0].runtime
        if len(sent) < 2:
            slot.ahead_s = 0.0
        slot.started = now
        grid.counters.done += len(run)
        if grid.tasks.copied:
            for task, seconds in zip(tasks, elapsed, strict=True):
                slot.worker.learn_pace(grid.tasks.known(task), task, seconds)
                grid.drop_copy(task)
        grid.prediction_error.add(grid.tasks.succeed(tasks, elapsed, slot.worker.name, on_slot=True))
        self._trust.clear(slot.worker, now)
        if grid.tasks.worked or grid.avoided:
            self._blame.did(tasks, slot.worker.name)

    def _take(self, ended: ev.EndedAttempt, reporter: str, now: float) -> tuple[str, int] | None:
        """Free the slot that had the attempt. Returns its worker and position, or None if the answer is stale."""
        grid, task = self._grid, ended.attempt.task
        paid = self._trust.acknowledge(reporter, ended.attempt) if grid.owed else None
        live = grid.bound.get(task)
        if live is not None and live.number == ended.attempt.number:
            grid.withdraw(live, now, ended.elapsed)
            return live.slot.worker.name, live.slot.position
        if grid.is_orphan(ended.attempt):
            # The worker was given up for lost, but finished the work. No newer attempt exists, so this answer counts.
            grid.claim(ended.attempt)
            return reporter, 0
        if grid.is_copy(ended.attempt):
            return self._take_copy(ended, reporter)
        if paid is not None and ended.outcome != AttemptOutcome.CRASH:
            self._trust.clear(paid, now)
        return None

    def _take_gang(
        self, gang: Gang, ended: ev.EndedAttempt, reporter: str, now: float
    ) -> tuple[tuple[str, int], ev.EndedAttempt]:
        """A gang has ended: all its workers have answered. Returns the slot that ended it, and its end."""
        grid = self._grid
        if grid.owed:
            self._trust.acknowledge(reporter, ended.attempt)
        workers = gang.workers()
        slot = next((slot.position for slot in gang.slots if slot.worker.name == reporter), 0)
        ended = self._gangs.ended(gang, ended, reporter, now)
        for worker in workers if not ended.outcome else ():
            self._trust.clear(worker, now)
            grid.rests.done(worker.name)
        return (reporter, slot), ended

    def ranks_ended(self, event: ev.RanksEnded, now: float) -> None:
        """All ranks of a gang on one worker have succeeded, and others go on."""
        for worker in self._gangs.ranks_ended(event, now):
            self._trust.clear(worker, now)
            self._grid.rests.done(worker.name)

    def _take_copy(self, ended: ev.EndedAttempt, reporter: str) -> tuple[str, int]:
        """Free the slot of a copy that has ended."""
        copy = self._grid.end_copy(ended.attempt.task)
        if ended.outcome:
            self._go_on_alone(copy.task)
        return (reporter, 0) if copy.state == AttemptState.LOST else (copy.slot.worker.name, copy.slot.position)

    def _go_on_alone(self, task: int) -> None:
        """One of two attempts has failed. The other gets no copy, or a task that always fails would never end."""
        self._grid.bound[task].state = AttemptState.ALONE

    def _judge(self, worker: str, ended: ev.EndedAttempt, now: float) -> bool:
        """Count the outcome; True if the task has ended, False if it goes on or will be tried again."""
        grid = self._grid
        (task, _), outcome, elapsed, _ = ended
        if outcome and task in grid.bound:
            return False
        if outcome and grid.go_on_with_copy(task):
            self._go_on_alone(task)
            return False
        grid.counters.count(outcome)
        if not outcome:  # done
            if grid.copies or task in grid.bound:
                self._stop_others(task, now)
            if grid.tasks.copied and worker in grid.slots.workers:
                grid.slots.workers[worker].learn_pace(grid.tasks.known(task), task, elapsed)
            grid.prediction_error.add(grid.tasks.succeed([task], [elapsed], worker))
            grid.tasks.worked.clear()  # it has been judged already
            return True
        grid.drop_copy(task)
        if outcome in _OF_THE_PC:
            grid.to_priority([task])
            return False
        bag = grid.tasks.known(task).bag
        bag.category.account.new_s += elapsed + (RESTART_S if outcome in _KILLS else 0.0)
        if outcome == AttemptOutcome.PIECE:
            stuck = grid.tasks.go_on(task, counts=True)
            grid.to_priority([task])
            grid.give_up([ended.attempt] if stuck else [])
            return False
        again = (
            self._crashed(task, worker) if outcome == AttemptOutcome.CRASH else self._erred(task, worker, elapsed, now)
        )
        if not again:
            grid.tasks.move(task, State.FAILED)
        return not again

    def _crashed(self, task: int, worker: str) -> bool:
        """Count a crash. Returns whether the task is tried again; then it waits."""
        grid = self._grid
        grid.tasks.crashed(task, worker)
        again = len(grid.tasks.crashes(task)) < self._crash_limit or self._blame.excuses(task)
        if again:
            grid.to_priority([task])
        return again

    def _erred(self, task: int, worker: str, elapsed: float, now: float) -> bool:
        """Count an error or timeout. Returns the same as `_crashed`."""
        grid = self._grid
        errors = grid.tasks.erred(task, worker)
        again = errors <= grid.tasks.known(task).bag.retries or self._blame.once_more(task, worker, errors)
        if again and (pause := pause_after(errors, elapsed)):
            grid.timers.set(Timer.PAUSE, task, now + pause)
            grid.tasks.move(task, State.PAUSED)
        elif again:
            try_again(grid, task, now)
        return again

    def kept(self, event: ev.CheckpointKept, now: float) -> None:
        """A checkpoint was kept."""
        grid, task = self._grid, event.attempt.task
        live = grid.bound.get(task)
        slot = live.slot if live is not None and live.number == event.attempt.number else None
        batch = grid.tasks.known(task)
        if batch.bag.piece is None or (slot is None and not grid.is_orphan(event.attempt)):
            return
        elapsed = event.elapsed if slot is None else event.elapsed * slot.speed
        grid.tasks.progress.begun(task, batch.runtime(task)).save(event.fraction, elapsed)
        batch.bag.reserve_s = event.reserve_s
        if slot is not None:
            self._trust.hear(slot.worker, now)

    def dropped(self, event: ev.CheckpointDropped, now: float) -> None:
        """A checkpoint cannot be used."""
        progress, before = self._grid.tasks.progress.find(event.task), event.before
        if progress is not None:
            whole_s = progress.whole_s
            fraction, left_s = (None, whole_s) if before is None else (before.fraction, before.left_s)
            self._grid.tasks.progress.restore(event.task, whole_s, fraction, left_s)

    def _stop_others(self, task: int, now: float) -> None:
        """``task`` is done: stop its other attempt, if there is one."""
        grid = self._grid
        grid.drop_copy(task)
        live = grid.bound.get(task)
        if live is not None:
            grid.withdraw(live, now)
            grid.commands.append(cmd.Stop(live.slot.worker.name, [live.attempt]))

    def returned(self, event: ev.AttemptsReturned, now: float) -> None:
        """A worker handed attempts back."""
        grid = self._grid
        for attempt in event.attempts:
            self._trust.acknowledge(event.worker, attempt)
            live = grid.bound.get(attempt.task)
            gang = self._gangs.find(attempt) if grid.gangs.running else None
            if gang is not None:
                self._gangs.lose(gang, now, besides=event.worker)
                self._trust.gave_back(event.worker, gang, now)
            # Any other attempt answers a recall that something newer has overtaken.
            if grid.is_copy(attempt):
                grid.end_copy(attempt.task)
            elif live is not None and live.number == attempt.number:
                grid.withdraw(live, now, elapsed=0.0)
                if not grid.go_on_with_copy(attempt.task):
                    grid.drop_copy(attempt.task)
                    grid.to_priority([attempt.task])
