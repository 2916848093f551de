"""Stand-ins for the outside world: the processes that run tasks, and the file of planned windows.

A task's payload says what it does: a place in a bag, seconds, and an outcome. Its answer names the attempt, so a test
can tell from which attempt it came.
"""

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from deskgrid import wire
from deskgrid.home_file import HomeFile
from deskgrid.windows.windows_file import WINDOWS, PatternTable, PlannedWindows, read_tables
from deskgrid.wire import Outcome, Payload
from deskgrid.worker.run.jobs import Job, JobEnded, JobSaved
from tests.grid.environments import FakeEnvironments
from tests.grid.ranks import FakeRanks, RankRecords
from tests.grid.tasks import SPAWN_S, Task, answer_of, task_of
from tests.without_files import WithoutFiles

# When virtual time is 0, clocks on walls show this: a Monday, 10:00 UTC.
WALL_S = 1_767_607_200.0
# And monotonic clocks of PCs, this.
BOOT_S = 12_345.0
# What each task costs beside its runtime. Measured ones are shorter.
TASK_OVERHEAD_S = 0.002


class Executions:
    """Every execution there was, on any PC."""

    def __init__(self) -> None:
        self.started: Counter[tuple[str, int]] = Counter()
        self.crashed: Counter[tuple[str, int]] = Counter()
        # PCs on which everything crashes; and how many times as long slow PCs take for a task.
        self.broken: set[str] = set()
        self.slow: dict[str, float] = {}
        # What each attempt that ended answered, and the PC that ran it.
        self.answers: dict[tuple[int, int], tuple[Outcome, bytes, str]] = {}
        # For how long each task that is checkpointable has run, in all of its pieces; seconds.
        self.worked: defaultdict[tuple[str, int], float] = defaultdict(float)
        self.of_ranks = RankRecords()
        # How often each PC has tried to unpack each wheel.
        self.unpacked: Counter[tuple[str, str]] = Counter()

    def crashes(self, task: Task) -> bool:
        """Whether a task that may crash does so this time."""
        place = task.bag, task.item
        if task.fate != "crash" or self.crashed[place] >= task.times:
            return False
        self.crashed[place] += 1
        return True


@dataclass(slots=True)
class _FakeSlot:
    """One process: ``since`` is when its first job began or will begin.

    ``due``, ``last``: when that job saves, and whether its piece ends then; ``saved_at``: the ``due`` of its last save.
    """

    jobs: deque[Job] = field(default_factory=deque)
    since: float = 0.0
    due: float = math.inf
    last: bool = False
    saved_at: float = -math.inf

    @property
    def saves_at(self) -> float:
        """When its first job saves next; infinity if it does not."""
        return self.due if self.jobs and self.due != self.saved_at else math.inf


class FakeFiles:
    """`deskgrid.worker.run.checkpoint_files.CheckpointFiles` in memory."""

    def __init__(self) -> None:
        self.here: dict[tuple[int, int], bytes] = {}
        self._whole: dict[tuple[int, int], int] = {}

    def write(self, task: int, number: int, data: Payload, start: int = 0, size: int | None = None) -> None:
        self.here[task, number] = self.here.get((task, number), b"")[:start] + bytes(data)
        self._whole[task, number] = start + len(data) if size is None else size

    def holds(self, task: int, number: int) -> bool:
        return (task, number) in self.here and len(self.here[task, number]) == self._whole[task, number]

    def read(self, task: int, number: int) -> Payload | None:
        return self.here.get((task, number))

    def drop(self, task: int, number: int) -> None:
        self.here.pop((task, number), None)


class FakeExecutor(WithoutFiles):
    """`deskgrid.worker.session.Runs` in virtual time: ``clock`` is the monotonic clock of the PC ``name``."""

    def __init__(self, name: str, slots: int, clock: Callable[[], float], executions: Executions) -> None:
        self._name = name
        self._slots = [_FakeSlot() for _ in range(slots)]
        self._clock = clock
        self._executions = executions
        self._templates: set[str] = set()
        self._ended: list[JobEnded] = []
        self._warm = False
        self.checkpoints = FakeFiles()
        self._saved: list[JobSaved] = []
        self.environments = FakeEnvironments(name, clock, executions.unpacked, self._uses)
        self._ranks = FakeRanks(name, clock, executions.of_ranks, executions.crashes, self.environments.lacks)

    @property
    def ranks(self) -> FakeRanks:
        return self._ranks

    def know(self, digest: str, blob: bytes) -> None:
        self._templates.add(digest)

    def knows(self, digest: str) -> bool:
        return digest in self._templates

    def start(self) -> None:
        self._warm = True
        self.environments.start()

    def rest(self) -> None:
        self._warm = False
        self.environments.rest()

    def say(self, now: float) -> list[wire.Message]:
        return self.environments.say()

    def hear(self, message: wire.Message, now: float) -> None:
        if isinstance(message, wire.Prepare):
            self.environments.prepare(message)
        elif isinstance(message, wire.Part):
            self.environments.part(message)
        elif isinstance(message, wire.Failed):
            self.environments.failed(message)
        else:
            super().hear(message, now)

    def reconnected(self) -> None:
        self.environments.reconnected()

    def _uses(self, environment: str) -> bool:
        jobs = (job for fake in self._slots for job in fake.jobs)
        return any(job.environment == environment for job in jobs) or self._ranks.uses(environment)

    def run(self, slot: int, jobs: Sequence[Job]) -> None:
        fake = self._slots[slot]
        templates = {job.template for job in [*fake.jobs, *jobs]}
        if not jobs or len(templates) > 1 or not self.knows(jobs[0].template):
            raise ValueError(f"slot {slot} of {self._name} was given {len(jobs)} jobs that it cannot take")
        if jobs[0].environment and self.environments.lacks(jobs[0].environment):
            self._ended += [JobEnded(slot, *job[:2], Outcome.DEPARTED, 0.0, b"", b"", b"") for job in jobs]
            return
        if not fake.jobs:
            fake.since = self._clock() + (TASK_OVERHEAD_S if self._warm else SPAWN_S)
        fake.jobs.extend(jobs)

    def poll(self, now: float) -> list[JobEnded]:
        self.environments.poll()
        for number, fake in enumerate(self._slots):
            while fake.jobs and min(self._end_of(fake), fake.saves_at) <= now:
                if fake.saves_at < self._end_of(fake):
                    self._save(number, fake)
                else:
                    self._finish(number, fake)
        ended, self._ended = self._ended, []
        return ended

    def saved(self) -> list[JobSaved]:
        saved, self._saved = self._saved, []
        return saved

    def tell_times(self, slot: int, due: float, closes: float, last: bool) -> None:
        fake = self._slots[slot]
        fake.due, fake.last = max(due, fake.since), last

    def _save(self, slot: int, fake: _FakeSlot) -> None:
        """The first job saves how much of it is done and, at the end of a window, ends its piece."""
        at, job = fake.saves_at, fake.jobs[0]
        fake.saved_at, elapsed, task = at, at - fake.since, task_of(bytes(job.payload))
        data = msgpack.packb(_done_before(job) + elapsed)
        self.checkpoints.write(job.task, job.number, data)
        progress = (_done_before(job) + elapsed) / task.seconds
        self._saved.append(JobSaved(slot, job.task, job.number, progress, elapsed, 0.1, data))
        if fake.last:
            self._leave(fake, at)
            fake.jobs.popleft()
            self._ended.append(JobEnded(slot, job.task, job.number, Outcome.PIECE, elapsed, b"", b"", b""))
            fake.since, fake.due = at + TASK_OVERHEAD_S, math.inf

    def running(self, now: float) -> list[tuple[int, int, int, float]]:
        return [
            (number, fake.jobs[0].task, fake.jobs[0].number, now - fake.since)
            for number, fake in enumerate(self._slots)
            if fake.jobs and fake.since <= now
        ]

    def stop(self, slot: int, now: float) -> list[tuple[Job, float | None]]:
        fake = self._slots[slot]
        elapsed = now - fake.since if fake.since <= now else None
        held = [(job, None if place else elapsed) for place, job in enumerate(fake.jobs)]
        self._leave(fake, now)
        fake.jobs.clear()
        return held

    def next_end(self) -> float:
        """When something will have ended, on the PC's clock; infinity when nothing runs."""
        mine = min((min(self._end_of(fake), fake.saves_at) for fake in self._slots if fake.jobs), default=math.inf)
        departed = self._clock() if self._ended else math.inf
        return min(mine, departed, self._ranks.next_end(), self.environments.next_end)

    def power_off(self) -> None:
        """The PC goes, with all that ran."""
        self._ranks.power_off()
        for fake in self._slots:
            self._leave(fake, self._clock())
            fake.jobs.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing runs here."""
        return not any(fake.jobs for fake in self._slots) and self._ranks.idle

    def _leave(self, fake: _FakeSlot, now: float) -> None:
        """The first job of a slot will not go on; count it if it had begun."""
        if fake.jobs and fake.since <= now:
            task = task_of(bytes(fake.jobs[0].payload))
            self._executions.started[task.bag, task.item] += 1
            if fake.jobs[0].checkpoint is not None:
                self._executions.worked[task.bag, task.item] += now - fake.since

    def _end_of(self, fake: _FakeSlot) -> float:
        job = fake.jobs[0]
        seconds, timeout = task_of(bytes(job.payload)).seconds, job.options.timeout
        seconds = (seconds - _done_before(job)) * self._executions.slow.get(self._name, 1.0)
        return fake.since + (seconds if timeout is None else min(seconds, timeout))

    def _finish(self, slot: int, fake: _FakeSlot) -> None:
        end, environment = self._end_of(fake), fake.jobs[0].environment
        assert not environment or environment in self.environments.ready, f"{environment} was let go while it was used"
        if fake.jobs[0].checkpoint is not None:
            task = task_of(bytes(fake.jobs[0].payload))
            self._executions.worked[task.bag, task.item] += end - fake.since
        job = fake.jobs.popleft()
        task, elapsed = task_of(bytes(job.payload)), end - fake.since
        outcome = self._outcome(task, job)
        answer = answer_of(task, job.number, outcome)
        self._executions.started[task.bag, task.item] += 1
        assert (job.task, job.number) not in self._executions.answers, f"{task}: attempt {job.number} ends twice"
        self._executions.answers[job.task, job.number] = (outcome, answer, self._name)
        self._ended.append(JobEnded(slot, job.task, job.number, outcome, elapsed, answer, b"said", b""))
        fake.due = math.inf
        fake.since = end + (SPAWN_S if outcome in (Outcome.CRASH, Outcome.TIMEOUT) else TASK_OVERHEAD_S)

    def _outcome(self, task: Task, job: Job) -> Outcome:
        if job.options.timeout is not None and task.seconds >= job.options.timeout:
            return Outcome.TIMEOUT
        if task.fate == "raise":
            return Outcome.ERROR
        if self._name in self._executions.broken:
            return Outcome.CRASH
        return Outcome.CRASH if self._executions.crashes(task) else Outcome.DONE


def _done_before(job: Job) -> float:
    """The seconds of a job that its checkpoint has already."""
    return float(msgpack.unpackb(bytes(job.checkpoint))) if job.checkpoint else 0.0


class FakeWindows(HomeFile[PlannedWindows]):
    """The broker's file of planned windows, changed by assignment to ``tables``: name without number -> JSON."""

    def __init__(self) -> None:
        super().__init__(Path(WINDOWS), read_tables)
        self.tables: dict[str, str] = {}

    def refresh(self) -> bool:
        before = self.content
        rows = [PatternTable(name, text, name, re.compile(re.escape(name) + "$")) for name, text in self.tables.items()]
        self.content = PlannedWindows(tuple(rows))
        return before != self.content
