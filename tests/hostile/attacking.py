"""Hostile peers in a process of their own: they send a given number of messages, at a pace, over a few connections.

    python -m tests.hostile.attacking

It reads its order, an `Order` in JSON, from a line of standard input, and prints what it sent. It ends when everything
is sent, when its time is over, or when its input is closed. It also prints its last messages, which show what killed
the broker if it is dead.
"""

import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import zmq
from zmq.utils import z85

from deskgrid import wire
from deskgrid.broker.auth.roles import Role
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, parse_join_line
from tests.fuzz.frames import frames as garbled
from tests.hostile.forging import Forger, Frames, Known

# It is no part of what is measured: on a machine with few cores honest processes go first.
NICE = 10
CONNECTIONS = 4
# Connections in a second without a key, and the frames that are sent over each. They come from an address of their own,
# as another machine's would.
STRANGERS_PER_S = 100
STRANGERS_FRAMES = 500
STRANGERS_HOST = "127.0.0.2"
# What a connection may not take for so long before there is another one; seconds.
STUCK_S = 1.0
# Messages that are sent between two looks at the clock.
BURST = 20
LINGER_MS = 300
# What is told of the last messages: so many, and so many of the first bytes of each.
LAST, LAST_BYTES = 40, 300
# One connection in so many reads no answers.
DEAF = 4
# One in so many without a key is a whole ZeroMQ with a key that nobody knows.
UNKNOWN = 50


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done. ``line``: the key; of whoever has ``role`` None it is only where the broker is.

    ``per_s``: the pace. ``seconds``: the most that it may take.
    """

    role: Role | None
    line: str
    seed: int
    count: int
    per_s: float
    seconds: float
    known: Known


@dataclass(slots=True)
class Sent:
    """What was sent, and what came of it. ``last``: the last messages."""

    messages: int = 0
    bytes: int = 0
    connections: int = 0
    answers: int = 0
    refused: int = 0
    seconds: float = 0.0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST))

    def add(self, frames: Frames) -> None:
        self.messages += 1
        self.bytes += sum(map(len, frames))
        self.last.append(f"{len(frames)} frames, {sum(map(len, frames))} bytes: {frames[0][:LAST_BYTES]!r}")

    def dumped(self) -> str:
        return json.dumps(asdict(self) | {"last": list(self.last)})


class Connection:
    """One that has a key, until its script is at its end or nothing more is taken."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", line: JoinLine, script: Iterator[Frames]) -> None:
        assert line.keys is not None
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 10)
        self.socket.setsockopt(zmq.SNDHWM, 200)
        self.socket.setsockopt(zmq.CURVE_SERVERKEY, z85.encode(line.keys.server))
        self.socket.setsockopt(zmq.CURVE_PUBLICKEY, z85.encode(line.keys.public))
        self.socket.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(line.keys.secret))
        self.socket.connect(line.endpoint)
        self._script = script
        self._next: Frames | None = next(script, None)
        self.taken_at = time.monotonic()

    def send(self, sent: Sent) -> bool:
        """Send the next message; False when none is taken now."""
        assert self._next is not None
        try:
            self.socket.send_multipart(self._next, zmq.NOBLOCK)
        except zmq.Again:
            return False
        sent.add(self._next)
        self.taken_at = time.monotonic()
        self._next = next(self._script, None)
        return True

    @property
    def over(self) -> bool:
        return self._next is None or time.monotonic() > self.taken_at + STUCK_S

    def hear(self, sent: Sent) -> None:
        """Take the answers."""
        with suppress(zmq.Again):
            while True:
                data = self.socket.recv_multipart(zmq.NOBLOCK)[0]
                sent.answers += 1
                with suppress(wire.ProtocolError):
                    sent.refused += isinstance(wire.decode(data), wire.Refused)


class Pace:
    """How much may be sent by now: so many a second, and no more than a second's at once."""

    def __init__(self, per_s: float, seconds: float) -> None:
        self._per_s = per_s
        self._began = self._at = time.monotonic()
        self._until = self._began + seconds
        self._allowed = 0.0
        self._sent = 0

    def allows(self, sent: int) -> bool:
        """Whether it is time for more, when ``sent`` were sent in all."""
        now = time.monotonic()
        self._allowed = min(self._per_s, self._allowed + (now - self._at) * self._per_s) - (sent - self._sent)
        self._at, self._sent = now, sent
        return self._allowed > 0

    @property
    def over(self) -> bool:
        return time.monotonic() > self._until or bool(select.select([sys.stdin], [], [], 0)[0])

    @property
    def passed(self) -> float:
        return time.monotonic() - self._began


def with_a_key(order: Order) -> Sent:
    """Attack as whoever has a lab's line, as a worker, or as a submitter."""
    assert order.role is not None
    sent, pace = Sent(), Pace(order.per_s, order.seconds)
    forger = Forger(order.seed, order.role, order.known)
    line = parse_join_line(order.line, "client" if order.role == "submitter" else "worker")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    connections: list[Connection] = []
    while sent.messages < order.count and not pace.over:
        while len(connections) < CONNECTIONS:
            connections.append(Connection(context, line, forger.script()))
            sent.connections += 1
        before = sent.messages
        for connection in connections:
            for _ in range(BURST if pace.allows(sent.messages) else 0):
                if connection.over or not connection.send(sent):
                    break
        for number, connection in enumerate(connections):
            if number % DEAF:
                connection.hear(sent)
            if connection.over:
                connection.socket.close()
        connections = [connection for connection in connections if not connection.over]
        if sent.messages == before and connections:
            connections[0].socket.poll(2)
    for connection in connections:
        connection.socket.close()
    context.term()
    sent.seconds = pace.passed
    return sent


# --- without a key ---------------------------------------------------------------------------------------------------

_GREETING = b"\xff" + bytes(8) + b"\x7f"
_MECHANISMS = (b"CURVE", b"NULL", b"PLAIN", b"GSSAPI", b"\xff" * 20, b"")
_COMMANDS = (b"HELLO", b"READY", b"INITIATE", b"MESSAGE", b"WELCOME", b"ERROR", b"PING", b"PONG", b"SUBSCRIBE", b"")


def zmtp(dice: random.Random) -> Callable[[], bytes]:
    """What makes frames of ZMTP, each wrong in another way; the first call gives a greeting."""
    greeted = False
    source = garbled(dice.getrandbits(32))

    def frame() -> bytes:
        nonlocal greeted
        if not greeted:
            greeted = True
            version = dice.choice((b"\3\1", b"\3\0", b"\2\0", b"\1\0", b"\xff\xff", b"\0\0"))
            mechanism = dice.choice(_MECHANISMS[: dice.choice((1, 1, 6))])
            greeting = _GREETING + version + mechanism.ljust(20, b"\0") + dice.choice((b"\0", b"\1")) + bytes(31)
            return greeting[: dice.choice((64, 64, 64, 64, 11, 1))]
        flags, name = dice.choice((4, 4, 4, 6, 0, 1, 2, 3, 0xFF)), dice.choice(_COMMANDS)
        lengths = (0, 1, 16, 74, 194, 194, 248)
        body = (
            bytes([len(name)]) + name + (dice.randbytes(dice.choice(lengths)) if dice.random() < 0.7 else next(source))
        )
        size = len(body) if dice.random() < 0.8 else dice.choice((0, 1, 255, 2**31, 2**62, 2**63, 2**64 - 1))
        if flags & 2:
            return bytes([flags]) + struct.pack(">Q", size) + body
        return bytes([flags, size % 256]) + body

    return frame


def without_a_key(order: Order) -> Sent:
    """Attack as whoever finds the port."""
    sent, pace, dice = Sent(), Pace(STRANGERS_PER_S, order.seconds), random.Random(order.seed)
    line = parse_join_line(order.line, "client")
    while sent.messages < order.count and not pace.over:
        if not pace.allows(sent.connections):
            select.select([], [], [], 0.002)
            continue
        sent.connections += 1
        if dice.random() * UNKNOWN < 1:
            _unknown(line, dice, sent)
        else:
            _stranger(line, zmtp(dice), sent)
    sent.seconds = pace.passed
    return sent


def _stranger(line: JoinLine, frame: Callable[[], bytes], sent: Sent) -> None:
    """Send frames until the broker hangs up, or takes no more."""
    with suppress(OSError), socket.create_connection((line.host, line.port), STUCK_S, (STRANGERS_HOST, 0)) as stream:
        stream.settimeout(STUCK_S / 20)
        for _ in range(STRANGERS_FRAMES // BURST):
            some = [frame() for _ in range(BURST)]
            stream.sendall(b"".join(some))
            for data in some:
                sent.add([data])


def _unknown(line: JoinLine, dice: random.Random, sent: Sent) -> None:
    """Shake hands with a key that nobody knows: nothing that is sent leaves before that, so that it counts for one."""
    assert line.keys is not None
    public, secret = new_pair()
    stranger = JoinLine(line.side, line.host, line.port, type(line.keys)(line.keys.server, public, secret))
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    connection = Connection(context, stranger, iter([[dice.randbytes(100)]] * 2))
    connection.send(sent)
    connection.socket.poll(50)
    connection.socket.setsockopt(zmq.LINGER, 0)
    connection.socket.close()
    context.term()


def main() -> None:
    """Carry out the order on standard input."""
    os.nice(NICE)
    given = json.loads(sys.stdin.readline())
    order = Order(**given | {"known": Known(**given["known"])})
    sent = without_a_key(order) if order.role is None else with_a_key(order)
    print(sent.dumped(), flush=True)


if __name__ == "__main__":
    main()
