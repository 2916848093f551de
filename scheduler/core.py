"""The scheduler: events in, commands out, and a driver's questions.

Rule 1: ``handle(event, now)`` is the only way in; ``now`` never runs backwards.
Rule 2: an illegal event raises and changes nothing; a stale but legal one (an old attempt's answer, say) is ignored.
Placements are decided only at `PassDue`, once for everything that had arrived.

The state is in `deskgrid.scheduler.state.grid`. Decisions are made in `deskgrid.scheduler.handlers` (tasks
come, windows open and close, attempts end, workers fall silent) and in `deskgrid.scheduler.placing` (a pass). This
module gives each event to the one that handles it.
"""

import math
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.answers import Answers
from deskgrid.scheduler.handlers.bags import Bags
from deskgrid.scheduler.handlers.blame import Blame
from deskgrid.scheduler.handlers.comparing import correct_moved
from deskgrid.scheduler.handlers.gangs import GangHandler
from deskgrid.scheduler.handlers.people import People
from deskgrid.scheduler.handlers.retrying import pause_over
from deskgrid.scheduler.handlers.trust import Trust
from deskgrid.scheduler.handlers.workers import Workers
from deskgrid.scheduler.invariants import check
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.model import Attempt, AttemptState, IllegalEvent, State
from deskgrid.scheduler.need import SINGLE, Need
from deskgrid.scheduler.placing.placing import Placing
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.prediction.earlier import EarlierBags
from deskgrid.scheduler.prediction.hours import Hours
from deskgrid.scheduler.prediction.prediction_error import outlived
from deskgrid.scheduler.prediction.speeds import Speeds
from deskgrid.scheduler.queues.categories import ORDERS
from deskgrid.scheduler.queues.task_ranges import Spans
from deskgrid.scheduler.state.avoided import Kind, Rest, person_of
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.scheduler.state.timers import Timer
from deskgrid.scheduler.views.explain import best_window, has_longer_window, longest_window

# A task that has crashed its process this many times is given up, because it would crash again. Departures never count.
CRASH_LIMIT = 3


class Scheduler:
    """The state machine. ``grid``: its state, which `deskgrid.scheduler.views` reads. ``trust``: who has answered."""

    def __init__(
        self,
        policy: Policy,
        first_attempt: int = 1,
        crash_limit: int = CRASH_LIMIT,
        *,
        hours: Hours | None = None,
        speeds: Speeds | None = None,
        earlier: EarlierBags | None = None,
    ) -> None:
        """``hours``: how PCs have kept their hours so far; ``speeds``: how fast they have been; ``earlier``: what
        predictions were worth in earlier bags.
        """
        self.grid = SchedulerState(policy, first_attempt, hours, speeds, earlier)
        self._gangs = GangHandler(self.grid)
        self._placing = Placing(self.grid)
        blame = Blame(self.grid, self._placing.separating)
        self.trust = Trust(self.grid, self._gangs, blame)
        self._workers = Workers(self.grid, self.trust, self._gangs)
        answers = Answers(self.grid, self.trust, blame, self._gangs, crash_limit)
        people = People(self.grid)
        bags = Bags(self.grid, self._gangs, self._workers)
        self._table: dict[type, Callable[[Any, float], None]] = {
            ev.TasksSubmitted: bags.submitted,
            ev.RuntimesUpdated: bags.runtimes_updated,
            ev.BagPredicted: bags.predicted,
            ev.TasksCancelled: bags.cancelled,
            ev.BagGated: people.bag_gated,
            ev.TasksRouted: people.routed,
            ev.SharesArranged: people.shares_arranged,
            ev.UsageRestored: people.usage_restored,
            ev.LicencesCounted: people.licences_counted,
            ev.BagForgotten: bags.forgotten,
            ev.WorkerDrained: self.trust.drained,
            ev.WorkerMeasured: self._workers.measured,
            ev.WorkerPaused: self._workers.paused,
            ev.GangBegan: self._gangs.began,
            ev.RanksEnded: answers.ranks_ended,
            ev.GangRefused: self.trust.refused,
            ev.WorkerJoined: self._workers.joined,
            ev.UptimeRefreshed: self._workers.refreshed,
            ev.EnvironmentsReady: self._workers.prepared,
            ev.WorkerLeft: self._workers.left,
            ev.WorkerForgotten: self._workers.forgotten,
            ev.AttemptsEnded: answers.ended,
            ev.AttemptsReturned: answers.returned,
            ev.CheckpointKept: answers.kept,
            ev.CheckpointDropped: answers.dropped,
            ev.HoldExpired: bags.hold_expired,
            ev.PolicyChanged: self._policy_changed,
            ev.PassDue: self._pass_due,
        }

    def handle(self, event: ev.Event, now: float) -> list[cmd.Command]:
        """Handle ``event`` at ``now``, in seconds on the driver's clock. Returns commands for the driver.

        Raises `IllegalEvent`, and changes nothing, when the event contradicts what is known, or time runs backwards.
        """
        grid = self.grid
        if not grid.now <= now < math.inf:
            raise IllegalEvent(f"time runs backwards: {now} after {grid.now}")
        self._table[type(event)](event, now)
        grid.now = now
        commands, grid.commands = grid.commands, []
        return commands

    def check(self, now: float) -> None:
        """Raise `InvariantBroken` if the state at ``now`` contradicts itself. For tests: it looks at everything."""
        check(self.grid, self._placing.check, now)

    # --- passes ------------------------------------------------------------------------------------------------------

    def _policy_changed(self, event: ev.PolicyChanged, now: float) -> None:
        if event.policy.order not in ORDERS:
            raise IllegalEvent(f"policy {event.policy.name}: no order {event.policy.order!r}")
        grid = self.grid
        for slot in list(grid.slots.slots.values()):
            grid.change(slot)
            grid.to_priority(grid.release_queue(slot))
        grid.set_policy(event.policy)

    def _pass_due(self, event: ev.PassDue, now: float) -> None:
        if not event.most >= 1:
            raise IllegalEvent(f"a pass that decides {event.most} times")
        grid = self.grid
        for timer, of, at in grid.timers.due(now):
            self._go_off(timer, of, at, now)
        if grid.speeds.moved:
            correct_moved(grid)
        self.trust.look_after(now)
        grid.commands += self._placing.place_all(now, event.most)

    def _go_off(self, timer: Timer, of: Any, at: float, now: float) -> None:
        """A timer was due ``at`` that time."""
        grid = self.grid
        if timer == Timer.PAUSE:
            pause_over(grid, of, now)
        elif timer == Timer.CLOSING:
            self._workers.still_there(of[0], at, now)
        elif timer == Timer.WIDENING:
            self.trust.widen(of, at)
        elif timer == Timer.AVOIDED:
            grid.avoided.go_on(*of)
            grid.changes += 1
        elif timer == Timer.REST:
            if of in grid.gangs.machines:
                grid.gangs.touched.add(of)
            else:
                grid.rests.forget_worker(of)
        # After a quarantine, this pass tries the worker.

    # --- what a driver may ask ---------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self.grid.now

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.grid.policy

    @property
    def counters(self) -> Counters:
        """The live counters."""
        return self.grid.counters

    def count_on(self, counters: Counters) -> None:
        """Continue from the counters of another scheduler."""
        self.grid.counters = counters

    @property
    def next_attempt(self) -> int:
        """The number that the next attempt will have."""
        return self.grid.next_attempt

    @property
    def unsettled(self) -> bool:
        """Whether something has changed since the last pass."""
        return self._placing.unsettled

    @property
    def unfinished(self) -> bool:
        """Whether the last pass was stopped by its bound; then the next one is due at once."""
        return self._placing.unfinished

    @property
    def predicting(self) -> bool:
        """Whether waiting tasks have still to take new runtimes: passes go on with it, a part at a time."""
        return self.grid.categories.predicting

    @property
    def wakes_at(self) -> float:
        """When a pass is due although nothing has happened: for a new worker, after a pause, a rest or a quarantine, to
        start a copy, or because a parallel task did not start when it should."""
        return min(self.grid.timers.next, self._placing.copying.due, self._placing.gangs.due)

    @property
    def next_look(self) -> float:
        """When a pass has to check whether a slot at work is overdue; infinity if no slot is at work."""
        return self.grid.deadlines.looks.next

    # --- what a driver may ask of workers ----------------------------------------------------------------------------

    def is_up(self, worker: str) -> bool:
        """Whether a window of ``worker`` is open."""
        return worker in self.grid.slots.workers

    def speed(self, worker: str) -> float:
        """How fast ``worker`` is, corrected by what its tasks have taken; 1.0 if it is not up."""
        known = self.grid.slots.workers.get(worker)
        return 1.0 if known is None else known.exact

    def closing_with(self, worker: str) -> int:
        """How many workers that are up close their windows at about the same time as ``worker``."""
        slots = self.grid.slots
        return slots.closing_at(slots.workers[worker].ends_at) if worker in slots.workers else 0

    def attempts_at(self, worker: str) -> list[Attempt]:
        """Every attempt that ``worker``, which is up, holds: slot by slot, in the order of their work; then copies."""
        slots = self.grid.slots.workers[worker].slots
        copies = [slot.copy.attempt for slot in slots if slot.copy is not None]
        return [*dict.fromkeys([sent.attempt for slot in slots for sent in slot.sent]), *copies]

    def owed_by(self, worker: str) -> Collection[Attempt]:
        """Attempts that were taken back from ``worker``, or that have licences and are to be stopped there, and that it
        has not answered for since.
        """
        return self.grid.owed.get(worker, {})

    def silent_slots(self, worker: str) -> int:
        """How many slots of ``worker`` get nothing because it has not answered for attempts taken back from them."""
        return sum([owed.slot is not None for owed in self.grid.owed.get(worker, {}).values()])

    def quarantined(self, worker: str) -> Quarantined | None:
        """Why ``worker`` is in quarantine, and for how long; None if it is not."""
        return self.grid.quarantine.workers.get(worker)

    def rests_until(self, worker: str) -> float | None:
        """Until when ``worker`` gets no gangs, because it failed with some; None if it gets them."""
        return self.grid.rests.until.get(worker)

    def resting(self, worker: str) -> tuple[Kind, Rest] | None:
        """The work that ``worker`` gets none of for longest, because it did not work out there, and why; None: all."""
        return self.grid.avoided.resting(worker)

    def rests_of(self, worker: str) -> Mapping[Kind, Rest]:
        """All work that did not work out on ``worker`` lately, with its last rest from it."""
        return self.grid.avoided.rests_of(worker)

    def resting_from(self, bag: int) -> list[tuple[str, Kind, Rest]]:
        """The workers that get no tasks of a bag, because these did not work out there, and why."""
        owner = self.grid.tasks.bags[bag]
        return list(self.grid.avoided.resting_from({owner.category.key, owner.own_key, person_of(owner.category.key)}))

    def longest_window(self, now: float, need: Need = SINGLE, without: Container[str] = ()) -> float:
        """The longest window that is open or announced, in seconds of speed 1; 0.0 if there is none.

        A task must need less. ``need``: only of PCs that have this; ``without``: the names of PCs that do not count.
        """
        return longest_window(self.grid, now, need, without)

    def best_window(self, now: float, need: Need = SINGLE, without: Container[str] = ()) -> tuple[float, float]:
        """The `longest_window`, and the speed of its PC."""
        return best_window(self.grid, now, need, without)

    def has_longer_window(self, than: float, now: float, need: Need = SINGLE, without: Container[str] = ()) -> bool:
        """Whether `longest_window` is more than ``than`` seconds."""
        return has_longer_window(self.grid, than, now, need, without)

    def has_gang(self, attempt: Attempt) -> bool:
        """Whether ``attempt`` of a parallel task has slots, or its ranks may come back after a restart."""
        return self._gangs.find(attempt) is not None or (self.grid.gangs.awake and self._gangs.awaits(attempt))

    def is_gang_back(self, attempt: Attempt) -> bool:
        """Whether all ranks that `has_gang` waited for have come back as they were, so that it may go on."""
        gang = self._gangs.find(attempt)
        return gang is not None and (gang.running is not None or self._gangs.is_back(gang))

    # --- what a driver may ask of tasks and their attempts -----------------------------------------------------------

    def is_orphan(self, attempt: Attempt) -> bool:
        """Whether an answer of ``attempt``, which is on no slot, still counts."""
        return self.grid.is_orphan(attempt) or self.grid.is_lost_copy(attempt)

    @property
    def orphans(self) -> int:
        """For how many attempts `is_orphan` is true, at most."""
        return len(self.grid.lost) + len(self.grid.copies)

    def find(self, attempt: Attempt) -> tuple[str, float] | None:
        """The worker that has an attempt, and when it was sent there; None: none has it. Of a gang, that of rank 0."""
        grid, (task, number) = self.grid, attempt
        for live in (grid.bound.get(task), grid.copies.get(task)):
            if live is not None and live.number == number:
                return None if live.state == AttemptState.LOST else (live.slot.worker.name, live.at)
        gang = self._gangs.find(attempt)
        return None if gang is None else (gang.slots[0].worker.name, gang.since)

    def original_of(self, attempt: Attempt) -> tuple[Attempt, str] | None:
        """If ``attempt`` is a copy on a slot: the first attempt of its task, and its worker. None if it is no copy."""
        grid, task = self.grid, attempt.task
        if not grid.is_copy(attempt) or task not in grid.bound:
            return None
        return grid.bound[task].attempt, grid.bound[task].slot.worker.name

    def state(self, task: int) -> State:
        """Where ``task`` is. Raises `IllegalEvent` if it is unknown."""
        return self.grid.tasks.state(task)

    def runtime(self, task: int) -> float:
        """The predicted runtime of ``task``. Raises `IllegalEvent` if it is unknown."""
        return self.grid.tasks.runtime(task)

    def runtimes(self, first: int, count: int) -> Sequence[float]:
        """The predicted runtimes of ``count`` tasks of one batch, from ``first`` on. Raises `IllegalEvent`."""
        return self.grid.tasks.known(first).runtimes_of(range(first, first + count))

    def bag_needs(self, bag: int) -> Callable[[float], float]:
        """Returns what a task of a bag needs of a slot at once, by the seconds that are left of it."""
        return self.grid.tasks.bags[bag].needs_s

    def left_s(self, task: int) -> float:
        """The predicted seconds that the newest checkpoint of ``task`` leaves to do; its runtime if it has none."""
        progress = self.grid.tasks.progress.find(task)
        return self.runtime(task) if progress is None else progress.left_s

    def crashes(self, task: int) -> Sequence[str]:
        """The workers on which ``task`` has crashed, in order; none once it has ended."""
        return self.grid.tasks.crashes(task)

    def open_spans(self, spans: Spans, unsent: bool = False) -> list[tuple[int, int]]:
        """Ranges of the tasks in ``spans`` that have not ended. ``unsent``: only of those that no worker has.

        Raises `IllegalEvent` if one of them is unknown.
        """
        return self.grid.tasks.open_spans(spans, unsent)

    def bound_tasks(self, first: int, count: int) -> int:
        """How many of ``count`` tasks of one batch, from ``first`` on, are on a slot. Raises `IllegalEvent`."""
        return self.grid.tasks.bound(first, count)

    def outlived(self, elapsed: Mapping[int, float], now: float) -> dict[int, float]:
        """Longer predictions for tasks that were stopped, unfinished, after more seconds than predicted.

        ``elapsed``: the seconds that each had used where it still is. Tasks that were stopped sooner than predicted are
        left out, because their predictions still hold, and so are checkpointable tasks: their checkpoints tell what is
        left.
        """
        bag_of = self.grid.tasks.known
        at_speed_one = {task: seconds * self._scale(task) for task, seconds in elapsed.items()}
        found = {
            task: seconds
            for task, seconds in at_speed_one.items()
            if seconds > self.runtime(task) and bag_of(task).bag.piece is None
        }
        longest = self.longest_window(now) if found else 0.0
        return {task: outlived(seconds, longest) for task, seconds in found.items()}

    def _scale(self, task: int) -> float:
        """What a second counts of ``task`` where it runs now, in seconds of its predicted runtime."""
        gang = self.grid.gangs.running.get(task)
        if gang is not None:
            return self.grid.tasks.runtime(task) / gang.seconds if gang.seconds > 0.0 else 1.0
        live = self.grid.bound.get(task)
        return 1.0 if live is None else live.slot.speed
