"""The machines of a virtual grid: the broker's and the PCs', with drivers that do what the real loops do.

Rule 1: the broker's driver is the real loop, but for its sockets and its clock.
Rule 2: the worker's driver does what `worker.agent` does in a turn: what happened to the connection first, then the
messages, then the session's tick.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from broker import protocol as wire
from broker import server
from broker.desk import Desk, GridFacts
from broker.journal import Journal
from broker.sessions import Sessions
from scheduler.policies import Policy
from tests.grid.fakes import FakeExecutor, FakeWindows
from tests.grid.network import Cable, Connection, Dialler, Port, Wakeup, World
from tests.grid.witness import Witness
from worker.session import Identity, Session
from worker.uptime import Instant, OpenEnded, Plan, weekly_from_json

PYTHON = "3.11"
# When a virtual clock shows 0, clocks on walls show this: a Monday, 10:00 UTC.
WALL_S = 1_767_607_200.0
# Their monotonic clocks, this.
BOOT_S = 12_345.0
# How long the broker and a PC take to see what arrived, at most; what comes meanwhile is seen with it.
TURN_S = 0.004
# How often the broker has a turn although nothing arrived; the real one looks up more often.
TICK_S = 1.0
# Of the turns in which nothing happened but the passing of time, one in so many is checked.
SELDOM = 8
# The tag of the one message that changes nothing most of the time.
HEARTBEAT = wire.MESSAGES.index(wire.Heartbeat)
# As in the worker's loop: how soon it looks again after its plan changed, and how long it waits for the last answers.
LOOK_S = 0.2
LAST_RESULTS_S = 3.0


class BrokerKilled(BaseException):
    """SIGKILL; no handler of errors may catch it."""


class Steps:
    """Where the broker can be killed: at the n-th step of a kind from now, or of any kind."""

    def __init__(self) -> None:
        self.counted = 0
        self._kind = ""
        self._left: int | None = None

    def arm(self, kind: str, left: int) -> None:
        """Kill the broker after ``left`` more steps whose name begins with ``kind``."""
        self._kind, self._left = kind, left

    def disarm(self) -> None:
        """Let it live."""
        self._left = None

    def step(self, name: str) -> None:
        """The broker is about to go on."""
        if self._left is None or not name.startswith(self._kind):
            return
        self._left -= 1
        if self._left < 0:
            self._left = None
            self.counted += 1
            raise BrokerKilled(name)


class WatchedJournal(Journal):
    """The real journal, in which the broker can be killed around each commit."""

    def __init__(self, home: Path, steps: Steps, witness: Witness) -> None:
        super().__init__(home)
        self._steps = steps
        self._witness = witness

    @property
    def uncommitted(self) -> bool:
        """Whether there is something that a crash would undo."""
        return self._db.in_transaction

    def commit(self) -> None:
        wrote = self.uncommitted
        if wrote:
            self._steps.step("commit: before")
        super().commit()
        if wrote:
            self._witness.committed(self)
            self._steps.step("commit: after")

    def lose(self) -> None:
        """The process ends: what was not committed never was."""
        self._db.close()


class Loop(server._Loop):
    """The broker's loop on virtual time; stands in for its sockets, too."""

    def __init__(self, broker: "BrokerNode", sessions: Sessions, journal: WatchedJournal) -> None:
        super().__init__(sessions, cast(Any, self), journal)
        self._broker = broker
        self._began = broker.world.now
        self._watched = journal
        self._quiet = 0
        sessions.restore(self._now())
        self._look_at_windows()

    def _now(self) -> float:
        return self._broker.world.now - self._began

    def turn(self) -> None:
        """What ``run`` does when the poller returns."""
        self._drain()
        if self._now() >= self._windows_at:
            self._look_at_windows()
        outbox = self._sessions.settle(self._now())
        self._broker.steps.step("settle")
        self._quiet = 0 if outbox else self._quiet + 1
        if self._quiet % SELDOM == 0:
            self._broker.witness.settled(self._sessions, self._now())
        self._finish(outbox)

    def farewell(self) -> None:
        """What ``run`` does at its end."""
        self._finish(self._sessions.farewell("the broker stops"))

    # --- in place of the sockets -------------------------------------------------------------------------------------

    def receive(self) -> tuple[bytes, str, bytes] | None:
        if not self._broker.inbox:
            return None
        self._broker.steps.step("receive")
        peer, role, data = self._broker.inbox.popleft()
        if role == "client":
            self._broker.witness.received(peer, wire.decode(data))
        elif data[1] != HEARTBEAT:
            self._quiet = -1
        return peer, role, data

    def send(self, peer: bytes, data: bytes) -> bool:
        self._broker.steps.step("send: before")
        message = wire.decode(data)
        self._broker.witness.sent(peer, message, self._watched.uncommitted)
        sent = self._broker.port.send(peer, data)
        if not isinstance(message, wire.Taken):
            self._broker.world.note("broker -> {}: {} {}", peer, Brief(message), "" if sent else "(nobody)")
        self._broker.steps.step("send: after")
        return sent


class BrokerNode:
    """The broker's machine; its home outlives the process."""

    def __init__(self, world: World, port: Port, home: Path, witness: Witness, policy: Callable[[], Policy]) -> None:
        self.world = world
        self.port = port
        self.witness = witness
        self.steps = Steps()
        self.windows = FakeWindows()
        self.inbox: deque[tuple[bytes, str, bytes]] = deque()
        self.lives = 0
        self.heartbeat_s = 3.0
        self.lease_s = 15.0
        # How long it stays dead after it was killed at a step.
        self.downtime_s = 1.0
        self._home = home
        self._policy = policy
        self._frozen = False
        self._wakeup = Wakeup(world, self._turn)
        self._loop: Loop | None = None
        self._journal: WatchedJournal | None = None
        self._sessions: Sessions | None = None
        port.arrived = self._arrived

    @property
    def up(self) -> bool:
        """Whether the process runs."""
        return self._loop is not None

    @property
    def sessions(self) -> Sessions:
        """The state of the process that runs."""
        assert self._sessions is not None
        return self._sessions

    def start(self) -> None:
        """Start the process, on what its home remembers."""
        if self.up:
            return
        self.lives += 1
        self.world.note("broker starts, life {}", self.lives)
        journal = self._journal = WatchedJournal(self._home, self.steps, self.witness)
        self.witness.restarted(journal)
        facts = GridFacts(
            id=f"broker{self.lives}",
            python=PYTHON,
            address="virtual:7077",
            encrypted=True,
            heartbeat_s=self.heartbeat_s,
            lease_s=self.lease_s,
            wall_at_zero=WALL_S + self.world.now,
        )
        self._sessions = Sessions(Desk(facts, journal, self.windows, self._policy()))
        self._loop = Loop(self, self._sessions, journal)
        self.port.listening = True
        self._wakeup.set(self.world.now)

    def kill(self) -> None:
        """SIGKILL."""
        if self._journal is not None and self.up:
            self.world.note("broker is killed")
            self._journal.lose()
            self._end()

    def stop(self) -> None:
        """Stop the process in good order."""
        if self._loop is not None and self._journal is not None:
            self.world.note("broker stops")
            try:
                self._loop.farewell()
            except BrokerKilled as killed:
                self._killed(killed)
                return
            self._journal.close()
            self._end()

    def _killed(self, killed: BrokerKilled) -> None:
        self.world.note("broker is killed at {!r}", str(killed))
        self.kill()
        self.world.after(self.downtime_s, self.start)

    def _end(self) -> None:
        self._loop = None
        self._frozen = False
        self.inbox.clear()
        self._wakeup.clear()
        self.port.abort_all()

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after ``seconds``."""
        self.world.note("broker freezes for {:.1f} s", seconds)
        self._frozen = True
        self.port.listening = False
        life = self.lives
        self.world.after(seconds, lambda: self.thaw(life))

    def thaw(self, life: int | None = None) -> None:
        """SIGCONT."""
        if self._frozen and life in (None, self.lives):
            self._frozen = False
            self.port.listening = True
            self._wakeup.set(self.world.now)

    def _arrived(self, peer: bytes, role: str, data: bytes) -> None:
        self.inbox.append((peer, role, data))
        if not self._frozen:
            self._wakeup.set(self.world.now + self.world.random.uniform(0.0, TURN_S))

    def _turn(self) -> None:
        if self._frozen or self._loop is None:
            return
        try:
            self._loop.turn()
        except BrokerKilled as killed:
            self._killed(killed)
        else:
            self._wakeup.set(self.world.now + TICK_S)


class WorkerNode:
    """One PC. Its agent may end and start again; ``plan`` makes the plan it starts with, None: it follows the broker."""

    role = "worker"

    def __init__(
        self,
        world: World,
        port: Port,
        witness: Witness,
        name: str,
        slots: int,
        plan: Callable[[Instant], Plan] | None,
        delay_s: float = 0.002,
    ) -> None:
        self.world = world
        self.name = name
        self.cable = Cable(world, delay_s)
        self.starts = 0
        self.wall_offset_s = 0.0
        self.session: Session | None = None
        self.executor: FakeExecutor | None = None
        self._slots = slots
        self._plan = plan
        self._witness = witness
        self._paused_s = 0.0
        self._frozen_at: float | None = None
        self._suspended = False
        self._ending: float | None = None
        self._again_in: float | None = None
        self._table: str | None = None
        self._inbox: deque[bytes] = deque()
        self._events: deque[str] = deque()
        self._wakeup = Wakeup(world, self._turn)
        self._dialler = Dialler(world, port, self)

    # --- the machine -------------------------------------------------------------------------------------------------

    def instant(self) -> Instant:
        """Both clocks of the PC."""
        stopped = self.world.now if self._frozen_at is None or not self._suspended else self._frozen_at
        return Instant(WALL_S + self.world.now + self.wall_offset_s, BOOT_S + stopped - self._paused_s)

    @property
    def idle(self) -> bool:
        """Whether it holds no work, nor results that are not written down."""
        if self.session is None:
            return True
        return not self.session.unwritten and not any(lane.given or lane.waiting for lane in self.session._lanes)

    def start(self) -> None:
        """Start the agent."""
        if self.session is not None:
            return
        self.starts += 1
        self.world.note("{} starts, for the {}. time", self.name, self.starts)
        self._ending, self._table = None, None
        self._inbox.clear()
        self._events.clear()
        identity = Identity(self.name, f"{self.name}-{self.starts}", self.name, "", PYTHON, self._slots)
        plan = self._plan(self.instant()) if self._plan else OpenEnded()
        self.executor = FakeExecutor(self.name, self._slots, lambda: self.instant().mono, self._witness.executions)
        self.session = Session(identity, plan, self.executor, follows_broker=self._plan is None)
        self._dialler.start()
        self._wakeup.set(self.world.now)

    def crash(self) -> None:
        """The PC's power fails, or the agent is killed with all its children."""
        if self.session is None or self.executor is None:
            return
        self.world.note("{} crashes", self.name)
        self.executor.power_off()
        connection = self._dialler.stop()
        if connection is not None:
            connection.open_here = False
            connection.cut(half_open=self.world.random.random() < 0.5)
        self._gone()

    def stop(self, again_in: float | None = None) -> None:
        """Its user stops the agent; it is started again after so many seconds, if at all."""
        if self.session is not None and self._ending is None and self._frozen_at is None:
            self._end("stopped by its user", again_in)

    def freeze(self, seconds: float, *, suspend: bool) -> None:
        """The agent does nothing for a while. ``suspend``: nor does anything else on the PC, its clock included."""
        if self._frozen_at is not None:
            return
        self.world.note("{} {} for {:.1f} s", self.name, "sleeps" if suspend else "freezes", seconds)
        self._frozen_at, self._suspended = self.world.now, suspend
        self.world.after(seconds, self.thaw)

    def thaw(self) -> None:
        """It goes on."""
        if self._frozen_at is not None:
            if self._suspended:
                self._paused_s += self.world.now - self._frozen_at
            self._frozen_at = None
            self._wakeup.set(self.world.now)

    def set_clock(self, offset_s: float) -> None:
        """Somebody sets the clock on the wall."""
        self.world.note("{}: the clock on the wall is set to {:+.0f} s", self.name, offset_s)
        self.wall_offset_s = offset_s
        self._wakeup.set(self.world.now)

    def break_link(self, *, half_open: bool = False) -> None:
        """The connection breaks, if there is one."""
        if self._dialler.connection is not None:
            self.world.note("{}: the connection breaks{}", self.name, ", half open" if half_open else "")
            self._dialler.connection.cut(half_open=half_open)

    def time_out(self, *, at_peer: bool) -> None:
        """One end gives up a line that has been silent for too long."""
        if self._dialler.connection is not None:
            self.world.note("{}: the connection times out", self.name)
            self._dialler.connection.time_out(at_peer=at_peer)

    # --- the network's side ------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._events.append("opened")
        self._wakeup.set(self.world.now)

    def closed(self, connection: Connection) -> None:
        if self._dialler.connection is connection:
            self._events.append("closed")
            if self.session is not None:
                self._dialler.lost()
            self._wakeup.set(self.world.now)

    def arrived(self, connection: Connection, data: bytes) -> None:
        if self._dialler.connection is connection:
            self._inbox.append(data)
            self._wakeup.set(self.world.now + self.world.random.uniform(0.0, TURN_S))

    # --- the agent's loop --------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._frozen_at is not None or self.session is None or self.executor is None:
            return
        while self._events:
            if self._events.popleft() == "opened":
                self.session.reconnected()
            else:
                self.session.disconnected()
        while self._inbox:
            self.session.receive(wire.decode(self._inbox.popleft()), self.instant())
        if self._ending is not None:
            self._end_or_wait()
            return
        self._send(self.session.tick(self.instant()))
        self._follow_broker_windows()
        if self.session.over(self.instant()):
            self._end("its last window closed", None)
        else:
            self._plan_turn(self.session, self.executor)

    def _plan_turn(self, session: Session, executor: FakeExecutor) -> None:
        now = self.instant()
        boundary = session.plan.boundary(now)
        wait = min(session.next_tick(now), executor.next_end() - now.mono, math.inf if boundary is None else boundary)
        self._wakeup.set(self.world.now + max(0.0, wait) + 0.001)

    def _send(self, messages: list[wire.Message]) -> None:
        assert self.session is not None
        for message in messages:
            connection = self._dialler.connection
            sent = connection is not None and connection.to_broker(wire.encode(message))
            if not isinstance(message, wire.Heartbeat):
                self.world.note("{} -> broker: {} {}", self.name, Brief(message), "" if sent else "(nobody)")
            if not sent:
                self.session.disconnected()
                return

    def _follow_broker_windows(self) -> None:
        assert self.session is not None
        if self.session.wants_broker_windows and self.session.windows_from_broker != self._table:
            self._table = self.session.windows_from_broker
            self.session.use_plan(None if self._table is None else weekly_from_json(self._table))
            self._wakeup.set(self.world.now + LOOK_S)

    def _end(self, reason: str, again_in: float | None) -> None:
        assert self.session is not None
        self.world.note("{} ends: {}", self.name, reason)
        self._again_in = again_in
        self._ending = self.world.now + LAST_RESULTS_S
        self._send(self.session.stop(reason, self.instant()))
        self._end_or_wait()

    def _end_or_wait(self) -> None:
        assert self.session is not None
        assert self._ending is not None
        if self.session.unwritten and self.session.joined and self.world.now < self._ending:
            self._wakeup.set(self._ending)
            return
        connection = self._dialler.stop()
        if connection is not None:
            connection.hang_up()
        self._gone()
        if self._again_in is not None:
            self.world.after(self._again_in, self.start)

    def _gone(self) -> None:
        self.session = self.executor = None
        self._frozen_at = None
        self._wakeup.clear()


@dataclass(frozen=True, slots=True)
class Brief:
    """A message in one line, with what matters of it, made when somebody reads it."""

    message: wire.Message

    def __format__(self, _: str) -> str:
        return brief(self.message)


def brief(message: wire.Message) -> str:
    """See `Brief`."""
    name = type(message).__name__
    if isinstance(message, wire.Assign):
        return f"{name}({message.opening}) {[(w.task, w.number & 0xFFFFFF, w.slot) for w in message.work]}"
    if isinstance(message, wire.Finished):
        return f"{name} {[(r.task, r.number & 0xFFFFFF, r.outcome) for r in message.results]}"
    if isinstance(message, wire.Join):
        held = [(r.task, r.number & 0xFFFFFF, r.elapsed) for r in message.running]
        return f"{name}({message.opening}) {message.kind} uptime {message.uptime} holds {held}"
    if isinstance(message, wire.Leave):
        held = [(r.task, r.number & 0xFFFFFF, r.elapsed) for r in message.held]
        return f"{name} planned {message.planned} stopping {message.stopping} held {held}"
    if isinstance(message, wire.Recall | wire.Stop | wire.Returned | wire.Taken):
        return f"{name} {[(r.task, r.number & 0xFFFFFF) for r in message.attempts]}"
    if isinstance(message, wire.Submit):
        return f"{name} {message.request} bag {message.bag} {message.first}+{len(message.payloads)} last {message.last}"
    return f"{name}" if len(str(message)) > 200 else str(message)
