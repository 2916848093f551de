"""The parent of the processes that run tasks: it makes one when the worker asks, and ends what they leave behind.

Rule 1: this process imports nothing of ours but the files that stand alone, and the pickler that tasks use. It has run
nobody's code and has one thread, so a copy of it (fork) is a clean process, and is there within milliseconds.
Rule 2: on Linux, what a process has started becomes a child of this one when that process ends, even if it left its
process group or its session. Then it is killed. A process has ended only when nothing of it is left.
Rule 3: it ends with the worker, and everything else with it: the worker's end of the socket closes, however it ends.
Rule 4: the parents of one worker are the children of another one, the guard, which has no other children. So rules 2
and 3 hold as well for a parent that a task kills, and for one that hangs in the code of an environment.

The worker sends ``["start", token, arguments]`` with descriptors, ``["kill", token]``, and ``["end", token, seconds]``:
kill it if it has not ended by itself by then. The guard gets ``["parent", token, nil]`` and ``["program", token, how]``
instead of the first, with the descriptors of the new parent's socket and of the file for what it prints, and
``["go on", token]`` for a parent that a task may have stopped. They say ``["born", token, pid]``, ``["failed", token,
reason]`` and
``["ended", token, status]``, as `os.waitpid` has it. Before that comes ``["used", token, entries]``, perhaps several
times: what of shared memory it and what it left had in use when they were killed, with names as bytes. A frame is a
4-byte big-endian length and a msgpack array.
"""

import array
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import msgpack

from . import scope, shared

assert sys.platform != "win32"  # processes cannot be copied there: `start.py` is the only one

# The most descriptors that come with "start": see `child.main`. Tasks inherit one for MPI.
DESCRIPTORS = 12
# How often what was left is looked for while some of it has not ended. Seconds.
LOOK_S = 0.01
# How long the end of a process is not told because of what it left and what does not end. Seconds.
PATIENCE_S = 1.0
# Entries of shared memory in one message: however long their names are, it is shorter than the worker allows.
ENTRIES = 100


class ForkOrder(NamedTuple):
    """What a copy of this process is to be: another "parent", or to "start" with these arguments for `child.main`."""

    kind: str
    arguments: list[str]
    descriptors: list[int]


class Parent:
    """``worker``: the descriptor of the socket to the worker. ``children``: lists the children of this process."""

    def __init__(self, worker: int, children: Callable[[], list[int]]) -> None:
        self._worker = socket.socket(fileno=worker)
        self._children = children
        self._pids: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        # When a process is killed that was to end by itself, and those whose end was not told yet: token, status.
        self._until: dict[int, float] = {}
        self._ended: list[tuple[int, int]] = []
        # What of shared memory was in use when a process was killed, by token, and in what those left that have ended.
        self._used: dict[int, set[str]] = {}
        self._used_by_left: set[str] = set()
        self._ended_at = 0.0
        self._stays = False  # what they left, although it was killed
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def serve(self) -> ForkOrder | None:
        """Serve the worker until it is gone: None. In a copy, return what this is to be."""
        poller = select.poll()
        for source in (self._worker.fileno(), self._woken):
            poller.register(source, select.POLLIN)
        while True:
            ready = dict(poller.poll(self._wait_ms()))
            if self._woken in ready:
                os.read(self._woken, 4096)
            if self._worker.fileno() in ready:
                message, descriptors = self._receive()
                if message is None:
                    self._end_all()
                    return None
                if message[0] in ("start", "parent", "program"):
                    if self._start(message[1], descriptors):
                        return _order(message[0], message[2], descriptors)
                elif message[0] == "go on":
                    self._let_go_on(message[1])
                else:
                    self._until[message[1]] = time.monotonic() + (message[2] if message[0] == "end" else 0.0)
            self._kill_overdue()
            self._bury()

    def _wait_ms(self) -> int | None:
        if self._ended:
            return int(LOOK_S * 1000)
        waits = [until - time.monotonic() for until in self._until.values()]
        if self._stays:
            waits.append(PATIENCE_S)
        return max(0, int(min(waits) * 1000) + 1) if waits else None

    def _receive(self) -> tuple[list[Any] | None, list[int]]:
        """Return the next message and the descriptors that came with it; None if the worker is gone."""
        room = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
        try:
            head, more, _, _ = self._worker.recvmsg(4, room)
            found = array.array("i")
            for level, kind, data in more:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    found.frombytes(data[: len(data) - len(data) % found.itemsize])
            for descriptor in found:
                os.set_inheritable(descriptor, False)
            head += self._exactly(4 - len(head)) if head else b""
            body = self._exactly(int.from_bytes(head, "big")) if head else b""
        except (ConnectionError, EOFError):
            return None, []
        return (msgpack.unpackb(body, unicode_errors="surrogateescape") if body else None), found.tolist()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (some := self._worker.recv(count - len(data))):
                raise EOFError
            data += some
        return data

    def _tell(self, *message: object) -> None:
        packed = msgpack.packb(message)
        with suppress(OSError):  # the worker is gone, as the next look shows
            self._worker.sendall(len(packed).to_bytes(4, "big") + packed)

    def _start(self, token: int, descriptors: list[int]) -> bool:
        """Make a copy of this process, which ends with it; return whether this is the copy."""
        me = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._tell("failed", token, str(error))
            pid = -1
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._woken, self._wake):
                os.close(each)
            self._worker.close()
            os.setsid()
            _end_with(me)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            self._pids[token], self._tokens[pid] = pid, token
            self._tell("born", token, pid)
        return False

    def _let_go_on(self, token: int) -> None:
        if (pid := self._pids.get(token)) is not None:
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for token in [token for token, until in self._until.items() if until <= now]:
            del self._until[token]
            if (pid := self._pids.get(token)) is not None:
                self._used[token] = shared.used(scope.with_descendants(pid))
                _kill(pid)

    def _bury(self) -> None:
        """Reap what has ended, and kill what it has left; tell the worker when nothing is left."""
        for pid in _dead():
            token = self._tokens.pop(pid, None)
            if token is not None:
                self._used_by_left |= shared.used(self._left())
                _kill(pid)  # its process group; nobody else can have this number before it is reaped
            _, status = os.waitpid(pid, 0)
            if token is not None:
                del self._pids[token]
                self._until.pop(token, None)
                self._ended_at = time.monotonic()
                self._ended.append((token, status))
        if self._ended or self._stays:  # what forks again and again is not found each time, and some of it may stay
            self._stays = self._kill_left()
        if self._ended and (not self._stays or time.monotonic() > self._ended_at + PATIENCE_S):
            for token, status in self._ended:
                found = shared.entries(self._used.pop(token, set()) | self._used_by_left)
                for start in range(0, len(found), ENTRIES):
                    some = [(os.fsencode(name), inode) for name, inode in found[start : start + ENTRIES]]
                    self._tell("used", token, some)
                self._tell("ended", token, status)
            self._ended.clear()
            self._used_by_left.clear()

    def _kill_left(self) -> bool:
        """Kill what processes that have ended left; return whether there was anything."""
        left = self._left()
        self._used_by_left |= shared.used(left)
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return bool(left)

    def _left(self) -> list[int]:
        """What processes that have ended left."""
        return [pid for pid in self._children() if pid not in self._tokens]

    def _end_all(self) -> None:
        """The worker is gone."""
        for pid in self._tokens:
            _kill(pid)
        self._tokens.clear()
        until = time.monotonic() + PATIENCE_S
        while self._kill_left() and time.monotonic() < until:
            for pid in _dead():
                os.waitpid(pid, 0)
            time.sleep(LOOK_S)


def _order(kind: str, what: Any, descriptors: list[int]) -> ForkOrder:
    """In a copy: return what it is to be. A "program" is another one from here on."""
    if kind == "start":
        return ForkOrder(kind, what, descriptors)
    log = descriptors.pop()
    os.dup2(log, sys.stderr.fileno())
    os.close(log)  # else every task would have it open
    if kind == "program":
        try:
            _become(descriptors[0], **what)
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
        os._exit(1)
    return ForkOrder(kind, [], descriptors)


def _become(worker: int, argv: list[str], env: dict[str, str], **user: Any) -> None:
    """Become the parent of an environment, which another Python runs, perhaps as another ``user``. Raises OSError."""
    os.set_inheritable(worker, True)
    guard = os.getppid()
    if user:
        os.chdir(user["cwd"])
        os.umask(user["umask"])
        os.setgroups(user["extra_groups"])
        os.setresgid(*[user["group"]] * 3)
        os.setresuid(*[user["user"]] * 3)
        _end_with(guard)  # who becomes another would outlive it
    os.execve(argv[0], [*argv, str(worker)], env)


def _end_with(parent: int) -> None:
    """Have this process end when its parent does; now, if that has ended already."""
    scope.adopt(scope.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _kill(pid: int) -> None:
    """Kill a process that leads a group, and nobody has reaped yet, with its group."""
    for kill in (os.killpg, os.kill):  # it may not lead its group yet
        with suppress(ProcessLookupError, PermissionError):  # the latter is macOS for "only a zombie is left"
            kill(pid, signal.SIGKILL)


def _dead() -> Iterator[int]:
    """Yield the children that have ended; each is to be reaped before the next."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            yield ended.si_pid
