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
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import accumulate, chain
from math import exp, inf, log
from random import Random
from typing import NamedTuple

from deskgrid.scheduler.forecast.picture import PC, Group, Picture, Running, Share, Waiting, longest_window
from deskgrid.scheduler.forecast.preparing import ready_at

# A bag drifts: each of so many parts of it has a factor of its own.
PARTS = 4
# What was known of a bag before its own tasks counts as so many of them.
PRIOR = 2
# No mean is taken from more draws.
MOST_KNOWN = 64
# Draws of one kind that are made before the runs.
DRAWN = 512
# The least that the tasks of a bag are drawn to take, as a part of what is expected of them.
LEAST = 1e-9
# A slot takes a block of this fraction of the waiting tasks, divided by the number of slots.
BLOCK = 0.5
# A task that has run longer than all known ones goes on by this law (Pareto): twice as long for an eighth of them.
BEYOND = 3.0
# Windows are announced for a week. Those that were announced are taken to come again each week, so many times. Seconds.
WEEK_S, WEEKS = 604_800.0, 8

# A window: when it opens, when it closes as planned, and when it really closes.
OpenWindow = tuple[float, float, float]
_NONE: OpenWindow = (-inf, -inf, -inf)


class Kind(NamedTuple):
    """A group, ready to be drawn from. ``known``: draws for a mean. ``sums``: of the draws before each, twice over."""

    bag: int
    points: tuple[float, ...]
    mean: float
    known: int
    sums: list[float]
    needs_s: float
    total: int


class Uncertainty(NamedTuple):
    """What is drawn beside the runtimes. ``common``, ``drift``: the spreads of the logarithms of what all runtimes have
    in common, because PCs are busier or cooler than before, and of the factor of a part of a bag. ``mean``: whether the
    mean of a bag is drawn.
    """

    common: float = 0.1
    drift: float = 0.2
    mean: bool = True


class Plan:
    """What all runs have in common. Bags and PCs are known by their places, and groups by those of their kinds."""

    def __init__(self, picture: Picture, chance: Random, uncertainty: Uncertainty) -> None:
        self.uncertainty = uncertainty
        bags = picture.bags
        self.pcs, self.bags = picture.pcs, bags
        rows = [
            (-bag.priority, -group.runtime if picture.longest_first else 0.0, place, number)
            for place, bag in enumerate(bags)
            for number, group in enumerate(bag.groups)
        ]
        rows.sort()
        # Kinds are in the order in which they are served; by places of bag and group.
        self.kinds = [_kind(place, bags[place].groups[number], chance) for _, _, place, number in rows]
        self.kind_of = {(place, number): kind for kind, (_, _, place, number) in enumerate(rows)}
        self.places = {bag.number: place for place, bag in enumerate(bags)}
        self.slots = [pc for pc, each in enumerate(picture.pcs) for _ in range(each.slots)]
        self.speeds = [picture.pcs[pc].speed for pc in self.slots]
        self.block = BLOCK / max(1, len(self.slots))
        known = {share.name: share for share in picture.shares}
        names = list(dict.fromkeys(bag.share for bag in bags))
        # The window in which most can be done, in seconds of speed 1: what needs more never begins.
        longest_s, speed = longest_window(picture.pcs)
        self.longest = longest_s * speed
        # When bags begin, by their places: only those that do not begin at once.
        self.begins = {place: bag.begins for place, bag in enumerate(bags) if bag.begins > 0.0}
        # When their environments are ready, by places of bag and PC: only those that are not ready now.
        needy = [(place, bag, _shortest(bag)) for place, bag in enumerate(bags) if bag.environment]
        self.ready = {
            (place, pc): at
            for place, bag, least_s in needy
            for pc, at in ready_at(picture.pcs, bag.environment, least_s).items()
        }
        self.shares = [known.get(name, Share(name, 0.0)) for name in names]
        # The share of each kind.
        self.share_of = [names.index(bags[kind.bag].share) for kind in self.kinds]


def _shortest(bag: Waiting) -> float:
    """What a window must have left for any task of a bag that waits. Seconds."""
    return min([bag.at_once_s(group) for group in bag.groups if group.count], default=0.0)


def _kind(bag: int, group: Group, chance: Random) -> Kind:
    points = group.durations.points
    draws = list(points) * (DRAWN // len(points)) + chance.sample(points, DRAWN % len(points))
    chance.shuffle(draws)
    known = min(PRIOR + int(group.durations.known), MOST_KNOWN)
    sums = [*accumulate(chain(draws, draws), initial=0.0)]
    return Kind(bag, points, sum(points) / len(points), known, sums, group.needs_s, group.count)


class Run:
    """One run. ``common``: what all runtimes have in common in it, as a normal deviate."""

    def __init__(self, plan: Plan, own: Random, common: float) -> None:
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
        # By bag with a limit: the slots that it has.
        self._has: dict[int, set[int]] = {place: set() for place, bag in enumerate(plan.bags) if bag.limit}
        # By PC, the windows that have been drawn; by slot, the number of its present one, and that window.
        self._windows: list[list[OpenWindow]] = [[] for _ in plan.pcs]
        self._at = [0] * len(plan.slots)
        self._open: list[OpenWindow | None] = [_NONE] * len(plan.slots)
        # Whether a slot may take tasks of a kind, beside time; None: any may.
        self._suits: Callable[[int, int], bool] | None = None

    def _drawn(self, kind: Kind, common: float) -> list[float]:
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
        heap = list(self._begun())
        heapify(heap)
        open_now, pending = self._open, self._pending
        while heap and any(pending):
            free, slot = heap[0]
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
        if plan.bags[each.bag].barred or (self._waits[kind] and each.needs_s >= plan.longest):
            self._ends[each.bag] = inf
        elif kind not in (kinds := self._pending[plan.share_of[kind]]):
            insort(kinds, kind)

    def _take(self, slot: int, free: float, window: OpenWindow) -> float:
        """A slot takes tasks; returns when it is free again."""
        found = self._serve(slot, free, window)
        if found is not None:
            return found[0]
        if (later := self._next_begin(self._plan.slots[slot], free)) < window[1]:
            return later
        self._next_window(slot)
        return free

    def _next_begin(self, pc: int, free: float) -> float:
        """When the next bag begins, or is ready on a PC, of those that wait for that."""
        plan = self._plan
        begins = [at for at in plan.begins.values() if at > free]
        if plan.ready:
            waiting = {plan.kinds[kind].bag for kind in chain.from_iterable(self._pending)}
            begins += [at for bag in waiting if (at := plan.ready.get((bag, pc), 0.0)) > free]
        return min(begins, default=inf)

    def _serve(self, slot: int, free: float, window: OpenWindow) -> tuple[float, int] | None:
        """A slot takes tasks: when it is free again, and of which kind they are; None if no task may begin on it."""
        plan, again, suits = self._plan, self._again, self._suits
        ready, pc, speed = plan.ready, plan.slots[slot], plan.speeds[slot]
        left = (window[1] - free) * speed
        gated = bool(self._has or plan.begins)
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
                if again and kind in again and again[kind][-1][1] < left:
                    end = self._once_more(kind, free, window, speed)
                elif each.needs_s >= left or not self._waits[kind] or (gated and not self._may(each.bag, slot, free)):
                    continue
                else:
                    end = self._block(kind, each.needs_s / speed, free, window, speed=speed, block=plan.block)
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
        if bag.need.seconds(again[1], bag.need.most) >= self._plan.longest:
            self._ends[each.bag] = inf
            return
        self._again.setdefault(kind, []).append(again)
        self._waits_for_a_slot(kind)

    def _may(self, bag: int, slot: int, free: float) -> bool:
        """Whether a bag may have a slot; if it has a limit, the slot is one of its own from then on."""
        if self._plan.begins.get(bag, 0.0) > free:
            return False
        its = self._has.get(bag)
        if its is None or slot in its:
            return True
        if len(its) < self._plan.bags[bag].limit:
            its.add(slot)
            return True
        return False

    # --- windows -----------------------------------------------------------------------------------------------------

    def _next_window(self, slot: int) -> None:
        """The window of a slot has closed, or is too short for every task."""
        for its in self._has.values():
            its.discard(slot)
        if self._open[slot] is not _NONE:
            self._at[slot] += 1
        self._open[slot] = self._window(self._plan.slots[slot], self._at[slot])

    def _window(self, pc: int, number: int) -> OpenWindow | None:
        """A window of a PC, by number; None after the last."""
        known = self._windows[pc]
        if number < len(known):
            return known[number]
        spans = self._plan.pcs[pc].spans
        week, place = divmod(number, len(spans)) if spans else (WEEKS, 0)
        if week >= WEEKS or (week and (spans[-1].opens <= 0.0 or spans[-1].closes == inf)):
            return None  # a window that was never announced does not come again
        opens, closes, ends = spans[place]
        later, last = week * WEEK_S, known[-1][2] if known else 0.0
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
                    yield max(0.0, window[0]) if runs is None else self._let_end(slot, pc, runs, window), slot
                slot += 1

    def _let_end(self, slot: int, pc: PC, running: Running, window: OpenWindow) -> float:
        """When a running task ends, or is interrupted."""
        plan, bag = self._plan, self._plan.places[running.bag]
        if bag in self._has:
            self._has[bag].add(slot)
        kind = plan.kind_of[bag, running.group]
        factor = self._factors[kind][0] / pc.speed
        left = self._left(plan.kinds[kind].points, factor, running.elapsed)
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
