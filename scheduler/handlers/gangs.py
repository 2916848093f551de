"""Gangs, from when they have slots to when they leave them: what becomes of an attempt of a parallel task.

Rule 1: a gang ends as one. Whatever ends one of its ranks ends all of them, and the workers of the others are told to
stop at once. Its slots are free at once.
Rule 2: departures and losses do not count against the task. It waits again, in the place that it had.
Rule 3: an attempt has one number, and no second one beside it counts: of a gang that was lost, nothing counts.
"""

from collections.abc import Iterable, Sequence

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.parallel.base import ParallelJob, RunningJob
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Gang, Slot, Worker
from deskgrid.scheduler.state.timers import Timer


class GangHandler:
    """Applies what happens to gangs to ``grid``."""

    def __init__(self, grid: SchedulerState) -> None:
        self._grid = grid
        self._table = grid.gangs

    def find(self, attempt: Attempt) -> Gang | None:
        """The gang that makes this attempt, if it has slots."""
        gang = self._table.running.get(attempt.task)
        return gang if gang is not None and gang.attempt == attempt else None

    # --- it begins ---------------------------------------------------------------------------------------------------

    def began(self, event: ev.GangBegan, now: float) -> None:
        """All its ranks run. After a restart: all of them have come back."""
        gang = self.find(event.attempt)
        if gang is None:
            return  # it was lost, or is no longer wanted; its workers have been told
        if gang.running is None:
            if not self.is_back(gang):
                raise IllegalEvent(f"task {gang.attempt.task} begins, but {len(gang.back)} ranks of it are back")
            self._whole(gang)
        elif now > gang.since and not gang.began:
            job, gang.since = gang.running.job, now
            self._table.withdraw(gang)
            for slot in gang.slots:
                slot.started = now
            self._table.enter(gang, self._running(gang, job))
        gang.began = True

    def is_back(self, gang: Gang) -> bool:
        """Whether as many ranks as it may have are back, each with its slots, and all at one site.

        A worker may come back with less than it had, or at another site.
        """
        need, rows, ranks = gang.bag.need, list(gang.back.values()), gang.back.keys() | gang.over
        sites = {self._table.machines[slot.worker.name].host.site for slot in gang.slots}
        whole = need.least <= len(ranks) <= need.most and ranks == set(range(len(ranks)))
        whole = whole and all(len(row) == need.slots for row in rows) and len(sites) == 1
        return whole and all(self._has_still(worker, gang) for worker in gang.workers())

    def _has_still(self, worker: Worker, gang: Gang) -> bool:
        """Whether a worker that is back has what its ranks need."""
        need, traits = gang.bag.need, worker.traits
        ranks = sum([row[0].worker is worker for row in gang.back.values()])
        return need.labels <= traits.labels and (need.amounts * ranks).within(traits.amounts)

    def _whole(self, gang: Gang) -> None:
        """All ranks of a gang that was awaited are back."""
        grid, task, need = self._grid, gang.attempt.task, gang.bag.need
        rows = [row for _, row in sorted(gang.back.items())]
        if grid.tasks.state(task) == State.HELD:
            grid.unqueue(task, State.HELD)
            del grid.lost[task]
            grid.tasks.move(task, State.SENT)
            grid.counters.adopted += 1
            grid.charge(task, 1, gang.out_s)
        gang.slots = [slot for row in rows for slot in row]
        gang.ranks = [cmd.RankPlace(row[0].worker.name, tuple([slot.position for slot in row])) for row in rows]
        gang.back = {}
        self._set_seconds(gang, need.seconds(grid.tasks.runtime(task), gang.size) / _slowest(gang))
        batch = grid.tasks.known(task)
        self._table.touched.update([place.worker for place in gang.ranks])
        self._table.enter(gang, self._running(gang, ParallelJob(task, need, batch.runtime(task), batch.arrived)))

    def _running(self, gang: Gang, job: ParallelJob) -> RunningJob:
        """A gang that has all its slots, as policies see it."""
        counts: dict[str, int] = {}
        for place in gang.ranks:
            counts[place.worker] = counts.get(place.worker, 0) + 1
        ranks = tuple([(self._table.machines[name].host, count) for name, count in counts.items()])
        return RunningJob(job, ranks[0][0].site, ranks, gang.since, gang.since + gang.seconds)

    def _set_seconds(self, gang: Gang, seconds: float) -> None:
        """A gang should take so many seconds on its PCs."""
        out_s = seconds * len(gang.slots)
        gang.bag.category.charge(0, out_s - gang.out_s)
        gang.seconds, gang.out_s = seconds, out_s
        for slot in gang.slots:
            slot.sent[0].runtime = seconds * slot.speed

    def predicted(self, gangs: Iterable[Gang], now: float) -> None:
        """The tasks of these gangs have other predictions: their ends move."""
        for gang in gangs:
            running, runtime = gang.running, self._grid.tasks.runtime(gang.attempt.task)
            if running is None or running.job.runtime == runtime:
                continue  # since a restart, it has no end yet
            need, ranks = gang.bag.need, gang.size
            before, after = (need.seconds(seconds, ranks) for seconds in (running.job.runtime, runtime))
            self._table.withdraw(gang)
            self._set_seconds(gang, gang.seconds * after / before if before > 0.0 else after / _slowest(gang))
            running.job.runtime = runtime
            self._table.enter(gang, self._running(gang, running.job))
            for worker in gang.workers():
                self._grid.deadlines.watch(gang.first_on(worker), now)

    def refused(self, event: ev.GangRefused, now: float) -> None:
        """It could not begin. It is tried again after a pause, and others may have its slots until then."""
        if not event.pause >= 0.0:
            raise IllegalEvent(f"task {event.attempt.task}: a pause of {event.pause} s")
        gang = self.find(event.attempt)
        if gang is not None:
            self._stop(gang)
            self._leave(gang, now)
            self._grid.timers.set(Timer.PAUSE, event.attempt.task, now + event.pause)
            self._grid.tasks.move(event.attempt.task, State.PAUSED)

    def ranks_ended(self, event: ev.RanksEnded, now: float) -> list[Worker]:
        """Ranks have ended, and others go on: they leave their slots. Returns the workers of these.

        A worker that leaves afterwards ends nothing.
        """
        gang = self.find(event.attempt)
        if gang is None and self.awaits(event.attempt):
            batch = self._grid.tasks.known(event.attempt.task)
            gang = Gang(event.attempt, batch.bag, [], batch.runtime(event.attempt.task), now)
            self._table.running[event.attempt.task] = gang
        if gang is None or not gang.over.isdisjoint(event.ranks):
            return []
        if gang.running is None:
            rows = [gang.back.pop(rank, []) for rank in event.ranks]
            gang.over.update(event.ranks)
            self._set_back(gang)
            slots = [slot for row in rows for slot in row]
            self._vacate(slots, now)
        else:
            if not set(event.ranks) < set(gang.numbers):
                raise IllegalEvent(f"task {gang.attempt.task} goes on, and ranks {list(event.ranks)} have ended")
            slots = self._drop_ranks(gang, set(event.ranks), now)
        return list(dict.fromkeys([slot.worker for slot in slots]))

    def _drop_ranks(self, gang: Gang, ended: set[int], now: float) -> list[Slot]:
        """These ranks of a gang that has all its slots leave theirs, which are returned."""
        assert gang.running is not None
        need, job, numbers = gang.bag.need.slots, gang.running.job, gang.numbers
        left = [place for place, number in enumerate(numbers) if number in ended]
        stay = [place for place, number in enumerate(numbers) if number not in ended]
        rows = [gang.slots[place * need : (place + 1) * need] for place in range(len(numbers))]
        self._table.withdraw(gang)
        slots = [slot for place in left for slot in rows[place]]
        gang.slots = [slot for place in stay for slot in rows[place]]
        gang.ranks = [gang.ranks[place] for place in stay]
        gang.over |= ended
        self._set_seconds(gang, gang.seconds)
        gang.bag.category.account.new_s += max(0.0, now - gang.since) * len(slots)
        self._vacate(slots, now)
        self._table.enter(gang, self._running(gang, job))
        return slots

    def _vacate(self, slots: Sequence[Slot], now: float) -> None:
        """These slots of a gang that goes on are idle."""
        self._grid.freed += bool(slots)
        self._grid.changes += 1
        for slot in slots:
            self._idle(slot, now)
        self._table.touched.update([slot.worker.name for slot in slots])

    def _idle(self, slot: Slot, now: float) -> None:
        slot.gang = None
        slot.sent.clear()
        slot.busy_s += now - slot.started
        slot.started = now
        if slot.number not in self._grid.dirty:
            self._table.resting[slot.number] = slot

    # --- it ends -----------------------------------------------------------------------------------------------------

    def ended(self, gang: Gang, ended: ev.EndedAttempt, reporter: str, now: float) -> ev.EndedAttempt:
        """It has ended as one. Returns its end as that of a single task of its predicted runtime."""
        grid, (attempt, outcome, elapsed, _), slots = self._grid, ended, len(gang.slots)
        if outcome != AttemptOutcome.DONE:
            self._stop(gang, besides=reporter)
        if grid.tasks.state(attempt.task) == State.HELD:
            self._release(gang, now)
            grid.claim(attempt)
        else:
            self._leave(gang, now)
        counts = elapsed
        if outcome == AttemptOutcome.DONE and gang.seconds > 0.0:
            counts = elapsed * grid.tasks.runtime(attempt.task) / gang.seconds
        # What is added for the task itself is not slot-seconds.
        gang.bag.category.account.new_s += elapsed * slots - counts
        return ended._replace(elapsed=counts)

    def lose(self, gang: Gang, now: float, besides: str = "") -> None:
        """It cannot go on: its task waits again. ``besides``: a worker that need not be told."""
        grid, task = self._grid, gang.attempt.task
        self._stop(gang, besides)
        if gang.began:
            grid.counters.wasted_s += (now - gang.since) * len(gang.slots)
        if grid.tasks.state(task) == State.HELD:
            self._release(gang, now)
            grid.unqueue(task, State.HELD)
            del grid.lost[task]
        else:
            self._leave(gang, now)
        grid.to_priority([task])

    def cancel(self, gang: Gang, now: float) -> None:
        """It is no longer wanted."""
        self._stop(gang)
        if self._grid.tasks.state(gang.attempt.task) == State.HELD:
            self._release(gang, now)
            self._grid.unqueue(gang.attempt.task, State.HELD)
        else:
            self._leave(gang, now)

    def worker_left(self, worker: Worker, now: float, *, planned: bool) -> None:
        """A worker has gone, and its gangs cannot go on."""
        for gang in self._on(worker):
            self._grid.counters.kills += gang.began
            self._grid.counters.planned_kills += gang.began and planned
            self.lose(gang, now, besides=worker.name)

    def expire(self, now: float) -> None:
        """The ranks that have not come back since the restart will not."""
        for gang in [gang for gang in self._table.running.values() if gang.running is None]:
            self.lose(gang, now)

    def _on(self, worker: Worker) -> list[Gang]:
        """The gangs that have slots of a worker."""
        return list(dict.fromkeys([slot.gang for slot in worker.slots if slot.gang is not None]))

    def _stop(self, gang: Gang, besides: str = "") -> None:
        """Tell its workers to stop, except one that has ended its only rank, or has gone."""
        grid, first = self._grid, True
        for worker in gang.workers():
            if worker.name == besides:
                continue
            if first:  # it uses its licences until somebody says that it has stopped
                grid.stop(worker.name, gang.attempt)
            first = False
            grid.commands.append(cmd.Stop(worker.name, [gang.attempt]))

    def _leave(self, gang: Gang, now: float) -> None:
        """It leaves its slots, and its owner is charged no longer for them."""
        gang.bag.category.charge(-1, -gang.out_s)
        self._release(gang, now)

    def _release(self, gang: Gang, now: float) -> None:
        """Its slots are idle."""
        grid, table, running = self._grid, self._table, gang.running
        grid.freed += 1
        grid.changes += 1
        table.withdraw(gang)
        del table.running[gang.attempt.task]
        for slot in gang.slots:
            self._idle(slot, now)
        if running is None or grid.owed or grid.quarantine.workers or grid.rests:
            table.touched.update([slot.worker.name for slot in gang.slots])
            return
        start = 0
        for host, ranks in running.ranks:
            end = start + ranks * gang.bag.need.slots
            host.idle += end - start
            host.site.idle += end - start
            table.machines[host.name].free += gang.slots[start:end]
            start = end

    # --- ranks come back ---------------------------------------------------------------------------------------------

    def park(self, worker: Worker) -> list[Gang]:
        """``worker`` has a new connection, and will say what it has. Until then, its gangs are awaited."""
        parked = self._on(worker)
        for gang in parked:
            if gang.running is not None:
                self._table.withdraw(gang)
                need, slots = gang.bag.need.slots, gang.slots
                gang.back = {rank: slots[place * need : (place + 1) * need] for place, rank in enumerate(gang.numbers)}
            gang.back = {rank: row for rank, row in gang.back.items() if row[0].worker is not worker}
            self._set_back(gang)
        for slot in worker.slots:
            if slot.gang is not None:
                slot.gang = None
                slot.sent.clear()
        return parked

    def _set_back(self, gang: Gang) -> None:
        gang.slots = [slot for _, row in sorted(gang.back.items()) for slot in row]

    def adopt(self, worker: Worker, holds: Sequence[ev.HeldAttempt], now: float) -> list[ev.HeldAttempt]:
        """A worker that joins still has ranks of gangs. Returns what else it has."""
        others: list[ev.HeldAttempt] = []
        for hold in holds:
            if not (self.awaits(hold.attempt) and 0 <= hold.slot < len(worker.slots)):
                others.append(hold)
                continue
            slot, gang = worker.slots[hold.slot], self.find(hold.attempt)
            if slot.gang is not None or (gang is not None and hold.rank in gang.over):
                others.append(hold)
                continue
            self._come_back(hold, slot, now)
        return others

    def awaits(self, attempt: Attempt) -> bool:
        """Whether ranks of this attempt may come back."""
        gang = self.find(attempt)
        if gang is not None:
            return gang.running is None
        grid = self._grid
        return grid.is_orphan(attempt) and grid.tasks.known(attempt.task).bag.need.parallel

    def _come_back(self, hold: ev.HeldAttempt, slot: Slot, now: float) -> None:
        attempt, elapsed = hold.attempt, hold.elapsed or 0.0
        gang = self.find(attempt)
        if gang is None:
            batch = self._grid.tasks.known(attempt.task)
            gang = Gang(attempt, batch.bag, [], batch.runtime(attempt.task), now - elapsed)
            self._table.running[attempt.task] = gang
        gang.back.setdefault(hold.rank, []).append(slot)
        slot.gang, slot.started = gang, now - elapsed
        slot.sent.append(gang.on(slot, slot.started))
        # Time before this window is not part of it. It was counted with the slot that the gang had then.
        slot.busy_s -= elapsed
        gang.began |= hold.elapsed is not None
        gang.since = min(gang.since, slot.started)
        self._set_back(gang)

    def settle_parked(self, gangs: Iterable[Gang], now: float) -> None:
        """Those that were parked go on if their worker still has all their ranks; else they are lost."""
        for gang in gangs:
            if self._grid.tasks.state(gang.attempt.task) == State.HELD:
                continue  # since a restart, it is awaited anyway
            if len(gang.back) == len(gang.ranks) and self.is_back(gang):
                self._whole(gang)
            else:
                self.lose(gang, now)


def _slowest(gang: Gang) -> float:
    """The speed of its slowest PC, which decides."""
    return min([worker.exact for worker in gang.workers()])
