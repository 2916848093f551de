"""The virtual-clock driver: the same scheduler the broker runs, on PCs that exist only as numbers.

Rule 1: everything due at one instant is handed over before the one pass of that instant, closings before openings.
Where there are gangs, times that differ only by rounding are one instant.
Rule 2: ties are broken by the order of scheduling, so a run is a function of its arguments.
Rule 3: the scheduler sees what is predicted and announced; what happens is in `Arrival.actual` and `RealWindow.closes`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import ANNOUNCED, OPEN_ENDED, Attempt, AttemptOutcome, SchedulerError
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.simulation.gangs import SimulatedGangs
from deskgrid.scheduler.simulation.instants import Agenda
from deskgrid.scheduler.simulation.pcs import ENDS, PC, Order, PCSlot, Rates, SimulatedWork, new_pc
from deskgrid.scheduler.simulation.runs import (
    IDEAL,
    SLOWLY,
    Arrival,
    Conditions,
    Execution,
    GangExecution,
    Lateness,
    Run,
    SimulatedPC,
    Stalled,
    too_long_tasks,
)
from deskgrid.scheduler.simulation.timetable import RealWindow, Timetable, always, cycle
from deskgrid.scheduler.state.timers import Timer

__all__ = [
    "ANNOUNCED",
    "IDEAL",
    "PATIENCE",
    "PATIENCE_TIMED",
    "Arrival",
    "Conditions",
    "Execution",
    "GangExecution",
    "RealWindow",
    "Run",
    "SimulatedPC",
    "SimulatedWork",
    "Simulator",
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
        self.now = 0.0
        self._simulated = pcs
        self._arrivals = deque(sorted(arrivals, key=lambda arrival: arrival.at))
        # What each task needs at once, as predicted and really: of a checkpointable task only a piece.
        self._at_once = [pair for arrival in self._arrivals for pair in arrival.at_once()]
        self._actual = [seconds for arrival in self._arrivals for seconds in arrival.really()]
        older = len(self._actual) if any(arrival.running for arrival in arrivals) else 0
        self.scheduler = Scheduler(policy, first_attempt=older + 1)
        # Of checkpointable tasks: the seconds that their checkpoints still lack.
        self._left: dict[int, float] = {}
        slowest = min([pc.speed for pc in pcs], default=1.0) / (SLOWLY if conditions.slow else 1.0)
        self._longest_task_s = max(self._actual, default=0.0) / slowest
        self._any_gangs = any(arrival.need.parallel for arrival in arrivals)
        self._pcs = {pc.name: new_pc(pc, conditions, told=self._any_gangs) for pc in pcs}
        # If no PC is silent, no slot has to be looked at between events.
        self._silent = [pc.name for pc in pcs if pc.silent]
        if self._silent and self._any_gangs:
            raise SchedulerError("a PC that never answers is not simulated beside gangs")
        self._conditions = conditions
        # Is told each event and its time, after it was handled, and may answer with more events.
        self.beside: Callable[[ev.Event, float], Iterable[ev.Event]] | None = None
        self._lateness = Lateness(conditions)
        self._trace = trace
        self._executions: list[Execution] = []
        self._spans: list[tuple[str, RealWindow]] = []
        self._agenda = Agenda()
        self._submitted = 0
        self._settled = 0
        self._ran_s = 0.0  # of attempts that ended or were stopped
        self._moved_at = 0.0  # when a bag arrived or a task ended, the last time
        self._longest_cycle_s = 0.0
        self._rates = Rates(self, conditions.pace)
        traced = self._executions.append if trace else None
        self._gangs = SimulatedGangs(
            self, self._pcs, self._rates, conditions, takes=self._lateness.takes, traced=traced
        )
        self._table: dict[type, Callable[[Any], None]] = {
            cmd.Assign: self._assign,
            cmd.StartGang: self._gangs.start,
            cmd.Settle: self._settle,
            cmd.Recall: self._recall,
            cmd.Stop: self._stop,
            cmd.GiveUp: self._give_up,
            cmd.Stuck: self._stuck,
        }
        for arrival in self._arrivals:
            self.at(arrival.at, Order.ARRIVES, self._arrives)
        for pc in self._pcs.values():
            self._appears(pc)

    def run(self) -> Run:
        """Run until every task has ended. Raises `Stalled` if some never can."""
        count = len(self._actual)
        if too_long := too_long_tasks(
            self.scheduler.policy, self._simulated, self._at_once, self._conditions.overhead_s
        ):
            raise Stalled(f"{too_long} of {count} tasks fit into no window")
        agenda = self._agenda
        while self._settled < count:
            now = self._next()
            if now == math.inf or self._hopeless():
                raise Stalled(f"{count - self._settled} of {count} tasks are placed nowhere, or lost each time")
            self.now = now
            if self._any_gangs:
                agenda.gather(now, self._conditions.instant_s)
            agenda.happen(now)
            for name in self._silent:
                self._say_alive(name)
            self.feed(_PASS)
            if self._rates.due:
                self._rates.settle()
        counters, executions, spans = self.scheduler.counters, tuple(self._executions), tuple(self._spans)
        ran_s = self._ran_s + self._gangs.ran_s + counters.wasted_s
        return Run(self.now, self._open_s() - ran_s, counters, executions, spans, ran_s, tuple(self._gangs.executions))

    def _next(self) -> float:
        """When the next thing happens, or is due."""
        happens = min(self._agenda.next, self.scheduler.wakes_at)
        return min(happens, self.scheduler.next_look) if self._silent else happens

    def _say_alive(self, name: str) -> None:
        """A silent PC says that it is there, like a worker that takes work and never answers."""
        if (worker := self.scheduler.grid.slots.workers.get(name)) is not None:
            self.feed(ev.UptimeRefreshed(name, worker.uptime(self.now)))

    # --- whether it will end ----------------------------------------------------------------------------------------

    def _hopeless(self) -> bool:
        """Whether nothing has ended for longer than the policy's patience."""
        if self._arrivals or self.now == self._moved_at or self._silent:
            return False
        if self._gangs and not self._longest_cycle_s:
            return False  # they are slowed down, and will end: no window closes and opens again
        if self.scheduler.grid.timers.at[Timer.WIDENING]:
            return False  # more slots of a new PC will soon be used
        cycles = PATIENCE_TIMED if self.scheduler.policy.timed else PATIENCE
        patience_s = cycles * self._longest_cycle_s + self._longest_task_s + self._conditions.overhead_s
        return self.now > self._moved_at + patience_s

    # --- events -----------------------------------------------------------------------------------------------------

    def at(self, time: float, order: Order, happens: Callable[[], None]) -> None:
        self._agenda.at(time, order, happens)

    def _arrives(self) -> None:
        arrival = self._arrivals.popleft()
        self._moved_at = self.now
        first, count = self._submitted, len(arrival.runtimes)
        self._submitted += count
        if (piece := arrival.min_piece) is not None:
            self._left.update(enumerate(arrival.really(), first))
        need, key, reserve_s = arrival.need, CategoryKey(arrival.owner), self._reserve_s
        held = self._gangs.arrive(first, arrival) if need.parallel else ()
        names = (f"{arrival.owner}\n{arrival.function}",) if arrival.function else ()
        known = (first, first, count, arrival.runtimes, 0, arrival.timeout, arrival.copies)
        more: dict[str, Any] = {"held": held, "need": need, "names": names}
        self.feed(ev.TasksSubmitted(*known, key=key, min_piece=piece, reserve_s=reserve_s, **more))

    @property
    def _reserve_s(self) -> float:
        return self._conditions.saving_s + self._conditions.overhead_s

    def _appears(self, pc: PC) -> None:
        """A PC that is away at first says when it will come, like a worker that is started between windows."""
        if self._conditions.announces and (coming := pc.calendar.coming(0.0)) and coming[0][0] > 0.0:
            self.at(0.0, Order.OPENS, partial(self.feed, ev.UptimeRefreshed(pc.name, 0.0, coming)))
        self._next_window(pc)

    def _next_window(self, pc: PC) -> None:
        """Wait for the next window of a PC. One that has no more stays away."""
        if (span := pc.calendar.take()) is not None:
            self.at(span.opens, Order.OPENS, partial(self._opens, pc, span))
            self._longest_cycle_s = max(self._longest_cycle_s, span.opens - pc.opened)

    def _opens(self, pc: PC, span: RealWindow) -> None:
        pc.opened, pc.announced, pc.up = span.opens, span.announced, True
        if self._trace:
            self._spans.append((pc.name, span))
        uptime = span.announced - span.opens
        holds = self._gangs.holds(pc) if pc.works else ()
        processors = 0 if pc.processors == len(pc.slots) else pc.processors
        known = (pc.name, len(pc.slots), uptime, self._coming(pc), pc.site, holds, pc.told_speed, processors)
        self.feed(ev.WorkerJoined(*known, pc.amounts, pc.labels))
        if pc.load:
            self.feed(ev.WorkerMeasured(pc.name, pc.told_speed, pc.load))
        self._gangs.found()
        if span.closes != OPEN_ENDED:
            self.at(span.closes, Order.CLOSES, partial(self._closes, pc, span))
        for when, closing in span.refreshes():
            self.at(when, Order.OPENS, partial(self._announces_again, pc, closing))

    def _announces_again(self, pc: PC, closing: float) -> None:
        """A PC that is still there when it was to be gone says how long it stays now."""
        pc.announced = closing
        for slot in pc.slots:
            if slot.work:
                self._plan_saving(pc, slot)
        self.feed(ev.UptimeRefreshed(pc.name, closing - self.now, self._coming(pc)))

    def _closes(self, pc: PC, span: RealWindow) -> None:
        pc.up = False
        unstarted, stopped = self._gangs.close(pc) if pc.works else ([], {})
        for slot in pc.slots:
            self._save_at_the_end(pc, slot)
            begun = bool(slot.work) and slot.started <= self.now
            unstarted += [assignment.attempt for assignment in list(slot.work)[begun:]]
            if begun:
                task = slot.work[0].attempt.task
                stopped[task] = self.now - slot.started
                if self._trace:
                    self._traced(pc, slot, task, done=False)
            slot.work.clear()
            self._rates.halt(slot)
        longer = self.scheduler.outlived(stopped, self.now)
        self.feed(ev.WorkerLeft(pc.name, True, span.closings[-1] > span.closes, unstarted, self._coming(pc)))
        if longer:
            self.feed(ev.RuntimesUpdated(list(longer), list(longer.values())))
        self._next_window(pc)

    def _coming(self, pc: PC) -> tuple[tuple[float, float], ...]:
        return pc.calendar.coming(self.now) if self._conditions.announces else ()

    def _ends(self, pc: PC, slot: PCSlot, generation: int) -> None:
        if slot.generation != generation:
            return
        attempt, elapsed = slot.work.popleft().attempt, self.now - slot.started
        slot.shares = None
        self._ran_s += elapsed - self._conditions.overhead_s
        if self._trace:
            self._traced(pc, slot, attempt.task, done=True)
        if slot.work:
            self._start(pc, slot)
        self.feed(ev.AttemptsEnded(pc.name, [ev.EndedAttempt(attempt, AttemptOutcome.DONE, elapsed)]))

    def _start(self, pc: PC, slot: PCSlot, gap_s: float = 0.0) -> None:
        """Start the first attempt of a slot. It takes the task's time and overhead; on a silent PC it never ends."""
        if pc.silent:
            return
        conditions = self._conditions
        slot.generation += 1
        slot.started = max(self.now + gap_s, pc.opened + conditions.opening_s)
        task = slot.work[0].attempt.task
        takes = self._left.get(task, self._actual[task])
        if pc.shared:
            ends = partial(self._ends, pc, slot, slot.generation)
            begins = partial(self._rates.share, pc, slot, slot.generation, self._lateness.takes(task, takes), ends)
            self.at(slot.started + conditions.overhead_s, ENDS, begins)
        else:
            takes = takes / pc.speed + conditions.overhead_s
            if conditions.slow or conditions.jitter:
                takes = self._lateness.takes(task, takes)
            self.at(slot.started + takes, ENDS, partial(self._ends, pc, slot, slot.generation))
        self._plan_saving(pc, slot)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _plan_saving(self, pc: PC, slot: PCSlot) -> None:
        """A checkpointable task ends its piece when the window is about to close, as the PC has announced it."""
        ends = pc.announced - self._conditions.saving_s
        if slot.work[0].attempt.task in self._left and ends < math.inf:
            self.at(max(self.now, ends), ENDS, partial(self._piece_ends, pc, slot, slot.generation, ends))

    def _piece_ends(self, pc: PC, slot: PCSlot, generation: int, ends: float) -> None:
        if slot.generation == generation and ends == pc.announced - self._conditions.saving_s and slot.work:
            self._end_piece(pc, slot)

    def _end_piece(self, pc: PC, slot: PCSlot) -> None:
        attempt, elapsed = slot.work.popleft().attempt, max(0.0, self.now - slot.started)
        self._rates.halt(slot)
        self._save(attempt, elapsed)
        if self._trace:
            self._traced(pc, slot, attempt.task, done=False)
        self.feed(ev.AttemptsEnded(pc.name, [ev.EndedAttempt(attempt, AttemptOutcome.PIECE, elapsed)]))

    def _save(self, attempt: Attempt, elapsed: float) -> None:
        """Keep a checkpoint of an attempt that began ``elapsed`` seconds ago."""
        task, worked = attempt.task, max(0.0, elapsed - self._conditions.overhead_s)
        self._left[task] = max(0.0, self._left[task] - worked)
        if worked:
            self._moved_at = self.now
            fraction = 1.0 - self._left[task] / self._actual[task]
            self.feed(ev.CheckpointKept(attempt, fraction, elapsed, self._reserve_s))

    def _save_at_the_end(self, pc: PC, slot: PCSlot) -> None:
        """A window closes: a checkpointable task there has what it saved last, which is all if it was told in time."""
        if not slot.work or slot.work[0].attempt.task not in self._left or slot.started > self.now:
            return
        elapsed, period_s = self.now - slot.started, self._conditions.period_s
        told = self.now >= pc.announced - self._conditions.saving_s
        self._save(slot.work[0].attempt, elapsed if told else elapsed // period_s * period_s)

    def _traced(self, pc: PC, slot: PCSlot, task: int, done: bool) -> None:
        self._executions.append(Execution(pc.name, slot.number, task, slot.started, self.now, done))

    def _open_s(self) -> float:
        """The time of all windows."""
        workers = self.scheduler.grid.slots.workers.values()
        open_s = sum((self.now - worker.joined_at) * len(worker.slots) for worker in workers)
        return self.scheduler.counters.window_s + open_s

    # --- commands of the scheduler ----------------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Pass ``event`` to the scheduler, and carry out its commands."""
        for command in self.scheduler.handle(event, self.now):
            self._table[type(command)](command)
        if self.beside is not None:
            for other in self.beside(event, self.now):
                self.feed(other)

    def _assign(self, assign: cmd.Assign) -> None:
        pc = self._pcs[assign.worker]
        for assignment in assign.work:
            slot = pc.slots[assignment.slot]
            slot.work.append(assignment)
            if len(slot.work) == 1:
                self._start(pc, slot, self._conditions.gap_s)

    def _settle(self, settle: cmd.Settle) -> None:
        self._settled += len(settle.attempts)
        self._moved_at = self.now

    def _stuck(self, stuck: cmd.Stuck) -> None:
        self._settled += len(stuck.attempts)

    def _give_up(self, overdue: cmd.GiveUp) -> None:
        if overdue.stop:
            self._stop(cmd.Stop(overdue.worker, overdue.attempts))
        else:
            self._recall(cmd.Recall(overdue.worker, overdue.attempts))

    def _stop(self, stop: cmd.Stop) -> None:
        """End these, which run, without a result, and say so. What is behind them on their slots begins."""
        pc, unwanted = self._pcs[stop.worker], set(stop.attempts)
        if pc.silent:
            return
        if self._gangs:
            self._gangs.stop(stop.attempts)
        for slot in pc.slots:
            if slot.work and slot.work[0].attempt in unwanted:
                self._ran_s += max(0.0, self.now - slot.started)
                if self._trace:
                    self._traced(pc, slot, slot.work[0].attempt.task, done=False)
                slot.work.popleft()
                self._rates.halt(slot)
                if slot.work:
                    self._start(pc, slot)
        self.feed(ev.AttemptsReturned(pc.name, list(stop.attempts)))

    def _recall(self, recall: cmd.Recall) -> None:
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
        self.feed(ev.AttemptsReturned(recall.worker, back))
