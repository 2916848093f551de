"""Stored files come in, in parts, and go out again, to workers and clients alike. Pure.

Rule 1: only the owner's parts count. A client may send and fetch parts for its own bags, a worker for the attempts that
it was given; what a worker sends counts for the owner of the bag. Who has parts is who sent them: to know their digests
is not enough. So nobody gets a part, here or from a PC that has it already, whose owner has not shown to have it.
Rule 2: parts that are asked for wait here, and leave in turns by credential, when their peer has taken the earlier
ones. So neither a slow peer nor many transfers take memory, and messages for others go between the parts.
Rule 3: a worker gets no answer while there is no room for its files: it asks again later, and nothing is lost. A client
is told at once.
"""

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Generator, Sequence
from typing import NamedTuple

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential, owner_refusal
from deskgrid.broker.model.quotas import BAGS_LIMIT
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.peers.clients import Clients
from deskgrid.broker.store.parts import HolderKey, HolderRow
from deskgrid.broker.work.operations import Operation, Operations
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.scheduler.model import Attempt

# Uploads for a bag that is never submitted, or has ended, are dropped after this time. Until then an interrupted upload
# goes on where it stopped, and bags with the same files find them here. Seconds.
UPLOADS_KEPT_S = 86_400.0
# How often holders that nobody needs are looked for, which takes a millisecond for a thousand bags. Seconds.
SWEEP_S = 10.0
# How much older than now the recorded time of the last upload may be, so that not every message writes it. Seconds.
TOUCH_S = 600.0
# Bags of one owner that have files, submitted or not: as many as there may be, and a thousand interrupted uploads.
HOLDERS_LIMIT = BAGS_LIMIT + 1_000
# Parts that one peer may have asked for. An honest peer asks for a few, and for more when these have come.
WANTED_LIMIT = 16
# Bytes that may wait for a peer to which another part is sent: the next part is ready while one is on its way.
ROOM_BYTES = wire.PART_BYTES + 2**16
# Parts sent in one turn of the loop: each takes some hundred microseconds to find and map.
TURN_PARTS = 16
# What a part takes in the tables for each of its holders, and in its owner's quota.
HOLD_BYTES = 256
# Parts that one slice drops, and its cost.
DROPPED_PARTS = 200
DROP_UNITS = 8_000
_ATTEMPT = re.compile(r"(\d{1,19})\.(\d{1,19})(?:\.\d{1,4})?")


# How often the log says that files of tasks find no room. Seconds.
SAY_S = 60.0


# What workers and clients say about files.
FromBoth = wire.Offer | wire.Part | wire.Want | wire.Claim


class NoDiskRoom(str):
    """Why the disk has no room now."""

    __slots__ = ()


class TransferPlace(NamedTuple):
    """Whose files these are: of ``bag``, which belongs to ``owner``."""

    bag: str
    owner: str
    from_worker: bool

    @property
    def key(self) -> HolderKey:
        """Of the holder: what workers send are results."""
        return self.bag, self.owner, self.from_worker


class WantedPart(NamedTuple):
    """A part that a peer waits for."""

    message: wire.Want
    owner: str


class Transfers:
    """The files of all bags."""

    def __init__(self, state: BrokerState, workers: WorkerSessions, clients: Clients, operations: Operations) -> None:
        self._state = state
        self._workers = workers
        self._clients = clients
        self._operations = operations
        # The holders; and how many each owner has, without those of results, of which no bag has more than one.
        self._holders: dict[HolderKey, HolderRow] = {}
        self._of_owner: Counter[str] = Counter()
        self._next = 1
        self._dropping: set[int] = set()
        # The parts that wait to be sent, by credential and peer.
        self._wanted: OrderedDict[str, OrderedDict[bytes, deque[WantedPart]]] = OrderedDict()
        self._sweep_at = 0.0
        self._said_at = -SAY_S

    def restore(self) -> None:
        """Restore holders and quotas from the journal."""
        parts, state = self._state.journal.parts, self._state
        for row in parts.holders():
            self._of_owner[row.owner] += not row.results
            self._keep(row)
        for owner, size, rows in parts.sizes():
            state.quotas.extended(owner, 0, size + HOLD_BYTES * rows)

    def _keep(self, row: HolderRow) -> None:
        self._holders[row.key] = row
        self._next = max(self._next, row.number + 1)
        if not row.results:
            self._state.file_needs[row.bag, row.owner] = row.first, row.each

    # --- messages ----------------------------------------------------------------------------------------------------

    def records(self, peer: bytes, who: Credential, part: wire.Part) -> bool:
        """Whether the bytes of a part may be written to a file, as far as is known before it is handled."""
        place = self._place(peer, who, part.holder)
        return isinstance(place, TransferPlace) and not self._state.quotas.refusal(place.owner, 0, len(part.data))

    def receive(self, peer: bytes, who: Credential, message: FromBoth, now: float) -> None:
        """Handle a message of a worker or a client."""
        if not (self._clients.heard(peer, who, now) or self._workers.heard(peer, who, now)):
            self._state.send(peer, wire.Rejoin())
            return
        place = self._place(peer, who, message.holder, isinstance(message, wire.Want | wire.Claim))
        if isinstance(place, str):
            self._state.send(peer, wire.Failed(message.request, place))
        elif isinstance(message, wire.Want):
            self._want(peer, who, place, message)
        elif isinstance(message, wire.Claim):
            lacking = self._state.journal.parts.lacked(place.owner, wire.split_digests(message.parts))
            self._state.send(peer, wire.Lacks(message.request, b"".join(lacking)))
        else:
            answer = self._offer(place, message, now) if isinstance(message, wire.Offer) else self._part(place, message)
            if isinstance(answer, NoDiskRoom) and place.from_worker:
                if now >= self._said_at + SAY_S:
                    self._said_at = now
                    self._state.note("files-wait", bag=place.bag, why=answer)
                return
            self._state.send(peer, wire.Failed(message.request, answer) if isinstance(answer, str) else answer)

    def _place(self, peer: bytes, who: Credential, holder: str, fetches: bool = False) -> TransferPlace | str:
        """Whose files ``holder`` means; or why its sender has nothing to do with them.

        ``fetches``: it asks for a part, or about some. A worker may do that for a bag, too, whose environment it is to
        prepare.
        """
        if peer in self._clients.by_peer:
            bag = self._state.book.by_id.get(holder)
            if bag is None:
                return TransferPlace(holder, who.name, from_worker=False)
            return owner_refusal(who, holder, bag.row.owner) or TransferPlace(holder, bag.row.owner, from_worker=False)
        worker, found = self._workers.by_peer.get(peer), _ATTEMPT.fullmatch(holder)
        if worker is not None and found is not None:
            attempt = Attempt(int(found[1]), int(found[2]))
            if attempt.task < self._state.book.next_task and self._workers.attempts.given_to(worker, [attempt]):
                row = self._state.book.item(attempt.task)[0].row
                return TransferPlace(row.id, row.owner, from_worker=True)
        bag = self._state.book.by_id.get(holder) if fetches else None
        if worker is not None and bag is not None and bag.environment_key in worker.environments:
            return TransferPlace(holder, bag.row.owner, from_worker=True)
        return "this worker does not hold that attempt"

    def _offer(self, place: TransferPlace, offer: wire.Offer, now: float) -> wire.Message | str:
        digests, parts = wire.split_digests(offer.parts), self._state.journal.parts
        lacking = parts.lacked(place.owner, digests)
        size = min(offer.size, len(lacking) * wire.PART_BYTES) if lacking else 0
        if refusal := self._refusal(place, HOLD_BYTES * len(digests) + size, size):
            return refusal
        holder = self._holder(place, offer, now)
        if isinstance(holder, str):
            return holder
        self._charge(place, parts.hold(holder, set(digests).difference(lacking)), 0)
        return wire.Lacks(offer.request, b"".join(lacking))

    def _refusal(self, place: TransferPlace, size: int, to_write: int) -> str:
        """Why there is no room for more files; empty when there is. ``size``: bytes in the owner's quota."""
        if refusal := self._state.quotas.refusal(place.owner, 0, size):
            return f"the files of bag {place.bag} were rejected: {refusal}"
        if to_write and (refusal := self._state.disk.refusal_of(to_write)):
            return NoDiskRoom(f"the files of bag {place.bag} were rejected: {refusal}")
        return ""

    def _charge(self, place: TransferPlace, rows: int, size: int) -> None:
        self._state.quotas.extended(place.owner, 0, HOLD_BYTES * rows + size)

    def _holder(self, place: TransferPlace, offer: wire.Offer, now: float) -> HolderRow | str:
        """The holder of a bag's parts, which was touched now; or why there can be none."""
        wall, row = self._state.wall.posix(now), self._holders.get(place.key)
        if row is None:
            if not place.from_worker and self._of_owner[place.owner] >= HOLDERS_LIMIT:
                return f"{place.owner} has files here for {HOLDERS_LIMIT} bags: forget some that have ended"
            self._of_owner[place.owner] += not place.from_worker
            row = HolderRow(self._next, place.bag, place.owner, 0.0, 0, 0, place.from_worker)
        first, each = (row.first, row.each) if place.from_worker else (max(offer.first, row.first), offer.each)
        if row.touched + TOUCH_S < wall or (row.first, row.each) != (first, each):
            row = row._replace(touched=wall, first=first, each=each)
            self._state.journal.parts.put_holder(row)
            self._keep(row)
        return row

    def _part(self, place: TransferPlace, part: wire.Part) -> wire.Message | str:
        state, holder = self._state, self._holders.get(place.key)
        if holder is None:
            return "offer the parts of a file before you send them"
        if bytes.fromhex(wire.sha256_of(part.data)) != part.digest:
            return "a part of a file is not what its digest says: the file changed while it was sent"
        size, is_new = len(part.data), not state.journal.parts.has(place.owner, part.digest)
        to_write = 0 if isinstance(part.data, wire.Chunks) and part.data.file else size
        if is_new and (refusal := self._refusal(place, HOLD_BYTES + size, to_write)):
            return refusal
        self._charge(place, state.journal.parts.add(holder, part.digest, part.data), size if is_new else 0)
        state.disk.took(to_write)
        return wire.Kept(part.request)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _want(self, peer: bytes, who: Credential, place: TransferPlace, want: wire.Want) -> None:
        if not self._state.journal.parts.has(place.owner, want.digest):
            self._state.send(peer, wire.Failed(want.request, "the broker does not have this part of a file any more"))
            return
        mine = self._wanted.setdefault(who.name, OrderedDict()).setdefault(peer, deque())
        if len(mine) < WANTED_LIMIT:
            mine.append(WantedPart(want, place.owner))

    def send_some(self) -> None:
        """Send parts to peers that have taken their earlier ones; credentials, and then their peers, take turns."""
        left, idle = TURN_PARTS, 0
        while left and idle < len(self._wanted):
            name, peers = next(iter(self._wanted.items()))
            self._wanted.move_to_end(name)
            ready = next((peer for peer in peers if self._state.has_room(peer, ROOM_BYTES)), None)
            idle = 0 if ready is not None else idle + 1
            if ready is not None:
                left -= 1
                peers.move_to_end(ready)
                self._send(ready, peers[ready].popleft())
                self._tidy(name, ready)

    def _send(self, peer: bytes, wanted: WantedPart) -> None:
        want, data = wanted.message, self._state.journal.parts.part(wanted.message.digest)
        if data is not None:
            self._state.hand_out(peer, wire.Part(want.request, want.holder, want.digest, data))

    def _tidy(self, name: str, peer: bytes) -> None:
        peers = self._wanted[name]
        if not peers[peer]:
            del peers[peer]
        if not peers:
            del self._wanted[name]

    def gone(self, peer: bytes) -> None:
        """A connection has ended."""
        for name in [name for name, peers in self._wanted.items() if peer in peers]:
            self._wanted[name][peer].clear()
            self._tidy(name, peer)

    # --- letting go --------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Drop the parts of forgotten bags, and old uploads for bags that were never submitted or have ended."""
        if now < self._sweep_at or self._state.disk.state == "full":
            return
        self._sweep_at = now + SWEEP_S
        old = self._state.wall.posix(now) - UPLOADS_KEPT_S
        for row in list(self._holders.values()):
            is_over = row.results or row.touched < old or (row.bag, row.owner) not in self._state.file_needs
            if is_over and not self._is_needed(row) and row.number not in self._dropping:
                self._dropping.add(row.number)
                self._operations.add(Operation("", self._drop(row), order=True))

    def release(self, bag: str, owner: str, digests: Sequence[bytes]) -> int:
        """Drop parts that a bag's tasks do not need any more; its results keep theirs. Return how many bytes go."""
        row, parts = self._holders.get((bag, owner, False)), self._state.journal.parts
        if row is None or row.number in self._dropping:
            return 0
        dropped = parts.drop(row, parts.held(row, digests))
        self._state.quotas.extended(owner, 0, -dropped.size - HOLD_BYTES * dropped.rows)
        return dropped.size

    def _is_needed(self, row: HolderRow) -> bool:
        """Whether its bag is there and, of what its tasks need, whether some may still run."""
        bag = self._state.book.by_id.get(row.bag)
        if bag is None or bag.row.owner != row.owner:
            return False
        return row.results or bag.deserted or not bag.complete

    def _drop(self, row: HolderRow) -> Generator[int, None, dict[str, object]]:
        del self._holders[row.key]
        if not row.results:
            self._of_owner[row.owner] -= 1
            self._state.file_needs.pop((row.bag, row.owner), None)
        while (dropped := self._state.journal.parts.drop_some(row, DROPPED_PARTS)).rows:
            self._state.quotas.extended(row.owner, 0, -dropped.size - HOLD_BYTES * dropped.rows)
            yield DROP_UNITS
        self._dropping.discard(row.number)
        return {}
