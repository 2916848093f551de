"""Runs `install.py` in processes of their own, which give way to others on the PC and end with the worker."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from deskgrid.worker.run.scope import priority_class

PROGRAM = Path(__file__).with_name("install.py")
# The largest wheels take a minute on an idle PC; on a busy one it takes much longer, but a hang is a hang. Seconds.
LIMIT_S = 3_600.0
# Bytes that a helper says at most: the facts of a wheel with a thousand programs.
SAID_CHARACTERS = 2**20


class Stopped(Exception):
    """The helper was killed, because the PC's window closes."""


class Helpers:
    """All helpers that run; `run` is called from several threads. ``nice``: how far they give way."""

    def __init__(self, nice: int) -> None:
        self._nice = nice
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, *argv: str) -> dict[str, Any]:
        """Run `install.py` with these arguments, and return what it said. Raises `Stopped`, and OSError."""
        with self._lock:
            if self._closed:
                raise Stopped
            process = subprocess.Popen(
                [sys.executable, "-I", str(PROGRAM), str(self._nice), *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env={},
                creationflags=priority_class(self._nice),
            )
            self._processes.add(process)
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            said = process.stdout.read(SAID_CHARACTERS)
            code = process.wait(LIMIT_S)
        finally:
            process.kill()
            process.stdout.close()
            process.stdin.close()
            process.wait()
            with self._lock:
                self._processes.discard(process)
                closed = self._closed
        if closed:
            raise Stopped
        if not said.endswith("\n"):
            return {"trouble": f"its helper ended before it was done (exit code {code})"}
        return dict(json.loads(said))

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
