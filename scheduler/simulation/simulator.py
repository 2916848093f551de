"""The virtual-clock driver: the same scheduler the broker runs, on PCs that exist only as numbers.

Rule 1: everything due at one instant is handed over before the one pass of that instant, closings before openings.
Rule 2: ties are broken by the order of scheduling, so a run is a function of its arguments.
Rule 3: the scheduler sees what is predicted and announced; what happens is in `Arrival.actual` and `Span.closes`.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from random import Random
from typing import Any

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.model import OPEN_ENDED, Attempt, Outcome, SchedulerError
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.simulation.timetable import ANNOUNCED, Calendar, Span, Timetable, always, cycle, kinds_of_spans

__all__ = [
    "ANNOUNCED",
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

# When no task ends for so many of the longest cycles, none will. FCFS, which is blind, needed 85 on average and 301 at
# most (of 40 runs) for one task of 98 % of the longest of the paper's eight windows.
PATIENCE = 1000
# The same for policies that know windows: each loss doubles a prediction, so that soon a task fits, or fits nowhere.
PATIENCE_TIMED = 100


class Stalled(SchedulerError):
    """Tasks wait, and nothing that is still to happen will change that."""


@dataclass(frozen=True, slots=True)
class SimulatedPC:
    """A PC, when it is there, and how many tasks it runs at once. ``silent``: it takes work and never answers."""

    name: str
    timetable: Timetable = always
    slots: int = 1
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A bag submitted at ``at``. ``runtimes``: predicted, a number for each task. ``actual``: real; None: the same.

    ``timeout``: what each task is given; all of them keep within it.
    """

    runtimes: Sequence[float]
    actual: Sequence[float] | None = None
    at: float = 0.0
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not self.runtimes or not 0.0 <= self.at < math.inf:
            raise SchedulerError(f"a bag of {len(self.runtimes)} tasks, submitted at {self.at}")
        if self.actual is not None and len(self.actual) != len(self.runtimes):
            raise SchedulerError(f"{len(self.actual)} actual runtimes of {len(self.runtimes)} tasks")
        if self.timeout is not None and max(self.really()) > self.timeout:
            raise SchedulerError(f"a task that takes longer than its timeout of {self.timeout} s")

    def really(self) -> Sequence[float]:
        """How long its tasks take."""
        return self.runtimes if self.actual is None else self.actual


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a grid costs beside the work itself. Seconds.

    ``overhead_s``: what each attempt costs its slot beside its runtime. ``opening_s``: how long after a window has
    opened its first attempt can start, because a worker has to start first; the window's clock runs meanwhile.
    ``gap_s``: how long after a slot was free the attempt starts that the scheduler then gives it; what it was handed
    ahead of need starts at once. Neither is part of what an attempt is said to have taken, as nobody measures it there.
    ``announces``: whether the windows to come are announced, or the current one only. ``jitter``: each attempt takes
    1 + ``jitter`` * E times as long, E exponential with mean and deviation 1, drawn by ``seed``: a sleep, or a busy PC,
    is late now and then, and never early.
    """

    overhead_s: float = 0.0
    opening_s: float = 0.0
    announces: bool = True
    jitter: float = 0.0
    seed: int = 0
    gap_s: float = 0.0

    def __post_init__(self) -> None:
        if not all(0.0 <= value < math.inf for value in (self.overhead_s, self.opening_s, self.jitter, self.gap_s)):
            raise SchedulerError(f"conditions are finite numbers from 0 up: {self}")


IDEAL = Conditions()
_PASS = ev.PassDue()


@dataclass(frozen=True, slots=True)
class Execution:
    """One attempt as it happened. Tasks are numbered from 0, in the order of arrival. Not ``done``: it was killed."""

    pc: str
    slot: int
    task: int
    start: float
    end: float
    done: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What a simulated run came to. ``idle_s``: window time in which no task ran; overhead is such.

    Of a traced run: ``executions`` in the order they ended, and each PC's spans in the order they opened.
    """

    makespan_s: float
    idle_s: float
    counters: Counters
    executions: tuple[Execution, ...] = ()
    spans: tuple[tuple[str, Span], ...] = ()


@dataclass(slots=True)
class _SimulatedSlot:
    """What one slot holds, the first of it since ``started``; ``generation`` makes the ends of killed work stale."""

    number: int
    work: deque[ev.Assignment] = field(default_factory=deque)
    started: float = 0.0
    generation: int = 0


@dataclass(slots=True)
class _PC:
    """A PC in a run. ``opened``: when its window did."""

    name: str
    calendar: Calendar
    slots: list[_SimulatedSlot]
    silent: bool
    opened: float = 0.0


class _Order(IntEnum):
    """What comes first of all that happens at one instant."""

    ENDS = 0
    CLOSES = 1
    ARRIVES = 2
    OPENS = 3


_ENDS = _Order.ENDS  # looked up once: the name of a member is looked up slowly in Python 3.11


class Simulator:
    """Bags on some PCs under one policy, which must be new: policies keep state."""

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
        self._longest_task_s = max(self._actual, default=0.0)
        self._pcs = {pc.name: _new_pc(pc) for pc in pcs}
        # Where no PC is silent nothing has to be looked at between what happens.
        self._silent = [pc.name for pc in pcs if pc.silent]
        self._conditions = conditions
        self._random = Random(conditions.seed)
        self._trace = trace
        self._executions: list[Execution] = []
        self._spans: list[tuple[str, Span]] = []
        self._heap: list[tuple[float, _Order, int, Callable[[], None]]] = []
        self._sequence = 0
        self._submitted = 0
        self._settled = 0
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
        """Until every task has ended; raises `Stalled` when some never can."""
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
        return Run(self.now, self._idle_s(), self.scheduler.counters, tuple(self._executions), tuple(self._spans))

    def _next(self) -> float:
        """When the next thing happens, or is due."""
        happens = min(self._heap[0][0] if self._heap else math.inf, self.scheduler.wakes_at)
        return min(happens, self.scheduler.next_look) if self._silent else happens

    def _say_alive(self, name: str) -> None:
        """A silent PC says that it is there, as one does that takes work and never answers."""
        if (worker := self.scheduler.grid.slots.workers.get(name)) is not None:
            self._feed(ev.UptimeRefreshed(name, worker.uptime(self.now)))

    # --- whether it will end ----------------------------------------------------------------------------------------

    def _too_long(self) -> int:
        """How many tasks no window can hold, or would be given; 0 when there are too many windows to look at."""
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
        """Whether nothing has ended for so long that nothing will."""
        if self._arrivals or self.now == self._moved_at or self._silent:
            return False
        cycles = PATIENCE_TIMED if self.scheduler.policy.timed else PATIENCE
        patience_s = cycles * self._longest_cycle_s + self._longest_task_s + self._conditions.overhead_s
        return self.now > self._moved_at + patience_s

    # --- what happens -----------------------------------------------------------------------------------------------

    def _at(self, time: float, order: _Order, happens: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (time, order, self._sequence, happens))

    def _arrives(self) -> None:
        arrival = self._arrivals.popleft()
        runtimes, timeout = arrival.runtimes, arrival.timeout
        self._moved_at = self.now
        first, count = self._submitted, len(runtimes)
        self._submitted += count
        self._feed(ev.TasksSubmitted(bag=first, first=first, count=count, runtimes=runtimes, timeout=timeout))

    def _appears(self, pc: _PC) -> None:
        """A PC that is away at first says when it will come, as a worker does that is started between windows."""
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
        if self._trace:
            self._traced(pc, slot, attempt.task, done=True)
        if slot.work:
            self._start(pc, slot)
        self._feed(ev.AttemptsEnded(pc.name, [ev.Ended(attempt, Outcome.DONE, elapsed)]))

    def _start(self, pc: _PC, slot: _SimulatedSlot, gap_s: float = 0.0) -> None:
        """The first attempt of a slot starts; it takes what the task does, and what it costs beside, or for ever."""
        if pc.silent:
            return
        conditions = self._conditions
        slot.generation += 1
        slot.started = max(self.now + gap_s, pc.opened + conditions.opening_s)
        takes = self._actual[slot.work[0].attempt.task] + conditions.overhead_s
        if conditions.jitter:
            takes *= 1.0 + conditions.jitter * self._random.expovariate(1.0)
        self._at(slot.started + takes, _ENDS, partial(self._ends, pc, slot, slot.generation))

    def _traced(self, pc: _PC, slot: _SimulatedSlot, task: int, done: bool) -> None:
        self._executions.append(Execution(pc.name, slot.number, task, slot.started, self.now, done))

    def _idle_s(self) -> float:
        """Window time less that of tasks, of those done and those killed."""
        counters, workers = self.scheduler.counters, self.scheduler.grid.slots.workers.values()
        open_s = sum((self.now - worker.joined_at) * len(worker.slots) for worker in workers)
        return counters.window_s + open_s - math.fsum(self._actual) - counters.wasted_s

    # --- what the scheduler wants -----------------------------------------------------------------------------------

    def _feed(self, event: ev.Event) -> None:
        """Tell the scheduler, and carry out what follows."""
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
        """End these without a result, and say so. They are all that their slots hold: a doubted slot gets no more."""
        pc, unwanted = self._pcs[stop.worker], set(stop.attempts)
        if pc.silent:
            return
        for slot in pc.slots:
            if slot.work and slot.work[0].attempt in unwanted:
                slot.work.clear()
                slot.generation += 1
        self._feed(ev.AttemptsReturned(pc.name, list(stop.attempts)))

    def _recall(self, recall: ev.Recall) -> None:
        """Hand back what has not started."""
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
    return _PC(pc.name, Calendar(pc.timetable), [*map(_SimulatedSlot, range(pc.slots))], pc.silent)
