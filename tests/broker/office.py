"""A broker without sockets: `Sessions` over a real journal, to which bare peers are connected directly.

The office receives a peer's message at once. When a peer wants to receive and nothing is there, the office settles,
commits and delivers, as the server's loop does.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.clocks import WallClock
from deskgrid.broker.model.state import BrokerState, GridFacts, Leaving
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.store.journal import Journal
from deskgrid.broker.work.live_output import PATIENCE_S
from deskgrid.client.template import PYTHON
from deskgrid.scheduler.policies import make_policy
from tests.forecaster import InlineForecaster
from tests.grid.fakes import FakeWindows
from tests.peers import BareWorker, Client

HEARTBEAT_S = 1.0
LEASE_S = 10.0


# The credentials that every home has.
LAB = Credential("worker", "lab")
CLIENT = Credential("client", "submitter")
ADMIN = Credential("admin", "admin")


# The most turns in which an answer is awaited that waits for a forecast.
PARKED_TURNS = 20


class Office:
    """One broker. ``now`` is its clock, moved by the test; ``lines`` are its connections."""

    def __init__(
        self,
        home: Path,
        policy: str = "pgs",
        wall: float = 1_800_000_000.0,
        keep_days: float | None = None,
        **options: Any,
    ) -> None:
        self.now = 0.0
        self.lines: dict[bytes, OfficeLine] = {}
        self.connections = 0
        self.windows = FakeWindows()
        self.journal = Journal(home)
        facts = GridFacts("b" * 12, PYTHON, "127.0.0.1:7077", True, HEARTBEAT_S, LEASE_S, WallClock(wall))
        state = BrokerState(facts, self.journal, make_policy(policy, **options))
        state.windows_file = self.windows
        state.forecaster = InlineForecaster()
        self.sessions = Sessions(state, keep_days)
        try:
            self.sessions.restore(self.now)
        except BaseException:
            self.kill()
            raise

    def bag(self, bag_id: str) -> OpenBag:
        """A bag that is there."""
        return self.sessions.state.book.by_id[bag_id]

    def settle(self) -> None:
        """What the server's loop does after a drain."""
        leaving = self.sessions.settle(self.now)
        self.journal.commit()
        self.journal.shorten_log()
        self.deliver(leaving)

    def wait(self, seconds: float, *workers: BareWorker) -> None:
        """Let time pass in which these workers say that they are there."""
        self.now += seconds
        for worker in workers:
            worker.send(wire.Heartbeat(None, None))
        self.settle()

    def deliver(self, leaving: Leaving) -> None:
        """Carry messages to those that are there."""
        for peer, message in [*leaving.work, *leaving.words]:
            line = self.lines.get(peer)
            if line is None:
                self.sessions.gone(peer)
            else:
                line.inbox.append(wire.encode(message))

    def client(self, who: Credential = CLIENT, **options: Any) -> Client:
        """A client that was greeted."""
        return Client(OfficeLine(self, who), **options)

    def worker(self, name: str = "bare", session: str | None = None) -> BareWorker:
        """A connection that has not joined yet."""
        return BareWorker(OfficeLine(self, Credential(name, "worker")), name, session)

    def close(self) -> None:
        self.journal.close()

    def kill(self) -> None:
        """End as by SIGKILL: what was not settled is lost."""
        self.journal.db.close()


# Starts an office on the home of a test, with these options of `Office`.
OpenOffice = Callable[..., Office]


class OfficeLine:
    """One connection."""

    def __init__(self, office: Office, who: Credential) -> None:
        self.inbox: deque[bytes] = deque()
        self._office = office
        self.who = who
        office.connections += 1
        self.peer = f"peer {office.connections}".encode()
        office.lines[self.peer] = self

    def send(self, data: bytes, *behind: bytes) -> None:
        message = wire.decode(data, [memoryview(frame) for frame in behind])
        self._office.sessions.receive(self.peer, self.who, message, self._office.now)

    def receive(self, seconds: float) -> bytes | None:
        if not self.inbox:
            self._office.settle()
        operations = self._office.sessions.queries.operations
        turns = 0
        while not self.inbox and (operations.waiting or (operations._parked and turns < PARKED_TURNS)):
            self._office.settle()  # what is asked for takes more turns than one
            turns += bool(operations._parked)
        if not self.inbox and operations._parked and self.who.role != "worker":  # a worker is waited for, not for long
            self._office.now += PATIENCE_S
            self._office.settle()
        return self.inbox.popleft() if self.inbox else None

    def close(self) -> None:
        """Hang up without a word."""
        self._office.lines.pop(self.peer, None)
