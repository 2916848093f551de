"""The broker's machine on the virtual network: the real loop, journal and sessions; only sockets and clock are virtual.

The process can be killed at every step of the loop, and be frozen; its home outlives it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from deskgrid import wire
from deskgrid.broker import loop
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.clocks import WallClock
from deskgrid.broker.model.state import BrokerState, GridFacts
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.port.connections import LAST_WORD_S
from deskgrid.broker.port.fair_queue import ReadMessage
from deskgrid.broker.port.send_queue import Parts
from deskgrid.broker.store.journal import Journal, JournalFull
from deskgrid.scheduler.policies import Policy
from tests.forecaster import InlineForecaster
from tests.grid.brief import Brief
from tests.grid.fakes import WALL_S, FakeWindows
from tests.grid.network import TURN_S, Port, Wakeup, World
from tests.grid.tasks import PYTHON
from tests.grid.witness import Witness

# How often the broker has a turn although nothing arrived; the real one looks up more often.
TICK_S = 1.0
# Of the turns in which nothing happened but the passing of time, one in so many is checked.
SELDOM = 8
# The tag of the one message that changes nothing most of the time.
HEARTBEAT = bytes([wire.MESSAGES.index(wire.Heartbeat)])


# Who a peer of the virtual network is, by its role there. Clients may also change the policy.
CREDENTIALS = {"client": Credential("client", "admin"), "stranger": Credential("stranger", "submitter")}


def credential_of(role: str) -> Credential:
    """Whose key a peer has; the role of a PC is "worker NAME"."""
    kind, _, name = role.partition(" ")
    return Credential(name, "worker") if kind == "worker" else CREDENTIALS[role]


class BrokerKilled(BaseException):
    """SIGKILL; no handler of errors may catch it."""


class Steps:
    """Where the broker can be killed: at the n-th step of a kind from now, or of any kind."""

    def __init__(self) -> None:
        self.passed = 0
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
        self.passed += 1
        if self._left is None or not name.startswith(self._kind):
            return
        self._left -= 1
        if self._left < 0:
            self._left = None
            raise BrokerKilled(name)


class WatchedJournal(Journal):
    """The real journal, in which the broker can be killed around each commit."""

    def __init__(self, home: Path, steps: Steps, witness: Witness) -> None:
        super().__init__(home)
        self._steps = steps
        self._witness = witness
        # Whether the disk takes nothing.
        self.no_room = False

    @property
    def uncommitted(self) -> bool:
        """Whether there is something that a crash would undo."""
        return self.db.in_transaction

    def commit(self) -> None:
        wrote = self.uncommitted
        if wrote:
            self._steps.step("commit: before")
        if wrote and self.no_room:
            raise JournalFull("no room on the virtual disk")
        super().commit()
        if wrote:
            self._witness.committed(self)
            self._steps.step("commit: after")

    def lose(self) -> None:
        """The process ends: what was not committed never was."""
        self.db.close()


class Loop(loop.Loop):
    """The broker's loop on virtual time; stands in for its sockets, too."""

    def __init__(self, broker: "BrokerNode", sessions: Sessions, journal: WatchedJournal) -> None:
        super().__init__(sessions, cast(Any, self), journal)
        self._broker = broker
        self._began = broker.world.now
        self._watched = journal
        self._quiet = 0
        self._roles: dict[bytes, str] = {}
        sessions.restore(self._now())
        self._look_at_files()

    def _now(self) -> float:
        return self._broker.world.now - self._began

    def _posix(self) -> float:
        return WALL_S + self._broker.world.now

    def turn(self) -> None:
        """What ``run`` does when the poller returns."""
        self._turn(True)

    def _go(self, arrived: bool) -> None:
        self._read()
        self._handle_some()
        if self._now() >= self._files_at:
            self._look_at_files()
        leaving = self._sessions.settle(self._now())
        self._broker.steps.step("settle")
        self._quiet = 0 if any(leaving) else self._quiet + 1
        if self._quiet % SELDOM == 0:
            self._broker.witness.settled(self._sessions, self._now())
        self._finish(leaving)
        if self._now() >= self._careful_until:
            self._failures = 0

    def _handle(self, arrival: ReadMessage) -> None:
        if arrival.peer not in self._ignored:
            self._witness_of(arrival)
        super()._handle(arrival)

    def _witness_of(self, arrival: ReadMessage) -> None:
        """What was read is told the witness when it is handled: between the two others are answered."""
        witness, now, lease_s = self._broker.witness, self._now(), self._broker.lease_s
        if arrival.data[1:2] == HEARTBEAT:
            witness.holdings.heard(arrival.peer, now, lease_s)
        else:
            with suppress(wire.ProtocolError):
                witness.received(arrival.peer, wire.decode(arrival.data), now, lease_s)
            self._quiet = -1

    def _begin_again(self, disk_full: str = "") -> None:
        super()._begin_again(disk_full)
        self._broker.witness.restarted(self._watched)

    def _recover(self, error: Exception) -> None:
        if not isinstance(error, self._broker.expected):
            raise error  # what the witness found, or an error of ours
        super()._recover(error)

    def farewell(self) -> None:
        """What ``run`` does at its end."""
        self._finish(self._sessions.farewell("the broker stops"))

    # --- in place of the sockets -------------------------------------------------------------------------------------

    def receive(self) -> tuple[bytes, Credential, bytes, Sequence[memoryview]] | None:
        if not self._broker.inbox:
            return None
        self._broker.steps.step("receive")
        peer, role, data = self._broker.inbox.popleft()
        self._roles[peer] = role
        return peer, credential_of(role), data, ()

    def send(self, peer: bytes, parts: Parts) -> bool:
        (data,) = map(bytes, parts)  # nothing here has a large payload
        self._broker.steps.step("send: before")
        message = wire.decode(data)
        witness, lease_s = self._broker.witness, self._broker.lease_s
        witness.sent(peer, message, self._watched.uncommitted, self._now(), lease_s)
        sent = self._broker.port.send(peer, data)
        if not sent:
            witness.holdings.lost_touch(peer)
        if not isinstance(message, wire.Taken):
            self._broker.world.note("broker -> {}: {} {}", peer, Brief(message), "" if sent else "(nobody)")
        self._broker.steps.step("send: after")
        return sent

    def who(self, peer: bytes) -> Credential | None:
        """By which credential a peer is connected."""
        return credential_of(self._roles[peer]) if peer in self._roles else None

    def give_up(self, peer: bytes) -> None:
        """Cut a peer off."""
        self._broker.port.abort(peer)

    def dismiss(self, peer: bytes) -> None:
        """Cut a peer off when it has had a moment to read its last word."""
        self._broker.world.after(LAST_WORD_S, lambda: self._broker.port.abort(peer))

    def wake(self) -> None:
        raise AssertionError("nothing here has a large payload, which a thread would say is written")


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
        # Exceptions that a test makes its handlers raise.
        self.expected: tuple[type[Exception], ...] = ()
        # How long finished bags are kept; None: until somebody forgets them.
        self.keep_days: float | None = None
        # How long it stays dead after it was killed at a step.
        self.downtime_s = 1.0
        self._home = home
        self._policy = policy
        self._frozen = False
        self._wakeup = Wakeup(world, self._turn)
        self._loop: Loop | None = None
        self._journal: WatchedJournal | None = None
        self._no_room = False
        port.arrived = self._arrived

    @property
    def up(self) -> bool:
        """Whether the process runs."""
        return self._loop is not None

    @property
    def sessions(self) -> Sessions:
        """The state of the process that runs."""
        assert self._loop is not None
        return self._loop._sessions

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
            wall=WallClock(WALL_S + self.world.now),
        )
        journal.no_room = self._no_room
        journal.waits = self.lives % 2 == 1
        state = BrokerState(facts, journal, self._policy())
        state.windows_file = self.windows
        state.forecaster = InlineForecaster()
        self._loop = Loop(self, Sessions(state, self.keep_days), journal)
        self.port.listening = True
        self._wakeup.set(self.world.now)

    def fill_disk(self, seconds: float) -> None:
        """Nothing can be written for a while."""
        self.world.note("the broker's disk is full for {:.1f} s", seconds)
        self._set_no_room(True)
        self.world.after(seconds, self.free_disk)

    def free_disk(self) -> None:
        """The disk has room."""
        self._set_no_room(False)

    def _set_no_room(self, no_room: bool) -> None:
        self._no_room = no_room
        if self._journal is not None:
            self._journal.no_room = no_room

    def kill(self) -> None:
        """SIGKILL."""
        if self._journal is not None:
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
        self._journal = None
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
        loop = self._loop
        if self._frozen or loop is None:
            return
        try:
            loop.turn()
        except BrokerKilled as killed:
            self._killed(killed)
        else:
            self._wakeup.set(self.world.now + (TURN_S if loop._fair_queue else TICK_S))
