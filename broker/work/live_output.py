"""What running tasks print, as long as somebody watches: asked of their workers, and kept for a moment.

Rule 1: each question about a task keeps it watched for `WATCH_S`, and its worker is asked for as long. So when a
watcher has gone, in whatever way, nothing more is sent or kept, and nobody has to call it off.
Rule 2: only what was asked of a worker is taken from it. What is kept of each task is bounded, and so are the tasks
that one credential and all of them may watch.
"""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deskgrid import wire
from deskgrid.broker.gangs.table import GangAttempts
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.work.operations import PARKED, Slices
from deskgrid.scheduler.model import State

# How long a task is watched after a question about it, and how often its worker is asked anew. Seconds.
WATCH_S = 6.0
RENEW_S = 2.0
# How long the first question about a task waits for what its worker says. Seconds.
PATIENCE_S = 1.0
# The most tasks that one credential, and all of them together, watch at a time.
WATCHED_LIMIT = 100
WATCHED_IN_ALL = 1_000
# What is kept of the output of one watched task: bytes; and chunks, which a worker can make as small as it likes.
KEPT_BYTES = 32 * 2**10
KEPT_CHUNKS = 1_000


class Runs(NamedTuple):
    """An attempt that runs: its number, the worker of each rank (or its only one), and since when."""

    number: int
    workers: tuple[str, ...]
    since: float


class Chunk(NamedTuple):
    """What came at once. ``place``: grows with each chunk of any task."""

    place: int
    shown: wire.Shown


@dataclass(slots=True)
class Live:
    """A task that is watched. ``heard``: its workers have said something, if only that it has printed nothing."""

    runs: Runs
    who: str
    asked_at: float
    told_at: float
    heard: bool = False
    chunks: deque[Chunk] = field(default_factory=deque)
    size: int = 0


class LiveOutput:
    """``by_name``: the sessions of all workers. ``gangs``: those that have workers."""

    def __init__(self, state: BrokerState, by_name: Mapping[str, WorkerSession], gangs: GangAttempts) -> None:
        self._state = state
        self._by_name = by_name
        self._gangs = gangs
        # By task, those first about which nobody has asked for longest.
        self._live: OrderedDict[int, Live] = OrderedDict()
        self._watched = Counter[str]()
        # It begins where no broker was before, so that a watcher of the last one misses nothing.
        self.place = int(state.wall.posix(state.now) * 1_000)

    def runs(self, task: int) -> Runs | None:
        """The attempt of a task that runs; None if none does."""
        scheduler = self._state.scheduler
        if scheduler.state(task) != State.SENT:
            return None
        if (gang := self._gangs.find(task)) is not None:
            return Runs(gang.attempt.number, tuple(rank.worker for rank in gang.ranks), gang.began)
        live = scheduler.grid.bound.get(task)
        if live is None or live.slot.sent[0] is not live:
            return None
        return Runs(live.number, (live.slot.worker.name,), live.slot.started)

    def watch(self, task: int, who: str) -> Live | None:
        """Watch a task that runs for somebody who asked about it; None if it does not run, or too many are watched."""
        now = self._state.now
        self.expire(now)
        live, runs = self._live.get(task), self.runs(task)
        if live is not None and (runs is None or live.runs.number != runs.number):
            self._drop(task)
            live = None
        if runs is None:
            return None
        if live is None:
            if self._watched[who] >= WATCHED_LIMIT or len(self._live) >= WATCHED_IN_ALL:
                return None
            self._watched[who] += 1
            live = self._live[task] = Live(runs, who, now, now - RENEW_S)
        live.asked_at = now
        self._live.move_to_end(task)
        if now >= live.told_at + RENEW_S:
            live.told_at = now
            for name in dict.fromkeys(runs.workers):
                if (worker := self._by_name.get(name)) is not None:
                    self._state.send(worker.peer, wire.ShowOutput((wire.Ref(task, runs.number),), WATCH_S))
        return live

    def wait(self, task: int, who: str) -> Slices:
        """Watch a task, and wait a moment until its workers have said what it has printed so far."""
        until = self._state.now + PATIENCE_S
        while (live := self.watch(task, who)) is not None and not live.heard and self._state.now < until:
            yield PARKED
        return {}

    def heard(self, worker: WorkerSession, message: wire.OutputShown) -> None:
        """A worker says what its tasks have printed."""
        for row in message.rows:
            live = self._live.get(row.task)
            if live is None or row.number != live.runs.number or row.rank >= len(live.runs.workers):
                continue  # nobody watches it any more, or it is not what was asked for
            if live.runs.workers[row.rank] != worker.name:
                continue
            live.heard = True
            if row.stdout or row.stderr:
                self.place += 1
                live.chunks.append(Chunk(self.place, row))
                live.size += len(row.stdout) + len(row.stderr)
                while live.size > KEPT_BYTES or len(live.chunks) > KEPT_CHUNKS:
                    old = live.chunks.popleft().shown
                    live.size -= len(old.stdout) + len(old.stderr)

    def printed(self, task: int, rank: int = 0) -> tuple[bytes, bytes]:
        """What is kept of what a watched task, or a rank of it, has printed: stdout, stderr."""
        rows = [row for row in self.news(task, 0) if row.rank == rank]
        return b"".join(row.stdout for row in rows), b"".join(row.stderr for row in rows)

    def news(self, task: int, after: int, until: float = math.inf) -> Iterator[wire.Shown]:
        """What a watched task has printed after a place, and until one."""
        live = self._live.get(task)
        yield from (chunk.shown for chunk in (() if live is None else live.chunks) if after < chunk.place <= until)

    def expire(self, now: float) -> None:
        """Forget the tasks about which nobody asks any more."""
        while self._live and next(iter(self._live.values())).asked_at < now - WATCH_S:
            self._drop(next(iter(self._live)))

    def _drop(self, task: int) -> None:
        live = self._live.pop(task)
        self._watched[live.who] -= 1
        if not self._watched[live.who]:
            del self._watched[live.who]
