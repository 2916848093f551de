"""Finished bags are forgotten after some days, so that neither the disk nor the broker's memory fills up. Pure.

Rule: a bag's days begin when it is complete: the last of its tasks has ended, and no more can be added.
"""

from broker.bags import OpenBag
from broker.desk import Desk

# How often it is looked for bags to forget: a look at each bag.
LOOK_S = 60.0
DAY_S = 86_400.0


class Keeping:
    """Forgets the bags of a desk ``days`` after they ended; None: never. ``now`` is the broker's clock."""

    def __init__(self, desk: Desk, days: float | None) -> None:
        self.days = days
        self._desk = desk
        self._look_at = 0.0
        self._has_looked = False
        # When bags that are complete became so, by number; before now for what an earlier broker saw.
        self._ended: dict[int, float] = {}

    def look(self, now: float) -> None:
        """Forget those whose time is up, when it is time to look."""
        if self.days is None or now < self._look_at:
            return
        # Nobody has to wait for a bag much longer than it is kept.
        self._look_at = now + min(LOOK_S, self.days * DAY_S)
        bags = [bag for bag in self._desk.book.by_number.values() if bag.complete]
        self._ended = {bag.row.number: self._since(bag, now) for bag in bags}
        self._has_looked = True
        for bag in bags:
            if self._ended[bag.row.number] + self.days * DAY_S <= now:
                self._desk.note("bag-expired", bag=bag.row.id, name=bag.row.name, owner=bag.row.owner, days=self.days)
                self._desk.forget(bag, f"bag {bag.row.id} was forgotten {self.days:g} days after it ended", now)

    def _since(self, bag: OpenBag, now: float) -> float:
        known = self._ended.get(bag.row.number)
        if known is not None or self._has_looked:
            return now if known is None else known
        # It was complete when the broker was started.
        ended = self._desk.journal.last_ended(bag.row.number)
        return now if ended is None else min(now, ended - self._desk.facts.wall_at_zero)
