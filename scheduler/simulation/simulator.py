"""The virtual-clock driver: the same scheduler the broker runs, on PCs that exist only as numbers.

Rule 1: everything due at one instant is handed over before the one pass of that instant, closings before openings.
Rule 2: ties are broken by the order of scheduling, so a run is a function of its arguments.
Rule 3: the scheduler sees what is predicted and announced; what happens is in `Arrival.actual` and `Span.closes`.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from random import Random
from typing import Any

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import OPEN_ENDED, Attempt, Outcome
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.queues.lanes import LaneKey
from deskgrid.scheduler.simulation.runs import IDEAL, SLOWLY, Arrival, Conditions, Execution, Run, SimulatedPC, Stalled
from deskgrid.scheduler.simulation.timetable import ANNOUNCED, Calendar, Span, Timetable, always, cycle, kinds_of_spans

__all__ = [
    "ANNOUNCED",
    "IDEAL",
    "PATIENCE",
    "PATIENCE_TIMED",
    "Arrival",
    "Conditions",
    "Execution",
    "Run",
    "SimulatedPC",
    "Simulator",
    "Span",
    "Stalled",
    "Timetable",
    "always",
    "cycle",
]

# If no task ends for this many of the longest cycles, none will. FCFS, which ignores windows, needed 85 on average and
# 301 at most (of 40 runs) for one task of 98 % of the longest of the paper's eight windows.
PATIENCE = 1000
# The same for policies that know windows: each loss doubles a prediction, so a task soon fits, or fits nowhere.
PATIENCE_TIMED = 100


_PASS = ev.PassDue()


@dataclass(slots=True)
class _SimulatedSlot:
    """The work of one slot, the first of it since ``started``; ``generation`` makes the ends of killed work stale."""

    number: int
    work: deque[ev.Assignment] = field(default_factory=deque)
    started: float = 0.0
    generation: int = 0


@dataclass(slots=True)
class _PC:
    """A PC in a run. ``opened``: when its window opened."""

    name: str
    calendar: Calendar
    slots: list[_SimulatedSlot]
    silent: bool
    speed: float
    opened: float = 0.0


class _Order(IntEnum):
    """The order of things that happen at one instant."""

    ENDS = 0
    CLOSES = 1
    ARRIVES = 2
    OPENS = 3


_ENDS = _Order.ENDS  # looked up once: enum members are slow to look up in Python 3.11


class Simulator:
    """Runs bags on some PCs under one policy. The policy must be new, because policies keep state."""

    def __init__(
        self,
        policy: Policy,
        pcs: Sequence[SimulatedPC],
        arrivals: Sequence[Arrival],
        conditions: Conditions = IDEAL,
        trace: bool = False,
    ) -> None:
        self.scheduler = Scheduler(policy)
        self.now = 0.0
        self._simulated = pcs
        self._arrivals = deque(sorted(arrivals, key=lambda arrival: arrival.at))
        self._predicted = [seconds for arrival in self._arrivals for seconds in arrival.runtimes]
        self._actual = [seconds for arrival in self._arrivals for seconds in arrival.really()]
        slowest = min([pc.speed for pc in pcs], default=1.0) / (SLOWLY if conditions.slow else 1.0)
        self._longest_task_s = max(self._actual, default=0.0) / slowest
        self._pcs = {pc.name: _new_pc(pc) for pc in pcs}
        # If no PC is silent, no slot has to be looked at between events.
        self._silent = [pc.name for pc in pcs if pc.silent]
        self._conditions = conditions
        self._random = Random(conditions.seed)
        self._tries = Counter[int]()
        self._trace = trace
        self._executions: list[Execution] = []
        self._spans: list[tuple[str, Span]] = []
        self._heap: list[tuple[float, _Order, int, Callable[[], None]]] = []
        self._sequence = 0
        self._submitted = 0
        self._settled = 0
        self._ran_s = 0.0  # of attempts that ended or were stopped
        self._moved_at = 0.0  # when a bag arrived or a task ended, the last time
        self._longest_cycle_s = 0.0
        self._table: dict[type, Callable[[Any], None]] = {
            ev.Assign: self._assign,
            ev.Settle: self._settle,
            ev.Recall: self._recall,
            ev.Stop: self._stop,
            ev.GiveUp: self._give_up,
        }
        for arrival in self._arrivals:
            self._at(arrival.at, _Order.ARRIVES, self._arrives)
        for pc in self._pcs.values():
            self._appears(pc)

    def run(self) -> Run:
        """Run until every task has ended. Raises `Stalled` if some never can."""
        count = len(self._actual)
        if too_long := self._too_long():
            raise Stalled(f"{too_long} of {count} tasks fit into no window")
        heap = self._heap
        while self._settled < count:
            now = self._next()
            if now == math.inf or self._hopeless():
                raise Stalled(f"{count - self._settled} of {count} tasks are placed nowhere, or lost each time")
            self.now = now
            while heap and heap[0][0] <= now:
                heapq.heappop(heap)[3]()
            for name in self._silent:
                self._say_alive(name)
            self._feed(_PASS)
        counters, executions, spans = self.scheduler.counters, tuple(self._executions), tuple(self._spans)
        ran_s = self._ran_s + counters.wasted_s
        return Run(self.now, self._open_s() - ran_s, counters, executions, spans, ran_s)

    def _next(self) -> float:
        """When the next thing happens, or is due."""
        happens = min(self._heap[0][0] if self._heap else math.inf, self.scheduler.wakes_at)
        return min(happens, self.scheduler.next_look) if self._silent else happens

    def _say_alive(self, name: str) -> None:
        """A silent PC says that it is there, like a worker that takes work and never answers."""
        if (worker := self.scheduler.grid.slots.workers.get(name)) is not None:
            self._feed(ev.UptimeRefreshed(name, worker.uptime(self.now)))

    # --- whether it will end ----------------------------------------------------------------------------------------

    def _too_long(self) -> int:
        """How many tasks fit in no window, or would be placed in none; 0 if there are too many windows to look at."""
        spans: list[Span] = []
        for pc in self._simulated:
            if (kinds := kinds_of_spans(pc.timetable)) is None:
                return 0
            spans += kinds
        timed, needs = self.scheduler.policy.timed, self.scheduler.policy.requirement.needs
        holds = max((span.closes - span.opens for span in spans), default=0.0) - self._conditions.overhead_s
        known = max((span.longest() for span in spans), default=0.0)
        pairs = zip(self._predicted, self._actual, strict=True)
        return sum(actual > holds or (timed and needs(predicted) >= known) for predicted, actual in pairs)

    def _hopeless(self) -> bool:
        """Whether nothing has ended for longer than the policy's patience."""
        if self._arrivals or self.now == self._moved_at or self._silent:
            return False
        cycles = PATIENCE_TIMED if self.scheduler.policy.timed else PATIENCE
        patience_s = cycles * self._longest_cycle_s + self._longest_task_s + self._conditions.overhead_s
        return self.now > self._moved_at + patience_s

    # --- events -----------------------------------------------------------------------------------------------------

    def _at(self, time: float, order: _Order, happens: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time, order, self._sequence, happens))

    def _arrives(self) -> None:
        arrival = self._arrivals.popleft()
        self._moved_at = self.now
        first, count = self._submitted, len(arrival.runtimes)
        self._submitted += count
        timeout, copies, key = arrival.timeout, arrival.copies, LaneKey(arrival.owner)
        self._feed(ev.TasksSubmitted(first, first, count, arrival.runtimes, timeout=timeout, copies=copies, key=key))

    def _appears(self, pc: _PC) -> None:
        """A PC that is away at first says when it will come, like a worker that is started between windows."""
        if self._conditions.announces and (coming := pc.calendar.coming(0.0)) and coming[0][0] > 0.0:
            self._at(0.0, _Order.OPENS, partial(self._feed, ev.UptimeRefreshed(pc.name, 0.0, coming)))
        self._next_window(pc)

    def _next_window(self, pc: _PC) -> None:
        """Wait for the next window of a PC. One that has no more stays away."""
        span = pc.calendar.take()
        if span is not None:
            self._at(span.opens, _Order.OPENS, partial(self._opens, pc, span))
            self._longest_cycle_s = max(self._longest_cycle_s, span.opens - pc.opened)

    def _opens(self, pc: _PC, span: Span) -> None:
        pc.opened = span.opens
        if self._trace:
            self._spans.append((pc.name, span))
        uptime = span.announced - span.opens
        self._feed(ev.WorkerJoined(pc.name, len(pc.slots), uptime, self._coming(pc)))
        if span.closes != OPEN_ENDED:
            self._at(span.closes, _Order.CLOSES, partial(self._closes, pc, span))
        for when, closing in span.refreshes():
            self._at(when, _Order.OPENS, partial(self._announces_again, pc, closing))

    def _announces_again(self, pc: _PC, closing: float) -> None:
        """A PC that is still there when it was to be gone says how long it stays now."""
        self._feed(ev.UptimeRefreshed(pc.name, closing - self.now, self._coming(pc)))

    def _closes(self, pc: _PC, span: Span) -> None:
        unstarted: list[Attempt] = []
        stopped: dict[int, float] = {}
        for slot in pc.slots:
            begun = bool(slot.work) and slot.started <= self.now
            unstarted += [assignment.attempt for assignment in list(slot.work)[begun:]]
            if begun:
                task = slot.work[0].attempt.task
                stopped[task] = self.now - slot.started
                if self._trace:
                    self._traced(pc, slot, task, done=False)
            slot.work.clear()
            slot.generation += 1
        longer = self.scheduler.outlived(stopped, self.now)
        self._feed(ev.WorkerLeft(pc.name, True, span.closings[-1] > span.closes, unstarted, self._coming(pc)))
        if longer:
            self._feed(ev.RuntimesUpdated(list(longer), list(longer.values())))
        self._next_window(pc)

    def _coming(self, pc: _PC) -> tuple[tuple[float, float], ...]:
        return pc.calendar.coming(self.now) if self._conditions.announces else ()

    def _ends(self, pc: _PC, slot: _SimulatedSlot, generation: int) -> None:
        if slot.generation != generation:
            return
        attempt, elapsed = slot.work.popleft().attempt, self.now - slot.started
        self._ran_s += elapsed - self._conditions.overhead_s
        if self._trace:
            self._traced(pc, slot, attempt.task, done=True)
        if slot.work:
            self._start(pc, slot)
        self._feed(ev.AttemptsEnded(pc.name, [ev.EndedAttempt(attempt, Outcome.DONE, elapsed)]))

    def _start(self, pc: _PC, slot: _SimulatedSlot, gap_s: float = 0.0) -> None:
        """Start the first attempt of a slot. It takes the task's time and overhead; on a silent PC it never ends."""
        if pc.silent:
            return
        conditions = self._conditions
        slot.generation += 1
        slot.started = max(self.now + gap_s, pc.opened + conditions.opening_s)
        task = slot.work[0].attempt.task
        takes = self._actual[task] / pc.speed + conditions.overhead_s
        if conditions.slow:
            self._tries[task] += 1
            slow = Random(f"slow {conditions.seed} {task} {self._tries[task]}").random() < conditions.slow
            takes *= SLOWLY if slow else 1.0
        if conditions.jitter:
            takes *= 1.0 + conditions.jitter * self._random.expovariate(1.0)
        self._at(slot.started + takes, _ENDS, partial(self._ends, pc, slot, slot.generation))

    def _traced(self, pc: _PC, slot: _SimulatedSlot, task: int, done: bool) -> None:
        self._executions.append(Execution(pc.name, slot.number, task, slot.started, self.now, done))

    def _open_s(self) -> float:
        """The time of all windows."""
        workers = self.scheduler.grid.slots.workers.values()
        open_s = sum((self.now - worker.joined_at) * len(worker.slots) for worker in workers)
        return self.scheduler.counters.window_s + open_s

    # --- commands of the scheduler ----------------------------------------------------------------------------------

    def _feed(self, event: ev.Event) -> None:
        """Pass ``event`` to the scheduler, and carry out its commands."""
        for command in self.scheduler.handle(event, self.now):
            self._table[type(command)](command)

    def _assign(self, assign: ev.Assign) -> None:
        pc = self._pcs[assign.worker]
        for assignment in assign.work:
            slot = pc.slots[assignment.slot]
            slot.work.append(assignment)
            if len(slot.work) == 1:
                self._start(pc, slot, self._conditions.gap_s)

    def _settle(self, settle: ev.Settle) -> None:
        self._settled += len(settle.attempts)
        self._moved_at = self.now

    def _give_up(self, overdue: ev.GiveUp) -> None:
        if overdue.stop:
            self._stop(ev.Stop(overdue.worker, overdue.attempts))
        else:
            self._recall(ev.Recall(overdue.worker, overdue.attempts))

    def _stop(self, stop: ev.Stop) -> None:
        """End these, which run, without a result, and say so. What is behind them on their slots begins."""
        pc, unwanted = self._pcs[stop.worker], set(stop.attempts)
        if pc.silent:
            return
        for slot in pc.slots:
            if slot.work and slot.work[0].attempt in unwanted:
                self._ran_s += max(0.0, self.now - slot.started)
                if self._trace:
                    self._traced(pc, slot, slot.work[0].attempt.task, done=False)
                slot.work.popleft()
                slot.generation += 1
                if slot.work:
                    self._start(pc, slot)
        self._feed(ev.AttemptsReturned(pc.name, list(stop.attempts)))

    def _recall(self, recall: ev.Recall) -> None:
        """Hand back attempts that have not started."""
        wanted, back = set(recall.attempts), []
        if self._pcs[recall.worker].silent:
            return
        for slot in self._pcs[recall.worker].slots:
            work = slot.work
            back += [assignment.attempt for assignment in list(work)[1:] if assignment.attempt in wanted]
            kept = [a for place, a in enumerate(work) if place == 0 or a.attempt not in wanted]
            work.clear()
            work.extend(kept)
        self._feed(ev.AttemptsReturned(recall.worker, back))


def _new_pc(pc: SimulatedPC) -> _PC:
    return _PC(pc.name, Calendar(pc.timetable), [*map(_SimulatedSlot, range(pc.slots))], pc.silent, pc.speed)
