"""The scheduler by itself, with very many slots and tasks: the time of a pass, and the cost of a decision."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import Attempt, AttemptOutcome
from deskgrid.scheduler.policies import make_policy

# Predicted runtimes, and uptimes of the PCs: seconds, drawn uniformly from these ranges.
RUNTIMES_S = (60.0, 600.0)
UPTIMES_S = (4 * 3600.0, 12 * 3600.0)
# Seconds between two passes.
STEP_S = 0.1
SEED = 7


@dataclass(frozen=True, slots=True)
class Passes:
    """For each pass: processor seconds, the same including the events before it, and decisions (tasks placed)."""

    passes_s: Sequence[float]
    together_s: Sequence[float]
    placed: Sequence[int]

    @property
    def decision_us(self) -> float:
        """Microseconds for one decision, including the events before the passes."""
        return 1e6 * sum(self.together_s) / max(1, sum(self.placed))


class Loaded:
    """A scheduler under ``policy`` with ``slots`` busy slots, and ``tasks`` tasks, most of them waiting."""

    def __init__(self, policy: str, slots: int, tasks: int) -> None:
        self._random = Random(SEED)
        self._scheduler = Scheduler(make_policy(policy))
        self._now = 0.0
        self._held: dict[str, deque[Attempt]] = {}
        for number in range(slots):
            name = f"pc{number}"
            self._held[name] = deque()
            self._scheduler.handle(ev.WorkerJoined(name, 1, self._random.uniform(*UPTIMES_S)), 0.0)
        runtimes = [self._random.uniform(*RUNTIMES_S) for _ in range(tasks)]
        self._scheduler.handle(ev.TasksSubmitted(0, 0, tasks, runtimes), 0.0)
        self._take(self._scheduler.handle(ev.PassDue(), 0.0))
        self._fair_queue = self._busy()

    def _busy(self) -> Iterator[str]:
        """The PCs in turn, for ever."""
        while True:
            yield from self._held

    def _take(self, commands: Sequence[cmd.Command]) -> int:
        """Note the assigned tasks; returns how many there are."""
        count = 0
        for command in commands:
            if isinstance(command, cmd.Assign):
                self._held[command.worker].extend(assignment.attempt for assignment in command.work)
                count += len(command.work)
        return count

    def passes(self, count: int, batch: int) -> Passes:
        """Run ``count`` passes. Before each pass, ``batch`` tasks end, each on another PC."""
        passes_s, together_s, placed = [], [], []
        for _ in range(count):
            self._now += STEP_S
            ended = [self._ended(name) for name in islice(self._fair_queue, batch) if self._held[name]]
            began = time.thread_time()
            for event in ended:
                self._scheduler.handle(event, self._now)
            middle = time.thread_time()
            commands = self._scheduler.handle(ev.PassDue(), self._now)
            end = time.thread_time()
            passes_s.append(end - middle)
            together_s.append(end - began)
            placed.append(self._take(commands))
        return Passes(passes_s, together_s, placed)

    def _ended(self, name: str) -> ev.AttemptsEnded:
        """The first task of a PC is done."""
        attempt = self._held[name].popleft()
        return ev.AttemptsEnded(
            name, [ev.EndedAttempt(attempt, AttemptOutcome.DONE, self._random.uniform(*RUNTIMES_S))]
        )
