"""A grid driven by hand: build tasks and PCs, state the expected assignments, go on. `Watched` checks every event.

Rule 1: time passes only in `Grid.wait`. Rule 2: a command that the test does not expect fails the test.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import OPEN_ENDED, Attempt, AttemptOutcome, State
from deskgrid.scheduler.placing.view import PolicyView
from deskgrid.scheduler.policies import Policy, make_policy
from deskgrid.scheduler.queues.categories import Category, CategoryKey, Licences
from deskgrid.scheduler.queues.shares import Shares
from deskgrid.scheduler.queues.task_ranges import spans_of
from deskgrid.scheduler.queues.waiting import ReadableQueue
from deskgrid.scheduler.state.avoided import Avoided
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.timers import Timers
from tests.scheduler.watched import Watched


def pgs(queue_length: int = 1, order: str = "longest-first", queue_s: float = 0.0, margin: float = 0.0) -> Policy:
    """The paper's PGS: no margin, and no rule of seconds for queues."""
    return make_policy("pgs", order=order, queue_length=queue_length, queue_s=queue_s, margin=margin)


def fcfs(queue_length: int = 0, queue_s: float = 0.0, seed: int = 0) -> Policy:
    """The paper's FCFS, likewise."""
    return make_policy("fcfs", queue_length=queue_length, queue_s=queue_s, seed=seed)


def packing(margin: float = 0.0, queue_s: float = 0.0, confidence: float = 0.0) -> Policy:
    """Packing that trusts the predictions, likewise."""
    return make_policy("packing", margin=margin, queue_s=queue_s, confidence=confidence)


def only(grid: SchedulerState) -> Category:
    """The category of a grid that has only one."""
    (category,) = grid.categories.by_key.values()
    return category


def a_category() -> Category:
    """A category for bags without a grid."""
    return Category(CategoryKey(), Shares().account(""), "longest-first", Licences())


class Grid:
    """A scheduler, its clock, and the newest attempt of each task."""

    def __init__(self, policy: Policy | None = None, first_attempt: int = 1) -> None:
        self.watched = Watched(policy or pgs(), first_attempt)
        self.now = 0.0
        self.attempts: dict[int, Attempt] = {}
        self._next = 0

    @property
    def scheduler(self) -> Scheduler:
        return self.watched.scheduler

    @property
    def inside(self) -> SchedulerState:
        """What the scheduler knows."""
        return self.scheduler.grid

    @property
    def view(self) -> PolicyView:
        """What a policy sees of it."""
        categories = list(self.inside.categories.waiting.values())
        return PolicyView(self.inside, categories, categories)

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        """Any event, now."""
        return self.watched.handle(event, self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    # --- tasks ------------------------------------------------------------------------------------------------------

    def tasks(self, *runtimes: float, bag: int = 0, retries: int = 0, **restored: Any) -> list[int]:
        """Submit one batch; the task numbers."""
        first = self._next
        self._next += len(runtimes)
        event = ev.TasksSubmitted(bag, first, len(runtimes), runtimes, retries, **restored)
        assert self.tell(event) == []
        return list(range(first, self._next))

    def cancel(self, *tasks: int) -> dict[str, list[int]]:
        """Cancel; which tasks have to be stopped on which worker."""
        commands = self.tell(ev.TasksCancelled(spans_of(sorted(set(tasks)))))
        return _by_worker(commands, cmd.Stop)

    def predict(self, runtimes: dict[int, float]) -> dict[str, list[int]]:
        """Better predictions; which tasks are called back from which worker."""
        commands = self.tell(ev.RuntimesUpdated(list(runtimes), list(runtimes.values())))
        return _by_worker(commands, cmd.Recall)

    def state(self, task: int) -> State:
        return self.inside.tasks.state(task)

    # --- workers ----------------------------------------------------------------------------------------------------

    def pc(
        self, name: str, uptime: float = OPEN_ENDED, slots: int = 1, *, new: bool = False, **more: Any
    ) -> dict[str, list[int]]:
        """A window opens; which tasks the worker holds in vain. It has answered before, unless it is ``new``."""
        if not new:
            self.scheduler.trust.heard.setdefault(name, self.now)
        return _by_worker(self.tell(ev.WorkerJoined(name, slots, uptime, **more)), cmd.Stop)

    def refresh(self, name: str, uptime: float, **more: Any) -> dict[str, list[int]]:
        """A worker says how long it will stay; which tasks are called back from it."""
        return _by_worker(self.tell(ev.UptimeRefreshed(name, uptime, **more)), cmd.Recall)

    def say_alive(self) -> None:
        """Every worker that is up says so."""
        for worker in list(self.inside.slots.workers.values()):
            self.refresh(worker.name, worker.uptime(self.now))

    def leave(self, name: str, planned: bool = True, unstarted: Iterable[int] = (), early: bool = False) -> None:
        """A departure, or a loss."""
        attempts = [self.attempts[task] for task in unstarted]
        assert self.tell(ev.WorkerLeft(name, planned, early, attempts)) == []

    def holds(self, task: int, elapsed: float | None, slot: int = 0) -> ev.HeldAttempt:
        """What a worker says that still has the newest attempt of ``task``."""
        return ev.HeldAttempt(self.attempts[task], slot, elapsed)

    # --- attempts ---------------------------------------------------------------------------------------------------

    def expect(self, **work: Sequence[int]) -> None:
        """After a pass now, these workers (``pc``, or ``pc_1`` for its slot 1) have been handed just these tasks."""
        assert self.tell_pass() == {worker: list(tasks) for worker, tasks in work.items()}

    def tell_pass(self, most: float = math.inf) -> dict[str, list[int]]:
        """A pass now, bounded perhaps; which workers have been handed which tasks."""
        handed: dict[str, list[int]] = {}
        for command in self.tell(ev.PassDue(most)):
            assert isinstance(command, cmd.Assign)
            for assignment in command.work:
                self.attempts[assignment.attempt.task] = assignment.attempt
                place = _place(command.worker, assignment.slot)
                handed.setdefault(place, []).append(assignment.attempt.task)
        return handed

    def end(
        self, *tasks: int, outcome: AttemptOutcome = AttemptOutcome.DONE, elapsed: float = 0.0, **more: Any
    ) -> list[int]:
        """The newest attempts of ``tasks`` end; which tasks have ended by that."""
        return self.answer([self.attempts[task] for task in tasks], outcome, elapsed, **more)

    def answer(
        self,
        attempts: Sequence[Attempt],
        outcome: AttemptOutcome = AttemptOutcome.DONE,
        elapsed: float = 0.0,
        worker: str = "?",
        *,
        waited: bool = False,
    ) -> list[int]:
        """These attempts end; which tasks have ended by that."""
        ended = [ev.EndedAttempt(attempt, outcome, elapsed, waited) for attempt in attempts]
        settled = _by_worker(self.tell(ev.AttemptsEnded(worker, ended)), cmd.Settle)
        return settled.get("", [])

    def give_back(self, *tasks: int) -> None:
        """A worker hands these back, not started."""
        assert self.tell(ev.AttemptsReturned("?", [self.attempts[task] for task in tasks])) == []

    # --- what is where ----------------------------------------------------------------------------------------------

    def running(self, name: str) -> int:
        """The task that runs on the first slot of a worker."""
        return self.inside.slots.workers[name].slots[0].sent[0].attempt.task

    def queues(self) -> dict[str, list[int]]:
        """The queues of slots that are not empty, by worker and slot as in `expect`."""
        slots = self.inside.slots.slots.values()
        return {
            _place(slot.worker.name, slot.position): [live.task for live in slot.queue] for slot in slots if slot.queue
        }

    def regular(self) -> list[int]:
        """The regular queue in its order."""
        return [task for category in self.inside.categories.by_key.values() for task in in_order(category.regular)]

    def priority(self) -> list[int]:
        """The priority queue in its order."""
        return [task for category in self.inside.categories.by_key.values() for task in in_order(category.priority)]


def in_order(queue: ReadableQueue) -> list[int]:
    """The tasks of a queue as a policy meets them."""
    tasks, entry = [], queue.next_fit(float("inf"))
    while entry is not None:
        tasks.append(entry.task)
        entry = queue.next_fit(float("inf"), entry)
    return tasks


def at_work(slots: int = 1) -> Grid:
    """At 10 s: a worker that leaves at 100 runs a task, one without end has no work, and one of ``slots`` is away."""
    grid = Grid(pgs())
    grid.pc("c", 5, slots=slots)
    grid.tell(ev.WorkerLeft("c", planned=True, windows=[(50, 200), (1000, 20)]))
    grid.pc("a", 100, windows=[(300, 60)], site="lab")
    first, _ = grid.tasks(30, 20)
    grid.expect(a=[first])
    grid.wait(10)
    grid.pc("b")
    return grid


def _place(worker: str, slot: int) -> str:
    return f"{worker}_{slot}" if slot else worker


def _by_worker(commands: Sequence[cmd.Command], kind: type[cmd.Stop | cmd.Recall | cmd.Settle]) -> dict[str, list[int]]:
    """The tasks that ``commands``, all of one kind, name for each worker."""
    found: dict[str, list[int]] = {}
    for command in commands:
        assert isinstance(command, kind), f"unexpected: {command}"
        worker = "" if isinstance(command, cmd.Settle) else command.worker
        found.setdefault(worker, []).extend(attempt.task for attempt in command.attempts)
    return found


def went_off(avoided: Avoided, timers: Timers, now: float) -> bool:
    """Let timers of what is avoided go off. Whether any did."""
    due = [of for _, of, _ in timers.due(now)]
    for worker, kind in due:
        avoided.go_on(worker, kind)
    return bool(due)
