"""One run of a forecast for grids with parallel tasks, and for tasks that need memory or labels.

Rule 1: at each moment parallel tasks come first, and single tasks get what is left (`deskgrid.scheduler.gang_placing`).
A gang takes all its slots at once, of PCs of one site that have its labels and memory, and whose windows last.
Rule 2: while the first in turn waits, slots are reserved for it, from the time at which it can begin. Other tasks run
there only as long as they do not delay it (EASY backfilling).
Rule 3: runs are cheap, too. While many gangs wait, the slots of one run a block of them, one after the other.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from math import ceil, inf
from random import Random
from typing import NamedTuple

from deskgrid.scheduler.forecast.gang_plan import GangPlan, Size
from deskgrid.scheduler.forecast.gang_slots import SlotRun
from deskgrid.scheduler.forecast.picture import PC, Running
from deskgrid.scheduler.forecast.plan import BLOCK
from deskgrid.scheduler.forecast.singles import OpenWindow
from deskgrid.scheduler.parallel.need import Need
from deskgrid.scheduler.parallel.sizes.rigid import working_set
from deskgrid.scheduler.parallel.sizes.share import MOST
from deskgrid.scheduler.parallel.where.alike import ENOUGH

# No slot: something else happens at that time.
_NO_SLOT = -1


class _Choice(NamedTuple):
    """PCs with the ranks that begin on them. ``speed``: of the slowest. ``needs_s``: what their windows have left."""

    pcs: list[tuple[int, int]]
    ranks: int
    speed: float
    needs_s: float


class _Lane(NamedTuple):
    """Slots that run gangs of a kind, one after the other. ``lasts``: the windows that they have in common.

    ``speed``, ``needs_s``: as `_Choice` has them, but for so many ``ranks``.
    """

    kind: int
    slots: list[int]
    lasts: OpenWindow
    ranks: int
    speed: float
    needs_s: float


class _Reserved(NamedTuple):
    """Slots that are kept from ``at`` on for the next gang of a kind."""

    kind: int
    at: float
    slots: frozenset[int]


class GangRun(SlotRun):
    """One run: what happens on its slots, and which gangs and single tasks begin on those that are idle."""

    def __init__(self, plan: GangPlan, own: Random, common: float) -> None:
        super().__init__(plan, own, common)
        # By the first of its slots: a lane.
        self._lanes: dict[int, _Lane] = {}
        # By bag: how many of its gangs run.
        self._running = Counter[int]()
        # Kinds of gangs that wait, in turn; and what is reserved for the first.
        self._gangs: list[tuple[int, int]] = []
        self._reserved: _Reserved | None = None
        # Whether idle slots may find something to do.
        self._retry = False

    def ends(self) -> list[float]:
        """When each bag ends."""
        for kind, count in enumerate(self._waits):
            if count:
                self._waits_for_a_slot(kind)
        heap = self._heap
        for at, slot in self._begun():
            self._occupy([slot], at)
        for at in {*self._plan.begins.values(), *self._plan.ready.values()}:
            heappush(heap, (at, _NO_SLOT))
        while heap and (self._gangs or any(self._pending)):
            now, fresh = heap[0][0], dict[int, None]()
            while heap and heap[0][0] <= now:
                at, slot = heappop(heap)
                if slot == _NO_SLOT:
                    self._retry = True
                elif self._next[slot] == at and not ((lane := self._lanes.get(slot)) and self._goes_on(lane, now)):
                    fresh |= {each: None for each in self._ended(slot) if self._is_free(each, now)}
            if fresh or self._retry or self._plan.caps.totals:
                self._place(now, fresh)
        for kind in chain([kind for _, kind in self._gangs], *self._pending):
            self._ends[self._plan.kinds[kind].bag] = inf
        return self._ends

    # --- what happens at a moment ------------------------------------------------------------------------------------

    def _ended(self, slot: int) -> Sequence[int]:
        """The slots that are free with this one."""
        lane = self._lanes.pop(slot, None)
        if lane is None:
            return (slot,)
        self._running[self._plan.kinds[lane.kind].bag] -= 1
        return lane.slots

    def _place(self, now: float, fresh: Iterable[int]) -> None:
        """All that happens at a moment has happened: gangs begin, and then single tasks."""
        before, self._retry, retry = self._reserved, False, self._retry
        if self._gangs:
            self._place_gangs(now)
        if any(self._pending):
            if retry or self._reserved != before or self._in_use.any_room(self._pending_bags(), now):
                idle = [slot for its in self._idle for slots in its.values() for slot in slots]
            else:
                idle = [slot for slot in fresh if self._is_idle(slot)]
            for slot in idle:
                self._place_single(slot, now)
        for slot in fresh:
            window = self._open[slot]
            if window is not None and self._is_idle(slot):
                self._occupy([slot], min(window[1:]))

    # --- single tasks ------------------------------------------------------------------------------------------------

    def _place_single(self, slot: int, now: float) -> None:
        window, kept, pc = self._open[slot], self._reserved, self._plan.slots[slot]
        assert window is not None  # it is idle
        if kept is not None and slot in kept.slots:
            window = window[0], min(window[1], kept.at), window[2]
        found = self._serve(slot, now, window)
        if found is None:
            return
        end, kind = found
        self._take_idle(pc, slot)
        self._hold(slot, self._plan.needs[kind].memory)
        self._occupy([slot], end)

    # --- gangs -------------------------------------------------------------------------------------------------------

    def _waits_for_a_slot(self, kind: int) -> None:
        plan, need, bag = self._plan, self._plan.needs[kind], self._plan.kinds[kind].bag
        if not plan.most(kind, need.least) or bag in plan.barred:
            self._ends[bag] = inf
        elif not need.parallel:
            self._retry = True
            super()._waits_for_a_slot(kind)
        elif need.seconds(plan.kinds[kind].needs_s, need.most) >= plan.longest:
            self._ends[bag] = inf
        elif (entry := (plan.turns[kind], kind)) not in self._gangs:
            insort(self._gangs, entry)

    def _place_gangs(self, now: float) -> None:
        """Those in turn begin; while the first of them waits, others that do not delay it."""
        plan, waits, first = self._plan, self._waits, True
        kept = self._reserved
        if kept is not None and kept.at <= now:
            kept = None
        self._reserved = None
        for entry in list(self._gangs):
            kind = entry[1]
            bag = plan.bags[plan.kinds[kind].bag]
            if bag.begins > now:
                continue
            is_full = False
            while waits[kind] or kind in self._again:
                is_full = not self._in_use.room(plan.kinds[kind].bag, now)
                if is_full or not self._begin(kind, now):
                    break
            else:
                self._gangs.remove(entry)
                continue
            if first and not is_full:
                first = False
                if len(self._gangs) > 1 or any(self._pending):
                    self._reserved = self._keeps(kept, kind, now)
                if not plan.backfills:
                    return

    def _begin(self, kind: int, now: float) -> bool:
        """A gang of a kind begins, and others after it on the same slots; or none can."""
        need = self._plan.needs[kind]
        least, most = self._size(kind)
        found = [
            choice
            for site, count in enumerate(self._count)
            if count >= least * need.slots and (choice := self._choose(site, kind, least, most, now)) is not None
        ]
        if not found:
            return False
        choice = min(found, key=lambda each: each.needs_s)
        slots, lasts, speed = list[int](), (now, inf, inf), choice.speed / need.seconds(1.0, choice.ranks)
        for pc, ranks in choice.pcs:
            its = self._free_on(pc, now + choice.needs_s)[: ranks * need.slots]
            for slot in its:
                self._take_idle(pc, slot)
            self._hold(its[0], ranks * need.memory)
            slots += its
            window = self._open[its[0]]
            assert window is not None  # it is idle
            lasts = now, min(lasts[1], window[1]), min(lasts[2], window[2])
        self._run_lane(_Lane(kind, slots, lasts, choice.ranks, speed, choice.needs_s), now)
        return True

    def _run_lane(self, lane: _Lane, now: float) -> None:
        """Gangs run on a lane."""
        kind, slots, lasts, ranks, speed, needs_s = lane
        bag = self._plan.kinds[kind].bag
        if kind in self._again:
            end = self._once_more(kind, now, lasts, speed)
        else:
            most = self._plan.most(kind, ranks)
            block = BLOCK / min(most, self._plan.caps.at_once.get(bag, most))
            end = self._block(kind, needs_s, now, lasts, speed=speed, block=block)
        self._lanes[slots[0]] = lane
        self._running[bag] += 1
        self._in_use.take(bag, end)
        self._occupy(slots, end)

    def _goes_on(self, lane: _Lane, now: float) -> bool:
        """Whether the next gangs of a lane's kind follow there: if it is their turn, and as many ranks as they get."""
        kind = lane.kind
        if not (self._gangs and self._gangs[0][1] == kind and self._waits[kind] and kind not in self._again):
            return False
        least, most = self._size(kind)
        if now + lane.needs_s >= lane.lasts[1] or now >= lane.lasts[2] or not least <= lane.ranks <= most:
            return False
        if not self._in_use.room(self._plan.kinds[kind].bag, now):
            return False
        self._running[self._plan.kinds[kind].bag] -= 1
        self._run_lane(lane, now)
        if not self._waits[kind] and kind not in self._again:
            del self._gangs[0]
            self._retry = True
        self._retry |= self._reserved is not None
        return True

    def _free_on(self, pc: int, until: float) -> list[int]:
        """The idle slots of a PC that nobody needs before ``until``."""
        idle, kept = self._idle[self._plan.site_of[pc]].get(pc, []), self._reserved
        return idle if kept is None or until <= kept.at else [slot for slot in idle if slot not in kept.slots]

    def _size(self, kind: int) -> Size:
        """With how many ranks a gang begins, at least and at most: those of the default policy."""
        plan, need = self._plan, self._plan.needs[kind]
        if (fixed := plan.sizes[kind]) is not None:
            return fixed
        jobs = sum([self._waits[kind] for _, kind in self._gangs]) + self._running.total()
        power = min(plan.power / (jobs + 1), MOST * plan.largest)
        each = need.slots * plan.power / len(plan.slots)
        most = max(need.least, min(ceil(power / each), working_set(need), max(plan.rooms(kind), default=0)))
        return max(need.least, ceil(ENOUGH * most)), most

    def _choose(self, site: int, kind: int, least: int, most: int, now: float) -> _Choice | None:
        """Where a gang begins at a site: on the fastest PCs whose windows last."""
        plan, need = self._plan, self._plan.needs[kind]
        each_s = self._again[kind][-1][1] if kind in self._again else plan.kinds[kind].needs_s
        left_out = {pc for (bag, pc), at in plan.ready.items() if bag == plan.kinds[kind].bag and at > now}
        while True:
            chosen, ranks, speed = list[tuple[int, int]](), 0, inf
            for pc in self._by_speed(site, left_out):
                if count := min(self._room(pc, need), most - ranks):
                    chosen.append((pc, count))
                    ranks += count
                    speed = min(speed, plan.pcs[pc].speed)
                    if ranks == most:
                        break
            if ranks < least:
                return None
            needs_s = need.seconds(each_s, ranks) / speed
            short = {pc for pc, its in chosen if not self._lasts(pc, its, need, now + needs_s)}
            if not short:
                return _Choice(chosen, ranks, speed, needs_s)
            left_out |= short

    def _lasts(self, pc: int, ranks: int, need: Need, end: float) -> bool:
        """Whether so many ranks that begin on a PC now may run there until ``end``."""
        window = self._open[self._idle[self._plan.site_of[pc]][pc][0]]
        return window is not None and end < window[1] and len(self._free_on(pc, end)) >= ranks * need.slots

    def _keeps(self, kept: _Reserved | None, kind: int, now: float) -> _Reserved | None:
        """What is reserved for a kind that waits; nothing if as many of it run as can: one follows another then."""
        if self._running[self._plan.kinds[kind].bag] >= self._plan.most(kind, self._size(kind)[0]):
            return None
        return kept if kept is not None and kept.kind == kind else self._reserve(kind, now)

    def _reserve(self, kind: int, now: float) -> _Reserved | None:
        """The slots that are free first for a gang of a kind; None: of no site, as far as windows are known."""
        plan, need = self._plan, self._plan.needs[kind]
        best: _Reserved | None = None
        for its in plan.sites:
            rows = list[tuple[float, list[int]]]()
            for pc in its:
                if room := plan.seats(plan.pcs[pc], need):
                    free = sorted([(self._free_at(slot, kind, now), slot) for slot in plan.slots_of[pc]])
                    ranks = [free[first : first + need.slots] for first in range(0, room * need.slots, need.slots)]
                    rows += [(rank[-1][0], [slot for _, slot in rank]) for rank in ranks]
            rows.sort()
            if len(rows) >= need.least and (at := rows[need.least - 1][0]) < (inf if best is None else best.at):
                # Those that are free last, so that others can use those that are free before.
                last = [slots for ready, slots in rows if ready <= at][-need.least :]
                best = _Reserved(kind, at, frozenset(chain.from_iterable(last)))
        return best

    def _free_at(self, slot: int, kind: int, now: float) -> float:
        """When a gang of a kind could begin on a slot."""
        window, pc = self._open[slot], self._plan.slots[slot]
        if window is None:
            return inf
        free = now if self._is_idle(slot) else max(self._next[slot], window[0])
        free = max(free, self._plan.ready.get((self._plan.kinds[kind].bag, pc), 0.0))
        need = self._plan.needs[kind]
        needs_s = need.seconds(self._plan.kinds[kind].needs_s, need.least) / self._plan.speeds[slot]
        number = self._at[slot]
        while free + needs_s >= window[1]:
            number += 1
            window = self._window(pc, number)
            if window is None:
                return inf
            free = max(free, window[0])
        return free

    # --- what runs at first ------------------------------------------------------------------------------------------

    def _begun(self) -> Iterator[tuple[float, int]]:
        """When each slot is free, after the task that runs on it."""
        gangs: dict[int, list[tuple[int, PC, Running, OpenWindow]]] = {}
        for pc, slots in zip(self._plan.pcs, self._plan.slots_of, strict=True):
            for place, slot in enumerate(slots):
                self._next_window(slot)
                window = self._open[slot]
                if window is None:
                    continue
                running = pc.running[place] if place < len(pc.running) else None
                if running is None:
                    yield max(0.0, window[0]), slot
                elif running.gang:
                    gangs.setdefault(running.gang, []).append((slot, pc, running, window))
                else:
                    kind = self._plan.kind_of[self._plan.places[running.bag], running.group]
                    self._hold(slot, self._plan.needs[kind].memory)
                    yield self._let_end(slot, pc, running, window), slot
        for its in gangs.values():
            yield self._let_gang_end(its), its[0][0]

    def _let_gang_end(self, its: list[tuple[int, PC, Running, OpenWindow]]) -> float:
        """When a gang that runs ends, or is interrupted."""
        plan, (slot, _, running, _) = self._plan, its[0]
        bag = plan.places[running.bag]
        kind = plan.kind_of[bag, running.group]
        need = plan.needs[kind]
        ranks = max(1, len(its) // need.slots)
        lasts = 0.0, min([window[1] for *_, window in its]), min([window[2] for *_, window in its])
        speed = min([pc.speed for _, pc, *_ in its]) / need.seconds(1.0, ranks)
        lane = _Lane(kind, [each for each, *_ in its], lasts, ranks, speed, plan.kinds[kind].needs_s / speed)
        for each in lane.slots[:: need.slots]:
            self._hold(each, need.memory)
        self._lanes[slot] = lane
        self._running[bag] += 1
        left = self._left(plan.kinds[kind].points, self._factors[kind][0] / speed, running.elapsed)
        if left > lasts[2]:
            ran = running.elapsed
            self._interrupted(kind, (ran + left) * speed, (ran + lasts[2]) * speed)
        else:
            self._ends[bag] = max(self._ends[bag], left)
        end = min(left, lasts[2])
        self._in_use.take(bag, end)
        for each in lane.slots:
            self._next[each] = end
        return end
