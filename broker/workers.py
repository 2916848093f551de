"""The broker's side of its workers: who they are, what they say, and when they count as lost.

Pure: messages and ``now`` in, messages out through the outbox. A worker is known by its session, which outlives
connections; a connection that is not known is asked to introduce itself.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker import protocol as wire
from broker.crashes import with_places
from broker.desk import Desk
from broker.roles import Credential
from broker.rows import How, ResultRow
from scheduler import events as ev
from scheduler.model import Attempt, Outcome
from scheduler.resting import Rest

# An attempt is written down as it is sent when it is at least this long: after a restart of the broker those are waited
# for; shorter ones are simply made again. (Of a bag with longer ones all are: what is written down must be the newest.)
REMEMBERED_S = 1.0
# Bytes of work that a worker may leave untaken, eight of the largest arguments. It gets more when it has taken some.
UNTAKEN_LIMIT = 8 * wire.PAYLOAD_LIMIT


@dataclass(slots=True)
class WorkerSession:
    """One worker process, from its first introduction until it is forgotten. ``state``: up, away or lost."""

    name: str
    session: str
    who: Credential
    peer: bytes
    join: wire.Join
    heard: float
    opened: float
    state: str = "away"
    done: int = 0
    told_windows: str | None = None
    # When the last window it announced closes: a worker that is gone is remembered until then.
    known_until: float = 0.0
    templates: set[str] = field(default_factory=set)


class Workers:
    """Every worker session, and the events that their messages become."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._send = desk.send
        self.by_peer: dict[bytes, WorkerSession] = {}
        self.by_name: dict[str, WorkerSession] = {}
        # In the order they were last heard, so that only the head is looked at for leases that ran out.
        self._heard: OrderedDict[str, WorkerSession] = OrderedDict()
        # Those that are lost but have announced windows to come, and when the first of them has none left.
        self._lost: dict[str, WorkerSession] = {}
        self._faded_at = math.inf
        # Results of the message that is being handled, until the scheduler says which of them count.
        self._results: dict[Attempt, wire.Result] = {}
        # And of those tasks of it that crashed, on which workers they had before.
        self._crashes: dict[int, Sequence[str]] = {}
        self._from = ""

    def _carry_out(self, event: ev.Event, now: float) -> None:
        """Give the scheduler an event, and the workers what follows from it."""
        for command in self._desk.handle(event, now):
            self.carry_out(command)

    def carry_out(self, command: ev.Command) -> None:
        """Do what the scheduler decided."""
        if isinstance(command, ev.Assign):
            self._assign(command)
        elif isinstance(command, ev.Settle):
            self._settle(command.attempts)
        else:
            self._take_back(command)

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self, peer: bytes, who: Credential, message: wire.Message, now: float) -> None:
        """One message of a worker's connection."""
        if isinstance(message, wire.Join):
            self._join(peer, who, message, now)
            return
        worker = self.by_peer.get(peer)
        if worker is None or worker.who != who:
            self._send(peer, wire.Rejoin())
            return
        self._hear(worker, now)
        if isinstance(message, wire.Finished):
            self._finished(worker, message, now)
        elif isinstance(message, wire.Heartbeat):
            self._heartbeat(worker, message, now)
        elif isinstance(message, wire.Leave):
            self._leave(worker, message, now)
        elif isinstance(message, wire.Returned):
            own = [attempt for attempt in _attempts(message.attempts) if not self._is_anothers(worker, attempt)]
            self._carry_out(ev.AttemptsReturned(worker.name, own), now)
        elif isinstance(message, wire.Fetch) and self._desk.has_room(peer, UNTAKEN_LIMIT):
            self._send_template(worker, message.digest)

    def gone(self, peer: bytes, now: float) -> None:
        """Nothing can be sent to this connection any more. The lease decides what that means for the worker."""
        self.by_peer.pop(peer, None)

    def let_go(self, credential: str, now: float) -> list[bytes]:
        """Lose every worker that is here by that credential; their connections."""
        found = [worker for worker in self.by_name.values() if worker.who.name == credential]
        peers = [worker.peer for worker in found if self.by_peer.get(worker.peer) is worker]
        for worker in found:
            self._desk.note("worker-revoked", name=worker.name, credential=credential)
            self._forget(worker, now)
        return peers

    def _join(self, peer: bytes, who: Credential, join: wire.Join, now: float) -> None:
        other = self.by_peer.get(peer)
        if other is not None and (other.session, other.who) != (join.session, who):
            self._forget(other, now)  # a connection is one worker's: else it could fill the grid with any number
        worker = self._session_of(who, join, now)
        if worker is None:
            worker = WorkerSession(self._free_name(join.name), join.session, who, peer, join, now, now)
            self.by_name[worker.name] = worker
        else:
            if worker.peer != peer:
                self.by_peer.pop(worker.peer, None)
                worker.templates = set()
            worker.peer, worker.join = peer, join
        self.by_peer[peer] = worker
        self._hear(worker, now)
        worker.told_windows = self._desk.windows.table_for(join.name)
        facts = self._desk.facts
        self._send(
            peer,
            wire.Welcome(wire.VERSION, facts.id, worker.name, facts.heartbeat_s, facts.lease_s, worker.told_windows),
        )
        self._open_or_close(worker, join, now)

    def _open_or_close(self, worker: WorkerSession, join: wire.Join, now: float) -> None:
        uptime_text = "open-ended" if join.uptime is None else f"{join.uptime:.1f}"
        self._desk.note("worker-joined", name=worker.name, host=join.host, slots=join.slots, uptime=uptime_text)
        # Without a plan of its own it will follow ours; until it does, nobody knows how long it stays.
        undecided = worker.told_windows is not None and join.kind == "open-ended" and not join.running
        if join.uptime == 0.0 or undecided:
            self._close(worker, join.running, join.windows, now)
            return
        worker.known_until = _last_closing(join.windows, join.uptime, now)
        if worker.state != "up":
            worker.opened = now
        worker.state = "up"
        uptime = math.inf if join.uptime is None else join.uptime
        self._desk.attendance.opened(worker.name, join, now)
        holds = [ev.HeldAttempt(Attempt(r.task, r.number), r.slot, r.elapsed) for r in join.running]
        self._carry_out(ev.WorkerJoined(worker.name, join.slots, uptime, join.windows, join.site, holds), now)

    def _session_of(self, who: Credential, join: wire.Join, now: float) -> WorkerSession | None:
        """The session that introduces itself again; for a new one, those of its name that are gone make room."""
        names = [name for name in self.by_name if name == join.name or name.startswith(f"{join.name}~")]
        namesakes = [self.by_name[name] for name in names]
        for worker in namesakes:
            if worker.session == join.session and worker.who == who:
                return worker
        for worker in namesakes:
            if worker.state == "lost" or worker.peer not in self.by_peer:
                self._forget(worker, now)
        return None

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.by_name:
            number += 1
            name = f"{wanted}~{number}"
        return name

    def _heartbeat(self, worker: WorkerSession, beat: wire.Heartbeat, now: float) -> None:
        worker.known_until = _last_closing(beat.windows, beat.uptime, now)
        worker_open = beat.uptime is None or beat.uptime > 0.0
        if worker_open != (worker.state == "up"):
            # An introduction or a leave is missing: it came over a connection that is gone.
            self._send(worker.peer, wire.Rejoin())
            return
        uptime = math.inf if beat.uptime is None else beat.uptime
        self._carry_out(ev.UptimeRefreshed(worker.name, uptime, beat.windows), now)

    def _leave(self, worker: WorkerSession, leave: wire.Leave, now: float) -> None:
        self._desk.note("worker-left", name=worker.name, reason=leave.reason, handed_back=len(leave.held))
        self._close(worker, leave.held, leave.windows, now, early=not leave.planned)
        if leave.stopping and not leave.windows:
            self._forget(worker, now)

    def _close(
        self,
        worker: WorkerSession,
        held: Sequence[wire.Running],
        windows: Sequence[wire.Window],
        now: float,
        *,
        early: bool = False,
    ) -> None:
        """A worker's window is not open, or no longer; ``held`` is what it handed back."""
        ran = {Attempt(r.task, r.number): r.elapsed for r in held if r.elapsed is not None}
        stopped = {attempt: elapsed for attempt, elapsed in ran.items() if self._may_speak_of(worker, attempt)}
        if worker.state == "up":
            # What it does not name as stopped never started there, or ended; some may still be on its way.
            slots = self._desk.scheduler.slots.workers[worker.name].slots
            sent = [held.attempt for slot in slots for held in slot.sent]
            unstarted = [attempt for attempt in sent if attempt not in stopped]
            left = ev.WorkerLeft(worker.name, True, early, unstarted, windows)
            self._left(left, "stop" if early else "departure", now)
        else:
            self._carry_out(ev.UptimeRefreshed(worker.name, 0.0, windows), now)
        worker.state = "away"
        worker.known_until = _last_closing(windows, 0.0, now)
        self._desk.outlived({attempt.task: elapsed for attempt, elapsed in stopped.items()}, now)

    def _left(self, event: ev.WorkerLeft, how: How, now: float) -> None:
        """The window of a worker that was up has closed."""
        counters = self._desk.scheduler.counters
        kills, wasted_s = counters.kills, counters.wasted_s
        self._carry_out(event, now)
        self._desk.attendance.ended(event.worker, how, now, counters.kills - kills, counters.wasted_s - wasted_s)

    # --- results -----------------------------------------------------------------------------------------------------

    def _finished(self, worker: WorkerSession, message: wire.Finished, now: float) -> None:
        known = [r for r in message.results if r.outcome <= Outcome.TIMEOUT and r.task < self._desk.book.next_task]
        results = {Attempt(r.task, r.number): r for r in known}
        self._results = {a: r for a, r in results.items() if not self._is_anothers(worker, a)}
        self._from = worker.name
        ended = [ev.Ended(attempt, Outcome(r.outcome), r.elapsed) for attempt, r in self._results.items()]
        scheduler = self._desk.scheduler
        crashed = [attempt.task for attempt, r in self._results.items() if r.outcome == Outcome.CRASH]
        self._crashes = {task: scheduler.tasks.crashes(task) for task in crashed}
        rest = scheduler.resting.rests.get(worker.name)
        self._carry_out(ev.AttemptsEnded(worker.name, ended), now)
        self._note_rest(worker.name, rest, scheduler.resting.rests.get(worker.name))
        self._results, self._crashes = {}, {}
        self._send(worker.peer, wire.Taken(tuple(wire.Ref(r.task, r.number) for r in message.results)))

    def _note_rest(self, name: str, before: Rest | None, after: Rest | None) -> None:
        if after is not None and after is not before:
            self._desk.note("worker-rests", name=name, for_s=after.lasts, crashes_in_a_row=after.crashes)
        elif before is not None and after is None:
            self._desk.note("worker-works-again", name=name)

    def _is_anothers(self, worker: WorkerSession, attempt: Attempt) -> bool:
        """Whether that attempt was given to somebody else: what this worker says of it counts for nothing."""
        slot = self._desk.scheduler.bound.get(attempt.task)
        if slot is None or slot.worker.name == worker.name:
            return False
        return any(sent.attempt == attempt for sent in slot.sent)

    def _may_speak_of(self, worker: WorkerSession, attempt: Attempt) -> bool:
        """Whether that attempt is the newest of its task, and was not given to somebody else."""
        slot = self._desk.scheduler.bound.get(attempt.task)
        if slot is not None and any(sent.attempt == attempt for sent in slot.sent):
            return slot.worker.name == worker.name
        return self._desk.scheduler.orphans.get(attempt.task) == attempt.number

    def _settle(self, attempts: Sequence[Attempt]) -> None:
        """The scheduler says that these results of the message at hand end their tasks: record them."""
        rows, ended = [], self._desk.posix(self._desk.scheduler.now)
        for attempt in attempts:
            result = self._results[attempt]
            bag, item = self._desk.book.item(attempt.task)
            bag.settled += 1
            self._desk.fresh.add(bag.row.number)
            bag.runs.add(result.elapsed)
            number, payload = bag.row.number, result.payload
            if result.outcome == Outcome.CRASH:
                payload = with_places(payload, [*self._crashes[attempt.task], self._from])
            rows.append(
                ResultRow(
                    attempt.task,
                    number,
                    item,
                    result.outcome,
                    result.elapsed,
                    self._from,
                    attempt.number,
                    payload,
                    result.stdout,
                    result.stderr,
                    ended,
                )
            )
        self._desk.journal.add_results(rows)
        if (worker := self.by_name.get(self._from)) is not None:
            worker.done += len(rows)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _assign(self, command: ev.Assign) -> None:
        """Hand work to a worker, in messages of bounded size, its templates first."""
        worker = self.by_name[command.worker]
        rows: list[wire.Work] = []
        remembered: list[tuple[int, int, str]] = []
        size = 0
        for handed, assignment in enumerate(command.work):
            if not rows and not self._desk.has_room(worker.peer, UNTAKEN_LIMIT):
                back = [unsent.attempt for unsent in command.work[handed:]]
                self._carry_out(ev.AttemptsReturned(worker.name, back), self._desk.scheduler.now)
                break
            bag, batch, place = self._desk.book.find(assignment.attempt.task)
            payload = self._desk.journal.payload(batch.first, place)
            bag.remembered = bag.remembered or assignment.runtime >= REMEMBERED_S
            if bag.remembered:
                remembered.append((assignment.attempt.task, assignment.attempt.number, worker.session))
            if bag.row.template not in worker.templates:
                self._send_template(worker, bag.row.template)
            rows.append(
                wire.Work(
                    assignment.attempt.task,
                    assignment.attempt.number,
                    assignment.lane,
                    bag.row.template,
                    assignment.runtime,
                    bag.row.timeout,
                    payload,
                )
            )
            size += len(payload)
            if size > wire.BATCH_BYTES or len(rows) == wire.BATCH_ROWS:
                self._send(worker.peer, wire.Assign(worker.join.opening, tuple(rows)))
                rows, size = [], 0
        if rows:
            self._send(worker.peer, wire.Assign(worker.join.opening, tuple(rows)))
        if remembered:
            self._desk.journal.add_sent(remembered)

    def _take_back(self, command: ev.Recall | ev.Stop) -> None:
        """Recall or stop attempts."""
        worker = self.by_name.get(command.worker)
        if worker is None:
            return  # It went meanwhile, and what it held with it.
        refs = tuple(wire.Ref(attempt.task, attempt.number) for attempt in command.attempts)
        self._send(worker.peer, wire.Recall(refs) if isinstance(command, ev.Recall) else wire.Stop(refs))

    def _send_template(self, worker: WorkerSession, digest: str) -> None:
        found = self._desk.journal.template(digest)
        if found is not None:
            worker.templates.add(digest)
            self._send(worker.peer, wire.Blob(digest, found[1]))

    # --- time --------------------------------------------------------------------------------------------------------

    def _hear(self, worker: WorkerSession, now: float) -> None:
        worker.heard = now
        self._heard[worker.name] = worker
        self._heard.move_to_end(worker.name)
        if self._lost.pop(worker.name, None) is not None:
            worker.state = "away"

    def expire(self, now: float) -> None:
        """Count workers as lost whose lease ran out; forget those gone for good."""
        while self._heard:
            name, worker = next(iter(self._heard.items()))
            if worker.heard + self._desk.facts.lease_s > now:
                break
            del self._heard[name]
            self.by_peer.pop(worker.peer, None)
            if worker.state == "up":
                self._desk.note("worker-lost", name=name, silent_s=round(now - worker.heard, 1))
                self._left(ev.WorkerLeft(name, planned=False), "loss", now)
                worker.state = "lost"
            self._lost[name] = worker
            self._faded_at = min(self._faded_at, worker.known_until)
        if now >= self._faded_at:
            for worker in [worker for worker in self._lost.values() if worker.known_until <= now]:
                self._forget(worker, now)
            self._faded_at = min([worker.known_until for worker in self._lost.values()], default=math.inf)

    def refresh_windows(self) -> None:
        """Tell the workers whose planned windows changed in the broker's file."""
        if not self._desk.windows.refresh():
            return
        for worker in self.by_peer.values():
            table = self._desk.windows.table_for(worker.join.name)
            if table != worker.told_windows:
                worker.told_windows = table
                self._send(worker.peer, wire.Planned(table))

    def _forget(self, worker: WorkerSession, now: float) -> None:
        """It is not expected back; what it held, if its window was open, is lost with it."""
        self.by_name.pop(worker.name, None)
        self.by_peer.pop(worker.peer, None)
        self._heard.pop(worker.name, None)
        self._lost.pop(worker.name, None)
        if worker.state == "up":
            self._left(ev.WorkerLeft(worker.name, planned=False), "loss", now)
        self._carry_out(ev.WorkerForgotten(worker.name), now)

    def farewell(self, reason: str) -> None:
        """The broker stops; workers keep what they run and come back to its successor."""
        for peer in self.by_peer:
            self._send(peer, wire.Goodbye(reason))


def _attempts(refs: Sequence[wire.Ref]) -> list[Attempt]:
    return [Attempt(ref.task, ref.number) for ref in refs]


def _last_closing(windows: Sequence[wire.Window], uptime: float | None, now: float) -> float:
    """When the last window that was announced closes; of an open-ended worker, now: it may be gone for good."""
    return now + max([uptime or 0.0, *(window.starts_in + window.lasts for window in windows)])
