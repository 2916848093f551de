"""The virtual-clock driver: the same scheduler the broker runs, on PCs that exist only as numbers.

Rule 1: everything due at one instant is handed over before the one pass of that instant, closings before openings.
Rule 2: ties are broken by the order of scheduling, so a run is a function of its arguments.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler import events as ev
from scheduler.core import Scheduler
from scheduler.metrics import Counters
from scheduler.model import OPEN_ENDED, Attempt, Outcome, SchedulerError
from scheduler.policies.base import Policy

# Windows a simulated PC announces beside the current one, as a real worker does.
ANNOUNCED = 64
# When no task ends for so many of the longest cycles, none will. FCFS, which is blind, needed 85 on average and 301 at
# most (of 40 runs) for one task of 98 % of the longest of the paper's eight windows.
PATIENCE = 1000


class Stalled(SchedulerError):
    """Tasks wait, and nothing that is still to happen will change that."""


@dataclass(frozen=True, slots=True)
class SimulatedPC:
    """``up`` seconds available, ``down`` seconds not, repeated; ``up`` infinite for a PC that stays."""

    name: str
    up: float = OPEN_ENDED
    down: float = 0.0
    slots: int = 1

    def announced(self) -> tuple[tuple[float, float], ...]:
        """The windows to come, at an opening: (starts in, lasts)."""
        if self.up == OPEN_ENDED:
            return ()
        cycle = self.up + self.down
        return tuple((cycle * number, self.up) for number in range(1, ANNOUNCED + 1))


@dataclass(frozen=True, slots=True)
class Run:
    """What a simulated run came to. ``idle_s``: window time in which no task ran."""

    makespan_s: float
    idle_s: float
    counters: Counters


@dataclass(slots=True)
class _Lane:
    """What one slot holds; ``generation`` makes the ends of cancelled work stale."""

    work: deque[ev.Assignment]
    generation: int = 0


class Simulator:
    """One bag on some PCs under one policy.

    ``runtimes``: predicted, in order of submission. ``actual``: real ones (default: the same). ``overhead_s``: what
    each attempt costs its slot beside its runtime.
    """

    def __init__(
        self,
        policy: Policy,
        pcs: Sequence[SimulatedPC],
        runtimes: Sequence[float],
        actual: Sequence[float] | None = None,
        overhead_s: float = 0.0,
    ) -> None:
        self.scheduler = Scheduler(policy)
        self.now = 0.0
        self._pcs = {pc.name: pc for pc in pcs}
        self._predicted = runtimes
        self._actual = runtimes if actual is None else actual
        self._overhead_s = overhead_s
        cycles = [pc.up + pc.down for pc in pcs if pc.up < OPEN_ENDED]
        self._patience_s = PATIENCE * max(cycles, default=0.0) + max(self._actual) + overhead_s
        self._stalls_at = self._patience_s
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._heap: list[tuple[float, int, int, tuple[str, str, int, int]]] = []
        self._sequence = 0
        self._settled = 0
        self._table: dict[type, Callable[[Any], None]] = {
            ev.Assign: self._assign,
            ev.Settle: self._settle,
            ev.Recall: self._recall,
        }
        self._feed(ev.TasksSubmitted(bag=0, first=0, count=len(runtimes), runtimes=runtimes))
        for pc in pcs:
            self._at(0.0, "opens", pc.name)

    def run(self) -> Run:
        """Until every task has ended; raises `Stalled` when some never can."""
        count = len(self._actual)
        if too_long := self._too_long():
            raise Stalled(f"{too_long} of {count} tasks fit into no window")
        while self._settled < count:
            if not self._heap or self.now > self._stalls_at:
                raise Stalled(f"{count - self._settled} of {count} tasks are placed nowhere, or lost each time")
            self.now = self._heap[0][0]
            while self._heap and self._heap[0][0] <= self.now:
                kind, name, lane, generation = heapq.heappop(self._heap)[3]
                if kind == "ends":
                    self._ends(name, lane, generation)
                elif kind == "closes":
                    self._closes(self._pcs[name])
                else:
                    self._opens(self._pcs[name])
            self._feed(ev.PassDue())
        counters = self.scheduler.counters
        return Run(self.now, self._idle_s(), counters)

    def _too_long(self) -> int:
        """How many tasks no window can hold, or would be given."""
        longest = max((pc.up for pc in self._pcs.values()), default=0.0)
        policy = self.scheduler.policy
        limit = longest - policy.margin if policy.timed else math.inf
        pairs = zip(self._predicted, self._actual, strict=True)
        return sum(predicted >= limit or actual + self._overhead_s > longest for predicted, actual in pairs)

    def _idle_s(self) -> float:
        window, busy = self.scheduler.counters.window_s, self.scheduler.counters.busy_s
        for worker in self.scheduler.slots.workers.values():
            window += (self.now - worker.joined_at) * len(worker.slots)
            for slot in worker.slots:
                busy += slot.busy_s + (self.now - slot.started if slot.sent else 0.0)
        return window - busy

    def _at(self, time: float, kind: str, name: str, lane: int = 0, generation: int = 0) -> None:
        self._sequence += 1
        order = ("ends", "closes", "opens").index(kind)
        heapq.heappush(self._heap, (time, order, self._sequence, (kind, name, lane, generation)))

    def _opens(self, pc: SimulatedPC) -> None:
        self._feed(ev.WorkerJoined(pc.name, pc.slots, pc.up, pc.announced()))
        if pc.up != OPEN_ENDED:
            self._at(self.now + pc.up, "closes", pc.name)

    def _closes(self, pc: SimulatedPC) -> None:
        unstarted: list[Attempt] = []
        for number in range(pc.slots):
            lane = self._lane(pc.name, number)
            unstarted += [assignment.attempt for assignment in list(lane.work)[1:]]
            lane.work.clear()
            lane.generation += 1
        coming = tuple((starts_in - pc.up, lasts) for starts_in, lasts in pc.announced())
        self._feed(ev.WorkerLeft(pc.name, planned=True, unstarted=unstarted, windows=coming))
        self._at(self.now + pc.down, "opens", pc.name)

    def _ends(self, name: str, number: int, generation: int) -> None:
        lane = self._lane(name, number)
        if lane.generation != generation:
            return
        attempt = lane.work.popleft().attempt
        self._start(name, number)
        ended = ev.Ended(attempt, Outcome.DONE, self._actual[attempt.task] + self._overhead_s)
        self._feed(ev.AttemptsEnded(name, [ended]))

    def _start(self, name: str, number: int) -> None:
        lane = self._lane(name, number)
        lane.generation += 1
        if lane.work:
            takes = self._actual[lane.work[0].attempt.task] + self._overhead_s
            self._at(self.now + takes, "ends", name, number, lane.generation)

    def _lane(self, name: str, number: int) -> _Lane:
        return self._lanes.setdefault((name, number), _Lane(deque()))

    def _feed(self, event: ev.Event) -> None:
        """Tell the scheduler, and carry out what follows. Nothing is ever stopped in a simulated grid."""
        for command in self.scheduler.handle(event, self.now):
            self._table[type(command)](command)

    def _assign(self, assign: ev.Assign) -> None:
        for assignment in assign.work:
            lane = self._lane(assign.worker, assignment.lane)
            lane.work.append(assignment)
            if len(lane.work) == 1:
                self._start(assign.worker, assignment.lane)

    def _settle(self, settle: ev.Settle) -> None:
        self._settled += len(settle.attempts)
        self._stalls_at = self.now + self._patience_s

    def _recall(self, recall: ev.Recall) -> None:
        """Hand back what has not started."""
        wanted, back = set(recall.attempts), []
        for number in range(self._pcs[recall.worker].slots):
            work = self._lane(recall.worker, number).work
            back += [assignment.attempt for assignment in list(work)[1:] if assignment.attempt in wanted]
            kept = [a for place, a in enumerate(work) if place == 0 or a.attempt not in wanted]
            work.clear()
            work.extend(kept)
        self._feed(ev.AttemptsReturned(recall.worker, back))
