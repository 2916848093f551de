"""A PC on the virtual network: the real session, and a driver that does what `deskgrid.worker.agent` does in a turn.

What happened to the connection comes first, then the messages, then the session's tick.
"""

import math
from collections import deque
from collections.abc import Callable

from deskgrid import wire
from deskgrid.worker.session import Identity, Session
from deskgrid.worker.windows.uptime import Instant, OpenEnded, UptimePlan, weekly_from_json
from tests.grid.brief import Brief
from tests.grid.environments import LINUX
from tests.grid.fakes import BOOT_S, WALL_S, FakeExecutor
from tests.grid.network import TURN_S, Cable, Connection, Dialler, Port, Wakeup, World
from tests.grid.tasks import PYTHON
from tests.grid.witness import Witness

# As in the worker's loop: how soon it looks again after its plan changed, and how long it waits for the last answers.
LOOK_S = 0.2
LAST_RESULTS_S = 3.0


class WorkerNode:
    """One PC, whose agent may end and start again.

    ``plan`` makes the plan that the agent starts with; None: it follows the broker's windows.
    """

    def __init__(
        self,
        world: World,
        port: Port,
        witness: Witness,
        name: str,
        plan: Callable[[Instant], UptimePlan] | None,
        *,
        slots: int,
        delay_s: float,
        system: wire.System = LINUX,
    ) -> None:
        self.world = world
        self.name = name
        self.role = f"worker {name}"
        self.cable = Cable(world, delay_s)
        self.starts = 0
        self.wall_offset_s = 0.0
        self.system = system
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
        return not self.session.unwritten and self.session.idle

    def start(self) -> None:
        """Start the agent."""
        if self.session is not None:
            return
        self.starts += 1
        self.world.note("{} starts, for the {}. time", self.name, self.starts)
        self._ending, self._table = None, None
        self._inbox.clear()
        self._events.clear()
        session = f"{self.world.random.getrandbits(64):016x}"
        identity = Identity(self.name, session, self.name, "", (PYTHON,), self._slots, self.system, address=self.name)
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

    def clog(self, seconds: float) -> None:
        """What the broker sends finds no room for a while."""
        self._dialler.clog(self.name, seconds)

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
        if self.session.follows_broker and self.session.windows_from_broker != self._table:
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
