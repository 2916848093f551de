"""The broker's side of its clients: bags come in, results go out, questions are answered.

Pure: messages and ``now`` in, messages out through the state's outbox. A client that goes away costs its bags nothing;
every request can be repeated over a new connection and is carried out once.
"""

import math
from dataclasses import dataclass, field

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential, owner_refusal
from deskgrid.broker.bags import OpenBag, Watcher, checked_runtimes
from deskgrid.broker.queries import Queries
from deskgrid.broker.state import BrokerState
from deskgrid.broker.store.rows import BagRow, BatchRow
from deskgrid.durations import precise

# A client of which nothing has been heard for this long is gone: one that waits for anything asks every few seconds
# whether the broker is there. (One that was killed is gone when its connection ends.) An open bag counts as closed when
# its client has been gone for as long, and all its tasks have ended. If the client returns after all, from a laptop
# that slept, the bag is open again and the client notices nothing.
CLIENT_GONE_S = 600.0
# A client that has left so many bytes of answers unread is not answered any more until it has read some. One that
# reads never gets here: its bags' results come when it has taken the ones before.
UNREAD_LIMIT = 2 * wire.PAYLOAD_LIMIT
# The receipt for what a client adds to a bag leaves with the bag's next results if it waits for such, or after so long:
# to be woken costs a program more than to hear of one thing. Seconds.
RECEIPT_S = 0.005
# Requests for the results of one bag that wait: of one client, whose programs have one, and in all. Each is looked at
# when a result comes.
WATCHES_LIMIT = 8
WATCHERS_LIMIT = 1_000
# How often that is looked at: it takes a look at every client and every bag, 7 ms for 60,000 bags.
SWEEP_S = 10.0


@dataclass(slots=True)
class ClientSession:
    """One connection of a client. ``user`` is what it calls itself; what it may do is by ``who``.

    ``watched``: numbers of bags whose results it has waited for. ``refused_template``: digest and bytes of the last
    template that was over its quota.
    """

    who: Credential
    session: str
    user: str
    python: str
    heard: float
    watched: set[int] = field(default_factory=set)
    refused_template: tuple[str, int] = ("", 0)


class Clients:
    """Every client connection."""

    def __init__(self, state: BrokerState, queries: Queries) -> None:
        self._state = state
        self._queries = queries
        queries.operations.hears = self._hears
        self.by_peer: dict[bytes, ClientSession] = {}
        # The connection of each client, by credential and session; and bags whose client is gone, until it is back.
        self._by_session: dict[tuple[Credential, str], bytes] = {}
        self._alone: dict[tuple[str, str], list[OpenBag]] = {}
        self._sweep_at = 0.0
        # Receipts that have not been sent, by peer and bag, each with when it was due.
        self._receipts: dict[tuple[bytes, str], list[tuple[wire.Accepted, float]]] = {}

    def receive(self, peer: bytes, who: Credential, message: wire.Message, now: float) -> None:
        """One message of a client's connection."""
        if isinstance(message, wire.Hello):
            self._hello(peer, who, message, now)
        elif peer not in self.by_peer or self.by_peer[peer].who != who:
            self._state.send(peer, wire.Rejoin())
        else:
            self.by_peer[peer].heard = now
            self._heard(peer, message, now)

    def _heard(self, peer: bytes, message: wire.Message, now: float) -> None:
        if isinstance(message, wire.Submit):
            self._answer_submit(peer, message, now)
        elif isinstance(message, wire.Watch | wire.Ask) and not self._hears(peer):
            return  # it asks on and on, and reads no answers: what is asked for now, it may ask again
        elif isinstance(message, wire.Watch):
            self._watch(peer, message)
        elif isinstance(message, wire.Ask):
            self._queries.ask(peer, self.by_peer[peer].who, message)
        elif isinstance(message, wire.Blob):
            self._template(peer, message)
        elif isinstance(message, wire.Goodbye):
            self.gone(peer)

    def _hears(self, peer: bytes) -> bool:
        """Whether a client reads what it is told."""
        return self._state.has_room(peer, UNREAD_LIMIT)

    def gone(self, peer: bytes) -> None:
        """The connection is no more."""
        client = self.by_peer.pop(peer, None)
        if client is not None:
            if self._by_session.get((client.who, client.session)) == peer:
                del self._by_session[client.who, client.session]
            for number in client.watched:
                if (bag := self._state.book.by_number.get(number)) is not None:
                    bag.watchers = [watcher for watcher in bag.watchers if watcher.peer != peer]
            self._queries.operations.gone(peer)

    def _hello(self, peer: bytes, who: Credential, hello: wire.Hello, now: float) -> None:
        other = self._by_session.get((who, hello.session))
        if other is not None and other != peer:
            self.gone(other)  # an earlier connection of the same client, which broke
        if peer in self.by_peer:
            self.gone(peer)  # it is another client's now
        self._by_session[who, hello.session] = peer
        self.by_peer[peer] = ClientSession(who, hello.session, hello.user, hello.python, now)
        for bag in self._alone.pop((who.name, hello.session), ()):
            bag.closed &= not bag.deserted
            bag.deserted, bag.alone_since = False, None
        facts = self._state.facts
        self._state.send(peer, wire.Greeting(wire.VERSION, facts.id, facts.python))

    @property
    def credentials(self) -> list[str]:
        """The names of the credentials that clients are here by, one for each connection."""
        return [client.who.name for client in self.by_peer.values()]

    def let_go(self, credential: str) -> list[bytes]:
        """Drop every client that is here by that credential; their connections."""
        found = [peer for peer, client in self.by_peer.items() if client.who.name == credential]
        for peer in found:
            self.gone(peer)
        return found

    def sweep(self, now: float) -> None:
        """Let go of clients that are not there any more, and in time of bags that only they would add to."""
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
        """Nobody is here who would add to this open bag."""
        if bag.alone_since is None:
            bag.alone_since = now
            self._alone.setdefault((bag.row.owner, bag.row.session), []).append(bag)
        if bag.settled == bag.total and bag.alone_since + CLIENT_GONE_S <= now:
            bag.closed = bag.deserted = True
            self._state.fresh.add(bag.row.number)
            row = bag.row
            self._state.note("bag-deserted", by=row.owner, bag=row.id, name=row.name, owner=row.owner, items=bag.total)

    def _answer(self, peer: bytes, request: int, answer: wire.Message | str) -> None:
        """Send ``answer``; a string is the reason why not."""
        self._state.send(peer, wire.Failed(request, answer) if isinstance(answer, str) else answer)

    # --- submitting --------------------------------------------------------------------------------------------------

    def _answer_submit(self, peer: bytes, submit: wire.Submit, now: float) -> None:
        answer = self._submit(peer, submit, now)
        if not isinstance(answer, wire.Accepted):
            self._answer(peer, submit.request, answer)
            return
        self._receipts.setdefault((peer, submit.bag), []).append((answer, now))
        if submit.watch and self._state.has_room(peer, UNREAD_LIMIT):
            self._watch(peer, wire.Watch(submit.watch, submit.bag, submit.after))

    @property
    def owes_receipts(self) -> bool:
        """Whether something was accepted of which nobody has been told."""
        return bool(self._receipts)

    def _send_receipts(self, now: float) -> None:
        """Those that nothing is due to go with."""
        receipts, self._receipts = self._receipts, {}
        for (peer, bag_id), its in receipts.items():
            bag = self._state.book.by_id.get(bag_id)
            # The first of them is the oldest: the others go with it.
            if bag is not None and now < its[0][1] + RECEIPT_S and any(w.peer == peer for w in bag.watchers):
                self._receipts[peer, bag_id] = its
            else:
                for receipt, _ in its:
                    self._state.send(peer, receipt)
                    if bag is not None:
                        bag.told_note = receipt.note or bag.told_note

    def _riding_receipts(self, peer: bytes, bag: OpenBag) -> tuple[int, ...]:
        """The requests that results of a bag are a receipt for, too; not those that have a new note."""
        its = self._receipts.get((peer, bag.row.id), ())
        if any(receipt.note not in ("", bag.told_note) for receipt, _ in its):
            return ()
        self._receipts.pop((peer, bag.row.id), None)
        return tuple([receipt.request for receipt, _ in its])

    def _template(self, peer: bytes, blob: wire.Blob) -> None:
        kind = wire.template_kind(blob.data)
        if kind is None or wire.sha256_of(blob.data) != blob.digest:
            self._state.send(peer, wire.Refused("that is not a template, or it was damaged on the way"))
        elif self._state.journal.template_kind(blob.digest) is None:
            client, size = self.by_peer[peer], len(blob.data)
            # Without room the bag is refused, and that answer says why.
            if self._state.quotas.refusal(client.who.name, 0, size):
                client.refused_template = blob.digest, size
            elif not self._state.disk.refusal:
                self._state.quotas.template_added(client.who.name, blob.digest, size)
                self._state.journal.add_template(blob.digest, kind, blob.data)

    def _submit(self, peer: bytes, submit: wire.Submit, now: float) -> wire.Message | str:
        count = len(submit.payloads)
        runtimes = checked_runtimes(submit.runtime, submit.runtimes, count)
        if runtimes is None:
            return f"{count} items came with {len(submit.runtimes)} runtimes"
        if max(map(len, submit.payloads), default=0) > wire.PAYLOAD_LIMIT:
            return f"an item is larger than {wire.PAYLOAD_LIMIT} bytes"
        refusal = self._refusal_by_owner(peer, submit.bag) or self._refusal_by_disk(submit)
        if refusal := refusal or self._refusal_by_quota(peer, submit):
            return refusal
        bag = self._state.book.by_id.get(submit.bag) or self._open(peer, submit)
        if isinstance(bag, str):
            return bag
        if submit.first >= bag.total:
            if refusal := self._refusal(bag, submit):
                return refusal
            if count:
                self._extend(bag, submit, runtimes, now)
        if submit.last and not bag.closed:
            bag.closed = True
            self._state.journal.close_bag(bag.row.number)
            self._state.fresh.add(bag.row.number)
        return wire.Accepted(submit.request, submit.bag, bag.note)

    def _refusal_by_owner(self, peer: bytes, bag_id: str) -> str:
        """Why this client may do nothing with a bag; empty when it may, or there is none."""
        bag = self._state.book.by_id.get(bag_id)
        return "" if bag is None else owner_refusal(self.by_peer[peer].who, bag_id, bag.row.owner)

    def _refusal_by_disk(self, submit: wire.Submit) -> str:
        """Why the disk takes nothing of this; empty when it does, or when all of it was accepted before."""
        why, bag = self._state.disk.refusal, self._state.book.by_id.get(submit.bag)
        repeated = bag is not None and submit.first < bag.total and (bag.closed or not submit.last)
        return f"bag {submit.bag} is not taken: {why}" if why and not repeated else ""

    def _refusal_by_quota(self, peer: bytes, submit: wire.Submit) -> str:
        """Why its owner has enough here; empty when there is room for this, or when it was accepted before."""
        bag = self._state.book.by_id.get(submit.bag)
        if bag is not None and submit.first < bag.total:
            return ""
        owner = self.by_peer[peer].who.name if bag is None else bag.row.owner
        why = self._state.quotas.no_bag(owner) if bag is None else ""
        why = why or self._state.quotas.refusal(owner, len(submit.payloads), sum(map(len, submit.payloads)))
        return f"bag {submit.bag} is not taken: {why}" if why else ""

    def _refusal_by_template(self, peer: bytes, submit: wire.Submit) -> str:
        """Why there was no room for the template of a bag; empty when there is by now, or it did not arrive."""
        client = self.by_peer[peer]
        digest, size = client.refused_template
        why = self._state.quotas.refusal(client.who.name, 0, size) if digest == submit.template else ""
        return f"bag {submit.bag} is not taken: its template has {size} bytes; {why}" if why else ""

    @staticmethod
    def _refusal(bag: OpenBag, submit: wire.Submit) -> str:
        """Why what is new of ``bag`` cannot be added to it; empty when it can."""
        if submit.first > bag.total:
            return f"items {bag.total} to {submit.first - 1} of bag {submit.bag} have not arrived"
        if bag.closed and submit.payloads:
            return f"bag {submit.bag} is closed"
        if bag.total + len(submit.payloads) > wire.BAG_LIMIT:
            return f"a bag has at most {wire.BAG_LIMIT} items"
        return ""

    def _open(self, peer: bytes, submit: wire.Submit) -> OpenBag | str:
        if not submit.payloads:
            return "an empty bag: there is nothing to run"
        if len(submit.payloads) > wire.BAG_LIMIT:
            return f"a bag has at most {wire.BAG_LIMIT} items"
        kind = self._state.journal.template_kind(submit.template)
        # Both beginnings tell a client to send the batch again: of several on their way all come back, in order.
        if kind is None:
            return self._refusal_by_template(peer, submit) or "template: send it first"
        if submit.first:
            return f"template: no bag {submit.bag}: its beginning did not arrive, or it was forgotten"
        client = self.by_peer[peer]
        if kind == "python" and client.python != self._state.facts.python:
            return f"this grid runs Python {self._state.facts.python}, and this bag was made by Python {client.python}"
        predicted = submit.runtime is not None or bool(submit.runtimes)
        row = BagRow(
            number=self._state.book.new_number(),
            id=submit.bag,
            name=submit.name,
            kind=kind,
            owner=client.who.name,
            template=submit.template,
            options=submit.options,
            predicted=predicted,
            closed=False,
            created=self._state.posix(self._state.scheduler.now),
            session=client.session,
        )
        self._state.journal.add_bag(row)
        self._state.quotas.opened(row.owner)
        self._state.note("bag-opened", by=row.owner, bag=row.id, name=row.name, owner=row.owner, user=client.user)
        return self._state.book.open(row)

    def _extend(self, bag: OpenBag, submit: wire.Submit, runtimes: tuple[float, ...], now: float) -> None:
        if not bag.row.predicted:
            runtimes = (bag.estimate_s,)
        count, size = len(submit.payloads), sum(map(len, submit.payloads))
        batch = BatchRow(self._state.book.next_task, bag.row.number, bag.total, count, runtimes, size)
        self._state.journal.add_batch(batch, submit.payloads, self._state.posix(now))
        self._state.book.extend(bag, batch)
        self._state.quotas.extended(bag.row.owner, count, size)
        self._state.handle(bag.submitted(batch), now)
        bag.note = self._note(runtimes, bag, now)

    def _note(self, runtimes: tuple[float, ...], bag: OpenBag, now: float) -> str:
        """What a submitter should hear at once: that some of it cannot run as things are."""
        scheduler = self._state.scheduler
        if not scheduler.policy.timed:
            return bag.note
        margin = scheduler.policy.requirement.margin
        if scheduler.has_longer_window(max(runtimes) + margin, now):
            return bag.note
        longest = scheduler.longest_window(now)
        if not longest:
            return "no worker is known yet: the bag waits"
        too_long = sum(seconds + margin >= longest for seconds in runtimes)
        some = bag.total if len(runtimes) == 1 else too_long
        return (
            f"{some} of {bag.total} tasks are longer than any window known: the longest is {precise(longest)}, "
            f"less {precise(margin)} for starting up; they wait for a longer one"
        )

    # --- results -----------------------------------------------------------------------------------------------------

    def _watch(self, peer: bytes, watch: wire.Watch) -> None:
        bag = self._state.book.by_id.get(watch.bag)
        if bag is None:
            self._answer(peer, watch.request, f"no bag {watch.bag}")
            return
        # A repeated request replaces itself.
        bag.watchers = [w for w in bag.watchers if (w.peer, w.request) != (peer, watch.request)]
        refusal = self._refusal_by_owner(peer, watch.bag)
        if not refusal and sum(w.peer == peer for w in bag.watchers) >= WATCHES_LIMIT:
            refusal = f"{WATCHES_LIMIT} requests for the results of bag {watch.bag} wait already"
        if not refusal and len(bag.watchers) >= WATCHERS_LIMIT:
            refusal = f"{WATCHERS_LIMIT} requests for the results of bag {watch.bag} wait already, of all its clients"
        if refusal:
            self._answer(peer, watch.request, refusal)
            return
        bag.watchers.append(Watcher(peer, watch.request, watch.after))
        self.by_peer[peer].watched.add(bag.row.number)
        self._state.fresh.add(bag.row.number)

    def tell(self, now: float) -> None:
        """Answer those who watch bags in which something is new, and say what was accepted."""
        fresh, self._state.fresh = self._state.fresh, set()
        for number in fresh:
            bag = self._state.book.by_number.get(number)
            if bag is not None and bag.watchers:
                bag.watchers = [watcher for watcher in bag.watchers if not self._tell(bag, watcher)]
        if self._receipts:
            self._send_receipts(now)

    def _tell(self, bag: OpenBag, watcher: Watcher) -> bool:
        if not self._state.has_room(watcher.peer):
            self._state.fresh.add(bag.row.number)  # later, when it has taken what it was sent
            return False
        told = self._state.journal.results(bag.row.number, watcher.after)
        if told[2] == watcher.after and not bag.complete:
            return False
        receipts = self._riding_receipts(watcher.peer, bag)
        outcomes = wire.Outcomes(watcher.request, bag.row.id, *told, bag.settled, bag.total, bag.closed, receipts)
        self._state.send(watcher.peer, outcomes)
        return True

    def farewell(self, reason: str) -> None:
        """The broker stops."""
        self._send_receipts(math.inf)
        for peer in self.by_peer:
            self._state.send(peer, wire.Goodbye(reason))
