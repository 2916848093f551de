"""The broker's side of its workers: who they are, when they come and go, and when they count as lost.

Their attempts are in `deskgrid.broker.work.attempts`.

Pure: messages and ``now`` in, messages out through the outbox. A worker is identified by its session, which outlives
its connections. A worker on an unknown connection is asked to introduce itself.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.need_notes import need_note, python_missing
from deskgrid.broker.model.needs import amounts_of, labels_of
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.store.rows import How
from deskgrid.broker.work.attempts import UNTAKEN_LIMIT, Attempts
from deskgrid.broker.work.live_output import LiveOutput
from deskgrid.broker.work.pc_checks import PcChecks
from deskgrid.broker.work.waking import Waking
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt
from deskgrid.wire.saving import ENDING_S

# Workers that are sent a template that they have asked for in one turn of the loop.
TURN_TEMPLATES = 16
# The most workers of one PC, identified by its key: more than anybody runs on one PC.
NAMESAKES_LIMIT = 16
# The most slots of all workers: ten times the largest grid we have measured. Each slot is a row in several indexes.
SLOTS_IN_ALL = 100_000
# When leases run out, one turn removes workers with about this many slots in all; the next turns remove the others.
SLOTS_A_TURN = 2_000


class WorkerSessions:
    """Every worker session, and the events that their messages become."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._send = state.send
        self.by_peer: dict[bytes, WorkerSession] = {}
        self.by_name: dict[str, WorkerSession] = {}
        self.attempts = Attempts(state, self.by_name)
        self.live = LiveOutput(state, self.by_name, self.attempts.gangs.table)
        # By the name that workers asked for, the names that they got: all but one got a different name.
        self._named: dict[str, list[str]] = {}
        # Templates that workers have asked for and were not sent yet, by worker.
        self._fetched: OrderedDict[str, dict[str, None]] = OrderedDict()
        # Workers in the order of their last messages, so that only the first few leases have to be checked.
        self._leases: OrderedDict[str, WorkerSession] = OrderedDict()
        # Workers whose lease ran out, and the time when the first of them has no known window left.
        self._lost: dict[str, WorkerSession] = {}
        self._faded_at = math.inf
        self._slots = 0
        self.checks = PcChecks()
        self.waking = Waking(state, self.by_peer)
        # How often workers joined or were forgotten, or their windows changed.
        self.changes = 0

    def need_note(self, options: wire.TaskOptions) -> str:
        """Why no worker that is known can run tasks with these options; empty if some can, or if there are none."""
        asks = (
            options.gang
            or options.slots > 1
            or options.memory
            or options.resources
            or options.labels
            or self.python_missing(options)
        )
        return need_note(options, [session.join for session in self.by_name.values()]) if asks else ""

    def python_missing(self, options: wire.TaskOptions) -> str:
        """Why no worker that is known has the Python of these tasks; empty if one has it, or if there are none."""
        if any(options.python in session.join.pythons for session in self.by_name.values()):  # nearly always the first
            return ""
        return python_missing(options, [session.join for session in self.by_name.values()])

    # --- messages ----------------------------------------------------------------------------------------------------

    def receive(self, peer: bytes, who: Credential, message: wire.Message, now: float) -> None:
        """Handle a message of a worker."""
        if isinstance(message, wire.Join):
            self._join(peer, who, message, now)
            return
        worker = self.by_peer.get(peer)
        if worker is None or worker.who != who:
            self._send(peer, wire.Rejoin())
            return
        self._refresh_lease(worker, now)
        if isinstance(message, wire.Finished):
            self.attempts.finished(worker, message, now)
        elif isinstance(message, wire.FROM_RANKS):
            self.attempts.gangs.receive(worker, message, now)
        elif isinstance(message, wire.Heartbeat):
            self._heartbeat(worker, message, now)
        elif isinstance(message, wire.Leave):
            self._leave(worker, message, now)
        elif isinstance(message, wire.Returned):
            self.attempts.returned(worker, message, now)
        elif isinstance(message, wire.Saved):
            self.attempts.saved(worker, message, now)
        elif isinstance(message, wire.Resume):
            self.attempts.resume(worker, message)
        elif isinstance(message, wire.OutputShown):
            self.live.heard(worker, message)
        elif isinstance(message, wire.Fetch):
            # It has none, or has forgotten it.
            asked = self._fetched.setdefault(worker.name, {})
            if len(asked) < wire.HELD_ROWS:
                asked[message.digest] = None

    def send_templates(self) -> None:
        """Send a template to each of some workers that have taken most of what they were sent; they take turns."""
        for _ in range(min(TURN_TEMPLATES, len(self._fetched))):
            name, asked = self._fetched.popitem(last=False)
            worker = self.by_name.get(name)
            if worker is None:
                continue
            if self._state.has_room(worker.peer, UNTAKEN_LIMIT):
                digest = next(iter(asked))
                del asked[digest]
                if self._needs(worker, digest):
                    self.attempts.send_template(worker, digest)
            if asked:
                self._fetched[name] = asked

    def _needs(self, worker: WorkerSession, template: str) -> bool:
        """Whether a worker was given work of a template, in this session or before."""
        up, book = self._state.scheduler.grid.slots.workers.get(worker.name), self._state.book
        sent = [
            each for slot in (() if up is None else up.slots) for each in (*slot.sent, slot.copy) if each is not None
        ]
        return template in worker.templates or any(
            book.find(each.attempt.task)[0].row.template == template for each in sent
        )

    def heard(self, peer: bytes, who: Credential, now: float) -> bool:
        """Refresh the lease of a worker; return whether this peer is one."""
        worker = self.by_peer.get(peer)
        if worker is None or worker.who != who:
            return False
        self._refresh_lease(worker, now)
        return True

    def expects(self, peer: bytes, message: wire.Finished | wire.Saved | wire.RanksEnded) -> bool:
        """Whether ``message`` has a large value of work that its sender was given: nobody else may fill the disk."""
        worker = self.by_peer.get(peer)
        if isinstance(message, wire.Saved):
            return worker is not None and self.attempts.may_save(worker, message)
        if isinstance(message, wire.RanksEnded):
            return worker is not None and self.attempts.gangs.expects(worker, message)
        large = [
            Attempt(result.task, result.number) for result in message.results if not isinstance(result.payload, bytes)
        ]
        return worker is not None and bool(self.attempts.given_to(worker, large))

    def gone(self, peer: bytes) -> None:
        """A connection has ended. Its worker may come back: the lease decides."""
        self.by_peer.pop(peer, None)

    def let_go(self, credential: str, now: float) -> list[bytes]:
        """Drop every worker with this credential as lost, and return their connections."""
        found = [worker for worker in self.by_name.values() if worker.who.name == credential]
        peers = [worker.peer for worker in found if self.by_peer.get(worker.peer) is worker]
        for worker in found:
            self._state.note("worker-revoked", name=worker.name, credential=credential)
            self._forget(worker, now)
        self.checks.let_go(credential, others=credential in self._named)
        self.waking.let_go(credential)
        return peers

    def _join(self, peer: bytes, who: Credential, join: wire.Join, now: float) -> None:
        other = self.by_peer.get(peer)
        if other is not None and (other.session, other.who) != (join.session, who):
            self._forget(other, now)  # one worker per connection, so that nobody fills the grid with workers
        worker = self._session_of(who, join, now)
        if refusal := self._refusal_by_number(worker, join):
            self._send(peer, wire.Refused(refusal))
            return
        self._slots += join.slots - (worker.join.slots if worker is not None else 0)
        if worker is None:
            worker = WorkerSession(self._free_name(join.name), join.session, who, peer, join, now, now)
            self.by_name[worker.name] = worker
            self._named.setdefault(join.name, []).append(worker.name)
        else:
            if worker.peer != peer:
                self.by_peer.pop(worker.peer, None)
                worker.templates = set()
            worker.peer, worker.join = peer, join
        worker.speed = join.speed
        self.checks.joined(join, who)
        self.waking.joined(join, who)
        self.by_peer[peer] = worker
        self._refresh_lease(worker, now)
        worker.sent_windows = self._state.windows_file.content.table_for(join.name)
        self.changes += 1
        # What runs may end. A worker on which nothing runs is told to leave, unless it was told to leave at once.
        if not join.running:
            worker.told_drain = join.name in self._state.drains.of
        facts = self._state.facts
        self._send(
            peer,
            wire.Welcome(
                wire.VERSION,
                facts.id,
                worker.name,
                facts.heartbeat_s,
                facts.lease_s,
                worker.sent_windows,
                self._state.window_log.mean_time_to_loss_s,
                self._drained(worker),
            ),
        )
        self._open_or_close(worker, join, now)

    def _refusal_by_number(self, worker: WorkerSession | None, join: wire.Join) -> str:
        """Why there is no room for a worker; empty when there is. ``worker``: its session, if it is known."""
        namesakes = len(self._named.get(join.name, ())) if self._state.credentials is not None else 0
        if worker is None and namesakes >= NAMESAKES_LIMIT:
            return f"{NAMESAKES_LIMIT} workers of the PC {join.name} have joined already"
        before = 0 if worker is None else worker.join.slots
        if self._slots - before + join.slots > SLOTS_IN_ALL:
            return f"the workers here have {self._slots:,} slots already, of {SLOTS_IN_ALL:,}"
        return ""

    def _open_or_close(self, worker: WorkerSession, join: wire.Join, now: float) -> None:
        uptime_text = "open-ended" if join.uptime is None else f"{join.uptime:.1f}"
        self._state.note(
            "worker-joined", by=worker.who.name, name=worker.name, host=join.host, slots=join.slots, uptime=uptime_text
        )
        # A worker without a plan of its own follows the broker's plan. Until it does, nobody knows how long it stays.
        undecided = worker.sent_windows is not None and join.kind == "open-ended" and not join.running
        drained = join.name in self._state.drains.of
        if join.uptime == 0.0 or undecided or (drained and not join.running):
            self._close(worker, join.running, join.windows, now)
            return
        worker.last_closes = _last_closing(join.windows, now)
        worker.known_until = max(worker.last_closes, now + (join.uptime or 0.0))
        if worker.state != "up":
            worker.opened = now
        worker.state = "up"
        uptime = math.inf if join.uptime is None else join.uptime
        self._state.window_log.opened(worker.name, join, now)
        holds = self.attempts.held(worker, join.running, now)
        self.attempts.handle(
            ev.WorkerJoined(
                worker.name,
                join.slots,
                uptime,
                join.windows,
                join.site,
                holds,
                speed=join.speed,
                processors=join.processors,
                amounts=amounts_of(join),
                labels=labels_of(join),
                reachable=join.address is not None,
                given=join.given,
            ),
            now,
        )
        worker.paused = ""
        self._pause(worker, join.paused, now)
        self.attempts.gangs.recovery.rejoined(worker, join.running, now)
        worker.ending = uptime <= ENDING_S
        if drained or worker.ending:
            self.attempts.handle(ev.WorkerDrained(worker.name, True), now)

    def _session_of(self, who: Credential, join: wire.Join, now: float) -> WorkerSession | None:
        """The known session of a joining worker. For a new session, forget workers of the same name that are gone."""
        namesakes = [self.by_name[name] for name in self._named.get(join.name, ())]
        for worker in namesakes:
            if worker.session == join.session and worker.who == who:
                return worker
        for worker in namesakes:
            if worker.state == "lost" or worker.peer not in self.by_peer:
                self._forget(worker, now)
        return None

    def _free_name(self, wanted: str) -> str:
        """A free name for one more worker of a PC; without keys, several PCs may ask for the same name."""
        name, number = wanted, 1
        while name in self.by_name:
            number += 1
            ending = f"~{number}"
            name = wire.cut(wanted, wire.NAME_BYTES - len(ending)) + ending
        return name

    def _heartbeat(self, worker: WorkerSession, beat: wire.Heartbeat, now: float) -> None:
        if beat.windows is not None:
            worker.last_closes = _last_closing(beat.windows, now)
        worker.known_until = max(worker.last_closes, now + (beat.uptime or 0.0))
        worker_open = beat.uptime is None or beat.uptime > 0.0
        if worker_open != (worker.state == "up"):
            # A `Join` or a `Leave` was lost with an earlier connection.
            self._send(worker.peer, wire.Rejoin())
            return
        uptime = math.inf if beat.uptime is None else beat.uptime
        self.attempts.handle(ev.UptimeRefreshed(worker.name, uptime, beat.windows), now)
        if (uptime <= ENDING_S) != worker.ending and worker_open:
            worker.ending = not worker.ending
            drained = worker.ending or worker.join.name in self._state.drains.of
            self.attempts.handle(ev.WorkerDrained(worker.name, drained), now)
        if beat.speed is not None or beat.loads is not None:
            self._measured(worker, beat, now)
        if beat.findings is not None:
            self.checks.heard(worker.join, beat.findings, now)
        self._pause(worker, beat.paused, now)

    def _pause(self, worker: WorkerSession, why: str, now: float) -> None:
        """A worker says whether it has stopped its tasks, and why."""
        before, worker.paused = worker.paused, why
        if worker.state != "up" or bool(before) == bool(why):
            return
        if why:
            self._state.note("worker-paused", by=worker.who.name, name=worker.name, reason=why)
        else:
            self._state.note("worker-goes-on", by=worker.who.name, name=worker.name)
        self.attempts.handle(ev.WorkerPaused(worker.name, bool(why)), now)

    def _measured(self, worker: WorkerSession, beat: wire.Heartbeat, now: float) -> None:
        """A worker says how fast it is, and how much of it others use."""
        worker.speed = worker.speed if beat.speed is None else beat.speed
        worker.loads = worker.loads if beat.loads is None else beat.loads
        if worker.state == "up":
            self.attempts.handle(ev.WorkerMeasured(worker.name, worker.speed, worker.load), now)

    def _leave(self, worker: WorkerSession, leave: wire.Leave, now: float) -> None:
        self._state.note(
            "worker-left", by=worker.who.name, name=worker.name, reason=leave.reason, handed_back=len(leave.held)
        )
        early = not leave.planned or worker.told_drain
        self._close(worker, leave.held, leave.windows, now, early=early)
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
        """A worker's window is closed; ``held``: the attempts that it hands back."""
        stopped = self.attempts.stopped(worker, held, now)
        if worker.state == "up":
            # Attempts that the worker does not name as stopped have not started, have ended, or are still on their way
            # to it.
            sent = self._state.scheduler.attempts_at(worker.name)
            begun = {*stopped, *self.attempts.gangs.begun_at(worker.name)}
            unstarted = [attempt for attempt in sent if attempt not in begun]
            left = ev.WorkerLeft(worker.name, True, early, unstarted, windows)
            self._left(left, "stop" if early else "departure", now)
        else:
            self.attempts.handle(ev.UptimeRefreshed(worker.name, 0.0, windows), now)
        worker.state, worker.ending = "away", False
        worker.last_closes = _last_closing(windows, now)
        worker.known_until = max(worker.last_closes, now)
        self._state.outlived({attempt.task: elapsed for attempt, elapsed in stopped.items()}, now)

    def _left(self, event: ev.WorkerLeft, how: How, now: float) -> None:
        """The window of a worker that was up has closed."""
        counters = self._state.scheduler.counters
        kills, wasted_s = counters.kills, counters.wasted_s
        self.attempts.handle(event, now)
        self._state.window_log.ended(event.worker, how, now, counters.kills - kills, counters.wasted_s - wasted_s)

    # --- time --------------------------------------------------------------------------------------------------------

    def _refresh_lease(self, worker: WorkerSession, now: float) -> None:
        worker.heard = now
        self._leases[worker.name] = worker
        self._leases.move_to_end(worker.name)
        if self._lost.pop(worker.name, None) is not None:
            worker.state = "away"

    def expire(self, now: float) -> None:
        """Mark workers whose lease ran out as lost, and forget those that have no further windows."""
        slots = 0
        while self._leases and slots < SLOTS_A_TURN:
            name, worker = next(iter(self._leases.items()))
            if worker.heard + self._state.facts.lease_s > now:
                break
            slots += worker.join.slots
            del self._leases[name]
            self.by_peer.pop(worker.peer, None)
            if worker.state == "up":
                self._state.note("worker-lost", by=worker.who.name, name=name, silent_s=round(now - worker.heard, 1))
                self._left(ev.WorkerLeft(name, planned=False), "loss", now)
                worker.state = "lost"
            self._lost[name] = worker
            self._faded_at = min(self._faded_at, worker.known_until)
        if now >= self._faded_at:
            for worker in [worker for worker in self._lost.values() if worker.known_until <= now]:
                self._forget(worker, now)
            self._faded_at = min([worker.known_until for worker in self._lost.values()], default=math.inf)

    def send_windows(self) -> None:
        """Send workers their planned windows, if these changed in the broker's file."""
        self.changes += 1
        for worker in self.by_peer.values():
            table = self._state.windows_file.content.table_for(worker.join.name)
            if table != worker.sent_windows:
                worker.sent_windows = table
                self.tell_plan(worker)

    def pcs(self) -> Collection[str]:
        """The names of all PCs that are known."""
        return self._named

    def with_keys(self) -> list[str]:
        """The names of the PCs that have a key which lets them in, whether they are there or not; sorted."""
        every = [] if self._state.credentials is None else self._state.credentials.rows()
        return [each.credential.name for each in every if each.credential.role == "worker" and not each.revoked]

    def unplanned(self) -> list[str]:
        """The PCs that are taken to be always there, because neither they nor the broker's file say when they are."""
        every = self.by_name.values()
        return sorted({each.join.name for each in every if each.sent_windows is None and each.join.uptime is None})

    def of_pc(self, pc: str) -> list[WorkerSession]:
        """All workers of a PC that are known."""
        return [self.by_name[name] for name in self._named.get(pc, ())]

    def tell_plan(self, worker: WorkerSession) -> None:
        """Tell a worker, if it is connected, which windows it has, and for how long its PC is drained."""
        if self.by_peer.get(worker.peer) is worker:
            self._send(worker.peer, wire.Planned(worker.sent_windows, self._drained(worker)))

    def _drained(self, worker: WorkerSession) -> float | None:
        """For how long a worker has to know that its PC is drained; None: not yet, or it is not."""
        if not worker.told_drain:
            return None
        left_s = self._state.drains.left_s(worker.join.name, self._state.wall.posix(self._state.now))
        return None if left_s is None else min(left_s, wire.SECONDS_LIMIT)

    def _forget(self, worker: WorkerSession, now: float) -> None:
        """Forget a worker that is not expected back. If its window was open, its attempts are lost."""
        if worker.state == "up":
            self._left(ev.WorkerLeft(worker.name, planned=False), "loss", now)
        self.changes += 1
        if self.by_name.pop(worker.name, None) is not None:
            self._slots -= worker.join.slots
            self._named[worker.join.name].remove(worker.name)
            if not self._named[worker.join.name]:
                del self._named[worker.join.name]
                self.checks.left(worker.join.name)
        self.by_peer.pop(worker.peer, None)
        self._leases.pop(worker.name, None)
        self._lost.pop(worker.name, None)
        self.attempts.handle(ev.WorkerForgotten(worker.name), now)

    def farewell(self, reason: str) -> None:
        """The broker stops: say goodbye. Workers keep what they run, and come back when it is restarted."""
        for peer in self.by_peer:
            self._send(peer, wire.Goodbye(reason))


def _last_closing(windows: Sequence[wire.Window], now: float) -> float:
    return now + max((window.starts_in + window.lasts for window in windows), default=-math.inf)
