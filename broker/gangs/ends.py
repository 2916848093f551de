"""Makes one end of the ends of all ranks of an attempt.

Rule 1: how a rank ended is in the journal before its worker is told so, and a restart goes on from there.
Rule 2: a worker all of whose ranks have succeeded is needed no more: its slots are free, and it may leave.
Rule 3: the first failure ends the whole. The broker stops the other ranks at once, and waits until their workers have
stopped them: a failure that happened earlier may arrive later, and a PC that does not answer may be the true cause. In
the second case the attempt is lost, which does not count against the task.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from deskgrid import wire
from deskgrid.broker.gangs.starts import Starts
from deskgrid.broker.gangs.table import GangAttempt, GangAttempts, GangStage, RankFailure
from deskgrid.broker.model.failed_attempts import with_crash_sites
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.store.large_values import OF_RANK, OF_RANKS
from deskgrid.broker.store.rows import ResultRow
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, AttemptOutcome

# A worker that is there gets this many leases of workers to stop ranks.
STOP_LEASES = 2.0
# Bytes that joining the results of ranks adds to each of them, and to all, at most.
HEAD_BYTES = 16
FAILED = (wire.Outcome.ERROR, wire.Outcome.CRASH, wire.Outcome.TIMEOUT)


class _End(NamedTuple):
    """``rank``: that which decided it."""

    outcome: AttemptOutcome
    elapsed: float
    payload: wire.Payload
    rank: int


class Ends:
    """``starts``: is told of each task that has ended, and of each that a worker hands back before it has begun."""

    def __init__(self, table: GangAttempts, starts: Starts) -> None:
        self._table = table
        self._state = table.state
        self._starts = starts
        # The attempt whose end the scheduler is told, and the workers that have stopped it already.
        self._stopped: tuple[Attempt, frozenset[str]] | None = None

    def ended(self, worker: WorkerSession, message: wire.RanksEnded, now: float) -> None:
        """Ranks ended at a worker."""
        touched: dict[int, GangAttempt] = {}
        for result in message.results:
            gang = self._table.at(worker, result.task, result.number, result.rank)
            stopped = result.outcome != wire.Outcome.DONE and result.outcome not in FAILED
            if stopped or (gang is not None and result.rank in gang.failed):
                self._printed(worker, gang, result)
            elif gang is not None and gang.stage != GangStage.PREPARING:
                touched[result.task] = gang
                self.rank_ended(gang, result._replace(elapsed=min(result.elapsed, now - gang.began)), now)
                if result.outcome in FAILED:
                    gang.printed.add(result.rank)
        for gang in touched.values():
            self.look_at(gang, now)
        refs = [wire.RankRef(each.task, each.number, each.rank) for each in message.results]
        self._state.send(worker.peer, wire.RanksTaken(tuple(refs)))

    def rank_ended(self, gang: GangAttempt, result: wire.RankResult, now: float) -> None:
        """A rank has ended."""
        rank, failed = result.rank, result.outcome in FAILED
        if rank in gang.ended or rank in gang.failed or rank in gang.printed:
            return
        said = result.payload, result.stdout, result.stderr
        ended = result.outcome, result.elapsed
        self._state.journal.ranks.end(gang.attempt.task, gang.bag.row.number, rank, ended, said)
        self._state.grown(gang.bag, sum(map(len, said)))
        if failed:
            self.fail(gang, RankFailure(rank, result.elapsed, result), now)
        else:
            gang.ended[rank] = result.elapsed
            gang.size += len(result.payload)
            size = gang.meetings.size
            self._table.tell_ranks(gang, gang.meetings.end(rank))
            self._table.gathered += gang.meetings.size - size

    def _printed(self, worker: WorkerSession, gang: GangAttempt | None, result: wire.RankResult) -> None:
        """A rank was stopped, or MPI's process manager had failed it: what it printed until then is kept."""
        rank = result.rank
        if gang is None:
            bag = self._table.stopped(worker, result.task, result.number, rank)
        elif gang.stage == GangStage.PREPARING or rank in gang.ended or rank in gang.printed:
            bag = None
        else:
            bag = gang.bag
            gang.printed.add(rank)
        if bag is not None:
            said = result.stdout, result.stderr
            self._state.journal.ranks.printed(result.task, rank, result.elapsed, *said)
            self._state.grown(bag, sum(map(len, said)))

    def fail(self, gang: GangAttempt, failure: RankFailure, now: float) -> None:
        """A rank has failed: stop the others."""
        gang.failed.add(failure.rank)
        if gang.first is None or failure.elapsed < gang.first.elapsed:
            gang.first = failure
        if gang.stage != GangStage.ENDING:
            gang.stage = GangStage.ENDING
            gang.ready.clear()
            self._table.wait(gang, now + STOP_LEASES * self._state.facts.lease_s)
            for name in gang.awaited:
                self._table.tell(name, wire.Stop((gang.ref,)))

    def returned(self, worker: WorkerSession, refs: Sequence[wire.Ref], now: float) -> list[Attempt]:
        """A worker gives attempts back, or has stopped them; returns those that are of no gang."""
        others: list[Attempt] = []
        for ref in refs:
            gang = self._table.at(worker, ref.task, ref.number)
            if gang is None:
                others.append(Attempt(*ref))
            elif gang.stage == GangStage.ENDING:
                gang.ready.add(worker.name)
                self.look_at(gang, now)
            elif gang.stage == GangStage.PREPARING:
                self._starts.refuse(gang, f"{worker.name} handed it back", now, blamed=[worker.name])
            else:
                self._table.lose(gang, worker, now)
        return others

    def look_at(self, gang: GangAttempt, now: float) -> None:
        """End an attempt if all its ranks have ended, or have been stopped after a failure."""
        if gang.stage == GangStage.ENDING:
            if gang.ready.issuperset(gang.awaited):
                self.end_failed(gang, now)
        elif len(gang.ended) == len(gang.ranks):
            payload, outcome = result_of(gang, self._state.journal.ranks.payloads), AttemptOutcome.DONE
            if isinstance(payload, wire.Failure):
                payload, outcome = payload.packed(), AttemptOutcome.ERROR
            self._end(gang, _End(outcome, max(gang.ended.values()), payload, 0), now)
        elif gang.stage == GangStage.RUNNING:
            self.let_go(gang, now)

    def let_go(self, gang: GangAttempt, now: float) -> None:
        """Some ranks go on. Workers all of whose ranks have succeeded are needed no more."""
        go_on = {at.worker for rank, at in enumerate(gang.ranks) if rank not in gang.ended}
        for name in gang.awaited if gang.ended else ():
            if name not in go_on:
                gang.over.add(name)
                self._table.handle(ev.RanksEnded(gang.attempt, gang.at(name)), now)

    def end_failed(self, gang: GangAttempt, now: float) -> None:
        """The ranks of an attempt have been stopped after a failure, or there was long enough time for that."""
        if (first := gang.first) is not None:
            outcome = AttemptOutcome(first.result.outcome)
            self._end(gang, _End(outcome, first.elapsed, account_of(gang, first), first.rank), now)

    def _end(self, gang: GangAttempt, end: _End, now: float) -> None:
        """Tell the scheduler how an attempt ended."""
        (task, number), bag, state = gang.attempt, gang.bag, self._state
        outcome, elapsed, payload, rank = end
        worker, ranks = gang.ranks[rank].worker, state.journal.ranks
        facts = (task, bag.row.number, gang.item, int(outcome), elapsed, worker, number)
        output = ranks.outputs(task)[rank]
        row = ResultRow(*facts, payload, output.stdout, output.stderr, state.wall.posix(now))
        self._table.remove(gang)
        crashes = [*state.scheduler.crashes(task), worker]
        self._stopped = gang.attempt, frozenset(gang.ready)
        settled = self._table.handle(ev.AttemptsEnded(worker, [ev.EndedAttempt(gang.attempt, outcome, elapsed)]), now)
        if settled:
            self._record(row, crashes)
        for name in gang.ready - {worker}:
            self._table.handle(ev.AttemptsReturned(name, [gang.attempt]), now)
        if settled:
            state.failed_attempts.drop(task)
            self._starts.forget(task)
        else:
            state.failed_attempts.add(row)
        if outcome == AttemptOutcome.DONE:
            self._learn(gang, elapsed)
        elif outcome == AttemptOutcome.CRASH:
            facts_of_crash = {"name": worker, "bag": bag.row.id, "item": gang.item, "crashes": len(crashes)}
            state.note("task-crashed", by=bag.row.owner, **facts_of_crash)
        state.grown(bag, -ranks.drop(task, keep_results=isinstance(payload, wire.Chunks)))

    def has_stopped(self, worker: str, attempts: Sequence[Attempt]) -> bool:
        """Whether these are the attempt that is ending, which a worker has stopped already."""
        return self._stopped is not None and [*attempts] == [self._stopped[0]] and worker in self._stopped[1]

    def _record(self, row: ResultRow, crashes: Sequence[str]) -> None:
        """Record the result that ended a task. ``crashes``: the PCs on which the task has crashed."""
        state, bag = self._state, self._state.book.by_number[row.bag]
        state.settled(bag, 1)
        bag.remembered.discard(row.task)
        if row.outcome == wire.Outcome.CRASH:
            row = row._replace(payload=with_crash_sites(row.payload, crashes))
        for size in state.journal.add_results([row]).values():
            state.grown(bag, size)
        if (worker := self._table.workers.get(row.worker)) is not None:
            worker.ended += 1

    def _learn(self, gang: GangAttempt, elapsed: float) -> None:
        """Learn how long the task would have taken on one rank, on a PC of speed 1."""
        slowest = min([self._state.scheduler.speed(rank.worker) for rank in gang.ranks])
        speedup = gang.bag.need.speedup
        faster = 1.0 if speedup is None else speedup.of(len(gang.ranks))
        gang.bag.runs.add([elapsed * slowest * faster], 0, gang.ranks[0].worker)


class StoredRankResults(wire.Chunks):
    """Stands for the results of the ranks of a task, which stay in the journal one by one."""

    __slots__ = ("_length",)

    def __init__(self, cell: str, length: int) -> None:
        super().__init__((), cell)
        self._length = length

    def __len__(self) -> int:
        return self._length


def result_of(gang: GangAttempt, payloads: Callable[[int], list[wire.Payload]]) -> wire.Payload | wire.Failure:
    """The result of an attempt whose ranks have all succeeded. ``payloads``: their results, of a task."""
    task, joins = gang.attempt.task, gang.bag.row.options.gang
    size = gang.size + HEAD_BYTES * (1 + len(gang.ranks))
    if joins and size > wire.PAYLOAD_LIMIT:
        return wire.Failure(
            "ResultTooLarge",
            f"its {len(gang.ranks)} ranks return {gang.size:,} bytes together; the limit is {wire.PAYLOAD_LIMIT:,}",
        )
    if gang.size >= wire.LARGE_BYTES:
        return StoredRankResults(f"{OF_RANKS if joins else OF_RANK}{task}", size)
    its = payloads(task)
    return wire.join_ranks(its) if joins else its[0]


def account_of(gang: GangAttempt, failure: RankFailure) -> bytes:
    """The account of a failure, with the rank that failed and its PC."""
    told = wire.read_failure(failure.result.payload)
    place = gang.place(failure.rank)
    message = f"{place}: {told.message}" if told.message else place
    trace = f"{place}:\n{told.trace}" if told.trace else ""
    return replace(told, message=message, trace=trace, rank=failure.rank).packed()
