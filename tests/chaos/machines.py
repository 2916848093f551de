"""A broker and workers in processes of their own, each worker behind a cable that can be cut.

Rule: all processes end, in whatever state the storm left them, and so do the processes that they started.
"""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from deskgrid.wire.joinline import JoinLine
from tests.chaos.proxy import Loopback, Proxy
from tests.live import ROOT, WORKER, BrokerProcess
from tests.waiting import PATIENCE_S, eventually

# Short, so that a storm sees workers lost and found.
LEASE_S = 2.0
# Our processes are told from all others by this in their environment.
_MARK = "DESKGRID_TEST_MARK"


class Cable(Protocol):
    """How a machine reaches the broker. ``prefix``: what a command begins with, to run at its end."""

    @property
    def prefix(self) -> tuple[str, ...]: ...
    @property
    def faults(self) -> dict[str, Callable[[], None]]: ...
    def dialled(self, line: JoinLine) -> JoinLine: ...
    def mend(self) -> None: ...
    def close(self) -> None: ...


class Network(Protocol):
    """Where the broker listens, and cables to there."""

    @property
    def listen(self) -> str: ...
    def cable(self, line: JoinLine) -> Cable: ...


class Machine:
    """What a process runs on, which can be stopped as it is, and go on."""

    _process: "BrokerProcess | subprocess.Popen[bytes] | None"

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)


class BrokerMachine(Machine):
    """The broker, at one address on one home, whatever becomes of its process."""

    _process: BrokerProcess | None

    def __init__(self, home: Path, listen: str) -> None:
        self._home = home
        self._process = BrokerProcess(home, listen, lease_s=LEASE_S)
        self.address = self._process.address
        self.worker_line, self.client_line = self._process.line("worker"), self._process.line("client")
        self.lives = 1

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def start(self) -> None:
        """Start it again, if it does not run."""
        if self._process is None:
            self._process = BrokerProcess(self._home, self.address, lease_s=LEASE_S)
            self.lives += 1

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self.thaw()
            self._process.stop()
            self._process = None


class WorkerMachine(Machine):
    """One PC: a worker's process, and the cable by which it reaches the broker of ``line``."""

    _process: "subprocess.Popen[bytes] | None"

    def __init__(self, line: JoinLine, cable: Cable, name: str, home: Path, environment: dict[str, str]) -> None:
        self.cable = cable
        join = str(cable.dialled(line))
        own = ["--home", str(home), "--name", name]
        arguments = [*WORKER, "--join", join, *own, "--slots", "1", "--until-stdin-closes"]
        self._argv = [*cable.prefix, sys.executable, "-P", "-m", "deskgrid.cli", *arguments]
        self._environment = os.environ | environment
        self._process = None
        self.start()

    def start(self) -> None:
        """Start the worker, if it does not run."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._argv,
                cwd=ROOT,
                env=self._environment,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def kill(self) -> None:
        """SIGKILL; what it runs has to die with it."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> None:
        """End it, by force if need be, and its cable."""
        if self._process is not None:
            self.thaw()
            assert self._process.stdin is not None
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
            self.kill()
        self.cable.close()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(PATIENCE_S)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process = None


class Machines:
    """A broker, ``workers`` PCs and the cable of a client; a context manager."""

    def __init__(self, home: Path, workers: int, network: Network | None = None) -> None:
        network = network or Loopback()
        self._mark = secrets.token_hex(8)
        self.broker = BrokerMachine(home, network.listen)
        # What a worker that is killed leaves in its temporary folder is in ours.
        (home / "tmp").mkdir()
        environment = {_MARK: self._mark, "TMPDIR": str(home / "tmp")}
        line = self.broker.worker_line
        self.workers = [
            WorkerMachine(line, network.cable(line), f"pc{number}", home / "pcs", environment)
            for number in range(workers)
        ]
        self.client_cable = Proxy(self.broker.client_line)

    def __enter__(self) -> "Machines":
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers:
            worker.stop()
        self.client_cable.close()
        self.broker.stop()
        assert eventually(lambda: not self.left(), PATIENCE_S), f"processes are left: {self.left()}"

    @property
    def client_line(self) -> str:
        """What a client joins by, through its cable."""
        return str(self.client_cable.dialled(self.broker.client_line))

    def left(self) -> list[int]:
        """The processes of our workers, and those that they started."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found
