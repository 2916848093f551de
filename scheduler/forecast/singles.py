"""One run of a forecast: single tasks. Each slot takes the next task that fits what is left of its window.

Drawn are

- how long each task takes; for one that runs, given how long it has run;
- how far the mean of a bag is from that of its known tasks, how it drifts while the bag goes on, and what all bags have
  in common;
- when windows really close.

Rule: runs are cheap. While many tasks wait, a slot takes a block of them at once, whose length comes from sums that
were made before; the last ones are taken singly.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import chain
from math import exp, inf, log
from random import Random

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.forecast.caps import InUse
from deskgrid.scheduler.forecast.picture import PicturePC, PictureTask
from deskgrid.scheduler.forecast.plan import DRAWN, DrawnGroup, RunPlan
from deskgrid.scheduler.prediction.beyond import place_of

# A bag drifts: each of so many parts of it has a factor of its own.
PARTS = 4
# The least that the tasks of a bag are drawn to take, as a part of what is expected of them.
LEAST = 1e-9
# A task that has run longer than all known ones goes on by this law (Pareto): twice as long for an eighth of them.
BEYOND = 3.0

# A window: when it opens, when it closes as planned, and when it really closes.
OpenWindow = tuple[float, float, float]
_NONE: OpenWindow = (-inf, -inf, -inf)


class ForecastRun:
    """One run. ``common``: what all runtimes have in common in it, as a normal deviate."""

    def __init__(self, plan: RunPlan, own: Random, common: float) -> None:
        self._plan, self._own = plan, own
        common = exp(plan.uncertainty.common * common)
        self._factors = [self._drawn(kind, common) for kind in plan.kinds]
        self._waits = [kind.total for kind in plan.kinds]
        # By kind: tasks that were interrupted: their seconds, and what a window must have left for them, at speed 1.
        self._again: dict[int, list[tuple[float, float]]] = {}
        self._ends = [0.0] * len(plan.bags)
        # By share: what it has used, the share, and its kinds with waiting tasks, in order.
        self._shares = [(share.used_s, number, list[int]()) for number, share in enumerate(plan.shares)]
        self._pending = [kinds for _, _, kinds in self._shares]
        self._in_use = InUse(plan.caps)
        # Whether tasks would have begun on the slot that was looked at last, if others did not use what they need.
        self._blocked = False
        # When slots have something to do. Slots that wait for what others use, with their times there; and when some of
        # that is free.
        self._due: list[tuple[float, int]] = []
        self._parked: dict[int, float] = {}
        self._wakes_at = inf
        # By PC, the windows that have been drawn; by slot, the number of its present one, and that window.
        self._windows: list[list[OpenWindow]] = [[] for _ in plan.pcs]
        self._at = [0] * len(plan.slots)
        self._open: list[OpenWindow | None] = [_NONE] * len(plan.slots)
        # Whether a slot may take tasks of a kind, beside time; None: any may.
        self._suits: Callable[[int, int], bool] | None = None

    def _drawn(self, kind: DrawnGroup, common: float) -> list[float]:
        """A factor for each part of a bag."""
        own, known, drift = self._own, kind.known, self._plan.uncertainty.drift
        if kind.mean and self._plan.uncertainty.mean:
            common *= sum(own.choices(kind.points, k=known)) / known / kind.mean
        return [max(LEAST, common * exp(drift * own.gauss(0.0, 1.0))) for _ in range(PARTS)]

    def ends(self) -> list[float]:
        """When each bag ends."""
        for kind, count in enumerate(self._waits):
            if count:
                self._waits_for_a_slot(kind)
        heap = self._due = list(self._begun())
        heapify(heap)
        open_now, pending, parked = self._open, self._pending, self._parked
        while heap and any(pending):
            free, slot = heap[0]
            if parked:
                if free > self._wakes_at:
                    self._wake(self._wakes_at)
                    continue
                parked.pop(slot, None)
            window = open_now[slot]
            if window is None:
                heappop(heap)
            elif free >= window[1] or free >= window[2]:
                self._next_window(slot)
            elif free < window[0]:
                heapreplace(heap, (window[0], slot))
            else:
                heapreplace(heap, (self._take(slot, free, window), slot))
        for kind in chain.from_iterable(pending):
            self._ends[self._plan.kinds[kind].bag] = inf
        return self._ends

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _waits_for_a_slot(self, kind: int) -> None:
        """Tasks of a kind wait; if their bag is barred, or they fit no window, it never ends."""
        plan, each = self._plan, self._plan.kinds[kind]
        if each.bag in plan.barred or (self._waits[kind] and not fits(each.needs_s, plan.longest)):
            self._ends[each.bag] = inf
        elif kind not in (kinds := self._pending[plan.share_of[kind]]):
            insort(kinds, kind)

    def _take(self, slot: int, free: float, window: OpenWindow) -> float:
        """A slot takes tasks; returns when it is free again."""
        found = self._serve(slot, free, window)
        if found is not None:
            return found[0]
        later = self._next_begin(self._plan.slots[slot], free)
        if self._blocked:
            self._parked[slot] = until = min(later, *window[1:])
            self._wakes_at = min(self._wakes_at, self._in_use.next_end(free))
            return until
        if later < window[1]:
            return later
        self._next_window(slot)
        return free

    def _wake(self, now: float) -> None:
        """Slots that had what parked ones wait for have looked: if some of it is free, as many go on as can."""
        bags = self._pending_bags()
        if self._in_use.any_room(bags, now):
            self._go_on(bags, now)
        self._wakes_at = self._in_use.next_end(now)

    def _go_on(self, bags: Collection[int], now: float) -> None:
        for slot, until in list(self._parked.items()):
            window = self._open[slot]
            if window is not None and (found := self._serve(slot, now, window)) is not None:
                del self._parked[slot]
                self._due.remove((until, slot))
                self._due.append((found[0], slot))
                heapify(self._due)
                if not self._in_use.any_room(bags, now):
                    return

    def _pending_bags(self) -> Collection[int]:
        """The bags with single tasks that wait."""
        return {self._plan.kinds[kind].bag for kind in chain.from_iterable(self._pending)}

    def _next_begin(self, pc: int, free: float) -> float:
        """When the next bag begins, or is ready on a PC, of those that wait for that."""
        plan = self._plan
        begins = [at for at in plan.begins.values() if at > free]
        if plan.ready:
            begins += [at for bag in self._pending_bags() if (at := plan.ready.get((bag, pc), 0.0)) > free]
        return min(begins, default=inf)

    def _serve(self, slot: int, free: float, window: OpenWindow) -> tuple[float, int] | None:
        """A slot takes tasks: when it is free again, and of which kind they are; None if no task may begin on it."""
        plan, again, suits = self._plan, self._again, self._suits
        ready, pc, speed = plan.ready, plan.slots[slot], plan.speeds[slot]
        left = (window[1] - free) * speed
        gated, self._blocked = bool(plan.caps.totals or plan.begins), False
        shares = self._shares
        if len(shares) > 1:
            shares.sort()
        for place, (used, share, kinds) in enumerate(shares):
            for kind in kinds:
                each = plan.kinds[kind]
                if ready and ready.get((each.bag, pc), 0.0) > free:
                    continue
                if suits is not None and not suits(slot, kind):
                    continue
                once_more = again and kind in again and fits(again[kind][-1][1], left)
                if not once_more and (not self._waits[kind] or not fits(each.needs_s, left)):
                    continue
                if gated and not self._may(each.bag, free):
                    continue
                if once_more:
                    end = self._once_more(kind, free, window, speed)
                else:
                    end = self._block(kind, each.needs_s / speed, free, window, speed=speed, block=plan.blocks[kind])
                if gated:
                    self._take_caps(each.bag, end)
                if not self._waits[kind] and not (again and kind in again):
                    kinds.remove(kind)
                if len(shares) > 1:
                    shares[place] = used + (end - free) / plan.shares[share].weight, share, kinds
                return end, kind
        return None

    def _block(
        self, kind: int, needs_s: float, free: float, window: OpenWindow, *, speed: float, block: float
    ) -> float:
        """Some tasks of one kind run, one after the other; returns when the last of them ends.

        ``needs_s``: what the window has to have left there for each. ``speed``: that of what they run on. ``block``:
        how many they are, as a part of those that wait.
        """
        plan = self._plan
        bag, _, _, _, sums, _, total = plan.kinds[kind]
        waits = self._waits[kind]
        factor = self._factors[kind][(total - waits) * PARTS // total] / speed
        begin = int(self._own.random() * DRAWN)
        many, alike = int(waits * block), 1
        if many > 1:
            if many > DRAWN:
                # Each draw stands for several tasks.
                alike = many // DRAWN
                many, factor = DRAWN, factor * alike
            # No task begins when too little is left of the window.
            latest = sums[begin] + (window[1] - free - needs_s) / factor
            many = max(1, bisect_right(sums, latest, begin, begin + many) - begin)
        else:
            many = 1
        end = free + (sums[begin + many] - sums[begin]) * factor
        if end > window[2]:
            # The last of those that began is interrupted.
            many = bisect_right(sums, sums[begin] + (window[2] - free) / factor, begin, begin + many + 1) - begin
            ended = begin + many - 1
            began = free + (sums[ended] - sums[begin]) * factor
            seconds = (sums[ended + 1] - sums[ended]) * factor / alike
            self._interrupted(kind, seconds * speed, (window[2] - began) / alike * speed)
            end = window[2]
        self._ends[bag] = max(self._ends[bag], end)
        self._waits[kind] = max(0, waits - many * alike)
        return end

    def _once_more(self, kind: int, free: float, window: OpenWindow, speed: float) -> float:
        """A task that was interrupted begins again; returns when it ends."""
        seconds, _ = self._again[kind].pop()
        if not self._again[kind]:
            del self._again[kind]
        if free + seconds / speed > window[2]:
            self._interrupted(kind, seconds, (window[2] - free) * speed)
            return window[2]
        bag, end = self._plan.kinds[kind].bag, free + seconds / speed
        self._ends[bag] = max(self._ends[bag], end)
        return end

    def _interrupted(self, kind: int, seconds: float, ran: float) -> None:
        """A task of a kind, which takes ``seconds`` at speed 1, was stopped when it had done so many of them."""
        each = self._plan.kinds[kind]
        bag = self._plan.bags[each.bag]
        again = (seconds - ran, each.needs_s) if bag.keeps else (seconds, max(each.needs_s, ran))
        if not fits(bag.need.seconds(again[1], bag.need.most), self._plan.longest):
            self._ends[each.bag] = inf
            return
        self._again.setdefault(kind, []).append(again)
        self._waits_for_a_slot(kind)

    def _may(self, bag: int, free: float) -> bool:
        """Whether a task of a bag may begin now."""
        if self._plan.begins.get(bag, 0.0) > free:
            return False
        room = self._in_use.room(bag, free)
        self._blocked |= not room
        return room

    def _take_caps(self, bag: int, end: float) -> None:
        """A task of a bag uses what it needs until its end."""
        self._in_use.take(bag, end)
        if self._parked and bag in self._plan.caps.of:
            self._wakes_at = min(self._wakes_at, end)

    # --- windows -----------------------------------------------------------------------------------------------------

    def _next_window(self, slot: int) -> None:
        """The window of a slot has closed, or is too short for every task."""
        if self._open[slot] is not _NONE:
            self._at[slot] += 1
        self._open[slot] = self._window(self._plan.slots[slot], self._at[slot])

    def _window(self, pc: int, number: int) -> OpenWindow | None:
        """A window of a PC, by number; None after the last."""
        known = self._windows[pc]
        if number < len(known):
            return known[number]
        its = self._plan.pcs[pc]
        if (found := place_of(number, len(its.spans), its.period_s)) is None:
            return None
        place, later = found
        opens, closes, ends = its.spans[place]
        last = known[-1][2] if known else 0.0
        really = ends[int(self._own.random() * len(ends))] if ends else closes
        known.append((max(opens + later, last), closes + later, max(really + later, last)))
        return known[-1]

    # --- running tasks -----------------------------------------------------------------------------------------------

    def _begun(self) -> Iterator[tuple[float, int]]:
        """When each slot is free, after the task that runs on it."""
        slot = 0
        for pc in self._plan.pcs:
            for place in range(pc.slots):
                self._next_window(slot)
                window = self._open[slot]
                if window is not None:
                    runs = pc.running[place] if place < len(pc.running) else None
                    yield max(0.0, window[0]) if runs is None else self._let_end(pc, runs, window), slot
                slot += 1

    def _let_end(self, pc: PicturePC, running: PictureTask, window: OpenWindow) -> float:
        """When a running task ends, or is interrupted."""
        plan, bag = self._plan, self._plan.places[running.bag]
        kind = plan.kind_of[bag, running.group]
        factor = self._factors[kind][0] / pc.speed
        left = self._left(plan.kinds[kind].points, factor, running.elapsed)
        self._in_use.take(bag, min(left, window[2]))
        if left > window[2]:
            ran = running.elapsed
            self._interrupted(kind, (ran + left) * pc.speed, (ran + window[2]) * pc.speed)
            return window[2]
        self._ends[bag] = max(self._ends[bag], left)
        return left

    def _left(self, points: tuple[float, ...], factor: float, elapsed: float) -> float:
        """How much longer a task takes that has run for ``elapsed`` seconds."""
        place, more = bisect_right(points, elapsed / factor), self._own.random()
        if place < len(points):
            return points[place + int(more * (len(points) - place))] * factor - elapsed
        return elapsed * (exp(-log(1.0 - more) / BEYOND) - 1.0)
