"""A whole private grid on this machine, for `Grid.local`: its processes, and the keeper that manages them.

The keeper is a process of its own (this file, run as a module). It starts a broker on a free port with a new home, then
the workers, and waits for the end of its input. Its input ends when the program closes the grid or is killed. Then the
keeper ends all processes and removes the home. Each process watches its own input in the same way, so none is left even
if the keeper is killed.
"""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from deskgrid.client.given import check
from deskgrid.durations import precise
from deskgrid.errors import GridUnreachable

# How our command line is started. "-P" keeps modules beside the user's program from replacing modules that we import.
PROGRAM = (sys.executable, "-P", "-m", "deskgrid.cli")
# How long the broker may take to start. Seconds.
START_S = 30.0
# Seconds between two checks whether the workers have joined.
_LOOK_S = 0.01
# How long a process may take to end by itself when asked to. Seconds.
STOP_S = 5.0
# How long the keeper may take: the workers together, then the broker.
KEEPER_STOP_S = 2 * STOP_S + 5.0
# The longest path of a local socket is 107 bytes on Linux, and 103 on macOS.
SOCKET_PATH = 100
# How much of the end of the log is reported of a broker that does not start. Characters.
TAIL = 2000


class Keeper:
    """The process that keeps a local grid. ``join``: the broker's line for clients."""

    def __init__(self, process: subprocess.Popen[str], join: str, home: str) -> None:
        self.join = join
        self.home = Path(home)
        self.pid = process.pid
        self._process = process

    def forked(self) -> None:
        """Let go of the grid in a forked child: it lives as long as anybody holds the other end of its input."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def stop(self) -> None:
        """End the grid and remove its home."""
        _end(self._process, KEEPER_STOP_S)
        shutil.rmtree(self.home, ignore_errors=True)  # in case the keeper was killed before it did so


def start(workers: int, program: Sequence[str] = PROGRAM, *, slots: int = 1, mpi: bool = False) -> Keeper:
    """Start a grid of ``workers`` workers with so many slots each. Raises `GridUnreachable`, with its broker's log."""
    for what, number in (("worker", workers), ("slot per worker", slots)):
        if type(number) is not int or number < 1:
            raise ValueError(f"a local grid has 1 {what} or more, not {number!r}")
    check("mpi", mpi, bool, "True or False", TypeError)
    # All of them run on this machine. So nobody has to measure how fast it is, and a second is a second. Its tasks are
    # the work of whoever sits at it: they give way to nobody.
    options = json.dumps(["--slots", str(slots), "--speed", "1", "--nice", "0", "--owner", "ignore", *["--mpi"] * mpi])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "deskgrid.client.local", str(workers), options, *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={name: value for name, value in os.environ.items() if name != "DESKGRID_JOIN"},  # that is another grid's
        **_apart(),
    )
    try:
        told = json.loads(_output(process).readline() or "{}")
    except BaseException:  # such as Ctrl-C
        if sys.platform != "win32":  # there it would end without its grid, which it starts first instead
            process.terminate()
        _end(process, KEEPER_STOP_S)
        raise
    if "join" in told:
        return Keeper(process, told["join"], told["home"])
    _end(process, KEEPER_STOP_S)
    raise GridUnreachable(f"the local grid did not start: {told.get('error', 'its keeper ended at once')}")


def _apart() -> dict[str, Any]:
    """Return arguments that shield a process from Ctrl-C: an interrupted program may go on with its grid."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    else:
        return {"start_new_session": True}


def _end(process: subprocess.Popen[Any], seconds: float) -> None:
    """Close the input of ``process`` and wait for its end, or else kill it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        if process.stdout is not None:
            process.stdout.close()


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None  # it was started with a pipe
    return process.stdout


# --- in the keeper ---------------------------------------------------------------------------------------------------


class _LocalProcesses:
    """A broker and its workers, in ``home``. ``options``: of each worker."""

    def __init__(self, home: Path, options: Sequence[str], program: Sequence[str]) -> None:
        self._home = home
        self._options = options
        self._program = program
        self._broker: subprocess.Popen[str] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> str:
        """Start all processes; return the join line for clients. Raises `GridUnreachable`."""
        try:
            return self._start(workers)
        except BaseException:  # nothing has been done with them, and one that starts does not look at its input yet
            for process in [*self._workers, self._broker]:
                if process is not None:
                    process.kill()
            raise

    def _start(self, workers: int) -> str:
        log = self._home / "broker.log"
        with log.open("w") as errors:
            self._broker = subprocess.Popen(
                [
                    *self._program,
                    "broker",
                    *_listen(self._home),
                    "--home",
                    str(self._home),
                    "--durability",
                    "process",  # the broker and its home end with this program anyway
                    "--until-stdin-closes",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )
        # The workers load while the broker does, and wait for its join line.
        for number in range(1, workers + 1):
            self._workers.append(self._start_worker(number))
        self._wait_for_line(self._broker, log)
        return (self._home / "client.join").read_text(encoding="utf-8").strip()

    @staticmethod
    def _wait_for_line(broker: subprocess.Popen[str], log: Path) -> None:
        """Wait until the broker prints something, which means that it is ready."""
        output = _output(broker)
        too_late = threading.Timer(START_S, broker.kill)
        too_late.start()
        try:
            ready = output.readline()
        finally:
            too_late.cancel()  # or its thread keeps this process
        if not ready:
            broker.wait()
            raise GridUnreachable(log.read_text(errors="replace")[-TAIL:].strip() or "its broker ended at once")
        threading.Thread(target=lambda: [None for _ in output], daemon=True).start()

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        name, join = f"local-{number}", f"@{self._home / 'worker.join'}"  # a file: arguments are visible to all users
        with (self._home / f"{name}.log").open("w") as log:
            return subprocess.Popen(
                [
                    *self._program,
                    "worker",
                    "--join",
                    join,
                    "--home",
                    str(self._home),
                    "--name",
                    name,
                    *self._options,
                    "--until-stdin-closes",
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """End all processes, the workers first so that they can still tell the broker."""
        for worker in self._workers:
            if worker.stdin is not None:
                worker.stdin.close()
        for worker in self._workers:
            _end(worker, STOP_S)
        if self._broker is not None:
            _end(self._broker, STOP_S)


def _listen(home: Path) -> list[str]:
    """Return where the broker listens: on a socket in its home, which only this user can open, if that is possible.

    So nothing needs to be encrypted, which takes longer than all else with large arguments. Windows has no such sockets
    for ZeroMQ, and the path of one is short.
    """
    place = home / "socket"
    if sys.platform != "win32" and len(os.fsencode(place)) <= SOCKET_PATH:
        return ["--listen", f"ipc:{place}", "--insecure"]
    return ["--listen", "127.0.0.1:0"]


def keep(workers: int, options: Sequence[str], program: Sequence[str]) -> None:
    """Start a grid, print its join line and home as JSON, and end it when the input ends."""
    home = Path(tempfile.mkdtemp(prefix="deskgrid-local-"))
    processes = _LocalProcesses(home, options, program)
    try:
        told = {"join": processes.start(workers), "home": str(home)}
        print(json.dumps(told), flush=True)
        sys.stdin.buffer.read()
    except GridUnreachable as error:
        print(json.dumps({"error": str(error)}), flush=True)
    finally:
        processes.stop()
        shutil.rmtree(home, ignore_errors=True)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(1)  # runs the "finally" of `keep`


def await_workers(joined: Callable[[], int], count: int) -> None:
    """Wait until ``count`` workers have joined: before that, the broker would note that a bag has to wait.

    Raises `GridUnreachable` if they do not in time.
    """
    end, never = time.monotonic() + START_S, threading.Event()
    while joined() < count:
        if time.monotonic() > end:
            raise GridUnreachable(f"not all {count} workers of the local grid have joined within {precise(START_S)}")
        never.wait(_LOOK_S)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    try:
        keep(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EINVAL):  # the latter on Windows
            raise
        os._exit(1)  # the program went while its grid started
