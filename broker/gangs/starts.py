"""Begins attempts of parallel tasks, in two steps: on all their workers, or on none."""

from collections import Counter
from collections.abc import Callable, Sequence

from deskgrid import wire
from deskgrid.broker.gangs.meetings import Meetings
from deskgrid.broker.gangs.table import GangAttempt, GangAttempts, GangStage, RankAt, places
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.store.ranks import GangAttemptRow, RankAttemptRow
from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev

# How long all workers together may take until they are ready, besides the time for the files of the task. Seconds.
PREPARE_S = 30.0
# A worker holds slots for ranks longer than that by this factor, and then gives them up by itself.
LEASE_FACTOR = 1.5
# Files may come this many times as slowly as assumed.
SLOW_TRANSFER = 4.0
# How long a task waits after its first start that failed; twice as long after the next one, and so on. Seconds.
PAUSE_S, PAUSE_MOST_S = 1.0, 120.0
# The session that the journal has for the attempt of a parallel task as a whole: that of no worker. The sessions that
# were given its ranks are with these.
OF_RANKS = " "
# Bytes of work that may wait for a worker, as in `deskgrid.broker.work.attempts`.
UNTAKEN_LIMIT = 8 * wire.PAYLOAD_LIMIT


class Starts:
    """``send_template``: to a worker, which has not got it."""

    def __init__(self, table: GangAttempts, send_template: Callable[[WorkerSession, str], None]) -> None:
        self._table = table
        self._state = table.state
        self._send_template = send_template
        # How often each task could not be started, in a row; and why, the last time.
        self._failed = Counter[int]()
        self._why: dict[int, str] = {}

    def start(self, command: cmd.StartGang, now: float) -> None:
        """Ask all workers of an attempt to prepare its ranks."""
        bag, item = self._state.book.item(command.attempt.task)
        names = [place.worker for place in command.ranks]
        sessions = [worker.session if (worker := self._table.workers.get(name)) else "" for name in names]
        ranks = [RankAt(p.worker, session, p.slots) for p, session in zip(command.ranks, sessions, strict=True)]
        meetings = Meetings(places(names))
        gang = GangAttempt(command.attempt, bag, item, ranks, command.runtime, GangStage.PREPARING, meetings)
        wait_s = PREPARE_S + SLOW_TRANSFER * bag.first_transfer_s
        self._table.add(gang, until=now + wait_s)
        if reason := self._unable(gang):
            self.refuse(gang, reason, now)
            return
        work = self._work(gang)
        for name in gang.workers:
            worker = self._table.workers[name]
            if work.template not in worker.templates:
                self._send_template(worker, work.template)
            slots = [wire.RankSlot(rank, slot) for rank in gang.at(name) for slot in ranks[rank].slots]
            lease_s, mine = LEASE_FACTOR * wait_s, work._replace(slot=slots[0].slot)
            message = wire.PrepareRanks(worker.join.opening, lease_s, len(ranks), tuple(slots), (mine,))
            self._state.hand_out(worker.peer, message)

    def _unable(self, gang: GangAttempt) -> str:
        """Why the ranks cannot be prepared; empty when they can."""
        workers = gang.workers
        for name in workers:
            worker = self._table.workers.get(name)
            if worker is None:
                return f"{name} is gone"
            if worker.join.address is None and len(workers) > 1:
                return f"other PCs cannot reach {name}"
            if not self._state.has_room(worker.peer, UNTAKEN_LIMIT):
                return f"{name} has not taken what it was sent before"
        return ""

    def _work(self, gang: GangAttempt) -> wire.Work:
        (task, number), bag = gang.attempt, gang.bag
        row = bag.batch_of(gang.item).row_of(task)[0]
        payload = self._state.journal.payload(row, task - row)
        # On slow PCs, a gang may take longer than a message can say.
        runtime = min(gang.runtime, wire.SECONDS_LIMIT)
        facts = (bag.row.template, runtime, bag.row.options, 0, payload, bag.environment_key or None, *bag.program)
        return wire.Work(task, number, 0, *facts)

    def ready(self, worker: WorkerSession, message: wire.RanksReady, now: float) -> None:
        """A worker has prepared its ranks."""
        gang = self._table.at(worker, message.task, message.number)
        if gang is None:
            self._state.send(worker.peer, wire.Stop((wire.Ref(message.task, message.number),)))
        elif gang.stage == GangStage.PREPARING:
            gang.ready.add(worker.name)
            if gang.ranks[0].worker == worker.name:
                gang.port = message.port
            if len(gang.ready) == len(gang.workers):
                self._begin(gang, now)

    def _begin(self, gang: GangAttempt, now: float) -> None:
        """All are ready."""
        (task, number), bag, journal = gang.attempt, gang.bag, self._state.journal
        gang.stage, gang.began = GangStage.RUNNING, now
        gang.ready.clear()
        self._table.timed.discard(task)
        self.forget(task)
        self._table.begins(gang)
        row = GangAttemptRow(task, number, bag.row.number, self._state.wall.posix(now), gang.runtime, gang.port, 0)
        rows = [RankAttemptRow(rank, at.session, at.worker, at.slots) for rank, at in enumerate(gang.ranks)]
        self._state.grown(bag, -journal.ranks.begin(row, rows))
        journal.add_sent([(task, number, OF_RANKS)])
        bag.remembered.add(task)
        for name in gang.workers:
            self.tell_to_start(gang, name)
        self._table.handle(ev.GangBegan(gang.attempt), now)

    def tell_to_start(self, gang: GangAttempt, name: str) -> None:
        """Tell a worker to start its ranks; it does no harm to tell it twice."""
        found = [self._table.workers.get(rank.worker) for rank in gang.ranks]  # None: it has ended its ranks, and left
        hosts = tuple([(worker and worker.join.address) or "localhost" for worker in found])
        self._table.tell(name, wire.StartRanks(*gang.attempt, hosts, gang.port))

    def unready(self, worker: WorkerSession, message: wire.RanksUnready, now: float) -> None:
        """A worker cannot start its ranks, and has given up their slots."""
        gang = self._table.at(worker, message.task, message.number)
        if gang is not None and gang.stage == GangStage.PREPARING:
            self.refuse(gang, f"{worker.name}: {message.reason}", now, blamed=[worker.name])
        elif gang is not None:
            self._table.lose(gang, worker, now)

    def refuse(
        self, gang: GangAttempt, reason: str, now: float, *, blamed: Sequence[str] = (), silent: bool = False
    ) -> None:
        """An attempt cannot begin: its task waits again, longer each time. ``blamed``, ``silent``: as in the event."""
        task = gang.attempt.task
        pause = min(PAUSE_S * 2.0 ** min(self._failed[task], 10), PAUSE_MOST_S)
        self._failed[task] += 1
        self._why[task] = reason
        facts = {"bag": gang.bag.row.id, "item": gang.item, "pause_s": pause, "reason": reason}
        self._state.note("gang-not-ready", by=gang.bag.row.owner, **facts)
        self._table.drop(gang)
        self._table.handle_failure(ev.GangRefused(gang.attempt, pause, blamed, silent), blamed, reason, now)

    def overdue(self, gang: GangAttempt, now: float) -> None:
        """The workers of an attempt have taken too long to be ready."""
        missing = [name for name in gang.workers if name not in gang.ready]
        self.refuse(gang, f"{', '.join(missing[:3])} took too long", now, blamed=missing, silent=True)

    def forget(self, task: int) -> None:
        """A task has ended, or begun."""
        self._failed.pop(task, None)
        self._why.pop(task, None)

    def last_refusal(self, task: int) -> str:
        """Why a task could not be started, the last time; empty if it has begun since."""
        return self._why.get(task, "")
