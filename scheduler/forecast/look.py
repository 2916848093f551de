"""Takes the picture of a grid from which a forecast starts.

Rule 1: a picture is taken in pieces, and costs no more for a bag of a million tasks than for one of a thousand.
Rule 2: of parallel tasks, the policy in force says in what order their turns are.
Rule 3: tasks of a bag that have predictions of their own are summed up in a few groups, by these predictions; how far
those were off so far tells how long the tasks really take. All other tasks of a bag are one group.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from math import inf
from typing import NamedTuple

from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureShare,
    PictureTask,
    PictureWindow,
    Preparing,
)
from deskgrid.scheduler.model import PlannedWindow, State
from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.choices import WhichNext
from deskgrid.scheduler.parallel.composed import Composed, default_policy
from deskgrid.scheduler.parallel.patience import patience_ends
from deskgrid.scheduler.policies.base import Policy, least_required
from deskgrid.scheduler.prediction.runtimes import first_ratios
from deskgrid.scheduler.prediction.sample import Mixture
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Away, Traits, Worker

# Rows that are looked at in one piece: a few milliseconds.
PIECE = 1_000
# What looking at a bag costs, and at each group of its tasks, in rows.
BAG, GROUP = 4, 4
# Groups of tasks with predictions of their own, and how many tasks of a bag are looked at for that.
GROUPS, LOOKED_AT = 8, 256
# Of the tasks that were sent to a slot ahead of need, about so many are looked at.
AHEAD = 16
# Bags that have a row of their own; and bags of a row that are looked at for its runtimes.
ROWS, ALIKE = 64, 8
# Points of a distribution.
POINTS = 48

LEVELS = tuple((place + 0.5) / POINTS for place in range(POINTS))

# The states of tasks that are not at a worker yet.
_HERE = (State.WAITING, State.QUEUED, State.BARRED, State.PAUSED)

# How long the tasks of a bag take, as learned; None: only their predictions are known. The second argument: how long
# its running tasks have run.
Learned = Callable[[ScheduledBag, list[float]], Durations | None]
# How long the PC of this name takes to prepare the environments of bags.
Prepares = Callable[[str], tuple[Preparing, ...]]


class _PcRow(NamedTuple):
    """A PC. ``running``: bags of tasks that run there, their predicted runtimes, how long they have run, and of which
    gang they are, 0 for none. ``traits``: None if they are unknown. ``again_s``: after how long its windows come again.
    """

    name: str
    site: str
    spans: tuple[PictureWindow, ...]
    slots: int
    running: list[tuple[ScheduledBag, float, float, int]]
    speed: float
    traits: Traits | None
    again_s: float


class Look:
    """One look at a grid. After `pieces`, ``picture`` is there. ``own``: the number of a bag that shares no row."""

    def __init__(
        self,
        grid: SchedulerState,
        now: float,
        learned: Learned,
        own: int | None = None,
        prepares: Prepares = lambda name: (),
    ) -> None:
        self._grid, self._now, self._learned, self._own = grid, now, learned, own
        self._prepares = prepares
        self._pcs: list[_PcRow] = []
        # By bag: how long its running tasks have run.
        self._elapsed: defaultdict[int, list[float]] = defaultdict(list)
        # By bag: the predicted runtimes of its tasks that are at a worker and have not begun.
        self._queued: defaultdict[int, list[float]] = defaultdict(list)
        self._groups: dict[int, list[Group]] = {}
        self._waiting: list[PictureBag] = []
        # By bag: the bag of the picture that stands for it.
        self.rows: dict[int, int] = {}
        # In what order parallel tasks have their turns; None: as they came.
        self._order = _order(grid.policy)
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
        alike: defaultdict[tuple[object, ...], list[ScheduledBag]] = defaultdict(list)
        for place, bag in enumerate(bags, 1):
            alike[_likeness(bag, self._own) if len(bags) > ROWS else (place,)].append(bag)
            if not place % PIECE:
                yield PIECE
        for its in _in_rows(alike, -(-len(bags) // ROWS)):
            seen = list[PictureBag]()
            for bag in its:
                seen.append(self._look_at_bag(bag))
                rows += BAG + GROUP * len(seen[-1].groups)
                if rows >= PIECE:
                    yield rows
                    rows = 0
            self._show(its, seen)
        pcs = list[PicturePC]()
        for row in self._pcs:
            pcs.append(self._pc(row))
            rows += len(pcs[-1].running) + len(pcs[-1].prepares)
            if rows >= PIECE:
                yield rows
                rows = 0
        self._forget_common_labels()
        self._take_turns()
        shares = {bag.category.account.share for bag in grid.tasks.bags.values() if bag.settled < bag.total}
        self.picture = Picture(
            tuple(pcs),
            tuple(self._waiting),
            grid.policy.order == "longest-first",
            tuple([PictureShare(share.name, share.standing(self._now), share.weight) for share in shares]),
            getattr(self._order, "backfills", True),
            tuple(grid.categories.licences.total.items()),
        )
        yield rows

    # --- PCs ---------------------------------------------------------------------------------------------------------

    def _look_at_worker(self, worker: Worker) -> int:
        now, tasks, running = self._now, self._grid.tasks, list[tuple[ScheduledBag, float, float, int]]()
        queued = 0
        for slot in worker.slots:
            if slot.sent:
                for sent in islice(slot.sent, 1, None, 1 + len(slot.sent) // AHEAD):
                    self._queued[tasks.known(sent.task).bag.number].append(sent.runtime)
                    queued += 1
                task = slot.sent[0].task
                bag, elapsed, gang = tasks.known(task).bag, self._grid.ran_s(slot, now), slot.gang
                running.append((bag, tasks.runtime(task), elapsed, 0 if gang is None else 1 + task))
                if gang is None:
                    self._elapsed[bag.number].append(elapsed)
                elif slot is gang.slots[0]:  # as if it ran on one rank, on a PC of speed 1
                    self._elapsed[bag.number].append(elapsed * tasks.runtime(task) / max(gang.seconds, 1e-9))
        opens = self._grid.opens_s(worker, now)
        expected = worker.expected(now)
        spans = [PictureWindow(opens, worker.ends_at - now), *_spans(expected, now)]
        shown = tuple([span for span in spans if span.closes > max(0.0, span.opens)])
        self._pcs.append(
            _PcRow(
                worker.name,
                worker.site,
                shown,
                len(worker.slots),
                running,
                worker.speed,
                worker.traits,
                expected.period_s,
            )
        )
        return 1 + len(worker.slots) + queued + len(spans)

    def _look_at_away(self, name: str, away: Away) -> int:
        expected = away.expected(self._now)
        spans = tuple(_spans(expected, self._now))
        site, traits = ("", None) if away.was is None else (away.was.site, away.was.traits)
        self._pcs.append(_PcRow(name, site, spans, away.slots, [], away.speed, traits, expected.period_s))
        return 1 + len(spans)

    def _pc(self, row: _PcRow) -> PicturePC:
        # While the picture was taken, some bags may have ended.
        known = self._groups
        shown = [
            PictureTask(self.rows[b.number], self._group_of(b, seconds), ran, gang)
            for b, seconds, ran, gang in row.running
            if b.number in known
        ]
        pc = PicturePC(
            row.name,
            row.spans,
            row.slots,
            tuple(shown),
            row.site,
            row.speed,
            prepares=self._prepares(row.name),
            again_s=row.again_s,
        )
        if (traits := row.traits) is None:
            return pc
        return replace(pc, amounts=traits.amounts, labels=traits.labels, reachable=traits.reachable)

    def _group_of(self, bag: ScheduledBag, runtime: float) -> int:
        """The group of a bag whose tasks are most like one of this runtime."""
        groups = self._groups[bag.number]
        return min(range(len(groups)), key=lambda group: abs(groups[group].runtime - runtime))

    # --- bags --------------------------------------------------------------------------------------------------------

    def _show(self, bags: Sequence[ScheduledBag], seen: Sequence[PictureBag]) -> None:
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

    def _forget_common_labels(self) -> None:
        """Bags do not need what every PC has, such as the one Python of all: what is alike is computed together."""
        found = [row.traits.labels for row in self._pcs if row.traits is not None]
        common = frozenset.intersection(*found) if found else frozenset()
        for row, waiting in enumerate(self._waiting):
            if not common.isdisjoint(waiting.need.labels):
                need = replace(waiting.need, labels=waiting.need.labels - common)
                self._waiting[row] = replace(waiting, need=need)

    def _look_at_bag(self, bag: ScheduledBag) -> PictureBag:
        elapsed = self._elapsed.get(bag.number, [])
        count = max(0, bag.total - bag.settled - len(elapsed))
        needs = least_required(self._grid.policy).needs if self._grid.policy.timed else _nothing
        durations = self._learned(bag, elapsed)
        if durations is not None:
            groups = [Group(count, durations, bag.longest, needs(bag.needs_s(bag.longest)))]
        else:
            ratios = _ratios(bag)
            groups = [
                Group(many, _stretched(ratios, runtime), runtime, needs(bag.needs_s(runtime)))
                for many, runtime in self._predicted(bag, count)
            ]
        key = bag.category.key
        return PictureBag(
            bag.number,
            tuple(groups),
            bag.total,
            bag.settled,
            bag.category.account.share.name,
            key.priority,
            key.limit,
            bag.barred,
            bag.piece is not None,
            need=bag.need,
            environment=key.environment,
            licences=key.licences,
        )

    def _take_turns(self) -> None:
        """Number the groups of parallel tasks in the order of the policy; in it, some have patience, and it ends."""
        tasks, which, now = self._grid.tasks, self._order, self._now
        jobs = {
            row: [ParallelJob(row, waiting.need, group.runtime, came) for group in waiting.groups]
            for row, waiting in enumerate(self._waiting)
            if waiting.need.parallel and waiting.number in tasks.bags
            for came in [tasks.bags[waiting.number].batches[0].arrived]
        }
        together = list(chain.from_iterable(jobs.values()))
        turns = {job: turn for turn, job in enumerate(together if which is None else which.order(together, now))}
        overtakes = which is not None and which.overtakes
        for row, its in jobs.items():
            waiting = self._waiting[row]
            groups = [
                replace(group, turn=turns[job], patient=patience_ends(job) - now if overtakes else inf)
                for group, job in zip(waiting.groups, its, strict=True)
            ]
            self._waiting[row] = replace(waiting, groups=tuple(groups))

    def _predicted(self, bag: ScheduledBag, count: int) -> list[tuple[int, float]]:
        """Groups of a bag's tasks that do not run: how many, and their predicted runtime. The longest come first."""
        seen, queued = list(self._some(bag)), self._queued.get(bag.number, [])
        # Each that was seen stands for as many as another one.
        seen += queued[:: max(1, (count - len(queued)) // max(1, len(seen)), len(queued) // LOOKED_AT)]
        seen = sorted(seen, reverse=True) or [bag.longest]
        many = min(GROUPS, len(set(seen)))
        edges = [len(seen) * place // many for place in range(many + 1)]
        shares = [count * edge // len(seen) for edge in edges]
        parts = [seen[start:end] for start, end in pairwise(edges)]
        counts = [end - start for start, end in pairwise(shares)]
        return [(many, sum(part) / len(part)) for many, part in zip(counts, parts, strict=True)]

    def _some(self, bag: ScheduledBag) -> Iterator[float]:
        """The predicted runtimes of some of a bag's tasks that wait here, evenly spread over its batches."""
        batches = bag.batches[:: 1 + len(bag.batches) // LOOKED_AT]
        step = max(1, sum([batch.count for batch in batches]) // LOOKED_AT)
        for batch in batches:
            if len(batch.runtimes) == 1:
                yield from batch.runtimes * (sum(map(batch.states.count, _HERE)) // step)
                continue
            for start in range(0, batch.count, step):
                found = (batch.states.find(state, start, start + step) for state in _HERE)
                if (place := next((place for place in found if place >= 0), -1)) >= 0:
                    yield batch.runtimes[place]


def _ratios(bag: ScheduledBag) -> Durations:
    """How its tasks compare with their predictions: those that have ended, and those of earlier bags."""
    told = [] if bag.ratios is None else bag.ratios.known()
    earlier = () if bag.bounded else bag.past.known
    return Durations(tuple(Mixture(told, sorted([*earlier, *first_ratios()])).quantiles(LEVELS, ())), len(told))


def _stretched(ratios: Durations, runtime: float) -> Durations:
    """How long tasks of this predicted runtime take."""
    return Durations(tuple([runtime * ratio for ratio in ratios.points]), ratios.known)


def predicted(runtime: float) -> Durations:
    """How long tasks of this predicted runtime take, if nothing else is known."""
    return _stretched(Durations(first_ratios()), runtime)


def _order(policy: Policy) -> WhichNext | None:
    """The order in which a policy looks at parallel tasks, if it has one that is known here."""
    parallel = getattr(policy, "parallel", None) or default_policy()
    return parallel.which if isinstance(parallel, Composed) else None


def _likeness(bag: ScheduledBag, own: int | None) -> tuple[object, ...]:
    """Equal for bags that may share a row."""
    key = bag.category.key
    alike = bag.category.account.share.name, key.priority, key.limit, bag.barred, bag.piece, bag.number == own
    return *alike, key.environment, key.licences, key.need and bag.need


def _in_rows(alike: Mapping[tuple[object, ...], list[ScheduledBag]], many: int) -> Iterator[list[ScheduledBag]]:
    """Neighbours among bags that are alike, so ``many`` at a time."""
    for its in alike.values():
        yield from (its[start : start + many] for start in range(0, len(its), many))


def _spans(windows: tuple[PlannedWindow, ...], now: float) -> Iterator[PictureWindow]:
    return (PictureWindow(window.opens - now, window.closes - now) for window in windows if window.opens > now)


def _nothing(seconds: float) -> float:
    return 0.0
