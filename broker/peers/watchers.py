"""Requests for results that wait for news of their bags, and receipts that travel with the results.

Rule 1: a request is answered when its bag has results that it has not seen, or will have no more.
Rule 2: no result is read from the journal for a peer without room. It is told when it has read its earlier messages.
"""

from collections.abc import Iterable

from deskgrid import wire
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.operations import LATER, pending

# A client that waits for results gets the receipt for a batch with the next results, or after this time: waking up
# costs a program more than reading a receipt. Seconds.
RECEIPT_S = 0.005
# The most waiting requests for the results of one bag: from one client, which needs only one, and from all clients.
# Each request is checked when a result arrives.
WATCHES_LIMIT = 8
WATCHERS_LIMIT = 1_000


class Watchers:
    """The requests of all clients are in their bags (`OpenBag.watchers`); here is whom to tell next."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        # Receipts that have not been sent, by peer and bag, each with the time it was made.
        self.receipts: dict[tuple[bytes, str], list[tuple[wire.Accepted, float]]] = {}
        # Requests that came since the last `tell`: the number of the bag, peer and request.
        self._new: list[tuple[int, bytes, int]] = []
        # The numbers of the bags of which a peer without room is to be told.
        self._crowded: dict[bytes, set[int]] = {}

    def gone(self, peer: bytes, watched: Iterable[int]) -> None:
        """Forget the requests of a peer, which has ``watched`` bags of these numbers."""
        for number in watched:
            if (bag := self._state.book.by_number.get(number)) is not None:
                bag.watchers.pop(peer, None)
        self._crowded.pop(peer, None)

    # --- receipts ----------------------------------------------------------------------------------------------------

    def owe(self, peer: bytes, bag: str, receipt: wire.Accepted, now: float) -> None:
        """Send a receipt with the next results of the bag, or soon."""
        self.receipts.setdefault((peer, bag), []).append((receipt, now))

    def send_receipts(self, now: float) -> None:
        """Send all receipts except those that still wait to travel with results."""
        receipts, self.receipts = self.receipts, {}
        for (peer, bag_id), its in receipts.items():
            bag = self._state.book.by_id.get(bag_id)
            # The first is the oldest; the others go with it.
            if bag is not None and now < its[0][1] + RECEIPT_S and peer in bag.watchers:
                self.receipts[peer, bag_id] = its
            else:
                for receipt, _ in its:
                    self._state.send(peer, receipt)
                    if bag is not None:
                        bag.sent_note = receipt.note or bag.sent_note

    def _riding_receipts(self, peer: bytes, bag: OpenBag) -> tuple[int, ...]:
        """Take the receipts that can travel with a bag's results: all of them, or none if one has a new note."""
        its = self.receipts.get((peer, bag.row.id), ())
        if any(receipt.note not in ("", bag.sent_note) for receipt, _ in its):
            return ()
        self.receipts.pop((peer, bag.row.id), None)
        return tuple([receipt.request for receipt, _ in its])

    # --- results -----------------------------------------------------------------------------------------------------

    def watch(self, peer: bytes, bag: OpenBag, watch: wire.Watch) -> str:
        """Keep a request until `tell` can answer it. Returns why it is refused; empty if it is not."""
        its = bag.watchers.get(peer, {})
        # A repeated request replaces the earlier one.
        if watch.request not in its:
            if len(its) >= WATCHES_LIMIT:
                return pending(f"{WATCHES_LIMIT} requests for the results of bag {watch.bag}")
            if sum(map(len, bag.watchers.values())) >= WATCHERS_LIMIT:
                return pending(f"{WATCHERS_LIMIT:,} requests of all clients for the results of bag {watch.bag}", LATER)
        bag.watchers.setdefault(peer, its)[watch.request] = watch.after
        self._new.append((bag.row.number, peer, watch.request))
        return ""

    def tell(self, now: float) -> None:
        """Answer the watchers of bags with news, and send receipts."""
        fresh, self._state.fresh = self._state.fresh, set()
        new, self._new = self._new, []
        for peer in [peer for peer in self._crowded if self._state.has_room(peer)]:
            for number in self._crowded.pop(peer):
                self._tell(number, peer)
        for number in fresh:
            bag = self._state.book.by_number.get(number)
            for peer in list(bag.watchers) if bag is not None else ():
                self._tell(number, peer)
        for number, peer, request in new:
            if number not in fresh:
                self._tell(number, peer, request)
        if self.receipts:
            self.send_receipts(now)

    def _tell(self, number: int, peer: bytes, only: int | None = None) -> None:
        """Answer the requests of a peer for the results of a bag, or ``only`` one, as far as there is news and room."""
        bag = self._state.book.by_number.get(number)
        its = bag.watchers.get(peer) if bag is not None else None
        if bag is None or its is None:
            return
        for request in [only] if only is not None else list(its):
            if not self._state.has_room(peer):
                self._crowded.setdefault(peer, set()).add(number)
                return
            if (after := its.get(request)) is not None and self._answer_watcher(bag, peer, request, after):
                del its[request]
        if not its:
            del bag.watchers[peer]

    def _answer_watcher(self, bag: OpenBag, peer: bytes, request: int, after: int) -> bool:
        """Send the results after block ``after``, if there are any or no more will come; whether they were sent."""
        results = self._state.journal.results(bag.row.number, after)
        if results[2] == after and not bag.complete:
            return False
        receipts = self._riding_receipts(peer, bag)
        outcomes = wire.Outcomes(request, bag.row.id, *results, bag.settled, bag.total, bag.closed, receipts)
        self._state.send(peer, outcomes)
        return True
