"""Bags come and go: their tasks are submitted, predicted anew, cancelled and forgotten."""

from collections.abc import Iterable
from itertools import chain, islice

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.gangs import GangHandler
from deskgrid.scheduler.handlers.people import bar
from deskgrid.scheduler.handlers.workers import Workers
from deskgrid.scheduler.model import Attempt, AttemptState, IllegalEvent, State, checked_runtime
from deskgrid.scheduler.need import SINGLE
from deskgrid.scheduler.prediction.earlier import Past
from deskgrid.scheduler.queues.categories import Category, CategoryKey, key_need, rounded_piece
from deskgrid.scheduler.queues.task_ranges import Spans, by_batch, within
from deskgrid.scheduler.state.bags import NOT_IN_QUEUE, OPEN, WAITING, TaskBatch
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import NOWHERE, LiveAttempt


class Bags:
    """Applies the events of bags and their tasks to ``grid``."""

    def __init__(self, grid: SchedulerState, gangs: GangHandler, workers: Workers) -> None:
        self._grid = grid
        self._gangs = gangs
        self._workers = workers

    # --- submitted ---------------------------------------------------------------------------------------------------

    def submitted(self, event: ev.TasksSubmitted, now: float) -> None:
        """A batch of tasks is there: a bag begins, or grows; or a broker restores it."""
        grid = self._grid
        ended = ((event.done, State.DONE), (event.failed, State.FAILED), (event.cancelled, State.CANCELLED))
        self._check_restored(event)
        key = event.key
        if event.min_piece is not None:
            key = key._replace(piece=rounded_piece(event.min_piece))
        if event.need is not SINGLE:
            key = key._replace(need=key_need(event.need))
        batch = self._add(event, key, now)
        bag, parallel = batch.bag, batch.bag.category.parallel
        grid.counters.submitted += event.count
        for tasks, state in ended:
            for task in tasks:
                grid.tasks.move(task, state)
        for attempt in event.held:
            grid.tasks.move(attempt.task, State.HELD)
            grid.lost[attempt.task] = _held(attempt)
            grid.charge(attempt.task, 1, 0.0)
        for attempt in event.held_copies:
            grid.copies[attempt.task] = _held(attempt)
        for saved in event.saved:
            grid.tasks.progress.restore(saved.task, batch.runtime(saved.task), saved.fraction, saved.left_s)
        if event.saved:
            grid.tasks.predict({saved.task: saved.left_s for saved in event.saved})
        if bag.barred:
            bar(batch, event.first, event.count)
        elif parallel:
            grid.jobs(bag.category).enqueue(batch, event.first, event.count)
        else:
            grid.categories.add_new(bag.category, batch.waiting(event.first, event.count))
        if event.probes and bag.piece is None and not parallel:
            bag.category.probing.setdefault(event.bag, []).extend(event.probes)
        grid.changes += 1

    def _add(self, event: ev.TasksSubmitted, key: CategoryKey, now: float) -> TaskBatch:
        """The batch of a submission, in its bag, which it may begin."""
        grid, numbers = self._grid, (event.bag, event.first, event.count)
        batch = grid.tasks.add(
            lambda: grid.categories.enter(key, grid.shares.account(key.owner)),
            *numbers,
            event.runtimes,
            grows=event.grows,
        )
        bag = batch.bag
        bag.retries, bag.timeout = event.retries, event.timeout
        bag.bar(event.barred, now)
        # Two attempts of one task would need twice as much.
        bag.copies = event.copies and not (bag.piece or bag.category.parallel or event.need.amounts)
        if bag.total == event.count:
            # A policy for parallel tasks takes an environment for one more label.
            need = event.need.within(key.environment) if event.need.parallel else event.need
            bag.reserve_s, bag.need = event.reserve_s, need
            if event.names:
                bag.past = Past(grid.earlier, event.names, event.bag)
        if batch.first == event.first:
            batch.came = (bag.barred_at if bag.gated else now) - bag.barred_s
        if bag.copies:
            grid.tasks.copied.add(event.bag)
        if bag.category.parallel:
            grid.jobs(bag.category)  # from now on
        return batch

    def _check_restored(self, event: ev.TasksSubmitted) -> None:
        """Raise `IllegalEvent` unless a batch names only its own tasks, restored ones once, and earlier attempts."""
        held = [attempt.task for attempt in event.held]
        known = [*event.done, *event.failed, *event.cancelled, *held]
        if any(not 0 <= task - event.first < event.count for task in known) or len(set(known)) < len(known):
            raise IllegalEvent(f"the batch from {event.first} on is restored with tasks not its own, or twice")
        probes = event.probes
        if any(not 0 <= task - event.first < event.count for task in probes) or len(set(probes)) < len(probes):
            raise IllegalEvent(f"the batch from {event.first} on has probes that are not its own, or one twice")
        copied = [attempt.task for attempt in event.held_copies]
        if not set(copied) <= set(held) or len(set(copied)) < len(copied) or (copied and not event.copies):
            raise IllegalEvent(f"the batch from {event.first} on is restored with copies of tasks that have none")
        if any(attempt.number >= self._grid.next_attempt for attempt in (*event.held, *event.held_copies)):
            raise IllegalEvent("an attempt is held whose number has not been given yet")
        ended = {*event.done, *event.failed, *event.cancelled}
        if any(not 0 <= saved.task - event.first < event.count or saved.task in ended for saved in event.saved):
            raise IllegalEvent(f"the batch from {event.first} on has checkpoints of other tasks, or of ended ones")

    # --- predicted anew ----------------------------------------------------------------------------------------------

    def runtimes_updated(self, event: ev.RuntimesUpdated, now: float) -> None:
        """Some tasks are predicted anew."""
        if len(event.tasks) != len(event.runtimes):
            raise IllegalEvent(f"{len(event.tasks)} tasks with {len(event.runtimes)} runtimes")
        for runtime in event.runtimes:
            checked_runtime(runtime)
        # If a task is named twice, its last runtime counts.
        news = dict(zip(event.tasks, event.runtimes, strict=True))
        if progress := self._grid.tasks.progress:
            news = {task: progress.left_of(task, runtime) for task, runtime in news.items()}
        grid = self._grid
        before = grid.tasks.predict(news)
        chosen: dict[Category, list[tuple[int, int]]] = {}
        for batch, part in by_batch(tasks := list(before), grid.tasks.known):
            chosen.setdefault(batch.bag.category, []).extend([(task, 1) for task in tasks[part]])
        for category, spans in chosen.items():
            grid.predict(category, spans, {before[task] for task, _ in spans}, news.__getitem__)
        self._predictions_changed(news, now)
        self._gangs.predicted([gang for task, gang in grid.gangs.running.items() if task in news], now)

    def predicted(self, event: ev.BagPredicted, now: float) -> None:
        """All tasks of a bag that have not ended are predicted anew."""
        checked_runtime(event.runtime)
        grid = self._grid
        spans, before = grid.tasks.predict_bag(event.bag, event.runtime)
        category = grid.tasks.bags[event.bag].category
        grid.predict(category, spans, before - {event.runtime}, lambda task: event.runtime)
        self._predictions_changed(self._bound_of(event.bag, spans), now)
        self._gangs.predicted([gang for gang in grid.gangs.running.values() if gang.bag.number == event.bag], now)

    def _bound_of(self, bag: int, spans: Spans) -> Iterable[int]:
        """The tasks of a bag, all in ``spans``, that are bound to a slot; searched for where there are fewer tasks."""
        grid, owner = self._grid, self._grid.tasks.bags[bag]
        if owner.total >= len(grid.bound):
            return within(grid.bound, spans)
        found = [span for batch in owner.batches for span in batch.spans(NOT_IN_QUEUE, batch.first, batch.count)]
        return chain.from_iterable(range(first, first + many) for first, many in found)

    def _predictions_changed(self, tasks: Iterable[int], now: float) -> None:
        """Give queued tasks another chance to be placed (paper, Section 2.1)."""
        grid = self._grid
        grid.changes += 1
        for slot in dict.fromkeys([grid.bound[task].slot for task in tasks if task in grid.bound]):
            grid.change(slot)
            grid.to_priority(grid.release_queue(slot))
            for sent in slot.sent:
                runtime = grid.tasks.runtime(sent.task)
                grid.charge(sent.task, 0, runtime - sent.runtime)
                sent.runtime = runtime
            slot.ahead_s = sum(sent.runtime for sent in islice(slot.sent, 1, None))
            self._workers.recall_excess(slot, now)

    # --- given up ----------------------------------------------------------------------------------------------------

    def cancelled(self, event: ev.TasksCancelled, now: float) -> None:
        """Those of some tasks that have not ended are given up."""
        grid = self._grid
        pieces = list(grid.tasks.pieces(event.spans))
        stops: dict[str, list[Attempt]] = {}
        for batch, first, count in pieces:
            spans = batch.spans(OPEN, first, count)
            for task, _ in batch.spans(NOT_IN_QUEUE, first, count):
                if (gang := grid.gangs.running.get(task)) is not None:
                    self._gangs.cancel(gang, now)
                else:
                    self._take_out(task, stops, now)
            for waiting in batch.spans(WAITING, first, count):
                grid.discard(batch.bag.category, *waiting)
            if grid.lost:
                grid.disown(chain.from_iterable(range(first, first + many) for first, many in spans))
            grid.counters.cancelled += grid.tasks.cancel(batch, spans)
            grid.changes += bool(spans)
        grid.commands += [cmd.Stop(worker, attempts) for worker, attempts in stops.items()]

    def _take_out(self, task: int, stops: dict[str, list[Attempt]], now: float) -> None:
        """Take out a cancelled task that is in neither queue. ``stops`` collects the attempts to stop, by worker."""
        grid = self._grid
        state = grid.tasks.state(task)
        if state == State.SENT:
            live = grid.bound[task]
            grid.withdraw(live, now)
            grid.stop(live.slot.worker.name, live.attempt)
            stops.setdefault(live.slot.worker.name, []).append(live.attempt)
            grid.drop_copy(task)
        else:
            grid.unqueue(task, state)

    def forgotten(self, event: ev.BagForgotten, now: float) -> None:
        """Nothing is known of a bag any more, all of whose tasks have ended."""
        grid, bag = self._grid, self._grid.tasks.bags.get(event.bag)
        category = grid.tasks.forget(event.bag)
        if bag is not None and bag.failing:
            grid.failures.forget(event.bag)
            grid.avoided.forget(bag.own_key)
        category.probing.pop(event.bag, None)
        grid.categories.leave(category)
        if category.key not in grid.categories.by_key:
            grid.gangs.queues.pop(category.key, None)
        grid.rests.forget_bag(event.bag)

    def hold_expired(self, event: ev.HoldExpired, now: float) -> None:
        """Tasks wait again that were held, after a restart, for workers that had them."""
        grid = self._grid
        self._gangs.expire(now)
        lost = [task for task in grid.lost if grid.tasks.state(task) == State.HELD]
        for task in lost:
            grid.unqueue(task, State.HELD)
            if grid.tasks.known(task).bag.category.parallel:
                del grid.lost[task]  # no answer of it will count: a gang has one attempt
        grid.to_priority(lost)


def _held(attempt: Attempt) -> LiveAttempt:
    """An attempt that was held when the grid was restored: its worker may come back with it."""
    return LiveAttempt(attempt.task, NOWHERE, 0.0, attempt.number, state=AttemptState.LOST)
