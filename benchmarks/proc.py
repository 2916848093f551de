"""The kernel's data on processes: processor time of threads, memory, parents and children. Linux only."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PROC = Path("/proc")
# The environment variable of a driver, and so of all its descendants, that marks the processes of one measured system.
MARK = "DESKGRID_BENCHMARK"
# The unit in which the kernel counts the processor time of a whole process.
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# The unit in which the kernel counts a thread's time, in seconds.
NANO = 1e-9


@dataclass(frozen=True, slots=True)
class Used:
    """Processor seconds of the main thread, of ZeroMQ's threads (which encrypt), and of all the others."""

    main: float = 0.0
    zmq: float = 0.0
    others: float = 0.0

    @property
    def total(self) -> float:
        return self.main + self.zmq + self.others

    def __add__(self, other: Self) -> Self:
        return type(self)(self.main + other.main, self.zmq + other.zmq, self.others + other.others)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.main - other.main, self.zmq - other.zmq, self.others - other.others)


def used(pid: int) -> Used:
    """The processor time of ``pid`` since it was started. Threads that have ended count as ``others``."""
    main = zmq = 0.0
    for thread in (PROC / f"{pid}/task").iterdir():
        try:
            seconds = int((thread / "schedstat").read_text().split()[0]) * NANO
            name = (thread / "comm").read_text()
        except FileNotFoundError:  # it has ended meanwhile
            continue
        if thread.name == str(pid):
            main = seconds
        elif name.startswith("ZMQ"):
            zmq += seconds
    # The total is counted in ticks, so a part may seem to be a little more than the total.
    return Used(main, zmq, max(0.0, _whole(pid) - main - zmq))


def used_below(pid: int) -> Used:
    """The processor time of all that descends from ``pid``: what has ended counts with the parent that waited for it.

    Only the main threads of what runs are known apart.
    """
    found = Used()
    for each in children(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ends at this moment
            found += used(each) + Used(others=_whole(each, of=slice(13, 15)))
    return found


def _whole(pid: int, of: slice = slice(11, 13)) -> float:
    """Processor seconds of all threads, including those that have ended; or of the children that it has waited for."""
    fields = (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[of])) / TICKS_PER_S


def memory(pid: int) -> int:
    """Private resident bytes of ``pid``: without the memory that it shares with others, which is mostly libraries."""
    pages = (PROC / f"{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """All descendants of ``pid``."""
    parents = dict(_parents())
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]


def _parents() -> Iterator[tuple[int, int]]:
    """Each process with its parent."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue


def started() -> list[int]:
    """The processes that this one has started: its descendants, and daemons that have detached but keep the mark."""
    daemons = with_mark(os.environ[MARK]) if MARK in os.environ else []
    return sorted({*children(os.getpid()), *daemons})


def with_mark(mark: str) -> list[int]:
    """The processes, except this one, that have this mark in their environment."""
    own = f"{MARK}={mark}".encode()
    return [pid for pid, _ in _parents() if pid != os.getpid() and own in _environment(pid)]


def _environment(pid: int) -> list[bytes]:
    try:
        return (PROC / f"{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError, ProcessLookupError):  # it has ended, or is somebody else's
        return []


def command_line(pid: int) -> str:
    """How ``pid`` was started; empty when it has ended."""
    try:
        return (PROC / f"{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
