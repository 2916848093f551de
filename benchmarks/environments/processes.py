"""Processes that an environment starts itself, and ends."""

import os
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence

# How long a process may take to end when it is asked to; then it is killed. Seconds.
STOP_S = 10.0


def start(argv: Sequence[str], more: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start ``argv`` with ``more`` in its environment; what it prints goes to our stderr."""
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=2, env=os.environ | dict(more or {}))


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """End all of these."""
    left = list(processes)
    for process in left:
        process.terminate()
    for process in left:
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
