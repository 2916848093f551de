"""A real broker in a process of its own, honest clients, and keys for the hostile peers.

    with lab(tmp_path) as lab, lab.pinging() as pings:
        ...
    assert lab.grown() < LIMIT and pings.latency().worst < 250 * pings.latency().beat

Everything ends with the block. If the broker or a bystander ends earlier, the test fails, and shows its last output.
"""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import zmq

from deskgrid import wire
from deskgrid.broker.auth.roles import Role
from deskgrid.client.template import PYTHON
from deskgrid.private_files import write_private
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Keys, Side, parse_join_line
from tests.commands import Command
from tests.hostile.forging import Frames, packed
from tests.live import ROOT, WORKER
from tests.memory import most_resident, resident, swapped
from tests.pace import typical
from tests.peers import BareWorker, Client, Peer, SocketLine
from tests.waiting import PATIENCE_S, eventually

_Peer = TypeVar("_Peer", bound=Peer)
# The last words of a process that ended, characters.
LAST_WORDS = 3_000


@dataclass(frozen=True, slots=True)
class Latency:
    """How long pings took, and a beat (`tests.pace`) at that time. Seconds."""

    count: int
    median: float
    p99: float
    worst: float
    beat: float

    def __str__(self) -> str:
        ms = f"{1000 * self.median:.1f} ms, p99 {1000 * self.p99:.0f}, worst {1000 * self.worst:.0f}"
        return f"{self.count:,} pings took {ms} (a beat {1000 * self.beat:.1f})"


@dataclass(slots=True)
class Pings:
    """Every ping, by when it was sent (the clock is the system's, the same in all processes); filled at the end.

    ``beats``: likewise.
    """

    rows: list[tuple[float, float]] = field(default_factory=list)
    beats: list[tuple[float, float]] = field(default_factory=list)

    def latency(self, since: float = 0.0, until: float = float("inf")) -> Latency:
        """Of those that were sent in that time."""
        took = sorted(took for at, took in self.rows if since <= at < until)
        assert took, "nobody pinged"
        beat = typical([beat for at, beat in self.beats if since <= at < until])
        return Latency(len(took), took[len(took) // 2], took[min(len(took) - 1, int(0.99 * len(took)))], took[-1], beat)


class Bystander:
    """A process of `tests.hostile.bystanders`."""

    def __init__(self, role: str, line: Path, log: Path) -> None:
        self._role, self._log = role, log
        self._said: Any = None
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.bystanders", role, str(line)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is ready: an attack that is short must not be over before

    def close(self) -> None:
        """End it, whatever it says."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> Any:
        """What it saw; fails if it ended otherwise than by our wish."""
        said, _ = self._process.communicate(timeout=4 * PATIENCE_S)
        assert self._process.returncode == 0, f"the {self._role} failed: {_last_words(self._log)}"
        return json.loads(said)


class Raw(Peer):
    """A connection by a key, on which anything can be said; ``deaf``: it takes next to nothing of what it is sent."""

    def __init__(self, line: JoinLine, *, deaf: bool = False) -> None:
        its = SocketLine(line, most=1 if deaf else None)
        super().__init__(its)
        self.socket = its.socket

    def say(self, kind: type[wire.Message], *values: Any) -> None:
        """Send what looks like a message of ``kind``; in order."""
        self.frames([packed([wire.MESSAGES.index(kind), *values])])

    def frames(self, frames: Frames) -> None:
        """Send a message; fails when it is not taken in time."""
        self.socket.send_multipart(frames)

    def has_room(self, frames: Frames) -> bool:
        """Send a message, unless too many wait."""
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def await_turn(self, request: int, seconds: float = 60.0) -> None:
        """Wait until everything that was said before has been heard; answers to it are dropped."""
        self.send(wire.Ask(request, "ping"))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self.receive(seconds)
            if isinstance(message, wire.Answer) and message.request == request:
                return
        raise AssertionError(f"the broker does not come to the end of it in {seconds} s")

    def answers(self, seconds: float) -> list[wire.Message]:
        """All that comes within that time."""
        until, found = time.monotonic() + seconds, list[wire.Message]()
        while (left := until - time.monotonic()) > 0:
            if (data := self.line.receive(left)) is not None:
                found.append(wire.decode(data))
        return found


class Lab:
    """A running broker. ``base``: its memory before anybody came."""

    def __init__(self, folder: Path, stack: ExitStack, options: tuple[str, ...]) -> None:
        self.home = folder / "home"
        self._folder, self._stack = folder, stack
        place = folder / "tmp"
        place.mkdir()
        self._place = place
        arguments = ["broker", "--home", str(self.home), "--listen", "127.0.0.1:0", *options]
        self.broker = stack.enter_context(closing(Command(arguments, place, folder / "broker.log")))
        self._await_start()
        self.base = resident(self.pid)
        self.workers: list[Command] = []
        self.pcs: dict[str, JoinLine] = {}

    def _await_start(self) -> None:
        # The port is a new one at each start; the last thing that a broker writes before it listens is this line.
        assert eventually(lambda: self._answers() or not self.is_alive, PATIENCE_S), "the broker does not start"
        assert self.is_alive, self.last_words

    def _answers(self) -> bool:
        try:
            self.client().close()
        except (OSError, AssertionError):
            return False
        return True

    @property
    def pid(self) -> int:
        return self.broker.process.pid

    @property
    def is_alive(self) -> bool:
        return self.broker.process.poll() is None

    @property
    def said(self) -> str:
        """The broker's log."""
        return (self._folder / "broker.log").read_text(encoding="utf-8", errors="replace")

    @property
    def last_words(self) -> str:
        """What the broker said last."""
        return self.said[-LAST_WORDS:]

    def restart(self) -> None:
        """Kill the broker, and start it again on its home."""
        for name in ("client.join", "worker.join", "admin.join"):
            (self.home / name).unlink()
        self.broker.kill()
        self.broker.start()
        self._await_start()
        port = self.line("worker", "worker").port
        self.pcs = {name: replace(line, port=port) for name, line in self.pcs.items()}

    def check(self) -> None:
        """Whether the broker and every worker of ours live."""
        assert self.is_alive, f"the broker died: {self.last_words}"
        for worker in self.workers:
            assert worker.process.poll() is None, f"a worker died: {_last_words(worker.log)}"

    def grown(self) -> int:
        """Bytes that the broker has had at most above what it had when it started."""
        self.check()
        return most_resident(self.pid) + swapped(self.pid) - self.base

    # --- who is there ------------------------------------------------------------------------------------------------

    def line(self, name: str, side: Side) -> JoinLine:
        """One of the home's own join lines."""
        return parse_join_line((self.home / f"{name}.join").read_text(encoding="utf-8"), side)

    def client(self, line: JoinLine | None = None) -> Client:
        """A greeted client, by the home's own key for submitters or another."""
        return self.closing(Client(SocketLine(line or self.line("client", "client"))))

    def admin(self) -> Client:
        """A client that may do everything."""
        return self.client(self.line("admin", "client"))

    def raw(self, line: JoinLine, *, deaf: bool = False) -> Raw:
        """A connection on which nothing has been said."""
        return self.closing(Raw(line, deaf=deaf))

    def submitter(self, name: str = "mallory") -> Raw:
        """A submitter who means harm and was greeted, by a key of their own."""
        return self.greeted(self.key("submitter", name))

    def greeted(self, line: JoinLine, *, deaf: bool = False) -> Raw:
        """A client's connection, greeted."""
        raw = self.raw(line, deaf=deaf)
        raw.send(wire.Hello(wire.VERSION, secrets.token_hex(4), "mallory"))
        raw.expect(wire.Greeting)
        return raw

    @staticmethod
    def introduction(name: str, **changes: Any) -> wire.Join:
        """How an open-ended worker of one slot introduces itself, but for ``changes``."""
        fields: dict[str, Any] = {
            "name": name,
            "session": secrets.token_hex(8),
            "opening": 1,
            "slots": 1,
            "uptime": None,
        }
        fields |= {"version": wire.VERSION, "pythons": (PYTHON,), "host": "h", "site": "", "kind": "until"}
        return wire.Join(**fields | {"plan": "", "windows": (), "running": ()} | changes)

    def bare_worker(self, name: str, claimed: str = "") -> BareWorker:
        """A PC's connection, on which nothing has been said. ``claimed``: how it will call itself instead."""
        if name not in self.pcs:
            self.pcs[name] = self.key("worker", name)
        return self.closing(BareWorker(SocketLine(self.pcs[name]), claimed or name))

    def closing(self, peer: _Peer) -> _Peer:
        self._stack.callback(peer.close)
        return peer

    def key(self, role: Role, name: str) -> JoinLine:
        """A new credential."""
        public, secret = new_pair()
        with closing(Client(SocketLine(self.line("admin", "client")))) as admin:
            admin.ask("keys add", role=role, name=name, public=public.hex())
        side: Side = "worker" if role in ("lab", "worker") else "client"
        own = self.line("client", "client")
        assert own.keys is not None
        return JoinLine(side, own.host, own.port, Keys(own.keys.server, public, secret))

    def saved(self, line: JoinLine, name: str) -> Path:
        """A file with that join line."""
        path = self._folder / f"{name}.join"
        write_private(path, f"{line}\n".encode())
        return path

    def worker(self, name: str = "honest", slots: int = 1) -> None:
        """An honest PC, in a process of its own, which has joined."""
        line = self.home / "worker.join"
        own = ["--home", str(self._folder / "pcs"), "--name", name]
        arguments = [*WORKER, "--join", f"@{line}", *own, "--slots", str(slots)]
        worker = self._stack.enter_context(closing(Command(arguments, self._place, self._folder / f"{name}.log")))
        self.workers.append(worker)
        client = self.client()
        assert eventually(lambda: any(row["name"] == name for row in client.ask("status")["workers"]), PATIENCE_S)

    @contextmanager
    def pinging(self) -> Iterator[Pings]:
        """Somebody pings, by a key of their own. What is found is there when the block ends."""
        pings = Pings()
        path = self.saved(self.key("submitter", "pinger"), "pinger")
        pinger = self._stack.enter_context(closing(Bystander("pinger", path, self._folder / "pinger.log")))
        yield pings
        found = pinger.end()
        pings.rows += [(at, took) for at, took in found["pings"]]
        pings.beats += [(at, beat) for at, beat in found["beats"]]

    def customer(self) -> Bystander:
        """Somebody has bag after bag done, and checks all results."""
        log = self._folder / "customer.log"
        return self._stack.enter_context(closing(Bystander("customer", self.home / "client.join", log)))

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """What the command line says, as its admin."""
        argv = [sys.executable, "-P", "-m", "deskgrid.cli", *arguments, "--join", f"@{self.home / 'admin.join'}"]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, timeout=PATIENCE_S * 2, check=False)


def _last_words(log: Path | None) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:] if log is not None else ""


@contextmanager
def lab(folder: Path, *options: str) -> Iterator[Lab]:
    """A broker on a new home in ``folder``; ``options`` are of ``deskgrid broker``."""
    with ExitStack() as stack:
        made = Lab(folder, stack, options)
        yield made
        made.check()
