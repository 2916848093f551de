"""The broker without its sockets: messages and ``now`` in, messages out after each commit.

A driver calls `receive` for every message, calls `settle` once, commits the journal, and only then sends the messages
that `settle` returned. So everything that a peer is told is on the disk already. Short work is the exception: it is
sent before the commit, because the broker simply assigns lost work again. The commit for it may wait for the next
answer, if one is due soon.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from deskgrid import wire
from deskgrid.broker.answers.queries import Queries
from deskgrid.broker.auth.roles import Credential, Role, with_article
from deskgrid.broker.model.bags import KeptCheckpoint
from deskgrid.broker.model.clocks import SlidingCount
from deskgrid.broker.model.state import BrokerState, Leaving
from deskgrid.broker.peers.clients import Clients
from deskgrid.broker.peers.enrolment import Enrolment
from deskgrid.broker.peers.transfers import Transfers
from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.journal import JournalFull
from deskgrid.broker.store.rows import HOLD, BatchRow
from deskgrid.broker.work.home_watch import HomeWatch
from deskgrid.broker.work.retention import Retention
from deskgrid.broker.work.usage import Usage
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.events import SavedTask
from deskgrid.scheduler.model import Attempt, IllegalEvent
from deskgrid.scheduler.queues.task_ranges import within

# After a restart the broker waits this many leases for running attempts: a worker notices within one lease that the
# broker is silent, and has another lease to come back.
HOLD_LEASES = 2.0
# The most tasks that one turn hands out, not counting tasks that replace others. They are sent at the end of the turn.
# So this limits how long idle slots wait while other slots get work ahead, and how long no message is handled: about
# ten milliseconds.
PASS_TASKS = 100
# How often is done what only time brings, such as to look for clients that are gone: as often as the loop turns when
# nothing arrives. Seconds.
HOUSEKEEPING_S = 0.2
# The messages that each role may send. An admin may send all messages except those to enrol, which make no sense for an
# admin.
ALLOWED_MESSAGES: Mapping[Role, tuple[type[wire.Message], ...]] = {
    "lab": wire.FROM_LAB,
    "worker": (*wire.FROM_LAB, *wire.FROM_WORKER, *wire.FROM_BOTH),
    "submitter": (*wire.FROM_CLIENT, *wire.FROM_BOTH),
    "admin": (*wire.FROM_WORKER, *wire.FROM_CLIENT, *wire.FROM_BOTH),
}


class Sessions:
    """All peers of the broker: workers, clients, and PCs that enrol."""

    def __init__(self, state: BrokerState, keep_days: float | None = None) -> None:
        """``keep_days``: how long bags are kept after they ended; None: until somebody forgets them."""
        self.state = state
        self.workers = WorkerSessions(state)
        self._enrolment = Enrolment(state)
        self.usage = Usage(state)
        self.home_watch = HomeWatch(state, self.workers, self.usage)
        self._throughput = SlidingCount()
        self.queries = Queries(state, self.workers, self._throughput, self.usage, lambda: self.clients.credentials)
        self._gates = self.queries.orders.gates
        self.clients = Clients(state, self.workers, self.queries)
        self.transfers = Transfers(state, self.workers, self.clients, self.queries.operations)
        self.queries.environment_list.drop = self.transfers.release
        self._retention = Retention(state, self.queries.operations, self.queries.orders, keep_days)
        self._counted = 0
        self._hold_until: float | None = None
        self._housekeeping_at = 0.0

    def restore(self, now: float) -> None:
        """Restore everything from the journal. Raises `Damaged` when it contradicts itself."""
        if self.state.journal.full and self.state.disk.state != "full":
            # Attempt numbers depend on the number of this opening of the journal, so no attempt may be handed out
            # before that number is recorded.
            self.state.disk.failed(self.state.journal.full, now)
            self.state.note("disk-full", reason=self.state.journal.full, home=str(self.state.journal.home))
        book, journal = self.state.book, self.state.journal
        self.transfers.restore()
        self.home_watch.restore()
        self.usage.restore(now)
        orders = journal.recovery.orders()
        held = {number: what.removeprefix(HOLD) for number, what in orders if what.startswith(HOLD)}
        paused = {number for number, what in orders if what == "pause" or number in held}
        for row in journal.recovery.bags():
            bag = book.open(row)
            self.state.note_transfer(bag)
            bag.paused, bag.held = row.number in paused, held.get(row.number, "")
            self.queries.environments.enter(bag, self.state.environment_of(row.template))
            self._gates.enter(bag, restored=True)
            self.state.quotas.opened(row.owner)
        for owner, task, *facts in journal.recovery.checkpoints():
            if owner in book.by_number:
                book.by_number[owner].checkpoints.setdefault(task, []).append(KeptCheckpoint(*facts))
        ended = {number: journal.recovery.outcomes(number) for number in book.by_number}
        for batch in journal.recovery.batches():
            if batch.bag not in ended:
                raise Damaged(f"the tasks from {batch.first} on belong to no bag in the journal")
            try:
                self._restore(batch, ended[batch.bag], now)
            except IllegalEvent as error:
                raise Damaged(f"the journal contradicts itself: {error}") from error
        self.workers.attempts.gangs.recovery.restore(now)
        for number, size in journal.recovery.result_sizes().items():
            if number in book.by_number:
                self.state.grown(book.by_number[number], size)
        if self.state.disk.state != "full":
            self.queries.orders.resume()
        if self.state.scheduler.orphans:
            self._hold_until = now + HOLD_LEASES * self.state.facts.lease_s

    def _restore(self, batch: BatchRow, ended: Mapping[int, Sequence[int]], now: float) -> None:
        """Restore a batch. ``ended``: the tasks of its bag that have ended, ascending, by outcome."""
        state, bag, end = self.state, self.state.book.by_number[batch.bag], batch.first + batch.count
        its = {how: tasks[bisect_left(tasks, batch.first) : bisect_left(tasks, end)] for how, tasks in ended.items()}
        done, cancelled = its.pop(wire.Outcome.DONE, ()), its.pop(wire.Outcome.CANCELLED, ())
        failed = [task for tasks in its.values() for task in tasks]
        state.settled(bag, len(done) + len(cancelled) + len(failed))
        over = {*done, *cancelled, *failed}
        if not bag.row.predicted and len(over) < batch.count:
            bag.estimate_s = state.learning.expected(bag)
            slots = len(state.scheduler.grid.slots.slots)
            each = (bag.estimate_s,) * len(batch.runtimes)
            batch = replace(batch, runtimes=bag.with_transfer(each, batch.count, slots))
        joins = state.book.extend(bag, batch)
        state.quotas.extended(bag.row.owner, batch.count, batch.size, batches=not joins)
        sent = [row for row in state.journal.recovery.sent(batch.first, batch.count) if row[0] not in over]
        if bag.need.parallel:  # one that was prepared later has taken its place
            sent = [row for row in sent if state.journal.ranks.has_begun(row[0], row[1])]
        bag.remembered.update(task for task, _, _ in sent)
        copies = [row for row in state.journal.recovery.copies(batch.first, batch.count) if row[0] not in over]
        held, held_copies = ([Attempt(task, number) for task, number, _ in rows] for rows in (sent, copies))
        its_tasks = within(bag.checkpoints, [(batch.first, batch.count)])
        newest = ((task, bag.checkpoints[task][-1]) for task in its_tasks)
        saved = [SavedTask(task, kept.progress, kept.left_s) for task, kept in newest]
        states = {"done": done, "cancelled": cancelled, "failed": failed}
        known = {**states, "held": held, "held_copies": held_copies, "saved": saved}
        state.scheduler.handle(bag.submitted(batch, **known), now)
        self.workers.attempts.holders.restore(
            (task, number, session or "", None) for task, number, session in sent + copies
        )

    def successor(self, now: float, disk_full: str = "") -> "Sessions":
        """New sessions, restored from the journal after a rollback.

        No peer was told about the changes that were undone. All peers are asked to introduce themselves again, and they
        repeat their unanswered messages. ``disk_full``: why the last turn could not be written, if that caused the
        rollback.
        """
        state = self.state.successor()
        if disk_full:
            state.disk.failed(disk_full, now)
            state.note("disk-full", reason=disk_full, home=str(state.journal.home))
        others = Sessions(state, self._retention.days)
        others.restore(now)
        state.scheduler.count_on(self.state.scheduler.counters)
        others._throughput, others._counted = self._throughput, self._counted
        for peer in [*self.workers.by_peer, *self.clients.by_peer]:
            state.send(peer, wire.Rejoin())
        return others

    def records(self, peer: bytes, who: Credential, message: wire.Message) -> bool:
        """Whether the payloads of ``message`` may be recorded, as far as we know before it is handled."""
        if not isinstance(message, ALLOWED_MESSAGES[who.role]) or not self.state.disk.records(message):
            return False
        if isinstance(message, wire.Part):
            return self.transfers.records(peer, who, message)
        if isinstance(message, wire.Finished | wire.Saved | wire.RanksEnded):
            return self.workers.expects(peer, message)
        return True

    def receive(self, peer: bytes, who: Credential, message: wire.Message, now: float) -> None:
        """Handle a message of a peer with the credential ``who``."""
        if not self.state.disk.takes(message):
            # A worker keeps its results, and sends them again when it is asked to.
            if isinstance(message, wire.Ask) or (isinstance(message, wire.FROM_BOTH) and peer in self.clients.by_peer):
                self.state.send(peer, wire.Failed(message.request, self.state.disk.refusal))
        elif not isinstance(message, ALLOWED_MESSAGES[who.role]):
            self.state.send(peer, wire.Refused(f"{with_article(who.role)} may not send {type(message).__name__}"))
        elif isinstance(message, wire.Join | wire.Hello | wire.Enrol) and (refusal := self._refusal(who, message)):
            self._refuse(peer, who, message, refusal, now)
        elif isinstance(message, wire.Enrol):
            self._enrolment.ask(peer, who, message)
        elif isinstance(message, (*wire.FROM_BOTH, wire.Claim)):
            self.transfers.receive(peer, who, message, now)
        elif isinstance(message, wire.FROM_WORKER):
            self._receive_from_worker(peer, who, message, now)
        else:
            self.clients.receive(peer, who, message, now)

    def _receive_from_worker(self, peer: bytes, who: Credential, message: wire.Message, now: float) -> None:
        environments = self.queries.environments
        if isinstance(message, wire.Prepared):
            if self.workers.heard(peer, who, now):
                environments.receive(peer, message, now)
            else:
                self.state.send(peer, wire.Rejoin())
            return
        self.workers.receive(peer, who, message, now)
        if isinstance(message, wire.Join) and (worker := self.workers.by_peer.get(peer)) is not None:
            environments.joined(worker, now)
        elif isinstance(message, wire.Returned):
            environments.returned(peer, message, now)

    def _refusal(self, who: Credential, message: wire.Join | wire.Hello | wire.Enrol) -> str:
        """Why a newcomer is not let in; empty when it is."""
        other = isinstance(message, wire.Join) and who.role == "worker" and message.name != who.name
        enrolled = f"this PC is enrolled as {who.name}: it cannot join under another name" if other else ""
        return wire.unlike(message.version) or enrolled

    def _refuse(self, peer: bytes, who: Credential, message: wire.Message, reason: str, now: float) -> None:
        """Turn a newcomer away, and log why."""
        name = str(getattr(message, "name", None) or getattr(message, "user", ""))[: wire.NAME_BYTES]
        self.turned_away(who, name, getattr(message, "version", ""), reason, now)
        self.state.send(peer, wire.Refused(reason))

    def turned_away(self, who: Credential, name: str, version: str, reason: str, now: float) -> None:
        """Log why a newcomer is not let in. ``name``: how it calls itself, if that can be read."""
        self.state.note("refused", by=who.name, name=name, version=version, reason=reason)
        self.workers.checks.refused(who, version, reason, now)

    def gone(self, peer: bytes) -> None:
        """A connection has ended."""
        self.workers.gone(peer)
        self.clients.gone(peer)
        self.transfers.gone(peer)
        self._enrolment.gone(peer)

    @property
    def unfinished(self) -> bool:
        """Whether the next turn is due at once, even if no message arrives."""
        if self.queries.operations.waiting or self._enrolment.pressing:
            return True
        return self.state.scheduler.unfinished and self.state.disk.state != "full"

    @property
    def owing(self) -> bool:
        """Whether the next turn is due soon, even if no message arrives."""
        return bool(self.clients.watchers.receipts)

    def suspect(self, sender: tuple[bytes, str] | None) -> tuple[bytes, str] | None:
        """Who made the broker fail: the peer (empty if it is gone) and its credential; None for nobody.

        ``sender``: the sender of the last message, who is not to blame if an order failed.
        """
        failed = self.queries.operations.failed
        if failed is None:
            return sender
        return (failed.peer or b"", failed.owner) if failed.owner else None

    def settle(self, now: float) -> Leaving:
        """Decide once for all messages received, and return the messages to send, most of them after the commit."""
        self.state.now = now
        if keeps_house := now >= self._housekeeping_at:
            self._housekeeping_at = now + HOUSEKEEPING_S
            self._keep_house(now)
        if self.state.revoked:
            self._let_go(now)
        self._enrolment.carry_out(now)
        self.workers.expire(now)
        self.transfers.send_some()
        self.workers.send_templates()
        self.workers.attempts.send_checkpoints()
        self.queries.operations.work(now)
        self.queries.environments.look(now)
        self._gates.look()
        self.state.learn(now)
        self.queries.etas.look(now)
        # No pass while the disk is full, because assignments are recorded, too.
        handed_out = self.state.scheduler.handle(ev.PassDue(PASS_TASKS), now) if self.state.disk.state != "full" else []
        for command in [*self.state.pending, *handed_out]:
            self.workers.attempts.carry_out(command)
        self.state.pending.clear()
        if (ended := self.state.scheduler.counters.done) != self._counted:
            self._throughput.add(ended - self._counted, now)
            self._counted = ended
        if self.state.disk.state != "full":
            self.state.window_log.write_down(now)
            if keeps_house:
                self.usage.write_down(now)
                self.state.learning.write_down(now)
            self.queries.etas.write_down()
        self.clients.watchers.tell(now)
        return self.state.take_leaving()

    def _keep_house(self, now: float) -> None:
        """Do what is due by now, though no message says so."""
        self._look_at_disk(now)
        if self.state.disk.state != "full":
            self._retention.look(now)
        self.workers.live.expire(now)
        if now >= self.queries.absences.look_at:
            self.queries.absences.look(now)
        if now >= self.workers.waking.look_at:
            self.workers.waking.look(now)
        if self.state.drains.of and self.state.disk.state != "full":
            self.queries.draining.look(now)
        if self._hold_until is not None and now >= self._hold_until:
            self._hold_until = None
            self.workers.attempts.handle(ev.HoldExpired(), now)
        self.workers.attempts.gangs.look(now)
        self.clients.sweep(now)
        self.transfers.sweep(now)

    def _let_go(self, now: float) -> None:
        """Drop all peers whose credential was revoked."""
        revoked, self.state.revoked = self.state.revoked, []
        for name in revoked:
            here = [*self.workers.let_go(name, now), *self.clients.let_go(name), *self._enrolment.let_go(name)]
            for peer in here:
                self.state.send(peer, wire.Refused(f"the key {name!r} was revoked"))

    def _look_at_disk(self, now: float) -> None:
        disk = self.state.disk
        before, since = disk.state, disk.since
        if not disk.look(now):
            return
        self.state.note(f"disk-{disk.state}", was=before, for_s=round(now - since, 1), free_bytes=disk.free_bytes)
        if before == "full":
            self.queries.orders.resume()
            for peer in self.workers.by_peer:
                self.state.send(peer, wire.Rejoin())  # a worker that rejoins sends its results again

    def farewell(self, reason: str) -> Leaving:
        """The broker stops: return goodbyes for all peers."""
        self._close_windows()
        self.workers.farewell(reason)
        self.clients.farewell(reason)
        return self.state.take_leaving()

    def _close_windows(self) -> None:
        """Record that the broker stops while windows are open. If the disk is full, the next start records it."""
        now = self.state.scheduler.now
        self.state.window_log.broker_ends(now)
        try:
            self.state.window_log.write_down(now)
            self.usage.write_down(now, last=True)
            self.state.journal.commit()
        except JournalFull:
            self.state.journal.rollback()
