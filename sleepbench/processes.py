"""A broker and its workers as real processes on this machine, for as long as a ``with`` block lasts.

Rule 1: no process and no file is left behind, whatever ends the block. The processes use a temporary folder inside
ours, which is removed with it.
Rule 2: each process watches its stdin and ends when that closes. So they also end when this process is killed.
Rule 3: Ctrl-C is for this process only. The others have no access to its terminal; this process stops them in order.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from deskgrid import Grid
from deskgrid.sleepbench.naps import PC, SPEED
from deskgrid.wire.status import StatusDocument

# How long a broker may take to listen: a cold start of Python on a busy machine takes some seconds.
START_S = 60.0
# Seconds between two checks while waiting for a process.
LOOK_S = 0.01
# How long processes may take to stop by themselves. Then they are terminated, and after the same time again killed.
STOP_S = 5.0
# How many lines of a failed process's log are shown.
LAST_LINES = 5

# To run our own command. With -P, a module in the current folder cannot shadow one that we import.
COMMAND = (sys.executable, "-P", "-m", "deskgrid.cli")


class ProcessError(Exception):
    """A broker or worker process did not start, or ended too early; says which one, and the end of its log."""


def write_cycle(path: Path, pairs: Iterable[tuple[float, float]]) -> Path:
    """Write a file for ``deskgrid worker --cycle``: a line ``UP DOWN`` in seconds for each pair. Returns ``path``."""
    path.write_text("".join(f"{up:.9f} {down:.9f}\n" for up, down in pairs), encoding="utf-8")
    return path


def snapshot_of(grid: Grid) -> StatusDocument:
    """The broker's current status document."""
    return grid.status()


class Processes:
    """A private grid of processes on 127.0.0.1.

    ``policy`` None: the broker's default; ``options``: of the policy; ``more``: other arguments of ``deskgrid broker``.
    Entering starts the broker, and raises `ProcessError` if it does not come up.
    """

    def __init__(
        self,
        policy: str | None = None,
        options: Mapping[str, object] | None = None,
        more: Sequence[str] = (),
    ) -> None:
        self._more = [*more, *(["--policy", policy] if policy else [])]
        for name, value in (options or {}).items():
            self._more += ["--policy-option", f"{name}={value}"]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._place = tempfile.TemporaryDirectory(prefix="deskgrid-", ignore_cleanup_errors=True)
        self.folder = Path(self._place.name)
        self.home = self.folder / "home"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, workers: Sequence[str] = ()) -> None:
        """Start a broker and, at the same time, workers of these names; returns when the broker listens."""
        try:
            (self.folder / "tmp").mkdir()
            self.start_broker(workers)
        except BaseException:
            self.close()
            raise

    def start_broker(self, workers: Sequence[str] = ()) -> None:
        """Start the broker, or restart it on the same home after it was killed; returns when it listens."""
        for role in ("worker", "client"):
            (self.home / f"{role}.join").unlink(missing_ok=True)
        self._start("broker", ["broker", "--listen", "127.0.0.1:0", "--home", str(self.home), *self._more])
        for name in workers:
            self.start_worker(name)
        self.client_line = self._line("client")

    def start_worker(self, name: str, cycle: Path | None = None, more: Sequence[str] = (), speed: float = 1.0) -> None:
        """Start a worker of one slot, but do not wait until it joins. ``cycle``: its file of planned uptime.

        ``more``: other arguments of ``deskgrid worker``. ``speed``: as which its naps are to behave; it is said and not
        measured, because runtimes here are those of this machine, however fast it is.
        """
        plan = ["--cycle", str(cycle)] if cycle is not None else []
        line = f"@{self.home / 'worker.join'}"  # everybody can read the arguments of a process
        own = ["--home", str(self.home), "--name", name]
        plan += ["--speed", f"{speed:g}"]
        self._start(name, ["worker", "--join", line, "--slots", "1", "--owner", "ignore", *own, *plan, *more], speed)

    def pid(self, name: str) -> int:
        """The process id of a worker, or of the "broker"."""
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """Kill a process, so that it cannot clean up."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def check(self) -> None:
        """Raise `ProcessError` if a process has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise ProcessError(f"{name} ended with code {process.returncode}: {self._log_end(name)}")

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        """Return when ``happened()``; raises `ProcessError` when a process ends, or it takes too long."""
        deadline = time.monotonic() + START_S
        while not happened():
            self.check()
            if time.monotonic() > deadline:
                raise ProcessError(f"waited {START_S:g} s for {what}, and gave up")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """Stop everything, the workers first; afterwards the journal in ``home`` can be read."""
        with _undisturbed():
            workers = [process for name, process in self._running.items() if name != "broker"]
            _stop(workers)
            _stop(self._running.values())
            self._running.clear()

    def close(self) -> None:
        """Stop everything, and remove the folder. Does nothing the second time."""
        with _undisturbed():
            self.stop()
            self._place.cleanup()

    def _line(self, role: str) -> str:
        file = self.home / f"{role}.join"
        self.wait_for(file.exists, "the broker to listen")
        return file.read_text(encoding="utf-8").strip()

    def _start(self, name: str, arguments: list[str], speed: float = 1.0) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*COMMAND, *arguments, "--until-stdin-closes"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(name, speed),
                start_new_session=True,  # has no effect on Windows; the flag below has no effect elsewhere
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )

    def _environment(self, name: str, speed: float) -> dict[str, str]:
        place = str(self.folder / "tmp")
        ours = {key: value for key, value in os.environ.items() if key != "DESKGRID_JOIN"}  # another grid's
        return ours | {"TMPDIR": place, "TEMP": place, "TMP": place, PC: name, SPEED: f"{speed}"}

    def _log_end(self, name: str) -> str:
        text = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.strip().splitlines()[-LAST_LINES:]) or "it said nothing"


def _stop(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """End all of these: first by their stdin, then by force."""
    left = list(processes)
    for process in left:
        if process.stdin is not None:
            process.stdin.close()
    left = _outlasting(left, STOP_S)
    for process in left:
        process.terminate()
    left = _outlasting(left, STOP_S)
    for process in left:
        process.kill()
    _outlasting(left, STOP_S)


def _outlasting(processes: Iterable[subprocess.Popen[bytes]], seconds: float) -> list[subprocess.Popen[bytes]]:
    """The processes that still run after ``seconds``."""
    deadline = time.monotonic() + seconds
    left = []
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            left.append(process)
    return left


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM inside: teardown is bounded in time, and must not be cut short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make SIGTERM unwind this process like Ctrl-C, so that it stops the processes that it started; and say so."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt as stopped:
        stopped.args = ("you stopped it; its processes have ended, and it leaves nothing behind",)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
