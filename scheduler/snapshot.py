"""One immutable picture of the scheduler, for the status screen, ``status --json``, metrics and tests alike.

All times are seconds from the moment of the snapshot. Infinite ones are None, because JSON has no infinity.
"""

import math
from collections import Counter
from dataclasses import asdict, dataclass

from scheduler.core import Scheduler
from scheduler.forecast import Capacity
from scheduler.slots import Slot, Worker


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot. ``running`` is (task, predicted runtime, elapsed); ``left_s`` is tl, None when open-ended."""

    lane: int
    running: tuple[int, float, float] | None
    ahead: int
    ahead_s: float
    queued: int
    queued_s: float
    left_s: float | None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker with an open window. ``windows``: (starts in, lasts) of those to come."""

    name: str
    site: str
    uptime_s: float | None
    windows: tuple[tuple[float, float], ...]
    slots: tuple[SlotView, ...]


@dataclass(frozen=True, slots=True)
class BagView:
    """One bag. ``eta_s``: when it should be done if the predictions and plans hold; None when that cannot be seen.

    ``running``: the first task on its slot; what was sent ahead to wait there for its turn is not.
    """

    number: int
    total: int
    done: int
    failed: int
    cancelled: int
    running: int
    left_s: float
    longest_s: float
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole grid."""

    workers: tuple[WorkerView, ...]
    away: dict[str, tuple[tuple[float, float], ...]]
    bags: tuple[BagView, ...]
    regular: int
    priority: int
    longest_s: float
    policy: str
    counters: dict[str, float]


def take(scheduler: Scheduler, now: float) -> Snapshot:
    """The picture at ``now``."""
    return Snapshot(
        workers=tuple(_worker(worker, now) for worker in scheduler.slots.workers.values()),
        away={
            name: tuple((w.opens - now, w.lasts) for w in away.windows if w.closes > now)
            for name, away in scheduler.away.items()
        },
        bags=bag_views(scheduler, now),
        regular=len(scheduler.regular),
        priority=len(scheduler.priority),
        longest_s=max((bag.longest for bag in scheduler.tasks.bags.values() if bag.settled < bag.total), default=0.0),
        policy=scheduler.policy.name,
        counters=asdict(scheduler.counters),
    )


def bag_views(scheduler: Scheduler, now: float) -> tuple[BagView, ...]:
    """Every bag; bags are served in the order they came, so each waits for the work of those before it."""
    capacity = Capacity(scheduler, now)
    slots = (slot for worker in scheduler.slots.workers.values() for slot in worker.slots)
    running = Counter(scheduler.tasks.known(slot.sent[0].attempt.task).bag.number for slot in slots if slot.sent)
    views, work = [], 0.0
    for bag in scheduler.tasks.bags.values():
        eta: float | None = 0.0
        if bag.settled < bag.total:
            # Its longest task may have ended long ago; none that is left is longer than all that is left.
            longest = min(bag.longest, bag.left_s)
            eta = capacity.time_to_do(work + bag.left_s, longest + scheduler.policy.margin)
        # A bag that never ends as things are does not hold up those behind it: they are placed before it.
        work += bag.left_s if eta is not None else 0.0
        views.append(
            BagView(
                number=bag.number,
                total=bag.total,
                done=bag.done,
                failed=bag.failed,
                cancelled=bag.cancelled,
                running=running[bag.number],
                left_s=max(0.0, bag.left_s),
                longest_s=bag.longest,
                eta_s=eta,
            )
        )
    return tuple(views)


def _worker(worker: Worker, now: float) -> WorkerView:
    return WorkerView(
        name=worker.name,
        site=worker.site,
        uptime_s=_finite(worker.uptime(now)),
        windows=tuple((w.opens - now, w.lasts) for w in worker.windows if w.opens > now),
        slots=tuple(_slot(slot, now) for slot in worker.slots),
    )


def _slot(slot: Slot, now: float) -> SlotView:
    running = None
    if slot.sent:
        running = (slot.sent[0].attempt.task, slot.sent[0].runtime, now - slot.started)
    return SlotView(
        lane=slot.lane,
        running=running,
        ahead=max(0, len(slot.sent) - 1),
        ahead_s=slot.ahead_s,
        queued=len(slot.queue),
        queued_s=slot.queued_s,
        left_s=_finite(slot.remaining(now)),
    )


def _finite(seconds: float) -> float | None:
    return None if math.isinf(seconds) else seconds
