"""One run of a forecast for grids with parallel tasks, and for tasks that need amounts or labels.

Rule 1: at each moment parallel tasks come first, and single tasks get the rest (`deskgrid.scheduler.placing.gangs`).
A gang takes all its slots at once, of PCs of one site that have its labels and amounts, and whose windows last.
Rule 2: while the first in turn waits, slots are reserved for it, from the time at which it can begin. Other tasks run
there only as long as they do not delay it (EASY backfilling).
Rule 3: one whose patience has ended is the first in turn, by the rules of `deskgrid.scheduler.parallel.patience`.
Rule 4: runs are cheap, too. While many gangs wait, the slots of one run a block of them, one after the other.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from math import ceil, inf
from random import Random
from typing import NamedTuple

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.forecast.gang_plan import GangPlan, Size
from deskgrid.scheduler.forecast.gang_slots import KeptSlots, SlotRun
from deskgrid.scheduler.forecast.picture import PicturePC, PictureTask
from deskgrid.scheduler.forecast.singles import OpenWindow
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.patience import PART
from deskgrid.scheduler.parallel.sizes import MOST
from deskgrid.scheduler.parallel.where import ENOUGH

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

    ``began``: when the one that runs there began. ``speed``, ``needs_s``: as `_Choice` has them, but for so many
    ``ranks``.
    """

    kind: int
    began: float
    slots: list[int]
    lasts: OpenWindow
    ranks: int
    speed: float
    needs_s: float


class GangRun(SlotRun):
    """One run: what happens on its slots, and which gangs and single tasks begin on those that are idle."""

    def __init__(self, plan: GangPlan, own: Random, common: float) -> None:
        super().__init__(plan, own, common)
        # By the first of its slots: a lane.
        self._lanes: dict[int, _Lane] = {}
        # Slots that run single tasks. By bag: how many of its gangs run.
        self._singles = set[int]()
        self._running = Counter[int]()
        # Kinds of gangs that wait, in turn.
        self._gangs: list[tuple[int, int]] = []
        # Whether idle slots may find something to do; and whether they may when something that is used is free.
        self._retry, self._capped = False, bool(plan.caps.totals)

    def ends(self) -> list[float]:
        """When each bag ends."""
        for kind, count in enumerate(self._waits):
            if count:
                self._waits_for_a_slot(kind)
        heap = self._heap
        for at, slot in self._begun():
            self._occupy([slot], at)
        plan = self._plan
        for at in {*plan.begins.values(), *plan.ready.values(), *[at for at in plan.patient if 0.0 < at < inf]}:
            heappush(heap, (at, _NO_SLOT))
        while heap and (self._gangs or any(self._pending)):
            now, fresh = heap[0][0], dict[int, None]()
            while heap and heap[0][0] <= now:
                at, slot = heappop(heap)
                if slot == _NO_SLOT:
                    self._retry = True
                elif self._next[slot] == at:
                    for each in self._ended(slot, now):
                        if self._is_free(each, now):
                            fresh[each] = None
            if fresh or self._retry or self._capped:
                self._place(now, fresh)
        for kind in chain([kind for _, kind in self._gangs], *self._pending):
            self._ends[self._plan.kinds[kind].bag] = inf
        return self._ends

    # --- what happens at a moment ------------------------------------------------------------------------------------

    def _ended(self, slot: int, now: float) -> Sequence[int]:
        """The slots that are free with this one; none if the next gangs of a lane follow there."""
        lane = self._lanes.pop(slot, None)
        if lane is None:
            self._singles.discard(slot)
            return (slot,)
        self._running[self._plan.kinds[lane.kind].bag] -= 1
        return () if self._goes_on(lane, now) else lane.slots

    def _place(self, now: float, fresh: Iterable[int]) -> None:
        """All that happens at a moment has happened: gangs begin, and then single tasks."""
        before, self._retry, retry = self._reserved, False, self._retry
        if self._gangs:
            self._place_gangs(now)
        else:
            self._reserved = None  # the last gang that waited has followed another one
        if any(self._pending):
            if retry or self._reserved != before or (self._capped and self._in_use.any_room(self._pending_bags(), now)):
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
        self._hold(slot, self._plan.needs[kind].amounts)
        self._singles.add(slot)
        self._occupy([slot], end)

    # --- gangs -------------------------------------------------------------------------------------------------------

    def _waits_for_a_slot(self, kind: int) -> None:
        plan, need, bag = self._plan, self._plan.needs[kind], self._plan.kinds[kind].bag
        if not plan.most(kind, need.least) or bag in plan.barred:
            self._ends[bag] = inf
        elif not need.parallel:
            self._retry = True
            super()._waits_for_a_slot(kind)
        elif not fits(need.seconds(plan.kinds[kind].needs_s, need.most), plan.longest):
            self._ends[bag] = inf
        elif (entry := (plan.turns[kind], kind)) not in self._gangs:
            insort(self._gangs, entry)

    def _place_gangs(self, now: float) -> None:
        """Those in turn begin; while the first of them waits, others that do not delay it."""
        plan, kept, reserves = self._plan, self._reserved, True
        if kept is not None and kept.at <= now:
            kept = None
        self._reserved = None
        impatient = self._impatient(now) if now >= plan.impatient_at else None
        while impatient is not None and self._begin(impatient, now):
            impatient = self._impatient(now)
        turns = [kind for _, kind in self._gangs]
        for kind in turns if impatient is None else [impatient, *turns]:
            while self._may_begin(kind, now) and self._begin(kind, now):
                pass
            if reserves and self._may_begin(kind, now):
                reserves = False
                if self._others_may_begin(kind):
                    self._reserved = self._keeps(kept, kind, now)
                if not plan.backfills:
                    return

    def _others_may_begin(self, kind: int) -> bool:
        """Whether some slots are idle, and others than this kind could use them."""
        most = max(self._count)
        if most and any(self._pending):
            return True
        needs = self._plan.needs
        return any(needs[other].least * needs[other].slots <= most for _, other in self._gangs if other != kind)

    def _may_begin(self, kind: int, now: float) -> bool:
        """Whether a gang of a kind waits, and may begin now if there are slots for it."""
        bag = self._plan.kinds[kind].bag
        waits = self._waits[kind] or kind in self._again
        return bool(waits) and self._plan.begins.get(bag, 0.0) <= now and self._in_use.room(bag, now)

    def _impatient(self, now: float) -> int | None:
        """The kind that comes first because its patience ended first, if there is one."""
        patient = self._plan.patient
        waiting = [kind for _, kind in self._gangs if patient[kind] <= now and self._may_begin(kind, now)]
        first = min(waiting, key=patient.__getitem__, default=None)
        if first is None:
            return None
        before = [
            len(lane.slots) for lane in self._lanes.values() if patient[lane.kind] <= min(patient[first], lane.began)
        ]
        up = sum([window is not None and window[0] <= now for window in self._open])
        return first if sum(before) < PART * up else None

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
            self._hold(its[0], need.amounts * ranks)
            slots += its
            window = self._open[its[0]]
            assert window is not None  # it is idle
            lasts = now, min(lasts[1], window[1]), min(lasts[2], window[2])
        if (kept := self._reserved) is not None and not kept.slots.isdisjoint(slots):
            lasts = now, min(lasts[1], kept.at), lasts[2]
        self._run_lane(_Lane(kind, now, slots, lasts, choice.ranks, speed, choice.needs_s), now)
        self._leave_if_none_waits(kind)
        return True

    def _run_lane(self, lane: _Lane, now: float) -> None:
        """Gangs run on a lane."""
        kind, _, slots, lasts, ranks, speed, needs_s = lane
        bag = self._plan.kinds[kind].bag
        if kind in self._again:
            end = self._once_more(kind, now, lasts, speed)
        else:
            plan = self._plan
            if len(self._gangs) > 1 and plan.impatient_at < inf:
                # When the patience of others ends first, it may be their turn: who is next there is decided anew then.
                patient = plan.patient
                others = [max(now, patient[other]) for _, other in self._gangs if patient[other] < patient[kind]]
                lasts = now, min([lasts[1], *[at + needs_s for at in others]]), lasts[2]
            end = self._block(kind, needs_s, now, lasts, speed=speed, block=plan.block(kind, ranks))
        self._lanes[slots[0]] = lane
        self._running[bag] += 1
        self._in_use.take(bag, end)
        self._occupy(slots, end)

    def _goes_on(self, lane: _Lane, now: float) -> bool:
        """Whether the next gangs of a lane's kind follow there: if it is their turn, and as many ranks as they get."""
        kind = lane.kind
        if not self._gangs or kind in self._again or not self._may_begin(kind, now):
            return False
        impatient = self._impatient(now) if now >= self._plan.impatient_at else None
        if kind != (self._gangs[0][1] if impatient is None else impatient):
            return False
        least, most = self._size(kind)
        if not fits(lane.needs_s, lane.lasts[1] - now) or now >= lane.lasts[2] or not least <= lane.ranks <= most:
            return False
        self._run_lane(lane._replace(began=now), now)
        if not self._waits[kind]:
            self._leave_if_none_waits(kind)
        self._retry |= self._reserved is not None
        return True

    def _leave_if_none_waits(self, kind: int) -> None:
        """If no gang of a kind waits any more, others may be the first in turn."""
        if not self._waits[kind] and kind not in self._again:
            self._gangs.remove((self._plan.turns[kind], kind))
            self._retry = True

    def _size(self, kind: int) -> Size:
        """With how many ranks a gang begins, at least and at most: those of the default policy."""
        plan = self._plan
        if (fixed := plan.sizes[kind]) is not None:
            return fixed
        jobs = sum([self._waits[kind] for _, kind in self._gangs]) + self._running.total()
        if jobs == 1 and not self._singles and not any(self._pending):
            power = plan.largest
        else:
            power = min(plan.power / (jobs + 1), MOST * plan.largest)
        least, most, each = plan.moldable(kind)
        most = max(least, min(ceil(power / each), most))
        return max(least, ceil(ENOUGH * most)), most

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
            short = {pc for pc, its in chosen if not self._lasts(pc, its, need, now, needs_s)}
            if not short:
                return _Choice(chosen, ranks, speed, needs_s)
            left_out |= short

    def _lasts(self, pc: int, ranks: int, need: Need, now: float, needs_s: float) -> bool:
        """Whether so many ranks that begin on a PC now may run there for so long."""
        window = self._open[self._idle[self._plan.site_of[pc]][pc][0]]
        if window is None or not fits(needs_s, window[1] - now):
            return False
        return len(self._free_on(pc, now + needs_s)) >= ranks * need.slots

    def _keeps(self, kept: KeptSlots | None, kind: int, now: float) -> KeptSlots | None:
        """What is reserved for a kind that waits; nothing if as many of it run as can: one follows another then."""
        if self._running[self._plan.kinds[kind].bag] >= self._plan.most(kind, self._size(kind)[0]):
            return None
        return kept if kept is not None and kept.kind == kind else self._reserve(kind, now)

    # --- what runs at first ------------------------------------------------------------------------------------------

    def _begun(self) -> Iterator[tuple[float, int]]:
        """When each slot is free, after the task that runs on it."""
        gangs: dict[int, list[tuple[int, PicturePC, PictureTask, OpenWindow]]] = {}
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
                    self._hold(slot, self._plan.needs[kind].amounts)
                    self._singles.add(slot)
                    yield self._let_end(pc, running, window), slot
        for its in gangs.values():
            yield self._let_gang_end(its), its[0][0]

    def _let_gang_end(self, its: list[tuple[int, PicturePC, PictureTask, OpenWindow]]) -> float:
        """When a gang that runs ends, or is interrupted."""
        plan, (slot, _, running, _) = self._plan, its[0]
        bag = plan.places[running.bag]
        kind = plan.kind_of[bag, running.group]
        need = plan.needs[kind]
        ranks = max(1, len(its) // need.slots)
        lasts = 0.0, min([window[1] for *_, window in its]), min([window[2] for *_, window in its])
        speed = min([pc.speed for _, pc, *_ in its]) / need.seconds(1.0, ranks)
        lane = _Lane(
            kind, -running.elapsed, [each for each, *_ in its], lasts, ranks, speed, plan.kinds[kind].needs_s / speed
        )
        for each in lane.slots[:: need.slots]:
            self._hold(each, need.amounts)
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
