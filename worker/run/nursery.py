"""The worker's end of `deskgrid.worker.run.parent`: asks it for processes, ends them, and hears when they have ended.

Rule 1: one thread for each nursery reads what it says, and touches nothing else. Whoever waits for a process is told
even if its parent dies: then all its processes have ended.
Rule 2: the worker starts only the guard, which starts the parents of all processes and ends what they leave.
Rule 3: the parent of an environment runs as the user of its tasks, who may have taken it over. So what it says is
checked, and a parent that does not do what it is told is killed.
Rule 4: a task of the worker's own user can kill the guard. So a worker becomes the parent of what loses it: see
`adopt_orphans`.
"""

import array
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from deskgrid.worker.run import scope
from deskgrid.worker.run.child import Frames, frame_of_names
from deskgrid.worker.run.shared import Entry

PROGRAM = Path(__file__).with_name("start.py")
# How long a new process may take to have a number. Only tests ask for it. Seconds.
BORN_LIMIT = 60.0
# How long a parent may take to end everything. Seconds.
CLOSE_LIMIT = 5.0
# How long it may take to end one process. Seconds.
KILL_LIMIT = 20.0
# How long what a guard has left may take to end, and how often it is looked for. Seconds.
ORPHANS_LIMIT, LOOK_S = 2.0, 0.01
# Bytes of a message of a parent: a number, the text of an error of the system, or the names of some entries of memory.
MESSAGE_LIMIT = 64 * 1024
# Entries of shared memory that a process may have had in use, for all that we want to hear: as many as it can open.
ENTRIES_LIMIT = 2**20
# Bytes of the name of an entry: no file has a longer one.
NAME_LIMIT = 255
# Bytes of the end of what a parent printed before it died: a screenful.
TAIL = 4096


class Birth:
    """A process that was asked for. ``code``: how it ended, as `subprocess` has it; None: nobody knows."""

    def __init__(self, nursery: "Nursery", token: int) -> None:
        self._nursery = nursery
        self._token = token
        self._born = threading.Event()
        self._gone = threading.Event()
        self._pid = 0
        self.code: int | None = None
        self.trouble = ""
        self._stopped = set[int]()
        # The entries of shared memory that it had in use when it was killed, and what it left.
        self.used: list[Entry] = []

    @property
    def pid(self) -> int:
        """Its number, once it has one."""
        self._born.wait(BORN_LIMIT)
        return self._pid

    @property
    def is_of_its_parent(self) -> bool:
        """Whether the process of this number is a child of its parent, who may have said any number."""
        return scope.parent_of(self.pid) == self._nursery.pid

    def kill(self) -> None:
        """Kill it, and everything that it started."""
        self._nursery.kill(self._token)

    def end(self, seconds: float) -> None:
        """Kill it if it has not ended by then."""
        self._nursery.say(["end", self._token, seconds])
        self._nursery.insist(self._token, seconds)

    def go_on(self) -> None:
        """Let it go on if somebody has stopped it."""
        self._nursery.say(["go on", self._token])

    def stop(self) -> None:
        """Stop it with everything that it has started, until `resume`; also what has started since the last call.

        The worker does this itself: its parent may be in the hands of a task.
        """
        if self._born.is_set() and not self._gone.is_set() and (sys.platform != "linux" or self.is_of_its_parent):
            self._stopped |= scope.stop(self._pid)

    def resume(self) -> None:
        """Let go on what was stopped."""
        stopped, self._stopped = self._stopped, set()
        if stopped and not self._gone.is_set():
            scope.resume(self._pid, stopped)

    def ends_within(self, seconds: float) -> bool:
        """Wait so long until nothing is left of it; return whether that is so."""
        return self._gone.wait(seconds)

    def wait(self) -> int | None:
        """Wait until nothing is left of it; return its code."""
        self._gone.wait()
        return self.code

    def is_born(self, pid: int) -> None:
        """It has a number."""
        self._pid = pid
        self._born.set()

    def is_gone(self, code: int | None, trouble: str = "") -> None:
        """It has ended, or never began: ``trouble``."""
        self.code, self.trouble = code, trouble
        self._born.set()
        self._gone.set()


class Nursery:
    """A parent of processes, with which it speaks. ``log``: the file for what the parent prints.

    ``begin``: starts the parent with its descriptors: that of its socket, and that of this file. Raises OSError.
    """

    def __init__(self, begin: "Callable[[list[int]], Birth | _Guard]", log: Path) -> None:
        self._log = log
        self._tokens = itertools.count(1)
        self._births: dict[int, Birth] = {}
        self._mine = threading.Lock()
        self._up = False
        self._ended = False
        self._socket, theirs = socket.socketpair()
        try:
            with theirs, log.open("wb") as stderr:
                self._parent = begin([theirs.fileno(), stderr.fileno()])
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._listen, name="deskgrid-nursery", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The number of the parent."""
        return self._parent.pid

    @property
    def up(self) -> bool:
        """Whether the parent has said anything."""
        return self._up

    @property
    def ended(self) -> bool:
        """Whether the parent is dead: it makes no more processes."""
        return self._ended

    @property
    def empty(self) -> bool:
        """Whether all its processes have ended."""
        return not self._births

    def start(self, arguments: Sequence[str], descriptors: Sequence[int]) -> Birth:
        """Ask for a process with these arguments and descriptors, which stay open here."""
        return self._ask_for("start", list(arguments), descriptors)

    def parent(self, log: Path) -> "Nursery":
        """Ask the guard for another parent. Raises OSError."""
        return Nursery(lambda descriptors: self._ask_for("parent", None, descriptors), log)

    def program(self, python: Sequence[str], how: Mapping[str, Any], log: Path) -> "Nursery":
        """Ask the guard for a parent that another Python runs. ``how``: as for `subprocess.Popen`. Raises OSError."""
        what = {**how, "argv": [*python, str(PROGRAM), "0", ""]}  # the guard has given way already
        return Nursery(lambda descriptors: self._ask_for("program", what, descriptors), log)

    def _ask_for(self, kind: str, what: Any, descriptors: Sequence[int]) -> Birth:
        token = next(self._tokens)
        birth = self._births[token] = Birth(self, token)
        packed = frame_of_names([kind, token, what])
        with self._mine:
            if not self._ended and self._send(packed, descriptors):
                return birth
        self._thread.join()
        birth.is_gone(self._parent.code, self._trouble())
        self._births.pop(token, None)
        return birth

    def _send(self, data: bytes, descriptors: Sequence[int]) -> bool:
        """Send all of it; return whether the parent lives. A task may have stopped it, with all that it started."""
        if sys.platform != "win32":
            self._parent.go_on()
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            with suppress(OSError):
                self._socket.sendall(data[self._socket.sendmsg([data], [rights] if descriptors else []) :])
                return True
        return False

    def say(self, message: list[Any]) -> None:
        """Tell the parent something."""
        with self._mine:
            self._send(frame_of_names(message), ())

    def kill(self, token: int) -> None:
        """Kill a process. A parent that has not come up, and may never do, is killed itself."""
        if self._up:
            self.say(["kill", token])
            self.insist(token)
        else:
            self._kill_parent()

    def _kill_parent(self) -> None:
        self._ended = True  # the next process is asked of another one, also before we hear that this one is dead
        self._parent.kill()

    def insist(self, token: int, seconds: float = 0.0) -> None:
        """Kill the parent if it has not ended a process in time, ``seconds`` from now on."""

        def look() -> None:
            if token in self._births:
                self._kill_parent()

        timer = threading.Timer(seconds + KILL_LIMIT, look)
        timer.daemon = True
        timer.start()

    def _listen(self) -> None:
        frames, count = _Messages(self._socket.fileno()), 1
        with suppress(Exception):  # of whatever kind: somebody else speaks for the parent
            while count:
                count, messages = frames.read()
                for kind, token, *what in messages:
                    self._hear(kind, token, *what)
        with self._mine:
            self._ended = True
        self._parent.kill()
        self._parent.wait()
        trouble = self._trouble()
        for birth in list(self._births.values()):
            birth.is_gone(self._parent.code, trouble)
        self._births.clear()

    def _hear(self, kind: str, token: int, what: Any) -> None:
        self._up = True
        if kind == "born":
            self._births[token].is_born(int(what))
        elif kind == "failed":
            self._births.pop(token).is_gone(None, str(what))
        elif kind == "used":
            birth = self._births[token]
            birth.used += [(os.fsdecode(name), int(inode)) for name, inode in what if len(name) <= NAME_LIMIT]
            if len(birth.used) > ENTRIES_LIMIT:
                raise ValueError("no process has so many")
        else:
            self._births.pop(token).is_gone(os.waitstatus_to_exitcode(what))

    def _trouble(self) -> str:
        """What the parent has said before it died."""
        with suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL))
            return log.read(TAIL).decode("utf-8", "replace") or self._parent.trouble
        return ""

    def close(self) -> None:
        """End the parent, and with it all its processes."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._thread.join(CLOSE_LIMIT)
        self._parent.kill()
        self._thread.join()
        self._socket.close()
        self._log.unlink(missing_ok=True)


class _Guard:
    """The guard: the parent that this worker itself starts, as a `Birth` for the others. Raises OSError.

    While it comes up, nobody's code runs that could close its lifeline.
    """

    trouble = ""

    def __init__(
        self, python: Sequence[str], nice: int, environment: Mapping[str, str], descriptors: Sequence[int]
    ) -> None:
        lifeline, self._lifeline = os.pipe()
        worker, stderr = descriptors
        argv = [*python, str(PROGRAM), str(nice), str(lifeline), str(worker)]
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
        try:
            self._popen: subprocess.Popen[bytes] = subprocess.Popen(
                argv, stderr=stderr, env=environment, pass_fds=(worker, lifeline), **how
            )
            scope.kill_at_the_end_of(lifeline, self._popen.pid)
        except OSError:
            os.close(self._lifeline)
            raise
        finally:
            os.close(lifeline)
        self.pid = self._popen.pid

    @property
    def code(self) -> int | None:
        return self._popen.returncode

    def go_on(self) -> None:
        if sys.platform != "win32":
            with suppress(OSError):
                self._popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._popen.kill()

    def wait(self) -> None:
        self._popen.wait()
        _end_orphans()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def guard(python: Sequence[str], nice: int, log: Path, environment: Mapping[str, str]) -> Nursery:
    """Start the guard with ``python``, a program with its options, and this environment. Raises OSError.

    ``nice``: how far it, and all that comes from it, gives way. ``log``: the file for what it prints.
    """
    return Nursery(lambda descriptors: _Guard(python, nice, environment, descriptors), log)


def adopt_orphans() -> None:
    """Have this process, which is a worker and nothing else, become the parent of what loses its guard, on Linux.

    Not if it has children already, of a shell that became this worker: what those leave is not ours.
    """
    if not scope.children():
        scope.adopt(None)


def _end_orphans() -> None:
    """End what a guard has left, which has ended. No other guard is started before.

    What a worker starts itself is in its own session. What comes from a guard is not, and cannot get there.
    """
    if sys.platform == "linux" and scope.adopts():
        until = time.monotonic() + ORPHANS_LIMIT
        while (orphans := list(filter(_is_orphan, scope.children()))) and time.monotonic() < until:
            for pid in orphans:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(LOOK_S)


def _is_orphan(child: int) -> bool:
    try:
        return sys.platform != "win32" and os.getsid(child) != os.getsid(0)
    except ProcessLookupError:  # whoever started it knows its end
        return False


class _Messages(Frames):
    """What a parent says."""

    limit = MESSAGE_LIMIT
    payload_limit = 0


class Direct:
    """Instead of a nursery on Windows, where no process can be copied: each is started by itself, with ``python``.

    ``nice``: how far it gives way.
    """

    ended = False
    empty = True

    def __init__(self, python: Sequence[str], nice: int) -> None:
        self.python = python
        self.nice = nice

    def close(self) -> None:
        """There is nothing to end."""
