"""The broker's side of its clients: bags come in, results go out, questions are answered.

Pure: messages and ``now`` in, messages out through the state's outbox. A bag goes on when its client goes away. Any
request can be repeated over a new connection; it is carried out once.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from deskgrid import wire
from deskgrid.broker.answers.queries import Queries
from deskgrid.broker.auth.roles import Credential, owner_refusal
from deskgrid.broker.model.bags import OpenBag, checked_runtimes
from deskgrid.broker.model.need_notes import time_note
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.peers.watchers import Watchers
from deskgrid.broker.store.rows import BagRow, BatchRow
from deskgrid.broker.work.environments import key_of
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.scheduler.fitting import fits

# A client that has been silent for this long is gone: while it waits for anything, it pings every few seconds. (A
# client that was killed is gone when its connection ends.) An open bag counts as closed when all its tasks have ended
# and its client has been gone for this long. If the client returns, for example on a laptop that slept, the bag is open
# again and the client notices nothing. Seconds.
CLIENT_GONE_S = 600.0
# A client with this many unread bytes of answers gets no more until it has read some. A client that reads its answers
# never reaches this limit, because it is sent results only when it has read the earlier ones.
UNREAD_LIMIT = 2 * wire.PAYLOAD_LIMIT
# Templates that an owner has sent lately and may use, beside those of its bags. After that, it is asked to send them
# again.
SENT_TEMPLATES = 1_000
# How often the broker looks for clients that are gone. It checks every client and bag, which takes 7 ms for 60,000
# bags. Seconds.
SWEEP_S = 10.0


@dataclass(slots=True)
class ClientSession:
    """One connection of a client. ``user`` is the name it gives itself; its rights are those of ``who``.

    ``watched``: numbers of bags whose results it has waited for. ``refused_template``: digest and bytes of the last
    template for which there was no room.
    """

    who: Credential
    session: str
    user: str
    heard: float
    watched: set[int] = field(default_factory=set)
    refused_template: tuple[str, int] = ("", 0)


class Clients:
    """Every client connection."""

    def __init__(self, state: BrokerState, workers: WorkerSessions, queries: Queries) -> None:
        self._state = state
        self._workers = workers
        self._queries = queries
        queries.operations.reads = self._reads
        self.by_peer: dict[bytes, ClientSession] = {}
        # The connection of each client, by credential and session; and bags whose client is gone, until it returns.
        self._by_session: dict[tuple[Credential, str], bytes] = {}
        self._alone: dict[tuple[str, str], list[OpenBag]] = {}
        self._sweep_at = 0.0
        # The templates that each owner has sent lately, the last ones at the end.
        self._sent: dict[str, dict[str, None]] = {}
        self.watchers = Watchers(state)

    def receive(self, peer: bytes, who: Credential, message: wire.Message, now: float) -> None:
        """Handle a message of a client."""
        if isinstance(message, wire.Hello):
            self._hello(peer, who, message, now)
        elif not self.heard(peer, who, now):
            self._state.send(peer, wire.Rejoin())
        elif isinstance(message, wire.Submit):
            self._answer_submit(peer, message, now)
        elif isinstance(message, wire.Watch | wire.Ask) and not self._reads(peer):
            return  # it does not read its answers; it may ask again when it has read some
        elif isinstance(message, wire.Watch):
            self._watch(peer, message)
        elif isinstance(message, wire.Ask):
            self._queries.ask(peer, self.by_peer[peer].who, message)
        elif isinstance(message, wire.Blob):
            self._template(peer, message)
        elif isinstance(message, wire.Goodbye):
            self.gone(peer)

    def heard(self, peer: bytes, who: Credential, now: float) -> bool:
        """Note that a client is there; return whether this peer is one."""
        client = self.by_peer.get(peer)
        if client is None or client.who != who:
            return False
        client.heard = now
        return True

    def _reads(self, peer: bytes) -> bool:
        """Whether a client reads its answers."""
        return self._state.has_room(peer, UNREAD_LIMIT)

    def gone(self, peer: bytes) -> None:
        """A connection has ended."""
        client = self.by_peer.pop(peer, None)
        if client is not None:
            if self._by_session.get((client.who, client.session)) == peer:
                del self._by_session[client.who, client.session]
            self.watchers.gone(peer, client.watched)
            self._queries.operations.gone(peer)

    def _hello(self, peer: bytes, who: Credential, hello: wire.Hello, now: float) -> None:
        other = self._by_session.get((who, hello.session))
        if other is not None and other != peer:
            self.gone(other)  # an earlier connection of the same client
        if peer in self.by_peer:
            self.gone(peer)  # the connection belongs to another client now
        self._by_session[who, hello.session] = peer
        self.by_peer[peer] = ClientSession(who, hello.session, hello.user, now)
        for bag in self._alone.pop((who.name, hello.session), ()):
            bag.closed &= not bag.deserted
            bag.deserted, bag.alone_since = False, None
            self._queries.orders.gates.count(bag)
        self._state.send(peer, wire.Greeting(wire.VERSION, self._state.facts.id))

    @property
    def credentials(self) -> list[str]:
        """The names of the clients' credentials, one for each connection."""
        return [client.who.name for client in self.by_peer.values()]

    def let_go(self, credential: str) -> list[bytes]:
        """Drop every client with this credential, and return their connections."""
        found = [peer for peer, client in self.by_peer.items() if client.who.name == credential]
        for peer in found:
            self.gone(peer)
        return found

    def sweep(self, now: float) -> None:
        """Drop clients that are gone, and close their open bags some time later."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + SWEEP_S
        for peer in [peer for peer, client in self.by_peer.items() if client.heard + CLIENT_GONE_S <= now]:
            self.gone(peer)
        here = {(client.who.name, client.session) for client in self.by_peer.values()}
        for bag in [bag for bag in self._state.book.by_number.values() if not bag.closed]:
            if (bag.row.owner, bag.row.session) in here:
                bag.alone_since = None
            else:
                self._left_alone(bag, now)

    def _left_alone(self, bag: OpenBag, now: float) -> None:
        """The client of an open bag is gone."""
        if bag.alone_since is None:
            bag.alone_since = now
            self._alone.setdefault((bag.row.owner, bag.row.session), []).append(bag)
        if bag.settled == bag.total and bag.alone_since + CLIENT_GONE_S <= now:
            bag.closed = bag.deserted = True
            self._state.fresh.add(bag.row.number)
            row = bag.row
            self._state.note("bag-deserted", by=row.owner, bag=row.id, name=row.name, owner=row.owner, items=bag.total)

    def _answer(self, peer: bytes, request: int, answer: wire.Message | str) -> None:
        """Send ``answer``; a string is the reason for a failure."""
        self._state.send(peer, wire.Failed(request, answer) if isinstance(answer, str) else answer)

    def _watch(self, peer: bytes, watch: wire.Watch) -> None:
        bag = self._state.book.by_id.get(watch.bag)
        if bag is None:
            self._answer(peer, watch.request, f"no bag {watch.bag}: see deskgrid bags")
        elif refusal := (
            owner_refusal(self.by_peer[peer].who, watch.bag, bag.row.owner) or self.watchers.watch(peer, bag, watch)
        ):
            self._answer(peer, watch.request, refusal)
        else:
            self.by_peer[peer].watched.add(bag.row.number)

    # --- submitting --------------------------------------------------------------------------------------------------

    def _answer_submit(self, peer: bytes, submit: wire.Submit, now: float) -> None:
        answer = self._submit(peer, submit, now)
        if not isinstance(answer, wire.Accepted):
            self._answer(peer, submit.request, answer)
            return
        self.watchers.owe(peer, submit.bag, answer, now)
        if submit.watch and self._state.has_room(peer, UNREAD_LIMIT):
            self._watch(peer, wire.Watch(submit.watch, submit.bag, submit.after))

    def _template(self, peer: bytes, blob: wire.Blob) -> None:
        kind = wire.template_kind(blob.data)
        if kind is None or wire.sha256_of(blob.data) != blob.digest:
            self._state.send(peer, wire.Refused("that is not a template, or it was damaged in transit"))
            return
        client, size = self.by_peer[peer], len(blob.data)
        mine = self._sent.setdefault(client.who.name, {})
        mine[blob.digest] = None
        if len(mine) > SENT_TEMPLATES:
            del mine[next(iter(mine))]
        if self._state.journal.template_kind(blob.digest) is None:
            # If there is no room for the template, its bag is refused later, and that answer says why.
            if self._refusal_of_template(client, size, size - _in_files(blob)):
                client.refused_template = blob.digest, size
            else:
                self._state.quotas.template_added(client.who.name, blob.digest, size)
                self._state.journal.add_template(blob.digest, kind, blob.data)

    def _submit(self, peer: bytes, submit: wire.Submit, now: float) -> wire.Message | str:
        count = len(submit.payloads)
        runtimes = checked_runtimes(submit.runtime, submit.runtimes, count)
        if runtimes is None:
            return f"the batch has {count} items and {len(submit.runtimes)} runtimes"
        if (largest := max(map(len, submit.payloads), default=0)) > wire.PAYLOAD_LIMIT:
            return f"an item is larger than {wire.PAYLOAD_LIMIT} bytes"
        size = sum(map(len, submit.payloads))
        to_write = size - _in_files(submit) if largest >= wire.LARGE_BYTES else size
        who, known = self.by_peer[peer].who, self._state.book.by_id.get(submit.bag)
        refusal = "" if known is None else owner_refusal(who, submit.bag, known.row.owner)
        # One whose receipt was lost comes again: its tasks are there, and perhaps the bag is yet to be closed.
        is_known = known is not None and submit.first < known.total
        closes = submit.last and (known is None or not known.closed)
        if (closes or not is_known) and (why := self._state.disk.refusal_of(to_write)):
            refusal = refusal or f"bag {submit.bag} was rejected: {why}"
        if not is_known:
            owner = who.name if known is None else known.row.owner
            refusal = refusal or self._refusal_by_quota(owner, known, submit, size)
            refusal = refusal or self._refusal_by_files(owner, submit)
        if refusal:
            return refusal
        bag = known or self._open(peer, submit)
        if isinstance(bag, str):
            return bag
        if submit.first >= bag.total:
            if refusal := self._refusal(bag, submit):
                return refusal
            if count:
                self._extend(bag, submit, runtimes, size, now)
                self._state.disk.took(to_write)
        if closes:
            bag.closed = True
            self._state.journal.close_bag(bag.row.number)
            self._state.fresh.add(bag.row.number)
        return wire.Accepted(submit.request, submit.bag, bag.note)

    def _refusal_by_quota(self, owner: str, bag: OpenBag | None, submit: wire.Submit, size: int) -> str:
        """Why a new batch is over its owner's quota; empty when it is not. ``bag``: None if it is the first batch."""
        why = self._state.quotas.no_bag(owner) if bag is None else ""
        why = why or self._state.quotas.refusal(owner, len(submit.payloads), size)
        if not why and submit.payloads and (bag is None or not self._state.book.may_join(bag)):
            why = self._state.quotas.no_batch(owner)
        return f"bag {submit.bag} was rejected: {why}" if why else ""

    def _refusal_by_files(self, owner: str, submit: wire.Submit) -> str:
        """Why a new batch names files that it may not; empty when it does not."""
        found = dict.fromkeys(filter(None, map(wire.trees_in, submit.payloads)))
        trees = {tree for trees in found for tree in wire.split_digests(trees)}
        return self._refusal_by_trees(owner, submit.bag, trees)

    def _refusal_by_trees(self, owner: str, bag_id: str, trees: Collection[bytes]) -> str:
        """Why a bag may not name these trees: an owner has what it sent, not what it only knows the digest of."""
        if all(self._state.journal.parts.has(owner, tree) for tree in trees):
            return ""
        return f"bag {bag_id} was rejected: it names files that {owner} has not sent to this broker, or not lately"

    def _has_template(self, owner: str, template: str) -> bool:
        """Whether an owner has sent a template."""
        return template in self._sent.get(owner, ()) or self._state.book.uses(owner, template)

    def _refusal_by_template(self, peer: bytes, submit: wire.Submit) -> str:
        """Why there was no room for a bag's template; empty when there is room now, or if it did not arrive."""
        client = self.by_peer[peer]
        digest, size = client.refused_template
        why = self._refusal_of_template(client, size, size) if digest == submit.template else ""
        return f"bag {submit.bag} was rejected: its template has {size} bytes; {why}" if why else ""

    def _refusal_of_template(self, client: ClientSession, size: int, to_write: int) -> str:
        """Why a client's template is refused, or "". ``to_write``: how many of its bytes are not in a file yet."""
        return self._state.quotas.refusal(client.who.name, 0, size) or self._state.disk.refusal_of(to_write)

    @staticmethod
    def _refusal(bag: OpenBag, submit: wire.Submit) -> str:
        """Why a batch cannot be added to ``bag``; empty when it can."""
        if submit.first > bag.total:
            return f"items {bag.total} to {submit.first - 1} of bag {submit.bag} have not arrived"
        if bag.closed and submit.payloads:
            return f"bag {submit.bag} is closed"
        if bag.total + len(submit.payloads) > wire.BAG_LIMIT:
            return f"a bag has at most {wire.BAG_LIMIT} items"
        return ""

    def _open(self, peer: bytes, submit: wire.Submit) -> OpenBag | str:
        if not submit.payloads:
            return "the bag is empty: there is nothing to run"
        if len(submit.payloads) > wire.BAG_LIMIT:
            return f"a bag has at most {wire.BAG_LIMIT} items"
        kind, client = self._state.journal.template_kind(submit.template), self.by_peer[peer]
        # After an answer that begins with "template", a client sends this batch and all later ones again, in order.
        # So does one that only knows what another person's template is called.
        if kind is None or not self._has_template(client.who.name, submit.template):
            return self._refusal_by_template(peer, submit) or "template: send it first"
        if submit.first:
            return f"template: no bag {submit.bag}: its first batch did not arrive, or it was forgotten"
        environment = self._state.environment_of(submit.template)
        if refusal := self._refusal_of_bag(client, submit, key_of(client.who.name, environment)):
            return refusal
        predicted = submit.runtime is not None or bool(submit.runtimes)
        row = BagRow(
            number=self._state.book.next_bag,
            id=submit.bag,
            name=submit.name,
            kind=kind,
            owner=client.who.name,
            template=submit.template,
            options=submit.options,
            predicted=predicted,
            closed=False,
            created=self._state.wall.posix(self._state.scheduler.now),
            session=client.session,
        )
        self._state.journal.add_bag(row)
        self._state.quotas.opened(row.owner)
        self._state.note("bag-opened", by=row.owner, bag=row.id, name=row.name, owner=row.owner, user=client.user)
        bag = self._state.book.open(row)
        self._queries.environments.enter(bag, environment)
        self._queries.orders.gates.enter(bag)
        if not predicted:
            bag.estimate_s = self._state.learning.expected(bag)
        return bag

    def _refusal_of_bag(self, client: ClientSession, submit: wire.Submit, environment: str) -> str:
        """Why a new bag cannot run here; empty when it can."""
        if missing := self._workers.python_missing(submit.options):
            return f"{missing}: run the program with a Python that they have, or start workers that have yours"
        if refusal := self._refusal_by_trees(client.who.name, submit.bag, self._state.trees_of(submit.template)):
            return refusal
        return self._queries.orders.gates.refusal(submit.bag, client.who.name, submit.options, environment)

    def _extend(self, bag: OpenBag, submit: wire.Submit, runtimes: tuple[float, ...], size: int, now: float) -> None:
        if not bag.row.predicted:
            runtimes = (bag.estimate_s,)
        count = len(submit.payloads)
        self._state.note_transfer(bag)
        runtimes = bag.with_transfer(runtimes, count, len(self._state.scheduler.grid.slots.slots))
        batch = BatchRow(self._state.book.next_task, bag.row.number, bag.total, count, runtimes, size)
        self._state.journal.add_batch(batch, submit.payloads, self._state.wall.posix(now))
        joins = self._state.book.extend(bag, batch)
        self._state.quotas.extended(bag.row.owner, count, size, batches=not joins)
        self._state.scheduler.handle(bag.submitted(batch), now)
        # What no PC has is told once, with the first batch.
        missing = "" if batch.start else self._workers.need_note(bag.row.options)
        bag.note = missing or self._note(runtimes, bag, now)

    def _note(self, runtimes: tuple[float, ...], bag: OpenBag, now: float) -> str:
        """A note that tells the submitter at once if some tasks of a bag cannot run now."""
        scheduler = self._state.scheduler
        if bag.parallel and scheduler.longest_window(now):
            return self._queries.explaining.never(bag.need, max(runtimes), now) or bag.note
        if not scheduler.policy.timed:
            return bag.note
        needs_s = scheduler.bag_needs(bag.row.number)

        def some(most_s: float) -> int:
            return bag.total if len(runtimes) == 1 else sum(not fits(needs_s(seconds), most_s) for seconds in runtimes)

        without = self._queries.environments.without(bag)
        return time_note(self._state, bag, needs_s(max(runtimes)), some, without) or bag.note

    def farewell(self, reason: str) -> None:
        """The broker stops: send the waiting receipts, and say goodbye."""
        self.watchers.send_receipts(math.inf)
        for peer in self.by_peer:
            self._state.send(peer, wire.Goodbye(reason))


def _in_files(message: wire.Submit | wire.Blob) -> int:
    """How many bytes of the payloads of a message are in files already, written when the message arrived."""
    return sum([len(value) for value in wire.large_of(message) if value.file])
