"""A broker in a process of its own, on a clock that its parent sets: its memory is the broker's, and nobody else's.

The real loop, sessions, scheduler and journal on disk; only sockets and clock are virtual. The parent says what arrived
and what time it is, and gets what is to be sent; both wait for each other, so a run follows from its seed.
"""

import gc
import logging
import multiprocessing
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from deskgrid.broker import loop
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.clocks import WallClock
from deskgrid.broker.model.state import BrokerState, GridFacts
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.port.send_queue import Parts
from deskgrid.broker.store.journal import NAME, Journal
from deskgrid.scheduler.policies import DEFAULT, make_policy
from tests.forecaster import InlineForecaster
from tests.grid.broker_node import credential_of
from tests.grid.fakes import WALL_S, FakeWindows
from tests.grid.tasks import PYTHON
from tests.memory import resident

# Tables of the journal that hold what is kept of bags.
OF_BAGS = ("bags", "batches", "results", "sent", "templates")
JOIN_S = 30.0

Arrived = Iterable[tuple[bytes, str, bytes]]
ToSend = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often workers say that they are there, how long they may be silent, and how long finished bags are kept."""

    heartbeat_s: float
    lease_s: float
    keep_days: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """A broker at one moment. ``blocks``: of the interpreter's memory. ``kept``: rows of the journal about bags.

    ``windows``: its rows about windows, which are kept for more than a year. ``bound``: tasks that are with workers.
    """

    blocks: int
    kept: int
    windows: int
    file_bytes: int
    bags: int
    waiting: int
    bound: int
    counters: dict[str, float]


class Loop(loop.Loop):
    """The broker's loop on its parent's clock; stands in for its sockets, too."""

    def __init__(self, sessions: Sessions, journal: Journal) -> None:
        super().__init__(sessions, cast(Any, self), journal)
        self._clock = 0.0
        self._arrived: deque[tuple[bytes, str, bytes]] = deque()
        self._to_send: ToSend = []
        sessions.restore(0.0)

    sending = False  # what is sent has arrived

    def _now(self) -> float:
        return self._clock

    def _posix(self) -> float:
        return WALL_S + self._clock

    def turn(self, now: float, arrived: Arrived, gone: Iterable[bytes]) -> ToSend:
        """What ``run`` does when something arrived, peers are gone, or nothing happened for a while."""
        self._clock = now
        self._arrived.extend(arrived)
        self._gone += gone
        self._go(bool(self._arrived))
        while self._arrived or self._fair_queue:
            self._go(True)
        to_send, self._to_send = self._to_send, []
        return to_send

    def receive(self) -> tuple[bytes, Credential | None, bytes, Sequence[memoryview]] | None:
        if not self._arrived:
            return None
        peer, role, data = self._arrived.popleft()
        return peer, credential_of(role), data, ()

    def send(self, peer: bytes, parts: Parts) -> bool:
        (data,) = map(bytes, parts)  # nothing here has a large payload
        self._to_send.append((peer, data))
        return True

    def dismiss(self, peer: bytes) -> None:
        raise AssertionError("nobody here makes the broker fail")

    give_up = dismiss

    def wake(self) -> None:
        raise AssertionError("nothing here has a large payload, which a thread would say is written")

    def figures(self) -> Figures:
        """What there is of everything; raises when the scheduler does not agree with itself."""
        state, db = self._sessions.state, self._journal.db
        scheduler = state.scheduler
        scheduler.check(self._clock)
        gc.collect()  # the blocks are to be those that are in use
        rows = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in (*OF_BAGS, "windows")}
        return Figures(
            blocks=sys.getallocatedblocks(),
            kept=sum(rows[table] for table in OF_BAGS),
            windows=rows["windows"],
            file_bytes=(self._journal.home / NAME).stat().st_size,
            bags=len(state.book.by_id),
            waiting=len(scheduler.grid.categories),
            bound=len(scheduler.grid.bound),
            counters={name: getattr(scheduler.counters, name) for name in scheduler.counters.__slots__},
        )


def _main(pipe: "Connection[Any, Any]", home: Path, pace: Pace) -> None:
    """The process: answer the parent until it hangs up."""
    logging.disable(logging.CRITICAL)
    facts = GridFacts(
        id="soaked",
        python=PYTHON,
        address="virtual:7077",
        encrypted=True,
        heartbeat_s=pace.heartbeat_s,
        lease_s=pace.lease_s,
        wall=WallClock(WALL_S),
    )
    with closing(Journal(home)) as journal:
        state = BrokerState(facts, journal, make_policy(DEFAULT))
        state.windows_file = FakeWindows()
        state.forecaster = InlineForecaster()
        the_loop = Loop(Sessions(state, pace.keep_days), journal)
        while True:
            try:
                asked = pipe.recv()
            except EOFError:
                return
            pipe.send(the_loop.figures() if asked is None else the_loop.turn(*asked))


class BrokerBeside:
    """The parent's end of it; a context manager."""

    def __init__(self, home: Path, pace: Pace) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, its_end = context.Pipe()
        self._process = context.Process(target=_main, args=(its_end, home, pace), daemon=True)
        self._process.start()
        its_end.close()

    def __enter__(self) -> "BrokerBeside":
        return self

    def __exit__(self, *exception: object) -> None:
        self._pipe.close()
        self._process.join(JOIN_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(JOIN_S)

    def turn(self, now: float, arrived: Arrived, gone: Iterable[bytes]) -> ToSend:
        """Let it take a turn; what it says."""
        self._pipe.send((now, list(arrived), list(gone)))
        return self._pipe.recv()  # type: ignore[no-any-return]

    def figures(self) -> Figures:
        """What there is of everything."""
        self._pipe.send(None)
        return self._pipe.recv()  # type: ignore[no-any-return]

    @property
    def resident(self) -> int:
        """Its resident memory, bytes."""
        assert self._process.pid is not None
        return resident(self._process.pid)
