"""The scheduler: events in, commands out, and every decision between.

Rule 1: ``handle(event, now)`` is the only way in; ``now`` never runs backwards.
Rule 2: an illegal event raises and changes nothing; a stale but legal one (an old attempt's answer, say) is ignored.
Rule 3: a task is done if and only if the answer was of its newest attempt.
Rule 4: a departure or a loss never counts against a task; crashes and errors do. One that fails again and again pauses.
Placements are decided only at `PassDue`, once for everything that had arrived.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.invariants import check
from deskgrid.scheduler.model import Attempt, IllegalEvent, Outcome, State, Window, Windows, checked_runtime
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.queues.task_ranges import within
from deskgrid.scheduler.queues.waiting import ORDERS
from deskgrid.scheduler.state.pauses import pause_after
from deskgrid.scheduler.state.prediction_error import ratios
from deskgrid.scheduler.state.slots import UPTIME_JITTER_S, Away, Slot, Worker, announced, differ, uptime_end
from deskgrid.scheduler.state.tasks import ELSEWHERE, OPEN, WAITING
from deskgrid.scheduler.trust import Trust

# A task that has killed its process so often is given up: it would go on killing. Departures never count.
CRASH_LIMIT = 3


class Scheduler(Trust):
    """The state machine. What a pass does is in `Placing`, how far workers are trusted in `Trust`; here is what each
    event does.
    """

    def __init__(self, policy: Policy, first_attempt: int = 1, crash_limit: int = CRASH_LIMIT) -> None:
        super().__init__(policy, first_attempt)
        self.crash_limit = crash_limit
        self._table: dict[type, Callable[[Any, float], None]] = {
            ev.TasksSubmitted: self._submitted,
            ev.RuntimesUpdated: self._runtimes_updated,
            ev.BagPredicted: self._bag_predicted,
            ev.TasksCancelled: self._cancelled,
            ev.BagForgotten: self._forgotten,
            ev.WorkerJoined: self._joined,
            ev.UptimeRefreshed: self._refreshed,
            ev.WorkerLeft: self._left,
            ev.WorkerForgotten: self._worker_forgotten,
            ev.AttemptsEnded: self._attempts_ended,
            ev.AttemptsReturned: self._returned,
            ev.HoldExpired: self._hold_expired,
            ev.PolicyChanged: self._policy_changed,
            ev.PassDue: self._pass_due,
        }

    def handle(self, event: ev.Event, now: float) -> list[ev.Command]:
        """What ``event`` at ``now`` (seconds on the driver's clock) makes necessary."""
        if not self.now <= now < math.inf:
            raise IllegalEvent(f"time runs backwards: {now} after {self.now}")
        self._table[type(event)](event, now)
        self.now = now
        commands, self._commands = self._commands, []
        return commands

    def check(self, now: float) -> None:
        """Raise `InvariantBroken` where the state at ``now`` contradicts itself. For tests: it looks at everything."""
        check(self, now)

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _submitted(self, event: ev.TasksSubmitted, now: float) -> None:
        ended = ((event.done, State.DONE), (event.failed, State.FAILED), (event.cancelled, State.CANCELLED))
        self._check_restored(event)
        batch = self.tasks.add(event.bag, event.first, event.count, event.runtimes)
        batch.bag.retries, batch.bag.timeout = event.retries, event.timeout
        self.counters.submitted += event.count
        for tasks, state in ended:
            for task in tasks:
                self.tasks.move(task, state)
        for attempt in event.held:
            self.tasks.move(attempt.task, State.HELD)
            self.orphans[attempt.task] = attempt.number
        self.regular.add(batch.waiting())
        self.changes += 1

    def _check_restored(self, event: ev.TasksSubmitted) -> None:
        """What is already known of a batch is said of its own tasks, once each, and of attempts made before."""
        held = [attempt.task for attempt in event.held]
        known = [*event.done, *event.failed, *event.cancelled, *held]
        if any(not 0 <= task - event.first < event.count for task in known) or len(set(known)) < len(known):
            raise IllegalEvent(f"the batch from {event.first} on is restored with tasks not its own, or twice")
        if any(self.is_new(attempt.number) for attempt in event.held):
            raise IllegalEvent("an attempt is held whose number has not been given yet")

    def _runtimes_updated(self, event: ev.RuntimesUpdated, now: float) -> None:
        if len(event.tasks) != len(event.runtimes):
            raise IllegalEvent(f"{len(event.tasks)} tasks with {len(event.runtimes)} runtimes")
        for runtime in event.runtimes:
            checked_runtime(runtime)
        # Of a task that is named twice, the last counts.
        news = dict(zip(event.tasks, event.runtimes, strict=True))
        before = self.tasks.predict(news)
        self.predict([(task, 1) for task in before], set(before.values()), news.__getitem__)
        self._predictions_changed(news, now)

    def _bag_predicted(self, event: ev.BagPredicted, now: float) -> None:
        checked_runtime(event.runtime)
        spans, before = self.tasks.predict_bag(event.bag, event.runtime)
        self.predict(spans, before - {event.runtime}, lambda task: event.runtime)
        self._predictions_changed(within(self.bound, spans), now)

    def _predictions_changed(self, tasks: Iterable[int], now: float) -> None:
        """Give queued tasks another chance to be placed (paper, Section 2.1)."""
        self.changes += 1
        slots = {self.bound[task].number: self.bound[task] for task in tasks if task in self.bound}
        for slot in slots.values():
            self.change(slot)
            self.to_priority(self.release_queue(slot))
            slot.sent = deque(sent._replace(runtime=self.tasks.runtime(sent.attempt.task)) for sent in slot.sent)
            slot.ahead_s = sum(sent.runtime for sent in islice(slot.sent, 1, None))
            self._recall_excess(slot, now)

    def _cancelled(self, event: ev.TasksCancelled, now: float) -> None:
        pieces = list(self.tasks.pieces(event.spans))
        stops: dict[str, list[Attempt]] = {}
        for batch, first, count in pieces:
            spans = batch.spans(OPEN, first, count)
            for task, _ in batch.spans(ELSEWHERE, first, count):
                self._take_out(task, stops, now)
            for waiting in batch.spans(WAITING, first, count):
                for others in self.regular.drop(*waiting):
                    self.priority.discard(*others)
            if self.orphans:
                self.disown(chain.from_iterable(range(first, first + many) for first, many in spans))
            self.counters.cancelled += self.tasks.cancel(batch, spans)
            self.changes += bool(spans)
        self._commands += [ev.Stop(worker, attempts) for worker, attempts in stops.items()]

    def _take_out(self, task: int, stops: dict[str, list[Attempt]], now: float) -> None:
        """Take a task that is cancelled, and does not wait, off its slot; ``stops``: attempts to stop, by worker."""
        state = self.tasks.state(task)
        if state == State.SENT:
            slot = self.bound[task]
            stops.setdefault(slot.worker.name, []).append(self.withdraw(slot, slot.place_of(task), now))
        else:
            self.unqueue(task, state)

    def _forgotten(self, event: ev.BagForgotten, now: float) -> None:
        self.tasks.forget(event.bag)
        self.quarantine.forget_bag(event.bag)

    # --- workers -----------------------------------------------------------------------------------------------------

    def _joined(self, event: ev.WorkerJoined, now: float) -> None:
        if event.slots < 1 or not event.uptime > 0.0:
            raise IllegalEvent(f"worker {event.worker}: {event.slots} slots for {event.uptime} s")
        if event.worker in self.slots.workers:
            # The same worker over a new connection: what was on its way may be lost. Its own list says what it has.
            self._detach(event.worker, now)
        before = self.away.pop(event.worker, None)
        self.changes += 1
        windows = announced(event.windows, now)
        worker = Worker(event.worker, event.site, now, uptime_end(event.uptime, now), windows)
        if before is not None and before.last is not None:
            worker.gap = now - before.last.closes
        self.slots.join(worker, event.slots)
        self.admit(worker)
        for slot in worker.slots:
            self.change(slot)
        self._adopt(worker, event.holds, now)

    def _adopt(self, worker: Worker, holds: Sequence[ev.HeldAttempt], now: float) -> None:
        """Let a worker keep those attempts it holds that are still the newest of their tasks; stop the others."""
        stale = []
        for hold in sorted(holds, key=lambda hold: hold.elapsed is None):
            task, number = hold.attempt.task, hold.attempt.number
            welcome = self.orphans.get(task) == number and 0 <= hold.slot < len(worker.slots)
            if not welcome:
                stale.append(hold.attempt)
                continue
            self.unqueue(task, self.tasks.state(task))
            del self.orphans[task]
            self.counters.adopted += 1
            slot, elapsed = worker.slots[hold.slot], hold.elapsed or 0.0
            # What it ran before this window is not of this window; it was counted with the slot it had then.
            slot.busy_s -= elapsed
            self.sent(slot, hold.attempt, now - elapsed)
        if stale:
            self._commands.append(ev.Stop(worker.name, stale))

    def _refreshed(self, event: ev.UptimeRefreshed, now: float) -> None:
        if not event.uptime >= 0.0:
            raise IllegalEvent(f"worker {event.worker}: an uptime of {event.uptime} s")
        worker = self.slots.workers.get(event.worker)
        if event.windows is not None:
            windows = announced(event.windows, now)
            if worker is None:
                self._note_away(event.worker, windows)
            else:
                self.changes += differ(worker.windows, windows)
                worker.windows = windows
        if worker is None:
            return
        worker.seen = now
        ends_at = uptime_end(event.uptime, now)
        if ends_at == worker.ends_at or worker.ends_at < ends_at < worker.ends_at + UPTIME_JITTER_S:
            return
        worker.ends_at = ends_at
        self.changes += 1
        for slot in worker.slots:
            self.change(slot)
            self._shed(slot, now)

    def _shed(self, slot: Slot, now: float) -> None:
        """Give back what a shortened window no longer holds, the last first."""
        shed = []
        while self.policy.timed and slot.queue and slot.remaining(now) < 0.0:
            shed.append(self.unbind(slot, slot.queue[-1][0]))
        self.to_priority(shed[::-1])
        self._recall_excess(slot, now)

    def _recall_excess(self, slot: Slot, now: float) -> None:
        if self.policy.timed and len(slot.sent) > 1 and slot.remaining(now) < 0.0:
            ahead = [sent.attempt for sent in list(slot.sent)[1:]]
            self._commands.append(ev.Recall(slot.worker.name, ahead))

    def _left(self, event: ev.WorkerLeft, now: float) -> None:
        if event.worker not in self.slots.workers:
            if event.planned:
                self._note_away(event.worker, announced(event.windows, now))
            return  # It had no window open; a loss of a worker that is away loses nothing.
        worker = self.slots.workers[event.worker]
        windows = announced(event.windows, now) if event.planned else worker.windows
        last = Window(worker.joined_at, now) if event.planned and not event.early and now > worker.joined_at else None
        self.away[event.worker] = Away(windows, len(worker.slots), last, worker.gap)
        self.counters.departures += event.planned
        self.counters.losses += not event.planned
        unstarted = set(event.unstarted)
        killed = [slot for slot in worker.slots if slot.sent and slot.sent[0].attempt not in unstarted]
        self.counters.kills += len(killed)
        self.counters.planned_kills += len(killed) if event.planned and not event.early else 0
        self.counters.wasted_s += sum(now - slot.started for slot in killed)
        for slot in killed:
            if now > slot.due:
                self._learn(slot.sent[0].attempt.task, slot.sent[0].runtime, now - slot.started)
        self._detach(event.worker, now)

    def _detach(self, name: str, now: float) -> None:
        """Take a worker's slots away; its work joins the priority queue."""
        self.changes += 1
        worker = self.slots.leave(name)
        self.dismiss(worker)
        for slot in worker.slots:
            self.dirty.pop(slot.number, None)
            tasks = [sent.attempt.task for sent in slot.sent]
            self.orphans.update((sent.attempt.task, sent.attempt.number) for sent in slot.sent)
            for task in tasks:
                del self.bound[task]
            self.to_priority([*tasks, *self.release_queue(slot)])
            self.counters.window_s += now - worker.joined_at
            self.counters.busy_s += slot.busy_s + (now - slot.started if tasks else 0.0)

    def _worker_forgotten(self, event: ev.WorkerForgotten, now: float) -> None:
        self.changes += self.away.pop(event.worker, None) is not None
        self._heard.pop(event.worker, None)
        self.quarantine.forget_worker(event.worker)
        if (worker := self.slots.workers.get(event.worker)) is not None:
            self.change_all(worker)

    def _note_away(self, name: str, windows: Windows) -> None:
        """What a worker announces whose window is closed."""
        known = self.away.get(name, Away(Windows()))
        self.changes += differ(known.windows, windows)
        self.away[name] = replace(known, windows=windows)

    # --- attempts ----------------------------------------------------------------------------------------------------

    def _attempts_ended(self, event: ev.AttemptsEnded, now: float) -> None:
        settled, others = self._take_runs(event.ended, now) if len(event.ended) > 1 else ([], event.ended)
        for ended in others:
            where = self._take_answer(ended, event.worker, now)
            if where is None:
                self.counters.stale += 1
                continue
            self._watch(*where, ended, now)
            if self._judge(ended, now):
                settled.append(ended.attempt)
        if settled:
            self._commands.append(ev.Settle(settled))

    def _take_runs(self, all_ended: Sequence[ev.Ended], now: float) -> tuple[list[Attempt], Sequence[ev.Ended]]:
        """The successes that are the next ones of their slots end their tasks, those of a slot together.

        These; and the others, which are to be looked at one by one. Where something went wrong, all are.
        """
        if any(ended.outcome for ended in all_ended):
            return [], all_ended
        runs: dict[int, tuple[Slot, list[ev.Ended]]] = {}
        settled: list[Attempt] = []
        others: list[ev.Ended] = []
        for ended in all_ended:
            slot = self.bound.get(ended.attempt.task)
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

    def _succeed(self, slot: Slot, run: Sequence[ev.Ended], now: float) -> None:
        """As `_take_answer`, `_watch` and `_judge` do for each."""
        self.change(slot)
        self._freed += len(run)
        tasks, elapsed = [ended.attempt.task for ended in run], [ended.elapsed for ended in run]
        for task in tasks:
            del self.bound[task]
        # The first was running, those behind it were ahead; and the one behind these runs now.
        off = [slot.sent.popleft().runtime for _ in run]
        slot.ahead_s -= sum(off[1:]) + (slot.sent[0].runtime if slot.sent else 0.0)
        if len(slot.sent) < 2:
            slot.ahead_s = 0.0
        slot.started = now
        slot.busy_s += sum(elapsed)
        self.counters.done += len(run)
        self.prediction_error.add(self.tasks.succeed(tasks, elapsed))
        self.clear(slot.worker, now)

    def _take_answer(self, ended: ev.Ended, reporter: str, now: float) -> tuple[str, int] | None:
        """Free the slot the attempt was on: its worker, and which slot. None: not the newest of an unended task."""
        task, number = ended.attempt
        paid = self.pay(reporter, ended.attempt) if self.deadlines.debts else None
        slot = self.bound.get(task)
        if slot is not None:
            place = slot.place_of(task)
            if place >= 0 and slot.sent[place].attempt == ended.attempt:
                self.withdraw(slot, place, now, ended.elapsed)
                return slot.worker.name, slot.position
        if self.orphans.get(task) == number:
            # The worker was given up for lost, but finished the work: nothing newer exists, so this is the answer.
            self.unqueue(task, self.tasks.state(task))
            del self.orphans[task]
            self.counters.adopted += 1
            return reporter, 0
        if paid is not None and ended.outcome != Outcome.CRASH:
            self.clear(paid, now)
        return None

    def _judge(self, ended: ev.Ended, now: float) -> bool:
        """Count the outcome; True when the task has ended by it, False when it will be tried again."""
        (task, _), outcome, elapsed = ended
        self.counters.count(outcome)
        if not outcome:  # done
            self.prediction_error.add(self.tasks.succeed([task], [elapsed]))
            return True
        pause = 0.0
        if outcome == Outcome.CRASH:
            places = self.tasks.crashes(task)
            again = len(places) < self.crash_limit or self.quarantine.excuses(places)
        else:
            errors = self.tasks.erred(task)
            again = errors <= self.tasks.known(task).bag.retries
            pause = pause_after(errors, elapsed)
        if not again:
            self.tasks.move(task, State.FAILED)
        elif pause:
            self.pauses.begin(task, now + pause)
            self.tasks.move(task, State.PAUSED)
        else:
            self.to_priority([task])
        return not again

    def _learn(self, task: int, predicted: float, actual: float) -> None:
        self.prediction_error.add(told := ratios([predicted], [actual]))
        self.tasks.known(task).bag.learn(told)

    def _returned(self, event: ev.AttemptsReturned, now: float) -> None:
        for attempt in event.attempts:
            self.pay(event.worker, attempt)
            slot = self.bound.get(attempt.task)
            # Anything else is an answer to a recall that something newer has overtaken.
            place = -1 if slot is None else slot.place_of(attempt.task)
            if slot is not None and place >= 0 and slot.sent[place].attempt == attempt:
                self.withdraw(slot, place, now, elapsed=0.0)
                self.to_priority([attempt.task])

    def _hold_expired(self, event: ev.HoldExpired, now: float) -> None:
        held = [task for task in self.orphans if self.tasks.state(task) == State.HELD]
        self.to_priority(held)

    # --- passes ------------------------------------------------------------------------------------------------------

    def _policy_changed(self, event: ev.PolicyChanged, now: float) -> None:
        if event.policy.order not in ORDERS:
            raise IllegalEvent(f"policy {event.policy.name}: no order {event.policy.order!r}")
        for slot in list(self.slots.slots.values()):
            self.change(slot)
            self.to_priority(self.release_queue(slot))
        self.set_policy(event.policy)

    def _pass_due(self, event: ev.PassDue, now: float) -> None:
        if not event.most >= 1:
            raise IllegalEvent(f"a pass that decides {event.most} times")
        self.look_after(now)
        self._commands += self.place_all(now, event.most)
