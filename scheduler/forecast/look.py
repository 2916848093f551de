"""Takes the picture of a grid from which a forecast starts.

Rule 1: a picture is taken in pieces, and costs no more for a bag of a million tasks than for one of a thousand.
Rule 2: a parallel task is as many tasks as it needs slots, at least. That they have to be together is not looked at.
Rule 3: tasks of a bag that have predictions of their own are summed up in a few groups, by these predictions; how far
those were off so far tells how long the tasks really take. All other tasks of a bag are one group.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp
from statistics import NormalDist
from typing import NamedTuple

from deskgrid.scheduler.forecast.picture import PC, Durations, Group, Picture, Preparing, Running, Share, Span, Waiting
from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.model import State, Window
from deskgrid.scheduler.parallel.need import Need
from deskgrid.scheduler.prediction.mixture import Mixture
from deskgrid.scheduler.state.bags import Bag
from deskgrid.scheduler.state.slots import Away, Worker

# Rows that are looked at in one piece: a few milliseconds.
PIECE = 1_000
# What looking at a bag costs, and at each group of its tasks, in rows.
BAG, GROUP = 4, 4
# Groups of tasks with predictions of their own, and how many tasks of a bag are looked at for that.
GROUPS, LOOKED_AT = 8, 256
# Bags that have a row of their own; and bags of a row that are looked at for its runtimes.
ROWS, ALIKE = 64, 8
# Points of a distribution.
POINTS = 48
# The spread of the logarithm of actual to predicted runtimes, before any is known.
SPREAD = 0.6

LEVELS = tuple((place + 0.5) / POINTS for place in range(POINTS))
_RATIOS = tuple(exp(SPREAD * NormalDist().inv_cdf((place + 0.5) / 12)) for place in range(12))

# How long the tasks of a bag take, as learned; None: only their predictions are known. The second argument: how long
# its running tasks have run.
Learned = Callable[[Bag, list[float]], Durations | None]
# How long the PC of this name takes to prepare the environments of bags.
Prepares = Callable[[str], tuple[Preparing, ...]]


class _Row(NamedTuple):
    """A PC. ``running``: bags of tasks that run there, their predicted runtimes, and how long they have run."""

    name: str
    site: str
    spans: tuple[Span, ...]
    slots: int
    running: list[tuple[Bag, float, float]]
    speed: float


class Look:
    """One look at a grid. After `pieces`, ``picture`` is there. ``own``: the number of a bag that shares no row."""

    def __init__(
        self,
        grid: GridState,
        now: float,
        learned: Learned,
        own: int | None = None,
        prepares: Prepares = lambda name: (),
    ) -> None:
        self._grid, self._now, self._learned, self._own = grid, now, learned, own
        self._prepares = prepares
        self._pcs: list[_Row] = []
        # By bag: how long its running tasks have run.
        self._elapsed: defaultdict[int, list[float]] = defaultdict(list)
        self._groups: dict[int, list[Group]] = {}
        self._waiting: list[Waiting] = []
        # By bag: the bag of the picture that stands for it.
        self.rows: dict[int, int] = {}
        self.picture = Picture((), ())

    def pieces(self) -> Iterator[int]:
        """Take the picture. After each piece, yields how many rows it has looked at."""
        grid, rows = self._grid, 0
        for worker in list(grid.slots.workers.values()):
            rows += self._look_at_worker(worker)
            if rows >= PIECE:
                yield rows
                rows = 0
        for name, away in list(grid.away.items()):
            rows += self._look_at_away(name, away)
            if rows >= PIECE:
                yield rows
                rows = 0
        bags = [bag for bag in grid.tasks.bags.values() if bag.settled < bag.total]
        alike: defaultdict[tuple[object, ...], list[Bag]] = defaultdict(list)
        for place, bag in enumerate(bags, 1):
            alike[_likeness(bag, self._own) if len(bags) > ROWS else (place,)].append(bag)
            if not place % PIECE:
                yield PIECE
        for its in _in_rows(alike, -(-len(bags) // ROWS)):
            seen = list[Waiting]()
            for bag in its:
                seen.append(self._look_at_bag(bag))
                rows += BAG + GROUP * len(seen[-1].groups)
                if rows >= PIECE:
                    yield rows
                    rows = 0
            self._show(its, seen)
        pcs = list[PC]()
        for row in self._pcs:
            pcs.append(self._pc(row))
            rows += len(pcs[-1].running) + len(pcs[-1].prepares)
            if rows >= PIECE:
                yield rows
                rows = 0
        shares = {bag.category.account.share for bag in grid.tasks.bags.values() if bag.settled < bag.total}
        self.picture = Picture(
            tuple(pcs),
            tuple(self._waiting),
            grid.policy.order == "longest-first",
            tuple([Share(share.name, share.standing(self._now), share.weight) for share in shares]),
        )
        yield rows

    # --- PCs ---------------------------------------------------------------------------------------------------------

    def _look_at_worker(self, worker: Worker) -> int:
        now, tasks, running = self._now, self._grid.tasks, list[tuple[Bag, float, float]]()
        for slot in worker.slots:
            if slot.sent:
                task = slot.sent[0].attempt.task
                bag, elapsed = tasks.known(task).bag, max(0.0, now - slot.started)
                running.append((bag, tasks.runtime(task), elapsed))
                if slot.gang is None or slot is slot.gang.slots[0]:
                    self._elapsed[bag.number].append(elapsed)
        stay = self._grid.quarantine.workers.get(worker.name)
        opens = 0.0 if stay is None else stay.until - now
        spans = [Span(opens, worker.ends_at - now), *_spans(worker.expected(now), now)]
        shown = tuple([span for span in spans if span.closes > max(0.0, span.opens)])
        self._pcs.append(_Row(worker.name, worker.site, shown, len(worker.slots), running, worker.speed))
        return 1 + len(worker.slots) + len(spans)

    def _look_at_away(self, name: str, away: Away) -> int:
        spans = tuple(_spans(away.expected(self._now), self._now))
        self._pcs.append(_Row(name, "", spans, away.slots, [], away.speed))
        return 1 + len(spans)

    def _pc(self, row: _Row) -> PC:
        # While the picture was taken, some bags may have ended.
        known = self._groups
        shown = [
            Running(self.rows[b.number], self._group_of(b, seconds), ran)
            for b, seconds, ran in row.running
            if b.number in known
        ]
        return PC(row.name, row.spans, row.slots, tuple(shown), row.site, row.speed, self._prepares(row.name))

    def _group_of(self, bag: Bag, runtime: float) -> int:
        """The group of a bag whose tasks are most like one of this runtime."""
        groups = self._groups[bag.number]
        runtime = bag.need.seconds(runtime, bag.need.least)
        return min(range(len(groups)), key=lambda group: abs(groups[group].runtime - runtime))

    # --- bags --------------------------------------------------------------------------------------------------------

    def _show(self, bags: Sequence[Bag], seen: Sequence[Waiting]) -> None:
        """Show bags that are alike, and were seen one by one, as one."""
        first = seen[0]
        if len(seen) > 1:
            groups = [group for waiting in seen for group in waiting.groups]
            points = sorted(point for group in groups[:ALIKE] for point in group.durations.points)
            durations = Durations(tuple(points[:: max(1, len(points) // POINTS)]), groups[0].durations.known)
            count, runtime = sum(group.count for group in groups), max(group.runtime for group in groups)
            whole = Group(count, durations, runtime, max(group.needs_s for group in groups))
            total, ended = sum(waiting.total for waiting in seen), sum(waiting.ended for waiting in seen)
            first = replace(first, groups=(whole,), total=total, ended=ended)
        for bag in bags:
            self.rows[bag.number] = first.number
            self._groups[bag.number] = list(first.groups)
        self._waiting.append(first)

    def _look_at_bag(self, bag: Bag) -> Waiting:
        elapsed = self._elapsed.get(bag.number, [])
        count = max(0, bag.total - bag.settled - len(elapsed))
        needs = self._grid.policy.requirement.needs if self._grid.policy.timed else _nothing
        durations = self._learned(bag, elapsed)
        if durations is not None:
            groups = [Group(count, durations, bag.longest, needs(bag.needs_s(bag.longest)))]
        else:
            groups = [
                Group(many, self._ratios(bag, runtime), runtime, needs(bag.needs_s(runtime)))
                for many, runtime in self._predicted(bag, count)
            ]
        if bag.category.parallel:
            groups = [_as_slots(group, bag.need) for group in groups]
        key = bag.category.key
        return Waiting(
            bag.number,
            tuple(groups),
            bag.total,
            bag.settled,
            bag.category.account.share.name,
            key.priority,
            key.limit,
            bag.barred,
            bag.piece is not None,
            environment=key.environment,
        )

    def _predicted(self, bag: Bag, count: int) -> list[tuple[int, float]]:
        """Groups of a bag's waiting tasks: how many, and their predicted runtime. The longest ones come first."""
        seen = sorted(self._some(bag), reverse=True) or [bag.longest]
        many = min(GROUPS, len(set(seen)))
        edges = [len(seen) * place // many for place in range(many + 1)]
        shares = [count * edge // len(seen) for edge in edges]
        parts = [seen[start:end] for start, end in pairwise(edges)]
        counts = [end - start for start, end in pairwise(shares)]
        return [(many, sum(part) / len(part)) for many, part in zip(counts, parts, strict=True)]

    def _some(self, bag: Bag) -> Iterator[float]:
        """The predicted runtimes of some of a bag's waiting tasks, evenly spread over its batches."""
        batches = bag.batches[:: 1 + len(bag.batches) // LOOKED_AT]
        step = max(1, sum([batch.count for batch in batches]) // LOOKED_AT)
        for batch in batches:
            if len(batch.runtimes) == 1:
                yield from batch.runtimes * (batch.states.count(State.WAITING) // step)
                continue
            for start in range(0, batch.count, step):
                place = batch.states.find(State.WAITING, start, start + step)
                if place >= 0:
                    yield batch.runtimes[place]

    def _ratios(self, bag: Bag, runtime: float) -> Durations:
        """How long tasks of this predicted runtime take, by the ratios of actual to predicted runtimes so far."""
        told = [] if bag.ratios is None else bag.ratios.known()
        ratios = Mixture(told, _RATIOS).quantiles(LEVELS, ())
        return Durations(tuple([runtime * ratio for ratio in ratios]), len(told))


def predicted(runtime: float) -> Durations:
    """How long tasks of this predicted runtime take, if nothing else is known."""
    return Durations(tuple([runtime * ratio for ratio in _RATIOS]))


def _as_slots(group: Group, need: Need) -> Group:
    """Parallel tasks as work of so many slots as the smallest gang has, which need not be together."""
    shorter, points = need.seconds(1.0, need.least), group.durations.points
    durations = group.durations._replace(points=tuple([seconds * shorter for seconds in points]))
    slots = need.least * need.slots
    return Group(group.count * slots, durations, group.runtime * shorter, group.needs_s * shorter)


def _likeness(bag: Bag, own: int | None) -> tuple[object, ...]:
    """Equal for bags that may share a row."""
    key = bag.category.key
    alike = bag.category.account.share.name, key.priority, key.limit, bag.barred, bag.piece, bag.number == own
    return *alike, key.environment, key.need and bag.need


def _in_rows(alike: Mapping[tuple[object, ...], list[Bag]], many: int) -> Iterator[list[Bag]]:
    """Neighbours among bags that are alike, so ``many`` at a time."""
    for its in alike.values():
        yield from (its[start : start + many] for start in range(0, len(its), many))


def _spans(windows: tuple[Window, ...], now: float) -> Iterator[Span]:
    return (Span(window.opens - now, window.closes - now) for window in windows if window.opens > now)


def _nothing(seconds: float) -> float:
    return 0.0
