"""Groups of processes whose memory the kernel counts and bounds together: cgroup v2, on Linux.

A worker may make them if its own group is its own affair: systemd has delegated it (``Delegate=yes`` in the unit), or
it is root in a container. See the kernel's cgroup-v2.rst for the files.

Rule 1: a group that has members cannot divide what it has. So the worker first moves into a group below its own, and it
does so only if nobody else is in it.
Rule 2: this is a service of the PC. Where it does not work, whatever the reason, there are no groups.
"""

import os
import time
from contextlib import suppress
from os import rmdir
from pathlib import Path

# The group of the worker itself, and what those of processes are called.
OWN, PREFIX = "worker", "task-"
# Processes and threads of one group: those of a bomb leave the PC usable, whose kernel has 32,768 by default.
PROCESSES = 4096
# How long the kernel may take to end what it was told to kill, and how often this is looked at. Seconds.
KILL_S, LOOK_S = 2.0, 0.01


class Groups:
    """``folder``: the worker's own group, below which others are made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        for left in folder.glob(f"{PREFIX}*"):
            with suppress(OSError):
                rmdir(left)

    def new(self, memory: int) -> "ControlGroup":
        """Make a group whose processes may use so many bytes together, without swap. Raises OSError."""
        self._made += 1
        path = self._folder / f"{PREFIX}{self._made}"
        path.mkdir()
        try:
            _write(path / "memory.max", memory)
            _write(path / "memory.oom.group", 1)  # all of it ends, and not only its largest process
            for name, most in (("memory.swap.max", 0), ("pids.max", PROCESSES)):
                with suppress(OSError):  # a kernel without swap, or a group without this controller
                    _write(path / name, most)
        except OSError:
            rmdir(path)
            raise
        return ControlGroup(path)


class ControlGroup:
    """One group, with all that its processes start."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, pid: int) -> None:
        """Move a process into it. Raises OSError."""
        _write(self._path / "cgroup.procs", pid)

    def freeze(self, frozen: bool) -> None:
        """Stop all that is in it, also what is about to start more; or let it go on. SIGKILL ends it all the same."""
        with suppress(OSError):  # a kernel before 5.2, or it is gone
            _write(self._path / "cgroup.freeze", int(frozen))

    def kill(self) -> None:
        """Kill all that is in it, also what is about to start more."""
        with suppress(OSError):  # a kernel before 5.14, or it is gone
            _write(self._path / "cgroup.kill", 1)

    def overran(self) -> bool:
        """Whether the kernel has killed something in it because it used up its memory."""
        with suppress(OSError, ValueError):
            rows = (line.split() for line in (self._path / "memory.events").read_text(encoding="ascii").splitlines())
            return any(name == "oom_kill" and int(count) > 0 for name, count in rows)
        return False

    def remove(self) -> None:
        """Kill all that is in it, and remove it."""
        self.kill()
        until = time.monotonic() + KILL_S
        while self._path.is_dir():
            with suppress(OSError):
                rmdir(self._path)
                return
            if time.monotonic() > until:
                return  # something hangs in the kernel; the next worker removes it
            time.sleep(LOOK_S)


def find_groups(proc: Path = Path("/proc/self")) -> Groups | None:
    """Return how to make groups; None if this worker cannot."""
    try:
        own = own_group(proc)
        if own is None or "memory" not in (own / "cgroup.controllers").read_text(encoding="ascii").split():
            return None
        if (own / "cgroup.procs").read_text(encoding="ascii").split() != [str(os.getpid())]:
            return None
        return _divided(own)
    except (OSError, ValueError):
        return None


def _divided(own: Path) -> Groups:
    """Move this process into a group below its own, which can have others then. Raises OSError."""
    (own / OWN).mkdir(exist_ok=True)
    try:
        _write(own / OWN / "cgroup.procs", os.getpid())
        _write(own / "cgroup.subtree_control", "+memory")
    except OSError:
        with suppress(OSError):
            _write(own / "cgroup.procs", os.getpid())
            rmdir(own / OWN)
        raise
    with suppress(OSError):  # the PC counts no processes
        _write(own / "cgroup.subtree_control", "+pids")
    return Groups(own)


def own_group(proc: Path) -> Path | None:
    """The folder of the group that this process is in; None if there is no cgroup v2."""
    rows = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
    name = next((row[3:] for row in rows if row.startswith("0::")), None)
    for row in (proc / "mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, kind = row.partition(" - ")
        if name is not None and kind.split()[0] == "cgroup2":
            root, place = mount.split()[3:5]
            return Path(place) / os.path.relpath(name, root) if name.startswith(root) else None
    return None


def _write(path: Path, value: object) -> None:
    """Write to a file; none can be made where groups are. Raises OSError."""
    path.write_text(str(value), encoding="ascii")
