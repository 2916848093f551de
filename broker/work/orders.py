"""Orders that change bags of any size: cancel, forget, new predictions. Other messages are handled between the slices.

Rule 1: an order to cancel or forget a whole bag is recorded with its first slice, and a restart goes on with it
(`Orders.resume`). Orders that name items are not recorded: the size of their message limits them, and clients repeat
them.
Rule 2: a forgotten bag is gone for everybody at once; its rows on the disk are deleted in slices.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.store.journal import JournalFull
from deskgrid.broker.store.rows import HOLD, Order
from deskgrid.broker.work.checkpoints import drop_ended
from deskgrid.broker.work.gates import Gates
from deskgrid.broker.work.operations import AskError, Operation, Operations, Slices
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.queues.task_ranges import Spans, spans_of

# Units in one slice of a cancel order. A waiting task costs one unit; each range of tasks, and each task at a worker,
# costs more. Batches are cut into pieces of `PIECE_TASKS`.
CANCEL_UNITS = 10_000
PIECE_TASKS = 2_500
RANGE_UNITS = 15
BOUND_UNITS = 20
# The most predictions that one slice changes, the most batches whose predictions it writes, and the units of a
# prediction.
PREDICTIONS = 1_000
PREDICTED_BATCHES = 8
PREDICTION_UNITS = 10
# The cost of a slice that deletes rows of a bag.
DROPPING_UNITS = 8_000

_ORDERS: dict[bool, Order] = {False: "cancel", True: "cancel waiting"}
_NOTES: dict[Order, str] = {"cancel": "it is being cancelled", "cancel waiting": "what does not run is being cancelled"}


class Orders:
    """Makes each order a generator of slices for `deskgrid.broker.work.operations`."""

    def __init__(self, state: BrokerState, operations: Operations) -> None:
        self._state = state
        self._operations = operations
        self.gates = Gates(state, self)

    def resume(self) -> None:
        """Go on with orders that an earlier life of the broker began. Call this after the bags are restored."""
        for number, what in self._state.journal.recovery.orders():
            if number in self._state.broken_orders or what == "pause" or what.startswith(HOLD):
                continue
            bag = self._state.book.by_number.get(number)
            if what == "forget":
                self.begin("", self._dropping(number))
            elif bag is not None:
                self.begin(bag.row.owner, self._cancel_all(bag, what == "cancel waiting"))
        self.gates.decide_all()

    @contextmanager
    def _given_up(self, number: int) -> Iterator[None]:
        """If the order on this bag fails, do not go on with it until the broker is restarted."""
        try:
            yield
        except (JournalFull, MemoryError):
            raise
        except Exception:
            self._state.broken_orders.add(number)
            raise

    def begin(self, owner: str, slices: Slices) -> None:
        """Carry out an order that nobody waits for."""
        self._operations.add(Operation(owner, slices, order=True))

    # --- cancel ------------------------------------------------------------------------------------------------------

    def cancel(self, bag: OpenBag, items: Sequence[int] | None, spare: bool) -> Slices:
        """Cancel some items of a bag, or cancel all and close it; ``spare``: except tasks that are at a worker."""
        if items is None:
            return self._cancel_all(bag, spare)
        self.check_items(bag, items)
        return self._cancel(bag, spans_of(sorted(set(items))), spare)

    def _cancel_all(self, bag: OpenBag, spare: bool) -> Slices:
        journal, number, what = self._state.journal, bag.row.number, _ORDERS[spare]
        if not bag.closed or bag.deserted:
            bag.closed, bag.deserted = True, False
            journal.close_bag(number)
            self._state.fresh.add(number)
        journal.order(number, what)
        bag.under_way = _NOTES[what]
        with self._given_up(number):
            found = yield from self._cancel(bag, [(0, bag.total)], spare)
        bag.under_way = ""
        journal.carried_out(number, what)
        return found

    def _cancel(self, bag: OpenBag, spans: Spans, spare: bool) -> Slices:
        cancelled, units, chosen = 0, 0, list[tuple[int, int, int]]()
        for cost, piece in self._pieces(bag, spans, spare):
            units += cost
            chosen += piece
            if units >= CANCEL_UNITS:
                cancelled += self._cancel_now(bag, chosen)
                yield units
                units, chosen = 0, []
                if self._state.book.by_number.get(bag.row.number) is not bag:
                    return {"cancelled": cancelled}  # all its tasks ended, and somebody forgot it
        cancelled += self._cancel_now(bag, chosen)
        yield units
        return {"cancelled": cancelled}

    def _pieces(self, bag: OpenBag, spans: Spans, spare: bool) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
        """The tasks to cancel in these ranges of items, in pieces: units, and (first task, how many, first item)."""
        scheduler = self._state.scheduler
        for first, count, item in bag.pieces(spans):
            for start in range(first, first + count, PIECE_TASKS):
                size = min(PIECE_TASKS, first + count - start)
                found = scheduler.open_spans([(start, size)], spare)
                units = size + RANGE_UNITS * len(found) + BOUND_UNITS * scheduler.bound_tasks(start, size)
                yield units, [(task, many, item + task - first) for task, many in found]

    def _cancel_now(self, bag: OpenBag, chosen: Sequence[tuple[int, int, int]]) -> int:
        """Cancel ranges of tasks, record that, and return how many tasks there were."""
        if not chosen:
            return 0
        state, now = self._state, self._state.now
        tasks = _numbers((first, many) for first, many, _ in chosen)
        items = _numbers((item, many) for _, many, item in chosen)
        state.pending += state.scheduler.handle(ev.TasksCancelled([(first, many) for first, many, _ in chosen]), now)
        state.journal.add_cancelled(bag.row.number, tasks, items, state.wall.posix(now))
        if bag.remembered:
            bag.remembered.difference_update(tasks)
        drop_ended(state, bag, tasks)
        state.settled(bag, len(tasks))
        return len(tasks)

    @staticmethod
    def check_items(bag: OpenBag, items: Sequence[int]) -> None:
        """Raise `AskError` unless a bag has all these items."""
        last = max(items, default=-1)
        if last >= bag.total:
            raise AskError(f"bag {bag.row.id} has no item {last}: items are numbered from 0, and it has {bag.total:,}")

    # --- forget ------------------------------------------------------------------------------------------------------

    def forget(self, bag: OpenBag, why: str) -> None:
        """Forget a complete bag; its watchers are told ``why``."""
        self.gates.forget(bag)
        self._state.forget(bag, why)
        self.begin(bag.row.owner, self._dropping(bag.row.number, bag.row.template))

    def _dropping(self, number: int, template: str = "") -> Slices:
        """Delete a forgotten bag. ``template``: its digest; unknown after a restart, when templates do not count."""
        with self._given_up(number):
            while self._state.journal.purge.some(number):
                yield DROPPING_UNITS
        if self._state.journal.template_kind(template) is None:
            self._state.quotas.template_deleted(template)
        return {}

    # --- predictions -------------------------------------------------------------------------------------------------

    def predict(self, bag: OpenBag, items: Sequence[int], runtimes: Sequence[float]) -> Slices:
        """Change the predictions of some items. Raises `AskError`."""
        if len(items) != len(runtimes):
            raise AskError(f"the order has {len(items)} items and {len(runtimes)} runtimes")
        self.check_items(bag, items)
        # If an item is named twice, the last runtime counts. The items are sorted, so that a slice touches few batches.
        news = sorted(dict(zip(items, map(float, runtimes), strict=True)).items())
        yield len(news)
        start = 0
        while start < len(news) and self._state.book.by_number.get(bag.row.number) is bag:
            if self._state.scheduler.predicting:
                yield PREDICTION_UNITS * PREDICTIONS  # earlier predictions are still under way
                continue
            chosen, rows = dict[int, float](), dict[int, int]()
            for item, runtime in news[start : start + PREDICTIONS]:
                batch = bag.batch_of(item)
                task = batch.first + item - batch.start
                first, count = batch.row_of(task)
                if len(rows) == PREDICTED_BATCHES and first not in rows:
                    break
                rows[first] = count
                chosen[task] = runtime
            start += len(chosen)
            yield self._predict_now(chosen, rows)
        return {}

    def _predict_now(self, news: dict[int, float], rows: Mapping[int, int]) -> int:
        """Change the predictions of tasks, and write those of ``rows``: first tasks, and how many tasks each has."""
        state = self._state
        state.pending += state.scheduler.handle(ev.RuntimesUpdated(list(news), list(news.values())), state.now)
        for first, count in rows.items():
            state.journal.predict(first, state.scheduler.runtimes(first, count))
        return PREDICTION_UNITS * len(news)


def _numbers(spans: Iterable[tuple[int, int]]) -> list[int]:
    return list(chain.from_iterable(range(first, first + many) for first, many in spans))
