"""A real grid on this machine, for tests: brokers, workers and bare peers over real sockets, and all of it ends.

    with live_grid(tmp_path, workers=2) as grid:
        client = grid.client()
        bag = client.submit([call(3)], template=python_template(lambda x: x + 1))
        results = client.results(bag)

Rules:

1. Everything that was started through a grid ends with it, whatever fails. A thread that does not end fails the test,
   and so does a thread that ended with an error that the test has not fetched (`Live.failure`).
2. Nothing here sleeps: threads are joined, sockets polled, the rest is `eventually`.

`BrokerProcess` is a broker in a process of its own, for tests that kill it: ``python -m tests.live HOME HOST:PORT
LEASE``.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from deskgrid.broker.server import BrokerOptions, Ready, serve
from deskgrid.wire.joinline import JoinLine, Side, parse_join_line
from deskgrid.worker.agent import WorkerOptions, run_worker
from deskgrid.worker.windows.uptime import UptimePlan
from tests.peers import BareWorker, Client, Peer, SocketLine, enrolled
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[1]
# How tests start a worker as a process: on a machine that is busy with tests, tasks that give way would starve.
WORKER = ("worker", "--nice", "0", "--owner", "ignore")
# Of a live broker: short enough that a test sees several, long enough that a busy machine loses nobody.
HEARTBEAT_S = 0.2
LEASE_S = 6.0


class Live:
    """One loop in a thread: ``run(stopping)`` until it is stopped."""

    def __init__(self, name: str, run: Callable[[Callable[[], bool]], None]) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._run = run
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def _main(self) -> None:
        try:
            self._run(self._stop.is_set)
        except BaseException as error:
            self._error = error

    @property
    def ended(self) -> bool:
        """Whether the loop has ended, one way or another."""
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def wait(self) -> None:
        """Wait until it ends; raises what it ended with."""
        self._thread.join(PATIENCE_S)
        assert self.ended, f"{self._thread.name} does not end"
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def stop(self) -> None:
        """End it; raises what it ended with, once."""
        self.ask_to_stop()
        self.wait()

    def failure(self) -> BaseException:
        """What it ended with by itself; the test has seen it then."""
        self._thread.join(PATIENCE_S)
        assert self._error is not None, f"{self._thread.name} did not fail"
        error, self._error = self._error, None
        return error


class LiveBroker(Live):
    """A broker in a thread; ``ready`` says where. Options are those of `BrokerOptions`."""

    def __init__(self, home: Path, listen: str = "127.0.0.1:0", **options: Any) -> None:
        chosen = {"heartbeat_s": HEARTBEAT_S, "lease_s": LEASE_S} | options
        self.options = BrokerOptions(home, listen, **chosen)
        self._ready: Ready | None = None
        super().__init__("broker", lambda stopping: serve(self.options, self._announce, stopping))

    def _announce(self, ready: Ready) -> None:
        self._ready = ready

    def start(self) -> None:
        """Start it, and wait until it listens; raises what it ended with instead."""
        super().start()
        eventually(lambda: self._ready is not None or self.ended, PATIENCE_S)
        if self._ready is None:
            self.wait()

    @property
    def ready(self) -> Ready:
        """Where it listens, and its join lines."""
        assert self._ready is not None
        return self._ready

    def line(self, side: Side) -> JoinLine:
        """The join line for a worker or a client."""
        ready = self.ready
        return parse_join_line(ready.worker_line if side == "worker" else ready.client_line, side)


class LiveWorker(Live):
    """A worker in a thread; its tasks run in processes as always. ``said`` is what it told people.

    ``home``: where its identity is; without it, it has none when it ends. ``more``: options of `WorkerOptions`.
    """

    def __init__(
        self,
        join: JoinLine,
        name: str = "pc1",
        slots: int = 1,
        plan: UptimePlan | None = None,
        home: Path | None = None,
        **more: Any,
    ) -> None:
        self.said: list[str] = []
        more = {"speed": 1.0, "nice": 0} | more
        self._options = WorkerOptions(join, slots, name, home or Path(), "lab", plan, **more)
        super().__init__(name, self._work if home else self._work_in_a_new_home)

    def _work(self, stopping: Callable[[], bool]) -> None:
        run_worker(self._options, stopping, self.said.append)

    def _work_in_a_new_home(self, stopping: Callable[[], bool]) -> None:
        with TemporaryDirectory() as home:
            self._options = replace(self._options, home=Path(home))
            self._work(stopping)

    def has_said(self, text: str, times: int = 1) -> bool:
        """Whether at least so many lines contain ``text``."""
        return sum(text in line for line in self.said) >= times


class LiveGrid:
    """A broker, and whatever else a test starts with these methods; `live_grid` ends it all."""

    def __init__(self, home: Path, stack: ExitStack, listen: str, **options: Any) -> None:
        self.home = home
        self._stack = stack
        self._options = options
        self.workers: list[LiveWorker] = []
        self.pcs: dict[str, JoinLine] = {}
        self.broker = self._broker(listen)

    def _broker(self, listen: str) -> LiveBroker:
        broker = LiveBroker(self.home, listen, **self._options)
        self._stack.callback(broker.stop)
        broker.start()
        return broker

    def restart(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Stop the broker, do something, and start another one on the same home and port."""
        self.broker.stop()
        meanwhile()
        self.broker = self._broker(self.broker.ready.address)

    def start_worker(
        self,
        name: str = "pc1",
        slots: int = 1,
        plan: UptimePlan | None = None,
        line: JoinLine | None = None,
        **more: Any,
    ) -> LiveWorker:
        """A worker that has just been started, by the broker's join line or another. ``more``: as in `LiveWorker`."""
        chosen = line or self.broker.line("worker")
        worker = LiveWorker(chosen, name, slots, plan, Path(f"{self.home}-pcs"), **more)
        self._stack.callback(worker.stop)
        self.workers.append(worker)
        worker.start()
        return worker

    def worker(self, name: str = "pc1", slots: int = 1, plan: UptimePlan | None = None, **more: Any) -> LiveWorker:
        """A worker that has joined."""
        worker = self.start_worker(name, slots, plan, **more)
        assert self.joined(worker) or worker.ended
        return worker

    @staticmethod
    def joined(worker: LiveWorker) -> bool:
        """Whether a worker that was started joins."""
        eventually(lambda: worker.ended or worker.has_said("joined"), PATIENCE_S)
        return worker.has_said("joined")

    def client(self, **options: Any) -> Client:
        """A client that was greeted."""
        return self.closing(Client(SocketLine(self.broker.line("client")), **options))

    def admin(self) -> Client:
        """A client that may do everything."""
        line = parse_join_line((self.home / "admin.join").read_text(encoding="utf-8"), "client")
        return self.closing(Client(SocketLine(line)))

    def pc_line(self, name: str) -> JoinLine:
        """The line of a PC of that name, which enrols if it has not."""
        if name not in self.pcs:
            self.pcs[name] = enrolled(self.broker.line("worker"), name)
        return self.pcs[name]

    def bare_worker(self, name: str = "bare", session: str | None = None) -> BareWorker:
        """A connection that has not joined yet."""
        return self.closing(BareWorker(SocketLine(self.pc_line(name)), name, session))

    def peer(self, line: JoinLine) -> Peer:
        """A connection by any join line."""
        return self.closing(Peer(SocketLine(line)))

    def closing(self, peer: "_Peer") -> "_Peer":
        self._stack.callback(peer.close)
        return peer


_Peer = TypeVar("_Peer", bound=Peer)


@contextmanager
def live_grid(home: Path, workers: int = 0, listen: str = "127.0.0.1:0", **options: Any) -> Iterator[LiveGrid]:
    """A broker on ``home`` with ``workers`` open-ended workers of one slot; options are those of `BrokerOptions`."""
    with ExitStack() as stack:
        grid = LiveGrid(home, stack, listen, **options)
        for number in range(workers):
            grid.worker(f"pc{number + 1}")
        yield grid
        # All at once, rather than one after the other: each takes a moment to look.
        for live in [*grid.workers, grid.broker]:
            live.ask_to_stop()


class BrokerProcess:
    """A broker in a process of its own, which ends when its input does. ``command``: the module to run, and more."""

    def __init__(
        self,
        home: Path,
        listen: str = "127.0.0.1:0",
        lease_s: float = LEASE_S,
        command: Sequence[str] = ("tests.live",),
    ) -> None:
        self.home = home
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command, str(home), listen, str(lease_s)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        assert told, "the broker's process ended before it was ready"
        self.address, self._worker_line, self._client_line = json.loads(told)

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, side: Side) -> JoinLine:
        """The join line for a worker or a client."""
        return parse_join_line(self._worker_line if side == "worker" else self._client_line, side)

    def kill(self) -> None:
        """End it without a chance to do anything more."""
        self._process.kill()
        self._wait()

    def outlive(self) -> None:
        """Wait until it ends by itself."""
        self._wait()

    def stop(self) -> None:
        """End it as its parent's end would."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._wait()

    def _wait(self) -> None:
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main(home: str, listen: str, lease_s: str, *, ready: Callable[[], None] = lambda: None, **options: Any) -> None:
    """What runs in a `BrokerProcess`. ``ready`` is called when it has been said that the broker is there."""
    broker = LiveBroker(Path(home), listen, lease_s=float(lease_s), **options)
    broker.start()
    at = broker.ready
    print(json.dumps([at.address, at.worker_line, at.client_line]), flush=True)
    ready()
    sys.stdin.read()
    broker.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
