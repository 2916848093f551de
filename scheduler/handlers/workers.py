"""Workers come and go: their windows open, change and close, and the tasks that they held wait again."""

import math
from collections.abc import Sequence
from dataclasses import replace

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.comparing import correct, killed
from deskgrid.scheduler.handlers.gangs import GangHandler
from deskgrid.scheduler.handlers.trust import Trust
from deskgrid.scheduler.model import Attempt, AttemptState, IllegalEvent, PlannedWindow, Windows
from deskgrid.scheduler.prediction.prediction_error import ratios
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import (
    NOWHERE,
    UPTIME_JITTER_S,
    Away,
    Slot,
    Traits,
    Worker,
    announced,
    differ,
    rated,
    uptime_end,
)
from deskgrid.scheduler.state.suitable import free_amounts

# What others use of a PC is looked at again when it has changed by this much of its processors.
LOAD_STEP = 0.02


class Workers:
    """Applies the events of workers to ``grid``."""

    def __init__(self, grid: SchedulerState, trust: Trust, gangs: GangHandler) -> None:
        self._grid = grid
        self._trust = trust
        self._gangs = gangs

    # --- a window opens ----------------------------------------------------------------------------------------------

    def joined(self, event: ev.WorkerJoined, now: float) -> None:
        """A worker is up. It keeps the attempts that it still holds, unless another worker was given the task."""
        if event.slots < 1 or not event.uptime > 0.0:
            raise IllegalEvent(f"worker {event.worker}: {event.slots} slots for {event.uptime} s")
        _check_measured(event.worker, event.speed, 0.0)
        grid = self._grid
        known = grid.slots.workers.get(event.worker)
        parked = self._gangs.park(known) if known is not None and grid.gangs.running else []
        if known is not None:
            # The same worker over a new connection: messages on their way may be lost. Its own list says what it has.
            grid.end_pause(known, now)
            self._detach(event.worker, now)
        before = grid.away.pop(event.worker, None)
        grid.changes += 1
        grid.gangs.windows_version += 1
        windows = announced(event.windows, now)
        worker = Worker(event.worker, event.site, now, uptime_end(event.uptime, now), windows)
        worker.announced, worker.opened, worker.planned_s = worker.ends_at, now, event.uptime
        if known is not None:  # its window goes on
            worker.opened, worker.planned_s = known.opened, known.planned_s
        worker.ends_at = grid.closing(worker, now)
        if before is not None and before.last is not None:
            worker.gap = now - before.last.closes
        worker.traits = Traits(event.processors, event.amounts, event.labels, event.reachable)
        worker.stated, worker.given = event.speed, event.given
        worker.exact = event.speed if event.given else grid.speeds.corrected(event.worker, event.speed)
        worker.speed = rated(worker.exact)
        grid.slots.join(worker, event.slots)
        self._trust.admit(worker)
        for slot in worker.slots:
            grid.change(slot)
        holds = event.holds
        if grid.gangs.awake:
            grid.gangs.join(worker)
            holds = self._gangs.adopt(worker, holds, now)
        self._adopt(worker, holds, now)
        self._gangs.settle_parked(parked, now)

    def _adopt(self, worker: Worker, holds: Sequence[ev.HeldAttempt], now: float) -> None:
        """Let a worker keep those attempts it holds that still count; stop the others."""
        grid, others, stale = self._grid, list[ev.HeldAttempt](), list[Attempt]()
        for hold in sorted(holds, key=lambda hold: hold.elapsed is None):
            welcome = grid.is_orphan(hold.attempt) and 0 <= hold.slot < len(worker.slots)
            if welcome and grid.gangs.awake:
                welcome = worker.slots[hold.slot].gang is None and not self._gangs.awaits(hold.attempt)
            if not (welcome and self._has_still(worker, hold.attempt)):
                others.append(hold)
                continue
            live = grid.claim(hold.attempt)
            slot, elapsed = worker.slots[hold.slot], hold.elapsed or 0.0
            # Time before this window is not part of it. It was counted with the slot that the attempt had then.
            slot.busy_s -= elapsed
            grid.resume(live, slot, now - elapsed)
        for hold in others:
            slots = worker.slots[hold.slot : hold.slot + 1]
            idle = bool(slots) and not slots[0].sent and slots[0].copy is None
            if idle and grid.is_lost_copy(hold.attempt) and hold.attempt.task in grid.bound:
                grid.run_copy(grid.copies[hold.attempt.task], slots[0], now - (hold.elapsed or 0.0))
            else:
                stale.append(hold.attempt)
        if stale:
            grid.commands.append(cmd.Stop(worker.name, stale))

    def _has_still(self, worker: Worker, attempt: Attempt) -> bool:
        """Whether a worker that has come back has what a single task needs that it still runs."""
        need = self._grid.tasks.known(attempt.task).bag.need
        return need.labels <= worker.traits.labels and need.amounts.within(free_amounts(self._grid, worker))

    # --- it changes --------------------------------------------------------------------------------------------------

    def refreshed(self, event: ev.UptimeRefreshed, now: float) -> None:
        """A worker says again how long it stays, and when it will be there."""
        if not event.uptime >= 0.0:
            raise IllegalEvent(f"worker {event.worker}: an uptime of {event.uptime} s")
        grid = self._grid
        worker = grid.slots.workers.get(event.worker)
        if event.windows is not None:
            windows = announced(event.windows, now)
            if worker is None:
                self._note_away(event.worker, windows)
            else:
                changed = differ(worker.windows, windows)
                grid.changes += changed
                grid.gangs.windows_version += changed
                worker.windows = windows
        if worker is None:
            return
        worker.seen = now
        ends_at = uptime_end(event.uptime, now)
        if ends_at == worker.announced or worker.announced < ends_at < worker.announced + UPTIME_JITTER_S:
            return
        worker.announced = ends_at
        self.expect(worker, now)

    def still_there(self, name: str, at: float, now: float) -> None:
        """It was expected that the window of a worker would have closed ``at`` that time."""
        worker = self._grid.slots.workers.get(name)
        if worker is not None and worker.ends_at == at:
            self.expect(worker, now)

    def expect(self, worker: Worker, now: float) -> None:
        """Look again at when the window of a worker closes."""
        grid, ends_at = self._grid, self._grid.closing(worker, now)
        if ends_at == worker.ends_at:
            return
        grid.slots.closes_at(worker, ends_at)
        grid.changes += 1
        for slot in worker.slots:
            grid.change(slot)
            self._shed(slot, now)

    def prepared(self, event: ev.EnvironmentsReady, now: float) -> None:
        """Other environments are ready on a worker. One that is not up has none."""
        grid = self._grid
        worker = grid.slots.workers.get(event.worker)
        if worker is not None and worker.environments != event.environments:
            worker.environments = event.environments
            grid.change_all(worker)
            grid.gangs.prepared(worker)
            grid.changes += 1

    def measured(self, event: ev.WorkerMeasured, now: float) -> None:
        """A worker is faster or slower than it was, or others use more or less of it."""
        _check_measured(event.worker, event.speed, event.load)
        grid = self._grid
        worker = grid.slots.workers.get(event.worker)
        if worker is None:
            return
        if abs(event.load - worker.load) >= LOAD_STEP:
            worker.load = event.load
            grid.gangs.loaded(worker)
            grid.changes += 1
        if event.speed != worker.stated:
            worker.stated = event.speed
            correct(grid, worker)

    def paused(self, event: ev.WorkerPaused, now: float) -> None:
        """A worker has stopped its tasks, or lets them go on. What has not begun waits elsewhere meanwhile."""
        grid = self._grid
        worker = grid.slots.workers.get(event.worker)
        if worker is None or (worker.name in grid.paused) == event.paused:
            return
        grid.change_all(worker)
        grid.gangs.touched.update([worker.name] if grid.gangs.awake else [])
        if not event.paused:
            grid.end_pause(worker, now)
            return
        grid.paused[worker.name] = now
        for slot in worker.slots:
            grid.to_priority(grid.release_queue(slot))
        # Those that have begun stay: the worker hands back only others.
        if sent := [live.attempt for slot in worker.slots if slot.gang is None for live in slot.sent]:
            grid.commands.append(cmd.Recall(worker.name, sent))

    def _shed(self, slot: Slot, now: float) -> None:
        """Take back the queued tasks that a shortened window no longer holds, the last first."""
        grid, shed = self._grid, []
        while grid.policy.timed and slot.queue and slot.remaining(now) < 0.0:
            shed.append(grid.unbind(slot.queue[-1]))
        grid.to_priority(shed[::-1])
        self.recall_excess(slot, now)

    def recall_excess(self, slot: Slot, now: float) -> None:
        """Recall all attempts that were sent ahead to ``slot`` if its window no longer holds them."""
        if self._grid.policy.timed and len(slot.sent) > 1 and slot.remaining(now) < 0.0:
            ahead = [sent.attempt for sent in list(slot.sent)[1:]]
            self._grid.commands.append(cmd.Recall(slot.worker.name, ahead))

    # --- it closes ---------------------------------------------------------------------------------------------------

    def left(self, event: ev.WorkerLeft, now: float) -> None:
        """A departure or a loss."""
        grid = self._grid
        if event.worker not in grid.slots.workers:
            if event.planned:
                self._note_away(event.worker, announced(event.windows, now))
            return  # It had no window open; a loss of a worker that is away loses nothing.
        worker, counters = grid.slots.workers[event.worker], grid.counters
        grid.end_pause(worker, now)
        windows = announced(event.windows, now) if event.planned else worker.windows
        last = (
            PlannedWindow(worker.joined_at, now)
            if event.planned and not event.early and now > worker.joined_at
            else None
        )
        grid.away[event.worker] = Away(windows, len(worker.slots), last, worker.gap, worker)
        if event.planned and worker.name not in grid.drained:  # a PC that is repaired today has no new habit
            grid.hours.add(worker.name, worker.planned_s, now - worker.opened, worker.opened)
        counters.departures += event.planned
        counters.losses += not event.planned
        self._gangs.worker_left(worker, now, planned=event.planned and not event.early)
        unstarted = set(event.unstarted)
        killed = [slot for slot in worker.slots if slot.sent and slot.sent[0].attempt not in unstarted]
        counters.kills += len(killed)
        counters.planned_kills += len(killed) if event.planned and not event.early else 0
        counters.wasted_s += sum(now - slot.started for slot in killed)
        stuck: list[Attempt] = []
        for slot in killed:
            bag = grid.tasks.known(slot.sent[0].task).bag
            if bag.piece is not None:
                had_its_time = event.planned and not event.early and now - slot.started >= bag.piece
                if grid.tasks.go_on(slot.sent[0].task, counts=had_its_time):
                    stuck.append(slot.sent[0].attempt)
            else:
                self._learn(slot, now)
        self._detach(event.worker, now)
        grid.give_up(stuck)
        if len(grid.slots.workers) == 1:
            (alone,) = grid.slots.workers.values()
            if grid.avoided.lift_all(alone.name):
                grid.change_all(alone)

    def _learn(self, slot: Slot, now: float) -> None:
        """A task was killed: it takes longer than it has run."""
        task, predicted = slot.sent[0].task, slot.sent[0].runtime
        elapsed = (now - slot.started) * slot.speed
        if now > slot.due:
            self._grid.prediction_error.add(ratios([predicted], [elapsed]))
        killed(self._grid, slot.worker, task, now - slot.started, self._grid.tasks.known(task).evidence(task)[0])
        self._grid.tasks.known(task).bag.show(task, elapsed, predicted)

    def _detach(self, name: str, now: float) -> None:
        """Take a worker's slots away; its tasks join the priority queue."""
        grid = self._grid
        grid.changes += 1
        grid.gangs.windows_version += 1
        worker = grid.slots.leave(name)
        grid.doubted.pop(name, None)
        grid.drained.discard(name)
        self._trust.dismiss(worker)
        if grid.gangs.awake:
            grid.gangs.leave(worker)
        for slot in worker.slots:
            if slot.copy is not None:
                slot.copy.state, slot.copy.slot, slot.copy = AttemptState.LOST, NOWHERE, None
        for slot in worker.slots:
            grid.dirty.pop(slot.number, None)
            for sent in slot.sent:
                del grid.bound[sent.task]
                grid.charge(sent.task, -1, -sent.runtime)
            grid.to_priority([*grid.lose(slot.sent), *grid.release_queue(slot)])
            grid.counters.window_s += now - worker.joined_at
            grid.counters.busy_s += slot.busy_s + (now - slot.started if slot.sent else 0.0)
        worker.slots = []  # each refers to its worker: without this cycle, they are freed now

    def forgotten(self, event: ev.WorkerForgotten, now: float) -> None:
        """A worker that is away will not be back."""
        grid = self._grid
        grid.changes += grid.away.pop(event.worker, None) is not None
        grid.gangs.windows_version += 1
        self._trust.forget(event.worker)
        grid.quarantine.forget_worker(event.worker)
        grid.rests.forget_worker(event.worker)
        if (worker := grid.slots.workers.get(event.worker)) is not None:
            grid.change_all(worker)

    def _note_away(self, name: str, windows: Windows) -> None:
        """Note the windows that a worker announces while its window is closed."""
        grid = self._grid
        known = grid.away.get(name, Away(Windows()))
        grid.changes += differ(known.windows, windows)
        grid.gangs.windows_version += 1
        grid.away[name] = replace(known, windows=windows)


def _check_measured(worker: str, speed: float, load: float) -> None:
    if not (0.0 < speed < math.inf and 0.0 <= load <= 1.0):
        raise IllegalEvent(f"worker {worker}: a speed of {speed}, {load} of it used by others")
