"""The broker without its sockets: messages and ``now`` in, messages out after each commit.

A driver calls `receive` for everything that has arrived, then `settle` once, commits the journal, and only then sends
what `settle` returned. So whatever a peer is told has been written down before.
"""

from broker import protocol as wire
from broker.asking import Asking
from broker.bags import OpenBag
from broker.clients import Clients
from broker.desk import Desk
from broker.joinline import Role
from broker.throughput import Throughput
from broker.workers import Workers
from scheduler import events as ev
from scheduler.model import Attempt

# After a restart, attempts that were running are waited for through this many leases: a worker notices a silent broker
# within one, and has one to come back.
HOLD_LEASES = 2.0
# Slots of one worker: more than the cores of any PC. Each is a row in several indexes.
SLOTS_LIMIT = 1024


class Sessions:
    """Everyone the broker talks with."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.workers = Workers(desk)
        self._throughput = Throughput()
        self._asking = Asking(desk, self.workers, self._throughput, lambda: len(self.clients.by_peer))
        self.clients = Clients(desk, self._asking)
        self._counted = 0
        self._hold_until: float | None = None

    def restore(self, now: float) -> None:
        """Take up what the journal remembers."""
        book, journal = self.desk.book, self.desk.journal
        for row in journal.bags():
            book.open(row)
        for batch in journal.batches():
            bag = book.by_number[batch.bag]
            book.extend(bag, batch)
            outcomes = journal.outcomes(batch.first, batch.count)
            bag.settled += len(outcomes)
            cancelled = [task for task, outcome in outcomes if outcome == wire.Outcome.CANCELLED]
            done = [task for task, outcome in outcomes if outcome == wire.Outcome.DONE]
            ended = {*cancelled, *done}
            held = [Attempt(task, number) for task, number in journal.sent(batch.first, batch.count)]
            bag.remembered = bag.remembered or bool(held)
            event = ev.TasksSubmitted(
                bag=batch.bag,
                first=batch.first,
                count=batch.count,
                runtimes=batch.runtimes,
                retries=bag.row.retries,
                done=done,
                cancelled=cancelled,
                failed=[task for task, _ in outcomes if task not in ended],
                held=held,
            )
            self.desk.handle(event, now)
        if self.desk.scheduler.orphans:
            self._hold_until = now + HOLD_LEASES * self.desk.facts.lease_s

    def receive(self, peer: bytes, role: Role, message: wire.Message, now: float) -> None:
        """One message; ``role`` is what the connection's key stands for."""
        if role == "worker" and isinstance(message, wire.FROM_WORKER):
            if refusal := self._refusal(message):
                self.desk.send(peer, wire.Refused(refusal))
            else:
                self.workers.receive(peer, message, now)
        elif role == "client" and isinstance(message, wire.FROM_CLIENT):
            if refusal := self._refusal(message):
                self.desk.send(peer, wire.Refused(refusal))
            else:
                self.clients.receive(peer, message, now)
        else:
            self.desk.send(peer, wire.Refused(f"a {role} does not send {type(message).__name__}"))

    def _refusal(self, message: wire.Message) -> str:
        """Why a newcomer cannot be let in; empty when it can."""
        if not isinstance(message, wire.Join | wire.Hello):
            return ""
        if message.version != wire.VERSION:
            return f"this broker is deskgrid {wire.VERSION} and you are deskgrid {message.version}: install the same"
        # A client of another Python may still run commands; a worker would get bags that it cannot run.
        if isinstance(message, wire.Join) and message.python != self.desk.facts.python:
            return f"this grid runs Python {self.desk.facts.python} and this worker Python {message.python}"
        if isinstance(message, wire.Join) and not 1 <= message.slots <= SLOTS_LIMIT:
            return f"a worker has 1 to {SLOTS_LIMIT} slots, not {message.slots}"
        return ""

    def gone(self, peer: bytes, now: float) -> None:
        """A message could not be delivered: the connection is no more."""
        self.workers.gone(peer, now)
        self.clients.gone(peer)

    def settle(self, now: float) -> list[tuple[bytes, wire.Message]]:
        """Decide, once for all that has been received; what is to be sent when the journal has been committed."""
        self.workers.expire(now)
        if self._hold_until is not None and now >= self._hold_until:
            self._hold_until = None
            self.desk.handle(ev.HoldExpired(), now)
        self.desk.learn(now)
        for command in [*self.desk.pending, *self.desk.handle(ev.PassDue(), now)]:
            self.workers.carry_out(command)
        self.desk.pending.clear()
        ended = self.desk.scheduler.counters.done
        self._throughput.add(ended - self._counted, now)
        self._counted = ended
        self.clients.tell_watchers()
        outbox, self.desk.outbox = self.desk.outbox, []
        return outbox

    def farewell(self, reason: str) -> list[tuple[bytes, wire.Message]]:
        """The broker stops: what to tell everyone."""
        self.workers.farewell(reason)
        self.clients.farewell(reason)
        outbox, self.desk.outbox = self.desk.outbox, []
        return outbox

    def bag(self, bag_id: str) -> OpenBag | None:
        """A bag, for tests and tools."""
        return self.desk.book.by_id.get(bag_id)
