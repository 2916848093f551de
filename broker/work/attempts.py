"""The attempts that workers hold, from assignment to result, and who may report on each attempt.

Rule 1: only the session that was given an attempt may report on it, even if the worker was lost or the broker was
restarted in the meantime. Reports from anybody else change nothing, because attempt numbers can be guessed.
Rule 2: the elapsed time of an attempt is at most the time since the attempt was sent.
"""

from collections.abc import Mapping, Sequence

from deskgrid import wire
from deskgrid.broker.gangs.gangs import GangParts
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.failed_attempts import with_crash_sites
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.store.rows import ResultRow
from deskgrid.broker.work.checkpoints import EACH_S, CheckpointRecorder, drop_ended
from deskgrid.broker.work.holders import Holders
from deskgrid.broker.work.worker_health import EVENTS, brief_of, kinds_of
from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import ENDED, Attempt, AttemptOutcome
from deskgrid.scheduler.state.avoided import Kind, Person, Rest, Why
from deskgrid.scheduler.state.progress import IDLE_LIMIT
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.wire.saving import LEAD_MOST_S

# Attempts predicted to take at least this long are recorded when they are sent, and the broker waits for them after a
# restart. Shorter attempts simply run again. (Once one attempt of a task is recorded, all its later attempts are
# recorded too, because the record must name the newest one. So are attempts with licences: these stay in use while the
# broker is away.) Seconds.
REMEMBERED_S = 1.0
# Bytes of work that may wait for a worker: eight of the largest arguments. The worker gets more when it has taken some.
UNTAKEN_LIMIT = 8 * wire.PAYLOAD_LIMIT
# The scheduler's outcome for each that a worker may report. A task with an unreadable checkpoint waits again.
_OUTCOMES = {
    **{int(outcome): outcome for outcome in AttemptOutcome if outcome <= AttemptOutcome.TIMEOUT},
    int(wire.Outcome.PIECE): AttemptOutcome.PIECE,
    int(wire.Outcome.UNREADABLE): AttemptOutcome.PIECE,
    int(wire.Outcome.NO_ROOM): AttemptOutcome.NO_ROOM,
    int(wire.Outcome.NO_START): AttemptOutcome.NO_START,
}
# Those that people may want to read about.
_FAILED = frozenset(
    map(
        int,
        (
            wire.Outcome.ERROR,
            wire.Outcome.CRASH,
            wire.Outcome.TIMEOUT,
            wire.Outcome.NO_ROOM,
            wire.Outcome.NO_START,
        ),
    )
)
# Workers that are named where a bag is held.
NAMED = 5
# What is said of a task that is given up because its pieces bring nothing.
NO_PROGRESS = (
    f"{IDLE_LIMIT} pieces in a row brought no progress: each ended without a newer checkpoint. "
    "Call deskgrid.checkpoint.save more often, or ask for longer pieces (min_piece)"
)


class Attempts:
    """``by_name``: the sessions of all known workers, kept by `deskgrid.broker.work.workers`."""

    def __init__(self, state: BrokerState, by_name: Mapping[str, WorkerSession]) -> None:
        self._state = state
        self._send = state.send
        self._by_name = by_name
        self.holders = Holders(state, by_name)
        self._checkpoints = CheckpointRecorder(state)
        self.gangs = GangParts(state, by_name, self.handle, self.send_template)

    def handle(self, event: ev.Event, now: float) -> Sequence[Attempt]:
        """Pass an event to the scheduler, and carry out its commands. Returns the attempts that ended their tasks: the
        caller records their results.
        """
        settled: Sequence[Attempt] = ()
        if isinstance(event, ev.WorkerJoined | ev.WorkerLeft) and self._state.scheduler.is_up(event.worker):
            self._note_given(event.worker)
        for command in self._state.scheduler.handle(event, now):
            if isinstance(command, cmd.Settle):
                settled = command.attempts
            else:
                self.carry_out(command)
        if isinstance(event, ev.WorkerLeft):
            self.gangs.table.drop_dead([gang.attempt for gang in self.gangs.table.given_to(event.worker)])
        elif isinstance(event, ev.HoldExpired):
            self.gangs.table.drop_dead()
        return settled

    def carry_out(self, command: cmd.Command) -> None:
        """Carry out a command of the scheduler. `Settle` is not for here: who passes the ends on records them."""
        if isinstance(command, cmd.Assign):
            self._assign(command)
        elif isinstance(command, cmd.StartGang):
            self.gangs.starts.start(command, self._state.scheduler.now)
        elif isinstance(command, cmd.Stuck):
            self._give_up(command.attempts)
        elif isinstance(command, cmd.Hold):
            self._hold(command)
        elif not isinstance(command, cmd.Settle):
            self._take_back(command)

    # --- who was given them ------------------------------------------------------------------------------------------

    def _note_given(self, name: str) -> None:
        """Remember which session was given this worker's attempts, because the worker may lose them now."""
        attempts = self._state.scheduler.attempts_at(name)
        self.holders.note(name, [each for each in attempts if each not in self.gangs.table])

    def given_to(self, worker: WorkerSession, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The attempts of `its_own`, plus those that it owes an answer for, or that it was told to stop."""
        owed = self._state.scheduler.owed_by(worker.name)
        others = [attempt for attempt in attempts if attempt in owed]
        ranks = [attempt for attempt in attempts if self.gangs.table.at(worker, *attempt) is not None]
        return [*self.holders.its_own(worker, attempts), *others, *ranks]

    def stopped(self, worker: WorkerSession, held: Sequence[wire.Running], now: float) -> dict[Attempt, float]:
        """How long each attempt ran that was given to a worker, and that it hands back after it had begun.

        A slot runs one attempt at a time: if a worker names several of a slot, the first counts.
        """
        scheduler, begun = self._state.scheduler, {r.slot: r for r in reversed(held) if r.elapsed is not None}
        ran = {Attempt(r.task, r.number): r.elapsed for r in begun.values() if r.elapsed is not None}
        return {
            attempt: min(ran[attempt], self.holders.most_s(attempt, scheduler.find(attempt), now))
            for attempt in self.holders.its_own(worker, ran)
        }

    def held(self, worker: WorkerSession, running: Sequence[wire.Running], now: float) -> list[ev.HeldAttempt]:
        """The attempts that a joining worker holds, except those given to other workers, which it is told to stop."""
        scheduler, others = self._state.scheduler, list[wire.Ref]()
        held = self.gangs.recovery.held(worker, running, now)
        for r in running:
            attempt, elapsed = Attempt(r.task, r.number), r.elapsed
            if attempt in self.gangs.table:
                if self.gangs.table.at(worker, *attempt) is None:
                    others.append(wire.Ref(*attempt))
                continue
            found = scheduler.find(attempt)
            holder = self.holders.holder(attempt, found)
            if holder not in (None, "", worker.session):
                others.append(wire.Ref(*attempt))
                continue
            if elapsed is not None and holder is not None:
                elapsed = min(elapsed, self.holders.most_s(attempt, found, now))
            held.append(ev.HeldAttempt(attempt, r.slot, elapsed))
        if others:
            self._send(worker.peer, wire.Stop(tuple(others)))
        return held

    # --- results -----------------------------------------------------------------------------------------------------

    def returned(self, worker: WorkerSession, message: wire.Returned, now: float) -> None:
        """A worker gives back attempts that it has not begun, or has stopped."""
        attempts = self.gangs.ends.returned(worker, message.attempts, now)
        self.handle(ev.AttemptsReturned(worker.name, self.given_to(worker, attempts)), now)

    def finished(self, worker: WorkerSession, message: wire.Finished, now: float) -> None:
        """Attempts ended at a worker."""
        scheduler, next_task, gangs = self._state.scheduler, self._state.book.next_task, self.gangs.table
        results: dict[Attempt, wire.Result] = {}
        failed: list[wire.Result] = []
        for result in message.results:
            if result.outcome in _OUTCOMES and result.task < next_task:
                attempt = Attempt(result.task, result.number)
                if gangs and attempt in gangs:
                    continue  # each of its ranks ends by itself
                found = scheduler.find(attempt)
                holder = self.holders.holder(attempt, found)
                if holder in (None, "", worker.session):
                    results[attempt] = self._believable(attempt, result, found, now)
                    if result.outcome in _FAILED and holder is not None:
                        failed.append(result)
                    elif result.outcome == wire.Outcome.UNREADABLE and holder is not None:
                        self._checkpoints.unreadable(result.task)
        ended = [ev.EndedAttempt(attempt, _OUTCOMES[r.outcome], r.elapsed, r.waited) for attempt, r in results.items()]
        crashed = [attempt.task for attempt, r in results.items() if r.outcome == wire.Outcome.CRASH]
        crashes = {task: [*scheduler.crashes(task), worker.name] for task in crashed}
        stay, rests = scheduler.quarantined(worker.name), scheduler.rests_of(worker.name)
        if settled := self.handle(ev.AttemptsEnded(worker.name, ended), now):
            self._record(worker, [results[attempt] for attempt in settled], crashes)
        for result in failed:
            self._remember(result, worker.name)
        if crashed:
            self._note_crashes(worker, crashed)
        self._note_quarantine(worker.name, stay, scheduler.quarantined(worker.name))
        if failed:
            self._note_rests(worker, failed, rests)
        self._send(worker.peer, wire.Taken(tuple([wire.Ref(r.task, r.number) for r in message.results])))

    def _believable(
        self, attempt: Attempt, result: wire.Result, found: tuple[str, float] | None, now: float
    ) -> wire.Result:
        """Limit a result's elapsed time to the time since its attempt was sent: predictions are learned from it."""
        if found is None and not self._state.scheduler.is_orphan(attempt):
            return result  # a stale result changes nothing
        most = self.holders.most_s(attempt, found, now)
        return result if result.elapsed <= most else result._replace(elapsed=most)

    def _remember(self, result: wire.Result, worker: str) -> None:
        """Keep a failed attempt for `logs` and `explain`, unless it ended its task: then it is in the journal."""
        if self._state.scheduler.state(result.task) in ENDED:
            self._state.failed_attempts.drop(result.task)
            return
        bag, item = self._state.book.item(result.task)
        facts = (result.task, bag.row.number, item, result.outcome, result.elapsed, worker, result.number)
        texts = result.payload, result.stdout, result.stderr
        self._state.failed_attempts.add(ResultRow(*facts, *texts, self._state.wall.posix(self._state.scheduler.now)))

    def _note_crashes(self, worker: WorkerSession, tasks: Sequence[int]) -> None:
        """Note the first of the crashes in one message, and how many there are."""
        bag, item = self._state.book.item(tasks[0])
        facts = {"name": worker.name, "bag": bag.row.id, "item": item, "crashes": len(tasks)}
        self._state.note("task-crashed", by=worker.who.name, **facts)

    def _note_rests(self, worker: WorkerSession, failed: Sequence[wire.Result], before: Mapping[Kind, Rest]) -> None:
        """Note which work is kept from a worker because of attempts in one message, and the last of these."""
        rests, known = self._state.scheduler.rests_of(worker.name), self._state.scheduler.grid.tasks.known
        for kind in [kind for kind in worker.why_rests if kind not in rests]:
            del worker.why_rests[kind]
        for result in failed:
            bag, item = self._state.book.item(result.task)
            brief, its = brief_of(result), kinds_of(known(result.task).bag)
            for kind in its & rests.keys():
                worker.why_rests[kind] = brief
                if (rest := rests[kind]) != before.get(kind):
                    before = {**before, kind: rest}
                    facts = {"name": worker.name, "bag": bag.row.id, "item": item, "for_s": round(rest.lasts, 1)}
                    self._state.note(EVENTS[rest.why], by=worker.who.name, **facts, reason=brief)

    def _note_quarantine(self, name: str, before: Quarantined | None, after: Quarantined | None) -> None:
        who = self._by_name[name].who.name
        if after is not None and after is not before:
            self._state.note("worker-quarantined", by=who, name=name, for_s=after.lasts, why=after.why)
        elif before is not None and after is None:
            self._state.note("worker-recovered", by=who, name=name)

    def _hold(self, command: cmd.Hold) -> None:
        """Hold the bags whose environment does not start."""
        why = "did not answer for its tasks" if command.silent else "could start no process in its environment"
        names = ", ".join(command.workers[:NAMED])
        for bag in self._state.book.by_number.values():
            if bag.environment_key == command.environment and not (bag.complete or bag.held):
                self._state.to_hold.append((bag, f"{names} {why}{self._said_of(bag, command.workers)}"))

    def _said_of(self, bag: OpenBag, names: Sequence[str]) -> str:
        """What the first of these workers that said anything said of work like a bag's."""
        kinds = kinds_of(self._state.scheduler.grid.tasks.bags[bag.row.number])
        sessions = [self._by_name[name] for name in names if name in self._by_name]
        said = [worker.why_rests[kind] for worker in sessions for kind in kinds if kind in worker.why_rests]
        return f": {said[0]}" if said else ""

    def _record(
        self, worker: WorkerSession, results: Sequence[wire.Result], crashes: Mapping[int, Sequence[str]]
    ) -> None:
        """Record the results of a worker that ended their tasks. ``crashes``: where each task has crashed."""
        rows: list[ResultRow] = []
        ended, tasks = self._state.wall.posix(self._state.scheduler.now), [result.task for result in results]
        speed = self._state.scheduler.speed(worker.name)
        for bag, batch, part in self._state.book.by_batch(tasks):
            number, item_of_0, its = bag.row.number, batch.start - batch.first, results[part]
            self._state.settled(bag, len(its))
            # Only of tasks that are done. The last piece of one that went on from a checkpoint does not tell the whole.
            done = [result for result in its if not (result.outcome or result.task in bag.checkpoints)]
            elapsed = [result.elapsed for result in done]
            if speed != 1.0:  # learned runtimes are of speed 1; a task that waits takes as long everywhere
                elapsed = [result.elapsed if result.waited else result.elapsed * speed for result in done]
            bag.runs.add(elapsed, worker.first_runs(number, len(its)), worker.join.name)
            drop_ended(self._state, bag, tasks[part])
            if bag.environment_key and (at := worker.environments.get(bag.environment_key)) is not None:
                at.times = at.returned = 0  # it can use that environment
            if bag.remembered:
                bag.remembered.difference_update(tasks[part])
            for result in its:
                task, payload = result.task, result.payload
                if result.outcome == wire.Outcome.CRASH:
                    payload = with_crash_sites(payload, crashes[task])
                rows.append(
                    ResultRow(
                        task,
                        number,
                        task + item_of_0,
                        result.outcome,
                        result.elapsed,
                        worker.name,
                        result.number,
                        payload,
                        result.stdout,
                        result.stderr,
                        ended,
                    )
                )
        sizes = self._state.journal.add_results(rows)
        for number, size in sizes.items():
            self._state.grown(self._state.book.by_number[number], size)
        worker.ended += len(rows)

    def _give_up(self, attempts: Sequence[Attempt]) -> None:
        """Record that tasks have failed because their pieces brought no progress."""
        ended = self._state.wall.posix(self._state.scheduler.now)
        payload = wire.Failure("NoProgress", NO_PROGRESS).packed()
        for task, number in attempts:
            bag, item = self._state.book.item(task)
            self._state.settled(bag, 1)
            drop_ended(self._state, bag, [task])
            bag.remembered.discard(task)
            facts = (task, bag.row.number, item, wire.Outcome.ERROR, 0.0, "", number, payload, b"", b"", ended)
            for size in self._state.journal.add_results([ResultRow(*facts)]).values():
                self._state.grown(bag, size)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def may_save(self, worker: WorkerSession, message: wire.Saved) -> bool:
        """Whether a checkpoint is of the newest attempt of a task, and from the worker that was given it."""
        if message.task >= self._state.book.next_task:
            return False
        attempt = Attempt(message.task, message.number)
        return self.holders.holder(attempt, self._state.scheduler.find(attempt)) == worker.session

    def saved(self, worker: WorkerSession, message: wire.Saved, now: float) -> None:
        """A worker sent a checkpoint of an attempt."""
        attempt, kept = Attempt(message.task, message.number), (0, 0)
        if self.may_save(worker, message):
            elapsed = min(message.elapsed, self.holders.most_s(attempt, self._state.scheduler.find(attempt), now))
            kept = self._checkpoints.keep(attempt, message, elapsed, now)
        self._send(worker.peer, wire.CheckpointKept(message.task, message.serial, *kept))

    def resume(self, worker: WorkerSession, message: wire.Resume) -> None:
        """A worker asks for the checkpoint that an attempt goes on from."""
        attempt = Attempt(message.task, message.number)
        if message.task < self._state.book.next_task and self.holders.its_own(worker, [attempt]):
            self._checkpoints.owe(worker.name, attempt, message)

    def send_checkpoints(self) -> None:
        """Send a checkpoint to each of some workers that have taken what they were sent before; they take turns."""
        for name, attempt, request in self._checkpoints.next_owed(self._ready):
            worker = self._by_name[name]
            if self.holders.its_own(worker, [attempt]):
                self._state.hand_out(worker.peer, self._checkpoints.sent(request))

    def _ready(self, name: str) -> bool | None:
        """Whether a worker has taken what it was sent; None if it is not there any more."""
        worker = self._by_name.get(name)
        return None if worker is None else self._state.has_room(worker.peer)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _assign(self, command: cmd.Assign) -> None:
        """Send work to a worker, in messages of bounded size, templates first."""
        worker = self._by_name[command.worker]
        rows: list[wire.Work] = []
        remembered: list[tuple[int, int, str]] = []
        copies: list[tuple[int, int, str]] = []
        size = 0
        book, journal = self._state.book, self._state.journal
        bag, batch, _ = book.find(command.work[0].attempt.task)
        for handed, (attempt, slot, runtime) in enumerate(command.work):
            if not rows and not self._state.has_room(worker.peer, UNTAKEN_LIMIT):
                back = [unsent.attempt for unsent in command.work[handed:]]
                self.handle(ev.AttemptsReturned(worker.name, back), self._state.scheduler.now)
                break
            task, number = attempt
            if not batch.first <= task < batch.first + batch.count:
                bag, batch, _ = book.find(task)
            template = bag.row.template
            if template not in worker.templates:
                self.send_template(worker, template)
            if runtime >= REMEMBERED_S or task in bag.remembered or bag.row.options.licences:
                bag.remembered.add(task)
                if (original := self._state.scheduler.original_of(attempt)) is not None:
                    copies.append((task, number, worker.session))
                    (_, number_of_original), holder = original
                    remembered.append((task, number_of_original, self._by_name[holder].session))
                else:
                    remembered.append((task, number, worker.session))
            payload = journal.payload(row := batch.row_of(task)[0], task - row)
            checkpoint = bag.checkpoints[task][-1].number if task in bag.checkpoints else 0
            facts = (template, runtime, bag.row.options, checkpoint, payload, bag.environment_key or None)
            rows.append(wire.Work(task, number, slot, *facts, *bag.program))
            size += len(payload)
            if size > wire.BATCH_BYTES or len(rows) == wire.BATCH_ROWS:
                self._hand_out(worker, rows, bool(remembered))
                rows, size = [], 0
        if rows:
            self._hand_out(worker, rows, bool(remembered))
        if remembered:
            self._state.journal.add_sent(remembered)
        if copies:
            self._state.journal.add_copies(copies)

    def _hand_out(self, worker: WorkerSession, rows: list[wire.Work], remembered: bool) -> None:
        """Send work: after the commit if it has to be ``remembered`` across a restart, otherwise before the commit."""
        send = self._send if remembered else self._state.hand_out
        saves = any(row.options.checkpoint for row in rows)
        spread_s = EACH_S * self._state.scheduler.closing_with(worker.name) if saves else 0.0
        send(worker.peer, wire.Assign(worker.join.opening, min(spread_s, LEAD_MOST_S), tuple(rows)))

    def _take_back(self, command: cmd.Recall | cmd.Stop | cmd.GiveUp) -> None:
        """Recall or stop attempts."""
        self.gangs.table.drop_dead(command.attempts)
        worker = self._by_name.get(command.worker)
        if worker is None or self.gangs.ends.has_stopped(command.worker, command.attempts):
            return  # the worker has left in the meantime, or has done it
        refs = tuple(wire.Ref(attempt.task, attempt.number) for attempt in command.attempts)
        if isinstance(command, cmd.GiveUp):
            self.holders.restore((ref.task, ref.number, worker.session, None) for ref in refs)
            self._note_overdue(worker.name, len(refs))
        stops = isinstance(command, cmd.Stop) or (isinstance(command, cmd.GiveUp) and command.stop)
        self._send(worker.peer, wire.Stop(refs) if stops else wire.Recall(refs))

    def _note_overdue(self, name: str, count: int) -> None:
        stay = self._state.scheduler.quarantined(name)
        self._state.note("worker-silent", by=self._by_name[name].who.name, name=name, taken_back=count)
        if stay is not None and stay.silent:
            self._note_quarantine(name, None, stay)
        for kind, rest in self._state.scheduler.rests_of(name).items():
            if isinstance(kind, Person) and rest.why is Why.SILENT and not rest.over:
                facts = {"name": name, "owner": kind.owner, "for_s": rest.lasts}
                self._state.note(EVENTS[rest.why], by=self._by_name[name].who.name, **facts)

    def send_template(self, worker: WorkerSession, digest: str) -> None:
        """Send a template to a worker."""
        found = self._state.journal.template(digest)
        if found is not None:
            worker.templates.add(digest)
            self._state.hand_out(worker.peer, wire.Blob(digest, found))
