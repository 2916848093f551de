"""A slot of this worker: its process, and the jobs that it has; and the clock of the tasks of all slots."""

import math
from collections import deque
from dataclasses import dataclass, field

from deskgrid.worker.run.devices import WHATEVER_THERE_IS, HeldDevices
from deskgrid.worker.run.jobs import NOBODYS, Job, Program
from deskgrid.worker.run.process import Process

# Seconds for a process to start. A cold start from a busy file server takes tens of seconds; a longer one is a hang.
START_LIMIT = 120.0


@dataclass(slots=True)
class ProcessSlot:
    """One slot.

    ``sent`` is the number of its jobs, from the first, that its process has received. ``since`` is the time when the
    first job began or, if none was sent, when the slot began to wait for a process.
    """

    index: int
    process: Process | None = None
    spare: Process | None = None  # for the next program; nobody's code has run in it
    jobs: deque[Job] = field(default_factory=deque)
    sent: int = 0
    since: float | None = None
    failures: int = 0  # failed starts in a row
    trouble: str = ""  # why there is no process
    roomless: bool = False  # because a disk is full
    environment: str = ""  # in which its last jobs ran
    program: Program = NOBODYS  # of its last jobs
    idle_since: float | None = None  # when its process was first seen without jobs
    devices: HeldDevices = WHATEVER_THERE_IS  # that its last jobs have
    stood_s: float = 0.0  # for how long the running job was stopped, before the pause that may go on
    closes: float = math.inf  # when the PC's window closes, as told last

    @property
    def limit(self) -> float | None:
        """Seconds after ``since`` when the job, or the start of the process, is overdue; None: never."""
        return self.jobs[0].options.timeout if self.sent else START_LIMIT

    def elapsed(self, now: float) -> float:
        """Return the seconds since ``since``; set ``since`` to ``now`` if it is not set."""
        if self.since is None:
            self.since = now
        return max(0.0, now - self.since)


class TaskClock:
    """All arguments and results are seconds; ``now`` is monotonic."""

    def __init__(self) -> None:
        self._stood = 0.0
        self._since: float | None = None

    @property
    def stands(self) -> bool:
        """Whether the tasks are stopped."""
        return self._since is not None

    def stop(self, now: float) -> None:
        """The tasks have been stopped."""
        if self._since is None:
            self._since = now

    def go_on(self, now: float) -> float:
        """The tasks go on. Returns how long they were stopped."""
        lasted = 0.0 if self._since is None else max(0.0, now - self._since)
        self._stood, self._since = self._stood + lasted, None
        return lasted

    def read(self, now: float) -> float:
        """What this clock shows."""
        return (now if self._since is None else min(now, self._since)) - self._stood

    def standing(self, now: float) -> float:
        """How long the tasks have been stopped; 0.0 if they are not."""
        return 0.0 if self._since is None else max(0.0, now - self._since)
