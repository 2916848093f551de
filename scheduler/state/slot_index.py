"""Slots with room, by remaining time.

Remaining time (paper, Section 2.2): tl = ru - (et_running - elapsed) - sum of et_queued. While a task runs within its
prediction, the uptime falls as fast as the elapsed time grows, and tl stands still. When the slot is idle, or its task
is overdue, tl falls with the clock. So an index keeps two sorted lists: *anchored* (tl itself) and *falling* (tl +
now). As time passes, only the few entries whose task becomes overdue have to be touched. Both are plain lists.
Inserting or deleting among ten thousand entries takes a microsecond or two, less than any tree takes in Python, and
usually few slots have room.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, islice
from typing import Protocol

from deskgrid.scheduler.model import agree, near

# An index entry: the key, then the load promised already (so that equal slots share the work), then the slot number.
Row = tuple[float, float, int]


class Indexed(Protocol):
    """What an index has of a slot (`deskgrid.scheduler.state.slots.Slot`)."""

    speed: float
    ahead_s: float
    queued_s: float
    rows: list[Row] | None
    row: Row

    @property
    def due(self) -> float: ...

    def left_s(self, now: float) -> float: ...


class SlotIndex:
    """Slots by remaining time, in seconds of speed 1. `SlotTable` puts them in and takes them out.

    The tl of a slot of speed 0.5 falls half as fast. ``others``: the falling slots of other speeds than 1, by speed.
    """

    def __init__(self) -> None:
        self.anchored: list[Row] = []
        self.falling: list[Row] = []
        self.others: dict[float, list[Row]] = {}

    def __len__(self) -> int:
        count = len(self.anchored) + len(self.falling)
        return count + sum(map(len, self.others.values())) if self.others else count

    def rows(self) -> Iterator[Row]:
        """All entries."""
        return chain(self.anchored, self.falling, *self.others.values())

    def tightest(self, limit: float, now: float) -> Row | None:
        """(tl, load, slot number) of the slot with the smallest tl strictly above ``limit``."""
        best = _first_above(self.anchored, limit)
        if (falling := _first_above(self.falling, limit + now)) is not None:
            key, load, number = falling
            row = key - now, load + now, number
            if best is None or row < best:
                best = row
        return self._tightest_of_others(best, limit, now) if self.others else best

    def _tightest_of_others(self, best: Row | None, limit: float, now: float) -> Row | None:
        for speed, rows in self.others.items():
            if (falling := _first_above(rows, limit + now * speed)) is not None:
                key, load, number = falling
                row = key - now * speed, load + now, number
                if best is None or row < best:
                    best = row
        return best

    def above(self, limit: float, now: float) -> Iterator[int]:
        """The numbers of the idle slots with a tl strictly above ``limit``, the tightest first."""
        rows = self.falling  # the tl of an idle slot falls
        found = (number for _, _, number in islice(rows, bisect_right(rows, (limit + now, math.inf, 0)), None))
        if not self.others:
            return found
        falling = [(1.0, rows), *self.others.items()]
        left = sorted([(key - now * speed, number) for speed, rows in falling for key, _, number in rows])
        return (number for tl, number in left if tl > limit)

    def widest(self, now: float) -> float:
        """The largest tl, or minus infinity."""
        anchored = self.anchored[-1][0] if self.anchored else -math.inf
        falling = self.falling[-1][0] - now if self.falling else -math.inf
        if self.others:
            falling = max(falling, *(rows[-1][0] - now * s if rows else -math.inf for s, rows in self.others.items()))
        return max(anchored, falling)

    def at(self, place: int) -> int:
        """The slot number at ``place`` of ``len(self)``: for a policy that ignores remaining time."""
        if place < len(self.anchored):
            return int(self.anchored[place][2])
        place -= len(self.anchored)
        if place < len(self.falling):
            return int(self.falling[place][2])
        return next(islice(chain(*self.others.values()), place - len(self.falling), None))[2]

    def check(self, slots: Mapping[int, Indexed], alarms: Collection[tuple[float, int]], now: float) -> None:
        """Raise `InvariantBroken` unless ``slots`` are here, by their tl. ``alarms``: the pending (due, slot) pairs."""
        for rows in (self.anchored, self.falling, *self.others.values()):
            agree("rows in order", rows, sorted(rows))
        agree("slots with room", sorted(number for *_, number in self.rows()), sorted(slots))
        for number, slot in slots.items():
            row, anchored, speed = slot.row, slot.rows is self.anchored, slot.speed
            falling = self.falling if speed == 1.0 else self.others.get(speed, [])
            agree(f"rows of slot {number}", (self.anchored if anchored else falling).count(row), 1)
            # An anchored slot stays anchored until the first pass after its task is due. An alarm triggers the change.
            moves = (slot.due, number) not in alarms if anchored else slot.due > now
            agree(f"slot {number} moves without notice", moves, False)
            at = min(now, slot.due) if anchored else now
            near(f"tl of slot {number}", row[0] - (0.0 if anchored else now * speed), slot.left_s(at))
            load = slot.ahead_s + slot.queued_s
            near(f"load of slot {number}", row[1], load + (slot.due if anchored else 0.0))


def _first_above(rows: list[Row], key: float) -> Row | None:
    """The first row with a key strictly above ``key``: usually the first of all, if tasks are short beside windows."""
    if not rows:
        return None
    if rows[0][0] > key:
        return rows[0]
    if rows[-1][0] <= key:
        return None
    return rows[bisect_right(rows, (key, math.inf, 0))]
