"""A real broker's port under bytes that nobody should send, while honest peers go on.

python -m tests.fuzz.port --count 200000 --seed 1       what ``make soak`` runs
"""

import argparse
import random
import socket
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from broker import protocol as wire
from broker.joinline import JoinLine
from broker.server import python_minor
from tests.executor.rig import call, python_template
from tests.fuzz.frames import frames
from tests.live import BrokerProcess, LiveWorker
from tests.memory import resident
from tests.peers import PATIENCE_S, Client, SocketLine

# Frames that are sent over each connection before there is a new one, and raw connections beside each.
FRAMES = 500
RAW = 5
# What the resident memory may grow by after the first quarter: allocators keep some, and a leak would be more.
GROWTH_BYTES = 12 * 2**20
# As ZeroMQ begins: the signature and the version, and what belongs to CURVE.
GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE" + bytes(15 + 32)


@dataclass(slots=True)
class Tried:
    """What was sent, and how the broker's memory grew after the first quarter of it."""

    frames: int = 0
    raw: int = 0
    tasks: int = 0
    grown: int = 0

    def __str__(self) -> str:
        sent = f"{self.frames:,} frames and {self.raw:,} raw connections"
        return f"{sent}; {self.tasks} honest tasks done meanwhile, memory grew by {self.grown / 2**20:.1f} MiB"


def _raw(port: int, dice: random.Random) -> None:
    """A TCP connection that is no ZeroMQ, or stops being it."""
    beginnings = (b"", b"GET / HTTP/1.1\r\n\r\n", GREETING, GREETING[:30], GREETING + b"\x04\x26\x05HELLO")
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.sendall(dice.choice(beginnings) + dice.randbytes(dice.choice([0, 10, 1000])))


def _introduction(line: JoinLine, seed: int) -> wire.Message:
    """Who is let in is listened to. As a worker it is away, lest honest work waits for it."""
    if line.side == "client":
        return wire.Hello(wire.VERSION, python_minor(), f"fuzz{seed}", "mallory")
    rows = (f"fuzz{seed}", f"fuzz{seed}", 1, "", "", 2, "until", "", 0.0, (), ())
    return wire.Join(wire.VERSION, python_minor(), *rows)


def _frames(line: JoinLine, seed: int, count: int) -> None:
    """Mutated frames over a connection that was let in; its answers are read, now and then."""
    peer, source = SocketLine(line), frames(seed)
    try:
        peer.send(wire.encode(_introduction(line, seed)))
        for number in range(count):
            peer.send(next(source))
            while number % 50 == 49 and peer.receive(0.0) is not None:
                pass
    finally:
        peer.close()


def attack(home: Path, count: int, seed: int) -> Tried:
    """Send ``count`` frames, by turns as a worker and as a client; raises when anybody honest is hurt."""
    tried, dice, before = Tried(), random.Random(seed), 0
    with ExitStack() as stack:
        broker = BrokerProcess(home)
        stack.callback(broker.stop)
        worker = LiveWorker(broker.line("worker"), "honest")
        stack.callback(worker.stop)
        worker.start()
        client = Client(SocketLine(broker.line("client")))
        stack.callback(client.close)
        rounds = max(4, count // FRAMES)
        for number in range(rounds):
            side = broker.line("worker" if number % 2 else "client")
            _frames(side, seed * rounds + number, count // rounds)
            for _ in range(RAW):
                _raw(side.port, dice)
            bag = client.submit([call(number)], python_template(lambda x: x + 1), runtime=0.1)
            assert client.results(bag), "honest work goes on"
            tried.frames, tried.raw, tried.tasks = tried.frames + count // rounds, tried.raw + RAW, tried.tasks + 1
            if number == rounds // 4:
                before = resident(broker.pid)
        tried.grown = resident(broker.pid) - before
        assert tried.grown < GROWTH_BYTES, f"the broker's memory grew: {tried}"
        assert not worker.ended
    return tried


def main() -> None:
    """Attack as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.port", description="Garbage for a real broker's port.")
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deskgrid-port-") as folder:
        print(f"port, seed {asked.seed}: {attack(Path(folder), asked.count, asked.seed)}")


if __name__ == "__main__":
    main()
