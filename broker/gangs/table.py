"""The attempts of parallel tasks that have workers, and what all that drive them share.

Of each, as the broker drives it: where its ranks are, and how far it has come.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from deskgrid import wire
from deskgrid.broker.gangs.meetings import MeetingAnswer, Meetings
from deskgrid.broker.gangs.pmi import PmiServer
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt

Handle = Callable[[ev.Event, float], Sequence[Attempt]]
# Attempts that are over, of which ranks may still say what they have printed.
OVER_LIMIT = 256


class GangStage(IntEnum):
    """How far an attempt has come."""

    PREPARING = 0  # its workers were asked to get its ranks ready
    RUNNING = 1
    GATHERING = 2  # the broker was started again, and waits for the workers that have its ranks
    ENDING = 3  # a rank has failed, and the others are being stopped


class RankAt(NamedTuple):
    """Where a rank is. ``session``: of the worker, which alone may report on it."""

    worker: str
    session: str
    slots: tuple[int, ...]


class RankFailure(NamedTuple):
    """How a rank failed. ``result``: with the account of that, as its worker or the broker gave it."""

    rank: int
    elapsed: float
    result: wire.RankResult


@dataclass(slots=True, eq=False)
class GangAttempt:
    """``began``: by the broker's clock. ``until``: when the broker does not wait any longer in this stage.

    ``ready``: workers that are ready, have come back, or have stopped what they had, depending on the stage.
    ``ended``: the seconds that each rank took that has succeeded. ``size``: bytes of their results. ``failed``: ranks.
    ``printed``: ranks that have failed or were stopped, and have said what they printed. A rank that MPI's process
    manager has failed says so later.
    ``over``: workers all of whose ranks have succeeded while others went on: nothing is awaited of them any more.
    ``first``: the failure that came first, of those that are known.
    """

    attempt: Attempt
    bag: OpenBag
    item: int
    ranks: Sequence[RankAt]
    runtime: float
    stage: GangStage
    meetings: Meetings
    began: float = 0.0
    until: float = 0.0
    port: int = 0
    ready: set[str] = field(default_factory=set)
    ended: dict[int, float] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    printed: set[int] = field(default_factory=set)
    size: int = 0
    first: RankFailure | None = None
    pmi: PmiServer | None = None

    @property
    def workers(self) -> list[str]:
        """Its workers, each once, in the order of the ranks."""
        return list(dict.fromkeys([rank.worker for rank in self.ranks]))

    @property
    def awaited(self) -> list[str]:
        """The workers that are still needed."""
        return [name for name in self.workers if name not in self.over]

    def at(self, worker: str) -> list[int]:
        """Its ranks at a worker."""
        return [number for number, rank in enumerate(self.ranks) if rank.worker == worker]

    @property
    def ref(self) -> wire.Ref:
        """Its attempt, as workers know it."""
        return wire.Ref(*self.attempt)

    def place(self, rank: int) -> str:
        """``rank 3 of 8 on lab2-04``."""
        return f"rank {rank} of {len(self.ranks)} on {self.ranks[rank].worker}"


def places(workers: Iterable[str]) -> list[str]:
    """What each rank is called where all are of one gang, by the worker of each."""
    return [f"rank {number} on {worker}" for number, worker in enumerate(workers)]


class Over(NamedTuple):
    """An attempt that is over. ``left``: ranks that had not ended then, and have not said what they printed."""

    attempt: Attempt
    bag: OpenBag
    ranks: Sequence[RankAt]
    left: set[int]


class GangAttempts:
    """``workers``: the sessions of all known workers, by name. ``handle``: passes an event to the scheduler,
    carries out its commands, and returns the attempts that ended their tasks. ``timed``: the tasks whose attempts wait
    for something until a certain time.
    """

    def __init__(self, state: BrokerState, workers: Mapping[str, WorkerSession], handle: Handle) -> None:
        self.state = state
        self.workers = workers
        self.handle = handle
        self.timed: set[int] = set()
        # What each owner's gangs have said to MPI's process manager; bytes.
        self.pmi_bytes = Counter[str]()
        # Values that ranks of all gangs have gathered, or are gathering; bytes.
        self.gathered = 0
        self._gangs: dict[int, GangAttempt] = {}
        # By worker: the tasks of which it was given ranks.
        self._tasks_at: defaultdict[str, dict[int, None]] = defaultdict(dict)
        self._over: OrderedDict[int, Over] = OrderedDict()

    def __contains__(self, attempt: Attempt) -> bool:
        """Whether it is the attempt of a parallel task that has workers."""
        return (gang := self._gangs.get(attempt.task)) is not None and gang.attempt == attempt

    def __iter__(self) -> Iterator[GangAttempt]:
        return iter(self._gangs.values())

    def __len__(self) -> int:
        return len(self._gangs)

    def find(self, task: int) -> GangAttempt | None:
        """The gang of a task; None if it has no workers."""
        return self._gangs.get(task)

    def given_to(self, worker: str) -> list[GangAttempt]:
        """The gangs of which a worker was given ranks."""
        return [self._gangs[task] for task in self._tasks_at.get(worker, ())]

    def at(self, worker: WorkerSession, task: int, number: int, rank: int | None = None) -> GangAttempt | None:
        """The gang of an attempt if this worker was given ranks of it, or this rank; otherwise None."""
        gang = self._gangs.get(task)
        if gang is None or gang.attempt.number != number or (rank is not None and rank >= len(gang.ranks)):
            return None
        ranks = gang.at(worker.name) if rank is None else [rank]
        given = [gang.ranks[each] for each in ranks]
        mine = given and all(each[:2] == (worker.name, worker.session) for each in given)
        return gang if mine else None

    def stopped(self, worker: WorkerSession, task: int, number: int, rank: int) -> OpenBag | None:
        """The bag of a rank of this worker that was stopped, and that now says, for the first time, what it printed."""
        over = self._over.get(task)
        if over is None or over.attempt.number != number or rank not in over.left:
            return None
        if over.ranks[rank][:2] != (worker.name, worker.session):
            return None
        over.left.remove(rank)
        return over.bag if self.state.book.by_number.get(over.bag.row.number) is over.bag else None

    def begins(self, gang: GangAttempt) -> None:
        """An attempt begins: what earlier ones of its task printed is forgotten."""
        self._over.pop(gang.attempt.task, None)

    def add(self, gang: GangAttempt, *, until: float | None = None) -> None:
        """An attempt has workers now. ``until``: it does not wait for longer than that."""
        self._gangs[gang.attempt.task] = gang
        for name in gang.workers:
            self._tasks_at[name][gang.attempt.task] = None
        if until is not None:
            self.wait(gang, until)

    def wait(self, gang: GangAttempt, until: float) -> None:
        """An attempt waits for something, but not for longer than that."""
        gang.until = until
        self.timed.add(gang.attempt.task)

    def remove(self, gang: GangAttempt) -> None:
        """An attempt has no workers any more."""
        del self._gangs[gang.attempt.task]
        for name in gang.workers:
            del self._tasks_at[name][gang.attempt.task]
            if not self._tasks_at[name]:
                del self._tasks_at[name]
        self.gathered -= gang.meetings.size
        if gang.pmi is not None:
            self.pmi_bytes[gang.bag.row.owner] -= gang.pmi.size
            self.pmi_bytes += Counter()  # without those that have none
        self.timed.discard(gang.attempt.task)
        left = {rank for rank in range(len(gang.ranks)) if rank not in gang.ended and rank not in gang.printed}
        if gang.stage != GangStage.PREPARING and left:
            self._over[gang.attempt.task] = Over(gang.attempt, gang.bag, gang.ranks, left)
            if len(self._over) > OVER_LIMIT:
                self._over.popitem(last=False)

    def drop(self, gang: GangAttempt) -> None:
        """An attempt is over, without an end that counts."""
        self.remove(gang)
        if gang.stage != GangStage.PREPARING:
            self.state.grown(gang.bag, -self.state.journal.ranks.drop(gang.attempt.task))

    def drop_dead(self, attempts: Sequence[Attempt] | None = None) -> None:
        """Drop the attempts, all or some of these, that the scheduler has not any more."""
        # A worker that names several ranks of an attempt is told several times to stop it.
        found = self._gangs if attempts is None else [attempt.task for attempt in attempts if attempt in self]
        for task in list(dict.fromkeys(found)):
            if not self.state.scheduler.has_gang(self._gangs[task].attempt):
                self.drop(self._gangs[task])

    def lose(self, gang: GangAttempt, worker: WorkerSession, now: float) -> None:
        """A worker has not all of its ranks of an attempt any more: the attempt is over, and does not count."""
        self.drop(gang)
        returned = ev.AttemptsReturned(worker.name, [gang.attempt])
        self.handle_failure(returned, [worker.name], "gave up ranks that had begun", now)

    def handle_failure(self, event: ev.Event, names: Sequence[str], why: str, now: float) -> None:
        """Pass on an event because of which workers may get no gangs for a while, and note that."""
        scheduler = self.state.scheduler
        before = {name: scheduler.rests_until(name) for name in names}
        self.handle(event, now)
        for name, was in before.items():
            until, worker = scheduler.rests_until(name), self.workers.get(name)
            if worker is not None and until is not None and until != was:
                facts = {"name": name, "for_s": round(until - now, 1), "why": why}
                self.state.note("worker-gets-no-gangs", by=worker.who.name, **facts)

    def tell_ranks(self, gang: GangAttempt, told: Sequence[MeetingAnswer]) -> None:
        """Tell ranks what became of a meeting: each worker once, however many of them it has."""
        found = sorted([(gang.ranks[each.rank].worker, each.serial, each.rank, each) for each in told])
        for (name, serial), its in groupby(found, lambda row: row[:2]):
            *_, said = next(its)
            self.tell(name, wire.Met(*gang.attempt, serial, said.reason, said.values))

    def tell(self, name: str, message: wire.Message) -> None:
        """Send a message to a worker, if it is known."""
        if (worker := self.workers.get(name)) is not None:
            self.state.send(worker.peer, message)
