"""Drives the attempts of parallel tasks, from the scheduler's command to start one to its end: what all parts of it do.

What ranks say to each other is passed on here, and attempts go on after a connection broke or the broker was restarted.

Rule: only the session that was given a rank may report on it, or speak for it.
"""

from collections.abc import Callable, Mapping, Sequence

from deskgrid import wire
from deskgrid.broker.gangs.ends import FAILED, Ends
from deskgrid.broker.gangs.meetings import Meetings
from deskgrid.broker.gangs.pmi import KEPT_BYTES_OF_OWNER, LINE_BYTES, PmiError, PmiServer
from deskgrid.broker.gangs.starts import Starts
from deskgrid.broker.gangs.table import GangAttempt, GangAttempts, GangStage, Handle, RankAt, RankFailure, places
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.store.ranks import GangAttemptRow, RankAttemptRow
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt

# Values that ranks of all gangs have gathered, or are gathering. Bytes.
GATHERED_BYTES = 16 * wire.MEETING_BYTES
# What workers say of ranks.
RankMessage = wire.RanksReady | wire.RanksUnready | wire.RanksEnded | wire.Meet | wire.PmiBytes


class RankMessages:
    """Passes on what the ranks of an attempt say to each other through the broker: at meetings, and by PMI-1.

    ``ends``: is told when a rank says something that ends its gang.
    """

    def __init__(self, table: GangAttempts, ends: Ends) -> None:
        self._table = table
        self._ends = ends

    def meet(self, worker: WorkerSession, message: wire.Meet) -> None:
        """A rank has come to a meeting."""
        gang = self._of(worker, message)
        if gang is None:
            return
        meetings, before, size = gang.meetings, gang.meetings.held, gang.meetings.size
        told = meetings.come(message, max(0, GATHERED_BYTES - self._table.gathered))
        self._table.gathered += meetings.size - size
        if meetings.held > before:
            self._table.state.journal.ranks.met(message.task, meetings.held)
        self._table.tell_ranks(gang, told)

    def pmi(self, worker: WorkerSession, message: wire.PmiBytes, now: float) -> None:
        """A rank speaks to MPI's process manager."""
        gang = self._of(worker, message)
        if gang is None or not gang.bag.row.options.mpi:
            return
        try:
            replies = self.manager_of(gang).receive(message.rank, message.start, message.data)
        except PmiError as error:
            failure = wire.Failure("MPIError", str(error)).packed()
            facts = (int(wire.Outcome.ERROR), now - gang.began, failure, b"", b"", message.rank)
            self._ends.rank_ended(gang, wire.RankResult._make((*gang.attempt, *facts)), now)
            return
        for rank, start, data in replies:
            self._table.tell(gang.ranks[rank].worker, wire.PmiBytes(*gang.attempt, rank, start, data))

    def _of(self, worker: WorkerSession, message: wire.Meet | wire.PmiBytes) -> GangAttempt | None:
        """The gang of a rank that speaks, if the rank may speak now."""
        gang = self._table.at(worker, message.task, message.number, message.rank)
        if gang is None or gang.stage not in (GangStage.RUNNING, GangStage.GATHERING) or message.rank in gang.ended:
            return None
        return gang

    def manager_of(self, gang: GangAttempt) -> PmiServer:
        """The process manager of an attempt."""
        if gang.pmi is None:
            (task, number), ranks = gang.attempt, self._table.state.journal.ranks
            owner, said = gang.bag.row.owner, self._table.pmi_bytes

            def keep(rank: int, ends: int, line: bytes) -> None:
                size = len(line) + LINE_BYTES
                if said[owner] + size > KEPT_BYTES_OF_OWNER:
                    most = f"{KEPT_BYTES_OF_OWNER // 2**20} MiB"
                    raise PmiError(f"all gangs of its submitter said more than {most} to MPI's process manager")
                said[owner] += size
                ranks.keep_line(task, rank, ends, line)

            # MPICH makes names of shared memory of it, which another grid's gang on the same PC must not have.
            name = f"deskgrid_{gang.bag.row.id}_{task}_{number}"
            gang.pmi = PmiServer(name, [rank.worker for rank in gang.ranks], keep)
        return gang.pmi


class GangRecovery:
    """Brings the ranks of attempts together again, after a connection broke, or after the broker was started again."""

    def __init__(self, table: GangAttempts, starts: Starts, ends: Ends, rank_messages: RankMessages) -> None:
        self._table = table
        self._state = table.state
        self._starts = starts
        self._ends = ends
        self._rank_messages = rank_messages

    def restore(self, now: float) -> None:
        """Go on with the attempts in the journal, whose bags and tasks are known by now."""
        for row, ranks in self._state.journal.ranks.begun():
            if self._state.scheduler.has_gang(Attempt(row.task, row.number)):
                self._restore(row, ranks, now)
            else:
                self._state.journal.ranks.drop(row.task)

    def _restore(self, row: GangAttemptRow, ranks: Sequence[RankAttemptRow], now: float) -> None:
        table = self._state.journal.ranks
        bag, item = self._state.book.item(row.task)
        at = [RankAt(rank.worker, rank.session, rank.slots) for rank in ranks]
        meetings = Meetings(places([rank.worker for rank in ranks]), row.met)
        attempt = Attempt(row.task, row.number)
        gang = GangAttempt(attempt, bag, item, at, row.runtime, GangStage.GATHERING, meetings, port=row.port)
        gang.began = now - max(0.0, self._state.wall.posix(now) - row.began)
        self._table.add(gang)
        for number, ends, line in table.lines(row.task):
            self._rank_messages.manager_of(gang).replay(number, ends, line)
        if gang.pmi is not None:
            self._table.pmi_bytes[bag.row.owner] += gang.pmi.size
        for rank in ranks:
            if rank.outcome == wire.Outcome.DONE:
                gang.ended[rank.rank] = rank.elapsed
                gang.meetings.end(rank.rank)
                gang.size += rank.size
            elif rank.outcome in FAILED:
                facts = (*attempt, rank.outcome, rank.elapsed, table.payload(row.task, rank.rank), b"", b"", rank.rank)
                gang.printed.add(rank.rank)
                self._ends.fail(gang, RankFailure(rank.rank, rank.elapsed, wire.RankResult(*facts)), now)
        self._ends.let_go(gang, now)

    def held(self, worker: WorkerSession, running: Sequence[wire.Running], now: float) -> list[ev.HeldAttempt]:
        """The ranks that a joining worker has: those that it names, and those whose ends are in the journal."""
        named = {(r.task, r.number, r.rank): r.elapsed for r in running}
        held: list[ev.HeldAttempt] = []
        for gang in self._table.given_to(worker.name):
            for rank in () if worker.name in gang.over else gang.at(worker.name):
                at, key = gang.ranks[rank], (*gang.attempt, rank)
                if at.session == worker.session and (key in named or rank in gang.ended or rank in gang.failed):
                    elapsed = gang.ended.get(rank, named.get(key))
                    elapsed = None if elapsed is None else min(elapsed, now - gang.began)
                    held += [ev.HeldAttempt(gang.attempt, slot, elapsed, rank) for slot in at.slots]
        return held

    def rejoined(self, worker: WorkerSession, running: Sequence[wire.Running], now: float) -> None:
        """A worker is known again, with the ranks of `held`. What it was sent before may be lost."""
        named = {(r.task, r.number, r.rank): r.elapsed for r in running}
        for gang in self._table.given_to(worker.name):
            if not self._state.scheduler.has_gang(gang.attempt):
                self._table.drop(gang)
                continue
            over = gang.ended.keys() | gang.failed
            left = [(*gang.attempt, rank) for rank in gang.at(worker.name) if rank not in over]
            mine = self._table.at(worker, *gang.attempt) is not None
            if worker.name in gang.over:
                continue
            if gang.stage == GangStage.ENDING:
                self._state.send(worker.peer, wire.Stop((gang.ref,)))
            elif mine and all(key in named for key in left):
                self._has_all(gang, worker, now, waiting=any(named[key] is None for key in left))
            elif gang.stage == GangStage.PREPARING:
                self._starts.refuse(gang, f"the connection of {worker.name} broke", now, blamed=[worker.name])
            else:
                self._table.lose(gang, worker, now)

    def _has_all(self, gang: GangAttempt, worker: WorkerSession, now: float, *, waiting: bool) -> None:
        """A worker has all its ranks of an attempt. ``waiting``: it has not heard that it is to start them."""
        if gang.stage == GangStage.RUNNING and waiting:
            self._starts.tell_to_start(gang, worker.name)
        elif gang.stage == GangStage.GATHERING:
            gang.ready.add(worker.name)
            if not gang.ready.issuperset(gang.awaited):
                return
            if not self._state.scheduler.is_gang_back(gang.attempt):
                self._table.lose(gang, worker, now)  # a worker has other slots than it had, or is at another site
            else:
                gang.stage = GangStage.RUNNING
                gang.ready.clear()
                for name in gang.awaited:
                    self._starts.tell_to_start(gang, name)
                self._table.handle(ev.GangBegan(gang.attempt), now)
                self._ends.look_at(gang, now)


class GangParts:
    """All parts of it. ``table``: the attempts that have workers."""

    def __init__(
        self,
        state: BrokerState,
        workers: Mapping[str, WorkerSession],
        handle: Handle,
        send_template: Callable[[WorkerSession, str], None],
    ) -> None:
        """Arguments as for `GangAttempts` and `Starts`."""
        self.table = GangAttempts(state, workers, handle)
        self.starts = Starts(self.table, send_template)
        self.ends = Ends(self.table, self.starts)
        self._rank_messages = RankMessages(self.table, self.ends)
        self.recovery = GangRecovery(self.table, self.starts, self.ends, self._rank_messages)

    def receive(self, worker: WorkerSession, message: RankMessage, now: float) -> None:
        """Handle a message of a worker."""
        if isinstance(message, wire.RanksEnded):
            self.ends.ended(worker, message, now)
        elif isinstance(message, wire.RanksReady):
            self.starts.ready(worker, message, now)
        elif isinstance(message, wire.RanksUnready):
            self.starts.unready(worker, message, now)
        elif isinstance(message, wire.Meet):
            self._rank_messages.meet(worker, message)
        else:
            self._rank_messages.pmi(worker, message, now)

    def expects(self, worker: WorkerSession, message: wire.RanksEnded) -> bool:
        """Whether a message has a large result of a rank that its sender was given, and that has not ended yet."""
        large = [result for result in message.results if not isinstance(result.payload, bytes)]
        found = [(self.table.at(worker, each.task, each.number, each.rank), each.rank) for each in large]
        return any(gang is not None and rank not in gang.ended for gang, rank in found)

    def begun_at(self, worker: str) -> Sequence[Attempt]:
        """The attempts that have begun and have ranks at a worker."""
        return [gang.attempt for gang in self.table.given_to(worker) if gang.stage != GangStage.PREPARING]

    def look(self, now: float) -> None:
        """Give up what has taken too long."""
        for task in list(self.table.timed):
            gang = self.table.find(task)
            if gang is not None and gang.until <= now:
                (self.starts.overdue if gang.stage == GangStage.PREPARING else self.ends.end_failed)(gang, now)
