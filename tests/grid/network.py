"""Virtual time and a virtual network: TCP connections to one broker, with all the faults that TCP allows.

Rule 1: one seed, one run. Events at the same instant happen in the order in which they were planned.
Rule 2: on a connection, messages arrive whole and in order, until it breaks. Then a first part of the messages in
flight may still arrive; the rest is lost. The broker knows the next connection by another name. TCP delivers each
message once, but peers need not rely on that: a cable may have an echo.
Rule 3: the two ends of a connection learn of its end at different times. Messages sent in between are lost silently.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

# Between two attempts to connect, seconds: what the worker's loop asks of ZeroMQ.
BACKOFF_S = (0.1, 3.0)
# After so much silence of the line a peer gives its connection up, and the broker later.
PEER_PATIENCE_S = 15.0
BROKER_PATIENCE_S = 30.0
# How long a process takes to see what arrived, at most; what comes meanwhile is seen with it.
TURN_S = 0.004
# How many of the last lines are kept to tell what led to a failure.
REMEMBERED = 400


class World:
    """Time, chance, and what is to happen."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._trace: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=REMEMBERED)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Have ``action`` happen at ``time``, or now if that is past."""
        heapq.heappush(self._heap, (max(time, self.now), self._planned, action))
        self._planned += 1

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have ``action`` happen in ``seconds``."""
        self.at(self.now + seconds, action)

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let everything happen that is planned before ``until``, or until ``done()``; whether it is done."""
        while not done():
            if not self._heap or self._heap[0][0] > until:
                self.now = max(self.now, until)
                return done()
            self.now, _, action = heapq.heappop(self._heap)
            self.events += 1
            action()
        return True

    def note(self, text: str, *values: object) -> None:
        """Remember what happened, for whoever has to find out why a seed fails."""
        self._trace.append((self.now, text, values))

    def story(self, lines: int = REMEMBERED) -> str:
        """The last of what happened."""
        kept = list(self._trace)[-lines:]
        return "\n".join(f"{time:10.3f}  {text.format(*values)}" for time, text, values in kept)


class Wakeup:
    """One node's next turn: the earliest that was asked for."""

    def __init__(self, world: World, turn: Callable[[], None]) -> None:
        self._world = world
        self._turn = turn
        self._at = math.inf

    def set(self, time: float) -> None:
        """Have a turn at ``time``, unless there is one before."""
        if time < self._at:
            self._at = time
            self._world.at(time, lambda: self._fire(time))

    def clear(self) -> None:
        """No turn, until another is asked for."""
        self._at = math.inf

    def _fire(self, time: float) -> None:
        if time == self._at:
            self._at = math.inf
            self._turn()


class Cable:
    """How one PC reaches the broker's machine."""

    def __init__(self, world: World, delay_s: float) -> None:
        self._world = world
        self.delay_s = delay_s
        self.echo = 0.0  # which part of the messages arrives twice
        self.cut = False
        self.pipes: list[Pipe] = []

    def delay(self) -> float:
        """Seconds that the next message takes: seldom much more than the usual."""
        return self.delay_s * (0.5 + self._world.random.expovariate(2.0))

    def mend(self) -> None:
        """Messages get through again, those that waited first."""
        self.cut = False
        for pipe in list(self.pipes):
            pipe.flow()


class Pipe:
    """One direction of a connection."""

    def __init__(self, world: World, cable: Cable, deliver: Callable[[bytes], None]) -> None:
        self._world = world
        self._cable = cable
        self._deliver = deliver
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._last = 0.0
        self._end: Callable[[], None] | None = None
        self.dead = False
        cable.pipes.append(self)

    def put(self, data: bytes) -> None:
        """Send ``data``; into a dead pipe, for nothing."""
        if not self.dead:
            self._last = max(self._last, self._world.now + self._cable.delay())
            twice = self._cable.echo and self._world.random.random() < self._cable.echo
            self._waiting += [(self._last, data)] * (2 if twice else 1)
            self._world.at(self._last, self.flow)

    def flow(self) -> None:
        """Deliver what is due."""
        while self._waiting and self._waiting[0][0] <= self._world.now and not self._cable.cut:
            self._deliver(self._waiting.popleft()[1])
        if not self._waiting and self._end is not None and not self._cable.cut:
            self._cable.pipes.remove(self)
            end, self._end = self._end, None
            end()

    def kill(self, end: Callable[[], None], kept: int | None = None) -> None:
        """Nothing new gets in. The first ``kept`` of what is inside still arrive (None: all), then ``end()``."""
        if self.dead:
            return
        self.dead = True
        self._end = end
        while kept is not None and len(self._waiting) > kept:
            self._waiting.pop()
        self._world.at(max(self._last, self._world.now) if self._waiting else self._world.now, self.flow)

    def drop(self, end: Callable[[], None]) -> None:
        """Nothing gets in or out any more, not even of what is inside; ``end()`` is called, cable or no cable."""
        if self._end is None and self.dead:
            return
        self.dead, self._end = True, None
        self._waiting.clear()
        self._cable.pipes.remove(self)
        end()

    def __len__(self) -> int:
        return len(self._waiting)


class Peer(Protocol):
    """Who dials: a worker's or a client's driver."""

    cable: Cable
    role: str

    def opened(self, connection: "Connection") -> None: ...
    def arrived(self, connection: "Connection", data: bytes) -> None: ...
    def closed(self, connection: "Connection") -> None: ...


class Connection:
    """One connection, from the handshake until both ends know that it is over."""

    def __init__(self, port: "Port", world: World, peer: Peer, name: bytes) -> None:
        self.name = name
        self.peer = peer
        self.open_here = True
        self.open_there = True
        self.clogged = False  # the peer takes nothing, and the broker does not wait for it
        self._port = port
        self._epoch = port.epoch
        self._world = world
        self._up = Pipe(world, peer.cable, self._arrive_there)
        self._down = Pipe(world, peer.cable, lambda data: peer.arrived(self, data))

    def _arrive_there(self, data: bytes) -> None:
        if self._epoch == self._port.epoch:
            self._port.arrived(self.name, self.peer.role, data)

    def to_broker(self, data: bytes) -> bool:
        """Send; whether there is a connection, as far as the peer knows."""
        if self.open_here:
            self._up.put(data)
        return self.open_here

    def to_peer(self, data: bytes) -> bool:
        """Send; whether there is a connection that takes it, as far as the broker knows."""
        if self.clogged or not self.open_there:
            return False
        self._down.put(data)
        return True

    def unclog(self) -> None:
        """The peer takes messages again."""
        self.clogged = False

    def cut(self, *, half_open: bool = False) -> None:
        """It breaks. ``half_open``: the broker does not notice before its patience ends."""
        chance = self._world.random
        for pipe, end in ((self._up, self._nothing), (self._down, self._close_here)):
            pipe.kill(end, kept=chance.randint(0, len(pipe)) if chance.random() < 0.3 else 0)
        if half_open:
            self._world.after(BROKER_PATIENCE_S, self._close_there)
        else:
            self._close_there()

    def hang_up(self) -> None:
        """The peer closes it, or its process ends: what it has sent arrives."""
        self.open_here = False
        self._up.kill(self._close_there)
        self._down.drop(self._nothing)

    def abort(self) -> None:
        """The broker's process ends; perhaps the kernel still delivers what was sent."""
        chance = self._world.random
        self._close_there()
        self._up.drop(self._nothing)
        self._down.kill(self._close_here, kept=chance.randint(0, len(self._down)))

    def time_out(self, *, at_peer: bool) -> None:
        """One end has heard nothing for so long that it gives up."""
        self._up.drop(self._nothing)
        self._down.drop(self._nothing)
        if at_peer:
            self._close_here()
            self._world.after(BROKER_PATIENCE_S - PEER_PATIENCE_S, self._close_there)
        else:
            self._close_there()
            self._world.after(self.peer.cable.delay(), self._close_here)

    def _nothing(self) -> None:
        pass

    def _close_here(self) -> None:
        if self.open_here:
            self.open_here = False
            self.peer.closed(self)

    def _close_there(self) -> None:
        self.open_there = False
        self._port.connections.pop(self.name, None)


class Port:
    """The broker's one port. ``arrived`` is the broker's, and gets (connection, role, bytes)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made = 0
        self.listening = False
        self.epoch = 0  # of the process that listens: what was sent to one never reaches the next
        self.connections: dict[bytes, Connection] = {}
        self.arrived: Callable[[bytes, str, bytes], None] = lambda name, role, data: None

    def accept(self, peer: Peer) -> Connection | None:
        """A new connection, known by a name that was never used; None when nobody answers."""
        if not self.listening or peer.cable.cut:
            return None
        self._made += 1
        connection = Connection(self, self._world, peer, b"%05d" % self._made)
        self.connections[connection.name] = connection
        return connection

    def send(self, name: bytes, data: bytes) -> bool:
        """Whether there is such a connection, as far as the broker's machine knows."""
        connection = self.connections.get(name)
        return connection is not None and connection.to_peer(data)

    def abort(self, name: bytes) -> None:
        """The broker cuts a connection off, if there is one of that name."""
        if (connection := self.connections.get(name)) is not None:
            connection.abort()

    def abort_all(self) -> None:
        """The broker's process ends."""
        self.listening = False
        self.epoch += 1
        for connection in list(self.connections.values()):
            connection.abort()


class Dialler:
    """Connects a peer again and again, as ZeroMQ does."""

    def __init__(self, world: World, port: Port, peer: Peer) -> None:
        self._world = world
        self._port = port
        self._peer = peer
        self._backoff = BACKOFF_S[0]
        self._dialling = 0
        self.connection: Connection | None = None

    def start(self) -> None:
        """Dial until it works."""
        self._dialling += 1
        self._backoff = BACKOFF_S[0]
        self._plan(self._dialling, 2 * self._peer.cable.delay())

    def stop(self) -> Connection | None:
        """Dial no more; the connection that there was."""
        self._dialling += 1
        connection, self.connection = self.connection, None
        return connection

    def lost(self) -> None:
        """The connection is gone: dial again."""
        self.connection = None
        self._dialling += 1
        self._plan_next(self._dialling)

    def clog(self, name: str, seconds: float) -> None:
        """What the broker sends to ``name`` finds no room for a while, if there is a connection."""
        connection = self.connection
        if connection is not None:
            self._world.note("{}: the connection is clogged for {:.1f} s", name, seconds)
            connection.clogged = True
            self._world.after(seconds, connection.unclog)

    def _plan(self, dialling: int, wait: float) -> None:
        self._world.after(wait, lambda: self._try(dialling))

    def _try(self, dialling: int) -> None:
        if dialling != self._dialling:
            return
        self.connection = self._port.accept(self._peer)
        if self.connection is not None:
            self._backoff = BACKOFF_S[0]
            self._peer.opened(self.connection)
        else:
            self._plan_next(dialling)

    def _plan_next(self, dialling: int) -> None:
        wait = self._backoff * self._world.random.uniform(0.5, 1.0) + 2 * self._peer.cable.delay()
        self._backoff = min(2 * self._backoff, BACKOFF_S[1])
        self._plan(dialling, wait)
