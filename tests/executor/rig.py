"""An executor with real processes, and what the tests do to it.

A task is a function defined inside a test. Such a function is pickled with its code, so a process that cannot import
the tests can run it.
"""

import hashlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack

from deskgrid.rebuilt import dumps
from deskgrid.wire import Outcome, TaskOptions
from deskgrid.worker.run.executor import Executor
from deskgrid.worker.run.jobs import Job, JobEnded
from tests.waiting import eventually

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
NAME = "lab3-07"
# What a process of Windows is opened for, to see whether it has ended.
_SYNCHRONIZE = 0x100000


def alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie that its new parent has not buried yet."""
    if sys.platform == "linux":
        with suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
        return False
    else:
        return not buried(pid)


def buried(pid: int) -> bool:
    """Whether nothing is left of the process, not even a zombie; for children of this process."""
    if sys.platform == "win32":  # no number is a harmless signal there: 0 is Ctrl-C, and all others end the process
        import _winapi

        try:
            process = _winapi.OpenProcess(_SYNCHRONIZE, False, pid)
        except OSError:
            return True
        try:
            return _winapi.WaitForSingleObject(process, 0) == _winapi.WAIT_OBJECT_0
        finally:
            _winapi.CloseHandle(process)
    else:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


def written(path: Path) -> str:
    """What a task has written to ``path``, once it has."""
    assert eventually(lambda: path.exists() and path.read_text() != "")
    return path.read_text()


def value(ended: JobEnded) -> Any:
    """What the task returned; fails when it did not."""
    assert ended.outcome is Outcome.DONE, msgpack.unpackb(bytes(ended.payload))
    return pickle.loads(bytes(ended.payload))


def error(ended: JobEnded) -> tuple[str, str, str, bytes]:
    """Type, message, traceback and pickled exception of a task that failed."""
    assert ended.outcome is not Outcome.DONE
    kind, message, trace, pickled = msgpack.unpackb(ended.payload)
    return kind, message, trace, pickled


def python_template(
    function: Callable[..., object] | bytes, bundle: dict[str, bytes] | None = None, python: str = HERE
) -> bytes:
    """A template as a client makes it; ``function`` may be pickled already."""
    pickled = function if isinstance(function, bytes) else dumps(function)
    template = {"kind": "python", "python": python, "function": pickled, "bundle": bundle or {}}
    return bytes(msgpack.packb(template))


def command_template(*argv: str) -> bytes:
    """A template as ``deskgrid submit`` makes it."""
    return bytes(msgpack.packb({"kind": "command", "argv": argv}))


def call(*args: object, **kwargs: object) -> bytes:
    """The payload of one call."""
    return dumps((args, kwargs))


def child_finder() -> Callable[[], Any]:
    """A function with which a task finds what runs it in its process; it travels with the task."""

    def find() -> Any:
        import gc

        return next(each for each in gc.get_objects() if type(each).__name__ == "Child")

    return find


class Rig:
    """One executor, driven as the worker's loop does: woken, then polled."""

    def __init__(self, slots: int = 1, **options: Any) -> None:
        self.woken = threading.Event()
        self.executor = Executor(slots, NAME, self.woken.set, **options)
        self.ended: list[JobEnded] = []
        self._tasks = 0

    def know(self, blob: bytes) -> str:
        """Teach it a template; its digest."""
        digest = hashlib.sha256(blob).hexdigest()
        self.executor.know(digest, blob)
        return digest

    def jobs(self, digest: str, *payloads: bytes, timeout: float | None = None) -> list[Job]:
        """Attempts of new tasks."""
        first, self._tasks = self._tasks, self._tasks + len(payloads)
        return [Job(first + place, 1, digest, payload, TaskOptions(timeout)) for place, payload in enumerate(payloads)]

    def poll(self) -> list[JobEnded]:
        """Poll by the real clock, and remember what ended."""
        self.woken.clear()
        ended = self.executor.poll(time.monotonic())
        self.ended += ended
        return ended

    def until(self, count: int, seconds: float = 20.0) -> list[JobEnded]:
        """What ended first after the last call, ``count`` of them, and no more than that."""

        def enough() -> bool:
            self.poll()
            return len(self.ended) >= count

        assert eventually(enough, seconds), f"only {self.ended} after {seconds} s"
        ended, self.ended = self.ended, []
        assert len(ended) == count, ended
        return ended

    def until_running(self) -> tuple[int, int, int, float]:
        """The first thing that runs."""

        def runs() -> bool:
            self.poll()
            return bool(self.executor.running(time.monotonic()))

        assert eventually(runs)
        return self.executor.running(time.monotonic())[0]

    def run(self, digest: str, *payloads: bytes, slot: int = 0) -> list[JobEnded]:
        """Run a batch to its end."""
        self.executor.run(slot, self.jobs(digest, *payloads))
        return self.until(len(payloads))

    def call(self, function: Callable[..., object], *args: object, **kwargs: object) -> JobEnded:
        """Run one call of ``function`` to its end."""
        (ended,) = self.run(self.know(python_template(function)), call(*args, **kwargs))
        return ended

    def pid(self, slot: int = 0) -> int:
        """The process of a slot."""
        (ended,) = self.run(self.know(python_template(lambda: __import__("os").getpid())), call(), slot=slot)
        pid: int = value(ended)
        return pid
