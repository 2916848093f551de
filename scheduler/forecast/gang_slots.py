"""The slots of one run with parallel tasks: which are idle or kept, until when others are busy, and what is free.

What begins on them is in `deskgrid.scheduler.forecast.gangs`.
"""

from collections.abc import Iterable, Sequence
from heapq import heappush
from itertools import chain
from math import inf
from random import Random
from typing import NamedTuple

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.forecast.gang_plan import GangPlan
from deskgrid.scheduler.forecast.singles import ForecastRun
from deskgrid.scheduler.need import NOTHING, Amounts, Need
from deskgrid.scheduler.parallel.choices import PLAIN
from deskgrid.scheduler.parallel.hosts import seats


class KeptSlots(NamedTuple):
    """Slots that are kept from ``at`` on for the next gang of a kind."""

    kind: int
    at: float
    slots: frozenset[int]


class SlotRun(ForecastRun):
    """A run whose slots, if they find nothing to do, are idle until their windows close: others may join them."""

    _plan: GangPlan

    def __init__(self, plan: GangPlan, own: Random, common: float) -> None:
        super().__init__(plan, own, common)
        self._suits = self._has_needs
        # When something happens on a slot. Of several entries of a slot, that of `_next` counts.
        self._heap: list[tuple[float, int]] = []
        self._next = [inf] * len(plan.slots)
        # By site, and PC: slots that are idle; and how many they are, by site.
        self._idle: list[dict[int, list[int]]] = [{} for _ in plan.sites]
        self._count = [0] * len(plan.sites)
        # By PC: bytes that are occupied; by slot: those that it frees.
        self._used = [NOTHING] * len(plan.pcs)
        self._holds: dict[int, Amounts] = {}
        # What is reserved for the first gang in turn.
        self._reserved: KeptSlots | None = None

    def _occupy(self, slots: Sequence[int], until: float) -> None:
        """Slots do the same until then, and the first of them says so."""
        for slot in slots:
            self._next[slot] = until
        if until < inf:
            heappush(self._heap, (until, slots[0]))

    def _is_free(self, slot: int, now: float) -> bool:
        """What a slot did is over, or its window is; whether it is idle now."""
        pc = self._plan.slots[slot]
        site = self._plan.site_of[pc]
        if slot in self._holds:
            self._used[pc] -= self._holds.pop(slot)
        its = self._idle[site].setdefault(pc, [])
        if slot in its:
            its.remove(slot)
            self._count[site] -= 1
        while (window := self._open[slot]) is not None and (now >= window[1] or now >= window[2]):
            self._next_window(slot)
        if window is None:
            return False
        if now < window[0]:
            self._occupy([slot], window[0])
            return False
        its.append(slot)
        self._count[site] += 1
        return True

    def _take_idle(self, pc: int, slot: int) -> None:
        site = self._plan.site_of[pc]
        self._idle[site][pc].remove(slot)
        self._count[site] -= 1

    def _is_idle(self, slot: int) -> bool:
        pc = self._plan.slots[slot]
        return slot in self._idle[self._plan.site_of[pc]].get(pc, ())

    def _by_speed(self, site: int, left_out: set[int]) -> Iterable[int]:
        """The PCs of a site that are idle, the fastest first."""
        pcs = self._plan.pcs
        found = [pc for pc, slots in self._idle[site].items() if slots and pc not in left_out]
        return sorted(found, key=lambda pc: -pcs[pc].speed)

    def _room(self, pc: int, need: Need) -> int:
        """How many ranks a PC has room for now."""
        its = self._plan.pcs[pc]
        if not its.labels >= need.labels:
            return 0
        idle = self._idle[self._plan.site_of[pc]][pc]
        return seats(len(idle), its.amounts - self._used[pc], need, PLAIN)

    def _has_needs(self, slot: int, kind: int) -> bool:
        """Whether a slot's PC has what tasks of a kind need."""
        need, place = self._plan.needs[kind], self._plan.slots[slot]
        pc = self._plan.pcs[place]
        return pc.labels >= need.labels and (not need.amounts or (self._used[place] + need.amounts).within(pc.amounts))

    def _hold(self, slot: int, amounts: Amounts) -> None:
        if amounts:
            self._used[self._plan.slots[slot]] += amounts
            self._holds[slot] = amounts

    # --- what is reserved --------------------------------------------------------------------------------------------

    def _free_on(self, pc: int, until: float) -> list[int]:
        """The idle slots of a PC that nobody needs before ``until``."""
        idle, kept = self._idle[self._plan.site_of[pc]].get(pc, []), self._reserved
        return idle if kept is None or until <= kept.at else [slot for slot in idle if slot not in kept.slots]

    def _reserve(self, kind: int, now: float) -> KeptSlots | None:
        """The slots that are free first for a gang of a kind; None: of no site, as far as windows are known."""
        plan, need, bag = self._plan, self._plan.needs[kind], self._plan.kinds[kind].bag
        seconds, width = need.seconds(plan.kinds[kind].needs_s, need.least), need.slots
        best: KeptSlots | None = None
        for its in plan.seated(kind):
            rows = list[tuple[float, list[tuple[float, int]]]]()
            for pc, room in its:
                ready = max(now, plan.ready.get((bag, pc), 0.0)) if plan.ready else now
                free = self._free_from(pc, ready, seconds / plan.pcs[pc].speed)
                rows += [(free[end - 1][0], free[end - width : end]) for end in range(width, room * width + 1, width)]
            rows.sort()
            if len(rows) >= need.least and (at := rows[need.least - 1][0]) < (inf if best is None else best.at):
                # Those that are free last, so that others can use those that are free before.
                last = [slots for ready, slots in rows if ready <= at][-need.least :]
                best = KeptSlots(kind, at, frozenset([slot for _, slot in chain.from_iterable(last)]))
        return best

    def _free_from(self, pc: int, ready: float, needs_s: float) -> list[tuple[float, int]]:
        """When so many seconds could begin on each slot of a PC that is ready then, or is already; ascending."""
        idle, found = self._idle[self._plan.site_of[pc]].get(pc, ()), list[tuple[float, int]]()
        for slot in self._plan.slots_of[pc]:
            window, number = self._open[slot], self._at[slot]
            free = ready if slot in idle else max(ready, self._next[slot])
            while window is not None and not fits(needs_s, window[1] - max(free, window[0])):
                number += 1
                window = self._window(pc, number)
            found.append((inf if window is None else max(free, window[0]), slot))
        found.sort()
        return found
