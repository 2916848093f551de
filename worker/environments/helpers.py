"""Runs `install.py` in processes of their own, which give way to others on the PC and end with the worker.

What such a process says is checked: it has read what others wrote.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deskgrid.worker.environments.installer import Installer
from deskgrid.worker.run.scope import kill_at_the_end_of, priority_class

PROGRAM = Path(__file__).with_name("install.py")
# The largest wheels take a minute on an idle PC; on a busy one it takes much longer, but a hang is a hang. Seconds.
LIMIT_S = 3_600.0
# Characters that a helper says at most: the facts of a wheel with ten thousand programs.
SAID_CHARACTERS = 4 * 2**20
# What a helper says last, but for what it did in addition; see there.
_ENDS = {"unpacked", "python", "damaged", "gone", "refused", "trouble"}


class Stopped(Exception):
    """The helper was killed, because the PC's window closes."""


class Helpers:
    """All helpers that run; `run` is called from several threads.

    ``nice``: how far they give way. ``installer``: the account that they run as.
    """

    def __init__(self, nice: int, installer: Installer | None = None) -> None:
        self._nice = nice
        self._how = {} if installer is None else installer.process()
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(
        self, *argv: str, needs: Callable[[int], None] = lambda size: None, python: str | None = None
    ) -> dict[str, Any]:
        """Run `install.py` with these arguments, and return all that it said. Raises `Stopped`, and OSError.

        ``python``: on which Python; None: on ours. ``needs`` gets the bytes that it is about to write; if that raises
        an exception, the helper is killed.
        """
        with self._lock:
            if self._closed:
                raise Stopped
            process, ours = self._started(python or sys.executable, argv)
            self._processes.add(process)
        assert process.stdout is not None
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.daemon = True
        timer.start()
        said, left = dict[str, Any](), SAID_CHARACTERS
        try:
            while (line := process.stdout.readline(left)).endswith("\n"):
                left -= len(line)
                more = _read(line)
                said |= more
                if "needs" in more:
                    needs(more["needs"])
            if left > 0:
                process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.stdout.close()
            os.close(ours)
            code = process.wait()
            with self._lock:
                self._processes.discard(process)
                closed = self._closed
        if closed:
            raise Stopped
        if not said.keys() & _ENDS:
            return {"trouble": f"its helper ended before it was done (exit code {code})"}
        return said

    def _started(self, python: str, argv: Sequence[str]) -> "tuple[subprocess.Popen[str], int]":
        """Start a helper; return it, and the descriptor at whose end it ends. Raises OSError."""
        lifeline, ours = os.pipe()
        try:
            process = subprocess.Popen(
                [python, "-I", str(PROGRAM), str(self._nice), *argv],
                stdin=lifeline,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                errors="replace",
                env={},
                creationflags=priority_class(self._nice),
                **self._how,
            )
            kill_at_the_end_of(lifeline, process.pid)  # it may never get so far that it ends by itself
        except OSError:
            os.close(ours)
            raise
        finally:
            os.close(lifeline)
        return process, ours

    def stop(self) -> None:
        """Kill all helpers, and run no others until `go_on`."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()

    def go_on(self) -> None:
        """Run helpers again."""
        with self._lock:
            self._closed = False


def _read(line: str) -> dict[str, Any]:
    """What a line says; that there is trouble, if it makes no sense."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    texts, numbers = ("refused", "trouble", "python"), ("needs", "bytes", "compiled", "copied", "damaged", "gone")
    if (
        not isinstance(said, dict)
        or any(not isinstance(said[name], str) for name in texts if name in said)
        or any(type(said[name]) is not int or said[name] < 0 for name in numbers if name in said)
    ):
        return {"trouble": "its helper said something that makes no sense"}
    return said
