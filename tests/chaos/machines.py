"""A broker and workers in processes of their own, each worker behind a cable that can be cut, and a storm over them.

Rule: what was started ends, whatever the storm left it in, and nothing that it started is left.
"""

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.chaos.proxy import Proxy
from tests.live import ROOT, BrokerProcess
from tests.waiting import eventually

# Short, so that a storm sees workers lost and found.
LEASE_S = 2.0
PATIENCE_S = 30.0
# Our processes are told from all others by this in their environment.
_MARK = "DESKGRID_TEST_MARK"


class BrokerMachine:
    """The broker, at one address on one home, whatever becomes of its process."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: BrokerProcess | None = BrokerProcess(home, lease_s=LEASE_S)
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

    def freeze(self) -> None:
        """SIGSTOP."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self.thaw()
            self._process.stop()
            self._process = None


class WorkerMachine:
    """One PC: a worker's process, and the cable by which it reaches the broker."""

    def __init__(self, broker: BrokerMachine, name: str, environment: dict[str, str]) -> None:
        self.cable = Proxy(broker.worker_line.port)
        line = replace(broker.worker_line, port=self.cable.port)
        arguments = ["worker", "--join", str(line), "--name", name, "--slots", "1", "--until-stdin-closes"]
        self._argv = [sys.executable, "-P", "-m", "broker.cli", *arguments]
        self._environment = os.environ | environment
        self._process: subprocess.Popen[bytes] | None = None
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

    def freeze(self) -> None:
        """SIGSTOP."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)

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

    def __init__(self, home: Path, workers: int) -> None:
        self._mark = secrets.token_hex(8)
        self.broker = BrokerMachine(home)
        # What a worker that is killed leaves in its temporary folder is in ours.
        (home / "tmp").mkdir()
        environment = {_MARK: self._mark, "TMPDIR": str(home / "tmp")}
        self.workers = [WorkerMachine(self.broker, f"pc{number}", environment) for number in range(workers)]
        self.client_cable = Proxy(self.broker.client_line.port)

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
        return str(replace(self.broker.client_line, port=self.client_cable.port))

    def left(self) -> list[int]:
        """The processes of our workers, and those that they started."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found


class Storm:
    """Faults at random, from a seed, one after the other in a thread; each is over some seconds after it began."""

    def __init__(self, machines: Machines, seed: int) -> None:
        self._machines = machines
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.faults: list[str] = []
        self._lasts = 0.0
        self._thread = threading.Thread(target=self._main, daemon=True)

    def blow(self, seconds: float) -> None:
        """Begin; it is calm by itself after so many seconds."""
        self._lasts = seconds
        self._thread.start()

    def calm(self) -> None:
        """Let it be over, and everything in order. Raises what went wrong."""
        self._over.set()
        self._thread.join(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def _put_right(self) -> None:
        for worker in self._machines.workers:
            self._well(worker)
        self._machines.client_cable.mend()
        self._machines.broker.thaw()
        self._machines.broker.start()

    @staticmethod
    def _well(worker: WorkerMachine) -> None:
        worker.cable.mend()
        worker.thaw()
        worker.start()

    def _main(self) -> None:
        # What is to be put right again: (seconds from the beginning of the storm, how).
        mending: list[tuple[float, Callable[[], None]]] = []
        now = 0.0
        try:
            while not self._over.is_set() and now < self._lasts:
                for _, mend in [row for row in mending if row[0] <= now]:
                    mend()
                mending = [row for row in mending if row[0] > now]
                mend, seconds = self._strike()
                mending.append((now + seconds, mend))
                pause = self._random.uniform(0.2, 0.8)
                now += pause
                self._over.wait(pause)
            self._put_right()
        except BaseException as error:
            self._failure = error

    def _strike(self) -> tuple[Callable[[], None], float]:
        """One fault; how it is put right, and after how many seconds."""
        if self._random.random() < 0.3:
            return self._strike_broker()
        number = self._random.randrange(len(self._machines.workers))
        worker, seconds = self._machines.workers[number], self._random.choice([0.0, 0.5, 1.5, 4.0])
        faults = {"kill": worker.kill, "freeze": worker.freeze, "cut": worker.cable.cut, "stall": worker.cable.stall}
        return self._done(f"pc{number}", faults, lambda: self._well(worker), seconds)

    def _strike_broker(self) -> tuple[Callable[[], None], float]:
        broker, cable = self._machines.broker, self._machines.client_cable

        def well() -> None:
            broker.thaw()
            broker.start()
            cable.mend()

        faults = {"kill": broker.kill, "freeze": broker.freeze, "cut client": cable.cut, "stall client": cable.stall}
        return self._done("broker", faults, well, self._random.choice([0.0, 0.3, 1.0]))

    def _done(
        self, what: str, faults: dict[str, Callable[[], None]], well: Callable[[], None], seconds: float
    ) -> tuple[Callable[[], None], float]:
        name = self._random.choice(list(faults))
        self.faults.append(f"{name} {what}")
        faults[name]()
        return well, seconds
