"""Goes on with attempts of parallel tasks after a connection broke, or after the broker was started again."""

from collections.abc import Sequence

from deskgrid import wire
from deskgrid.broker.gangs.ends import FAILED, Ends
from deskgrid.broker.gangs.gang import GangAttempt, GangStage, RankAt, RankFailure, places
from deskgrid.broker.gangs.meetings import Meetings
from deskgrid.broker.gangs.rank_messages import RankMessages
from deskgrid.broker.gangs.starts import Starts
from deskgrid.broker.gangs.table import GangAttempts
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.store.ranks import GangAttemptRow, RankAttemptRow
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt


class GangRecovery:
    """Brings the ranks of attempts together again."""

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
        gang.began = now - max(0.0, self._state.posix(now) - row.began)
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
