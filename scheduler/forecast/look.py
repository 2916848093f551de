"""Takes the picture of a grid from which a forecast starts.

Rule 1: a picture is taken in pieces, and costs no more for a bag of a million tasks than for one of a thousand.
Rule 2: tasks of a bag that have predictions of their own are summed up in a few groups, by these predictions; how far
those were off so far tells how long the tasks really take. All other tasks of a bag are one group.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import exp
from statistics import NormalDist

from deskgrid.scheduler.forecast.picture import PC, Durations, Group, Picture, Running, Share, Span, Waiting
from deskgrid.scheduler.grid import GridState
from deskgrid.scheduler.model import State, Window
from deskgrid.scheduler.prediction.mixture import Mixture
from deskgrid.scheduler.state.bags import Bag
from deskgrid.scheduler.state.slots import Away, Worker

# Rows that are looked at in one piece: a few milliseconds.
PIECE = 1_000
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


class Look:
    """One look at a grid. After `pieces`, ``picture`` is there. ``own``: the number of a bag that shares no row."""

    def __init__(self, grid: GridState, now: float, learned: Learned, own: int | None = None) -> None:
        self._grid, self._now, self._learned, self._own = grid, now, learned, own
        self._pcs: list[tuple[str, str, tuple[Span, ...], int, list[tuple[Bag, float, float]]]] = []
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
        for bags in _in_rows([bag for bag in grid.tasks.bags.values() if bag.settled < bag.total], self._own):
            rows += self._look_at_bags(bags)
            if rows >= PIECE:
                yield rows
                rows = 0
        shares = {bag.category.account.share for bag in grid.tasks.bags.values() if bag.settled < bag.total}
        self.picture = Picture(
            tuple([self._pc(*row) for row in self._pcs]),
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
                bag, elapsed = tasks.known(slot.sent[0].attempt.task).bag, max(0.0, now - slot.started)
                running.append((bag, slot.sent[0].runtime, elapsed))
                self._elapsed[bag.number].append(elapsed)
        stay = self._grid.quarantine.workers.get(worker.name)
        opens = 0.0 if stay is None else stay.until - now
        spans = [Span(opens, worker.ends_at - now), *_spans(worker.expected(now), now)]
        shown = tuple([span for span in spans if span.closes > max(0.0, span.opens)])
        self._pcs.append((worker.name, worker.site, shown, len(worker.slots), running))
        return 1 + len(worker.slots) + len(spans)

    def _look_at_away(self, name: str, away: Away) -> int:
        spans = tuple(_spans(away.expected(self._now), self._now))
        self._pcs.append((name, "", spans, away.slots, []))
        return 1 + len(spans)

    def _pc(
        self, name: str, site: str, spans: tuple[Span, ...], slots: int, running: list[tuple[Bag, float, float]]
    ) -> PC:
        # While the picture was taken, some bags may have ended.
        known = self._groups
        shown = [
            Running(self.rows[b.number], self._group_of(b, seconds), ran)
            for b, seconds, ran in running
            if b.number in known
        ]
        return PC(name, spans, slots, tuple(shown), site)

    def _group_of(self, bag: Bag, runtime: float) -> int:
        """The group of a bag whose tasks are most like one of this runtime."""
        groups = self._groups[bag.number]
        return min(range(len(groups)), key=lambda group: abs(groups[group].runtime - runtime))

    # --- bags --------------------------------------------------------------------------------------------------------

    def _look_at_bags(self, bags: Sequence[Bag]) -> int:
        """Look at bags that are alike, and show them as one."""
        seen = [self._look_at_bag(bag) for bag in bags]
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
        return LOOKED_AT * len(bags)

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
        step = max(1, bag.total // LOOKED_AT)
        for batch in bag.batches:
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


def _in_rows(bags: list[Bag], own: int | None) -> Iterator[list[Bag]]:
    """Each bag in a row of its own; if there are very many, neighbours that are alike share one."""
    if len(bags) <= ROWS:
        yield from ([bag] for bag in bags)
        return
    alike: defaultdict[tuple[object, ...], list[Bag]] = defaultdict(list)
    for bag in bags:
        key = bag.category.key
        only = bag.number == own
        alike[bag.category.account.share.name, key.priority, key.limit, bag.barred, bag.piece, only].append(bag)
    many = -(-len(bags) // ROWS)
    for its in alike.values():
        yield from (its[start : start + many] for start in range(0, len(its), many))


def _spans(windows: tuple[Window, ...], now: float) -> Iterator[Span]:
    return (Span(window.opens - now, window.closes - now) for window in windows if window.opens > now)


def _nothing(seconds: float) -> float:
    return 0.0
