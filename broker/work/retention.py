"""Forgets finished bags after some days, so that neither the disk nor the broker's memory fills up. Pure.

Rule 1: a bag's days begin when it is complete: all its tasks have ended, and no more can be added.
Rule 2: calls that a program submitted one by one have a day, unless it asked for more: only it can collect them, and it
says when it has them.
Rule 3: a broker that was off for more than a day forgets nothing in its first day. The clock of its machine may be
wrong at first, and people who were away, too, still have time to fetch their results.
"""

from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.operations import Operation, Operations, Slices
from deskgrid.broker.work.orders import Orders

# How often all bags are checked. Seconds.
LOOK_S = 60.0
DAY_S = 86_400.0
CALLS_DAYS = 1.0
# If a bag seems to have ended before this software existed, the clock was wrong then. POSIX seconds: the year 2020.
EARLIEST = 1_577_836_800.0
# Bags checked in one slice. Most bags cost next to nothing. A bag that is forgotten, or that was complete when the
# broker started, costs `BAG_UNITS`.
SLICE_BAGS = 2_000
BAG_UNITS = 200


class Retention:
    """Forgets the bags of a state ``days`` after they ended; None: never. ``now`` is the broker's clock."""

    def __init__(self, state: BrokerState, operations: Operations, orders: Orders, days: float | None) -> None:
        self.days = days
        self._state = state
        self._operations = operations
        self._orders = orders
        known = state.journal.recovery.last_known()
        was_off = known > 0.0 and state.wall.posix(0.0) - known > DAY_S
        self._look_at = DAY_S * min(1.0, days or 0.0) if was_off else 0.0
        self._looks = self._has_looked = False
        # When each complete bag became complete, by its number; negative if that was before the broker started.
        self._ended: dict[int, float] = {}

    def look(self, now: float) -> None:
        """Begin a check of all bags, if one is due."""
        if self.days is None or self._looks or now < self._look_at:
            return
        # If bags are kept for a short time only, checks have to be frequent.
        self._look_at = now + min(LOOK_S, self.days * DAY_S)
        self._looks = True
        self._operations.add(Operation("", self._look(self.days, now), order=True))

    def _look(self, days: float, now: float) -> Slices:
        book, before, units = self._state.book, self._ended, 0
        self._ended = {}
        for place, bag in enumerate(list(book.by_number.values()), start=1):
            if bag.complete and book.by_number.get(bag.row.number) is bag:
                if (known := before.get(bag.row.number)) is None:
                    units += 0 if self._has_looked else BAG_UNITS
                    known = now if self._has_looked else self._since(bag, now)
                self._ended[bag.row.number] = known
                its = min(days, CALLS_DAYS) if bag.is_calls else days
                if known + its * DAY_S <= now and not self._orders.gates.has_followers(bag):
                    units += BAG_UNITS
                    self._expire(bag, its)
            if place % SLICE_BAGS == 0 or units >= SLICE_BAGS:
                yield units + SLICE_BAGS // 4
                units = 0
        self._looks, self._has_looked = False, True
        return {}

    def _expire(self, bag: OpenBag, days: float) -> None:
        self._state.note("bag-expired", bag=bag.row.id, name=bag.row.name, owner=bag.row.owner, days=days)
        self._orders.forget(bag, f"bag {bag.row.id} was forgotten {days:g} days after it ended")

    def _since(self, bag: OpenBag, now: float) -> float:
        """When a bag became complete, if it was complete already when the broker started."""
        ended = self._state.journal.recovery.last_ended(bag.row.number)
        return now if ended is None or ended < EARLIEST else min(now, self._state.wall.broker_time(ended))
