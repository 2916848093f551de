"""What a worker's PC is, and what others use of it, measured while the worker runs.

What others than our tasks use of its processors is sampled each second, as means of 1, 30 and 120 s. These windows are
those of SDPN (cisne-sdpn, Section 4). On Linux the kernel says how long its processors were busy, and how long the
processes were that come from this worker. On other systems nobody measures, and nothing is said.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from deskgrid.wire import MEMORY_LIMIT
from deskgrid.worker.pc.address import LOCAL, free_port
from deskgrid.worker.pc.hardware import MemoryUnknown, memory_of_this_pc, processors
from deskgrid.worker.pc.speed import SpeedMeasurement
from deskgrid.worker.windows.announcements import Powers

SAMPLE_S = 1.0
WINDOWS_S = (1, 30, 120)
_PROC = Path("/proc")


class Busy(NamedTuple):
    """Processor time since some time in the past, in one unit: of all processes, of ours, and what there was of it."""

    all: float
    ours: float
    total: float


class TimesSource(Protocol):
    """Where the times come from."""

    def read(self) -> Busy:
        """Return the times until now. Raises OSError."""


class ProcessorTimes:
    """The times of Linux. Ours are this process and all that come from it."""

    def __init__(self, proc: Path = _PROC, pid: int | None = None) -> None:
        self._proc = proc
        self._pid = os.getpid() if pid is None else pid
        self._here = processors()

    def read(self) -> Busy:
        """Return the times until now. Raises OSError."""
        busy = total = 0.0
        for line in (self._proc / "stat").read_text(encoding="ascii").splitlines():
            name, *rest = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._here:
                times = [float(each) for each in rest[:8]]
                total += sum(times)
                busy += sum(times) - times[3] - times[4]  # idle, and waiting for a disk
        return Busy(busy, sum(self._times()), total)

    def _times(self) -> Iterator[float]:
        """Yield the time of each of our processes, with that of their children that have ended."""
        left = [self._pid]
        while left:
            place = self._proc / str(left.pop())
            try:
                fields = (place / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                for thread in (place / "task").iterdir():
                    left += map(int, (thread / "children").read_text(encoding="ascii").split())
            except OSError:
                continue  # it has ended
            yield sum(map(float, fields[11:15]))


class OthersLoad:
    """The share of the processors that others use; ``now`` is monotonic seconds."""

    def __init__(self, source: TimesSource) -> None:
        self._source = source
        self._last: Busy | None = None
        self._next = 0.0
        # The share of each second, the newest first.
        self._shares: deque[float] = deque(maxlen=max(WINDOWS_S))

    @property
    def means(self) -> tuple[float, ...]:
        """The means of the last 1, 30 and 120 s, or of what there is; empty before the first."""
        if not self._shares:
            return ()
        return tuple([sum(some) / len(some) for some in (list(islice(self._shares, each)) for each in WINDOWS_S)])

    def sample(self, now: float) -> bool:
        """Take a sample if it is time; return whether the means changed."""
        if now < self._next:
            return False
        self._next = now + SAMPLE_S
        try:
            busy, last = self._source.read(), self._last
        except OSError:
            return False
        self._last = busy
        if last is None or busy.total <= last.total:
            return False
        # Time of ours that was lost with a process whose parent is not ours is counted as that of others: clamped.
        others = (busy.all - last.all) - max(0.0, busy.ours - last.ours)
        self._shares.appendleft(min(1.0, max(0.0, others / (busy.total - last.total))))
        return True


def others_load() -> OthersLoad | None:
    """Return what measures the load here; None where nobody can."""
    return OthersLoad(ProcessorTimes()) if sys.platform == "linux" else None


class ThisPc:
    """What this PC is, and what others use of it. ``address``: by which other PCs reach it."""

    def __init__(self, address: str | None, measurement: SpeedMeasurement | None) -> None:
        self.address = address
        self._measurement = measurement
        self._load = others_load()

    def memory(self, say: Callable[[str], None]) -> int:
        """Return the bytes of memory for tasks; 0 if nobody knows."""
        try:
            return min(memory_of_this_pc(), MEMORY_LIMIT)
        except MemoryUnknown as error:
            say(f"{error}; give --memory, or tasks that say how much they need do not run here")
            return 0

    def measure(self, powers: Powers, now: float, wait_s: float = 0.0) -> None:
        """Note what has been measured in the meantime."""
        if self._measurement is not None and (speed := self._measurement.speed(wait_s)) is not None:
            powers.speed, self._measurement = speed, None
        if self._load is not None and self._load.sample(now):
            powers.loads = self._load.means

    def free_port(self, ports: tuple[int, int] | None) -> int:
        """Return a port for a gang."""
        return free_port(self.address or LOCAL, ports)
