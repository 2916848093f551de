"""Answers from workers: each frees its slot, and counts if it is for the newest attempt of its task.

Rule 1: a task is done if and only if the answer was of its newest attempt.
Rule 2: a departure or a loss never counts against a task; crashes and errors do. A task that fails again and again
pauses.
"""

from collections.abc import Sequence

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.model import Attempt, Outcome, State
from deskgrid.scheduler.state.pauses import pause_after
from deskgrid.scheduler.state.slots import Slot
from deskgrid.scheduler.trust import Trust


class Answers:
    """``crash_limit``: a task that has crashed its process this many times is given up."""

    def __init__(self, grid: GridState, trust: Trust, crash_limit: int) -> None:
        self._grid = grid
        self._trust = trust
        self._crash_limit = crash_limit

    def ended(self, event: ev.AttemptsEnded, now: float) -> None:
        """Attempts ended at a worker."""
        settled, others = self._take_runs(event.ended, now) if len(event.ended) > 1 else ([], event.ended)
        for ended in others:
            where = self._take(ended, event.worker, now)
            if where is None:
                self._grid.counters.stale += 1
                continue
            self._trust.judge(*where, ended, now)
            if self._judge(ended, now):
                settled.append(ended.attempt)
        if settled:
            self._grid.commands.append(ev.Settle(settled))

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
            slot = bound.get(ended.attempt.task)
            if slot is None:
                others.append(ended)
                continue
            run = runs.setdefault(slot.number, (slot, []))[1]
            is_next = len(run) < len(slot.sent) and slot.sent[len(run)].attempt == ended.attempt
            (run if is_next else others).append(ended)
            if is_next:
                settled.append(ended.attempt)
        for slot, run in runs.values():
            if run:
                self._succeed(slot, run, now)
        return settled, others

    def _succeed(self, slot: Slot, run: Sequence[ev.EndedAttempt], now: float) -> None:
        """Do for several successes on a slot what `_take`, `Trust.judge` and `_judge` do for each."""
        grid = self._grid
        grid.change(slot)
        grid.freed += len(run)
        tasks, elapsed = [ended.attempt.task for ended in run], [ended.elapsed for ended in run]
        for task in tasks:
            del grid.bound[task]
        # The first attempt was running, and the others were ahead. The attempt behind them runs now.
        off = [slot.sent.popleft().runtime for _ in run]
        slot.ahead_s -= sum(off[1:]) + (slot.sent[0].runtime if slot.sent else 0.0)
        if len(slot.sent) < 2:
            slot.ahead_s = 0.0
        slot.started = now
        slot.busy_s += sum(elapsed)
        grid.counters.done += len(run)
        grid.prediction_error.add(grid.tasks.succeed(tasks, elapsed, on_slot=True))
        self._trust.clear(slot.worker, now)

    def _take(self, ended: ev.EndedAttempt, reporter: str, now: float) -> tuple[str, int] | None:
        """Free the slot that had the attempt. Returns its worker and position, or None if the answer is stale."""
        grid, task = self._grid, ended.attempt.task
        paid = self._trust.pay(reporter, ended.attempt) if grid.deadlines.debts else None
        slot = grid.bound.get(task)
        if slot is not None:
            place = slot.place_of(task)
            if place >= 0 and slot.sent[place].attempt == ended.attempt:
                grid.withdraw(slot, place, now, ended.elapsed)
                return slot.worker.name, slot.position
        if grid.is_orphan(ended.attempt):
            # The worker was given up for lost, but finished the work. No newer attempt exists, so this answer counts.
            grid.claim(task)
            return reporter, 0
        if paid is not None and ended.outcome != Outcome.CRASH:
            self._trust.clear(paid, now)
        return None

    def _judge(self, ended: ev.EndedAttempt, now: float) -> bool:
        """Count the outcome; True if the task has ended, False if it will be tried again."""
        grid = self._grid
        (task, _), outcome, elapsed = ended
        grid.counters.count(outcome)
        if not outcome:  # done
            grid.prediction_error.add(grid.tasks.succeed([task], [elapsed]))
            return True
        grid.tasks.known(task).bag.lane.account.new_s += elapsed
        pause = 0.0
        if outcome == Outcome.CRASH:
            places = grid.tasks.crashes(task)
            again = len(places) < self._crash_limit or grid.quarantine.excuses(places)
        else:
            errors = grid.tasks.erred(task)
            again = errors <= grid.tasks.known(task).bag.retries
            pause = pause_after(errors, elapsed)
        if not again:
            grid.tasks.move(task, State.FAILED)
        elif pause:
            grid.pauses.begin(task, now + pause)
            grid.tasks.move(task, State.PAUSED)
        else:
            grid.to_priority([task])
        return not again

    def returned(self, event: ev.AttemptsReturned, now: float) -> None:
        """A worker handed attempts back."""
        grid = self._grid
        for attempt in event.attempts:
            self._trust.pay(event.worker, attempt)
            slot = grid.bound.get(attempt.task)
            # Any other attempt answers a recall that something newer has overtaken.
            place = -1 if slot is None else slot.place_of(attempt.task)
            if slot is not None and place >= 0 and slot.sent[place].attempt == attempt:
                grid.withdraw(slot, place, now, elapsed=0.0)
                grid.to_priority([attempt.task])
