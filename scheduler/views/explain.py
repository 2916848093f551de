"""Why a task waits: how many seconds each slot is short, and which announced windows it would fit.

And how long the windows are that are open or announced, in seconds of speed 1: whether a task can ever run.
"""

import math
from collections.abc import Container, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from deskgrid.scheduler.fitting import ROUNDING, fits
from deskgrid.scheduler.model import PlannedWindow, State
from deskgrid.scheduler.need import SINGLE, Need
from deskgrid.scheduler.queues.shares import LEAD_S, GridShare
from deskgrid.scheduler.state.avoided import Rest
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.grid import SchedulerState, Shut
from deskgrid.scheduler.state.quarantine import Quarantined
from deskgrid.scheduler.state.slots import Slot, Worker
from deskgrid.scheduler.state.timers import Timer

# The most slots, and the most coming windows (one for each worker), in one explanation: they fit on a screen.
ROWS = 20
# Slots and windows that are looked at in one piece: a few milliseconds.
PIECE = 2_000
# This many tasks take as long as one row, because only their states are counted; and how many form one piece.
TASKS_A_ROW = 10
TASKS_PIECE = 5_000


@dataclass(frozen=True, slots=True)
class SlotReason:
    """``short_s``: how many seconds more the slot would need; 0 when only its queue is full.

    A task as long as the time that is left does not fit: then ``short_s`` is next to nothing, but not 0. ``silent_s``:
    how long the worker has owed an answer for an attempt taken back from the slot, which gets nothing until then; None
    if it owes none. ``quarantined``: more of its quarantine, if it is in one. ``early_s``: how much earlier
    than announced it leaves on average (less than 0: later), if it does not keep its hours.
    ``ready``: whether the environment of the task is ready there. ``lacks``: labels that the task needs and that the PC
    has not; ``short``: of what the PC has less than the task needs, and how much it has. ``gang``: whether a gang has
    the slot, or it is kept for one that comes before the task would end. ``rest``: why the PC gets no such tasks for a
    while, because some did not work out there. ``speed``: of the PC; its seconds are those of this PC. ``shut``: why
    the PC gets no work at all.
    """

    worker: str
    slot: int
    left_s: float
    short_s: float
    silent_s: float | None
    quarantined: Quarantined | None = None
    ready: bool = True
    early_s: float | None = None
    lacks: tuple[str, ...] = ()
    short: tuple[tuple[str, float], ...] = ()
    gang: bool = False
    rest: Rest | None = None
    speed: float = 1.0
    shut: Shut = ""


@dataclass(frozen=True, slots=True)
class ComingWindow:
    """An announced window of a PC of this ``speed``. ``lacks``, ``short``: what the PC lacks, as in `SlotReason`."""

    worker: str
    starts_in_s: float
    lasts_s: float
    fits: bool
    speed: float = 1.0
    lacks: tuple[str, ...] = ()
    short: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Restraint:
    """Why a task is not placed although it may fit.

    ``limit``: of its bag, if ``out`` tasks of it are out, which is as many; else 0. ``lacking``: licences of which too
    few are free: name, how many it needs, how many are free, how many the grid has. ``lead_s``: the slot-seconds that
    its share is ahead of another one, if that is enough for others to have their turn; else 0.0. ``beside``: its share
    has something on a slot, and somebody whose tasks wait has nothing.
    """

    limit: int
    out: int
    lacking: tuple[tuple[str, int, int, int], ...]
    lead_s: float
    beside: bool = False


def restraint(grid: SchedulerState, task: int, now: float) -> Restraint:
    """What keeps ``task`` back now, if it waits."""
    category, licences = grid.tasks.known(task).bag.category, grid.categories.licences
    needs = [(name, many, max(0, licences.free(name))) for name, many in category.key.licences]
    return Restraint(
        limit=category.key.limit if category.out >= category.key.limit else 0,
        out=category.out,
        lacking=tuple([(name, many, free, licences.total.get(name, 0)) for name, many, free in needs if free < many]),
        **_turn(grid, category.account.share, now),
    )


def _turn(grid: SchedulerState, share: GridShare, now: float) -> dict[str, Any]:
    """Whether others have their turn before ``share``, and why: the last two fields of a `Restraint`."""
    waiting = [category for category in grid.categories.waiting.values() if len(category) and category.open]
    turns = [each.turn(now) for each in {category.account.share for category in waiting}]
    served, standing = share.turn(now)
    lead = standing - min([least for _, least in turns], default=math.inf)
    beside = served and not all(others for others, _ in turns)
    return {"lead_s": lead if lead > LEAD_S * len(grid.slots.slots) else 0.0, "beside": beside}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a task is and, if it waits, why. ``on`` is the worker that has it, ``copy_on`` the one that has its copy.

    ``margin_s``: how many seconds a slot must have beyond the predicted runtime: to start up, and to allow for the
    prediction error. ``errors``: how often the task has failed and was tried again. ``again_s``: if it pauses, in how
    many seconds it is tried again. ``needs_s``: what a slot must have left: for all of a task, or for a piece of one
    that is ``checkpointable``. ``left_s``: what is left of that by its newest checkpoint, in predicted seconds, None if
    there is none; ``fraction``: how much of it is done, if it says so; ``idle_pieces``: its last pieces that brought
    nothing. ``elsewhere``: the workers on which it has failed, if it waits for another one. ``longest_window_s``: in
    seconds of speed 1, as a task's; ``uneven``: other speeds than 1 are known.
    """

    state: State
    runtime_s: float
    margin_s: float
    errors: int
    again_s: float
    on: str
    slots: tuple[SlotReason, ...]
    coming: tuple[ComingWindow, ...]
    longest_window_s: float
    needs_s: float
    checkpointable: bool
    left_s: float | None
    fraction: float | None
    idle_pieces: int
    copy_on: str = ""
    elsewhere: tuple[str, ...] = ()
    uneven: bool = False


def explain(grid: SchedulerState, task: int, now: float) -> Generator[int, None, Explanation]:
    """Why ``task`` is where it is; the slots that are nearest to taking it first.

    The explanation is made in pieces. After each piece, this yields how many rows it has looked at.
    """
    runtime = grid.tasks.runtime(task)
    bag = grid.tasks.known(task).bag
    margin = grid.policy.requirement.margin
    needs = grid.policy.requirement.needs(runtime) if bag.piece is None else bag.needs_s(runtime) + margin
    progress = grid.tasks.progress.find(task)
    slots, coming, longest, rows = list[SlotReason](), list[ComingWindow](), longest_window(grid, now, bag.need), 0
    up = [(worker.name, worker.windows, worker.slots, worker) for worker in grid.slots.workers.values()]
    away = [(name, away.windows, list[Slot](), away.was) for name, away in grid.away.items()]
    for name, windows, its, pc in [*up, *away]:
        early_s = grid.hours.early(name, grid.slots.workers[name].opened) if its else None
        rest = grid.avoided.rest(bag.category.key, name) or grid.avoided.rest(bag.own_key, name)
        reasons = [_reason(slot, needs + ROUNDING, now, bag) for slot in its]
        if early_s is not None or rest is not None:
            reasons = [replace(each, early_s=early_s, rest=rest) for each in reasons]
        if its and (shut := grid.shut(its[0].worker)):
            stay = grid.quarantine.workers.get(name)
            reasons = [replace(each, shut=shut, quarantined=stay) for each in reasons]
        slots += reasons
        coming += _next_window(name, windows, needs, pc, bag=bag, now=now)
        rows += 1 + len(its) + len(windows)
        if rows >= PIECE:
            slots, coming = _nearest(slots), _soonest(coming)
            yield rows
            rows = 0
    state, holder, copy = grid.tasks.state(task), grid.bound.get(task), grid.copies.get(task)
    return Explanation(
        state=state,
        runtime_s=runtime,
        margin_s=needs - runtime if bag.piece is None else margin,
        needs_s=needs,
        errors=grid.tasks.errors(task),
        again_s=max(0.0, grid.timers.at[Timer.PAUSE].get(task, now) - now),
        on=holder.slot.worker.name if holder is not None else "",
        slots=tuple(_nearest(slots)),
        coming=tuple(_soonest(coming)),
        longest_window_s=longest,
        checkpointable=bag.piece is not None,
        left_s=None if progress is None or progress.left_s == progress.whole_s else progress.left_s,
        fraction=None if progress is None else progress.fraction,
        idle_pieces=0 if progress is None else progress.idle,
        copy_on=copy.slot.worker.name if copy is not None else "",
        elsewhere=tuple(sorted(grid.tasks.failed_on(task))) if task in bag.category.elsewhere else (),
        uneven=grid.slots.uneven,
    )


def _reason(
    slot: Slot,
    more_than: float,
    now: float,
    bag: ScheduledBag,
) -> SlotReason:
    left, environment = slot.remaining(now), bag.category.key.environment
    silent = None if slot.owes is None else now - slot.started
    ready = not environment or environment in slot.worker.environments
    short = max(0.0, more_than / slot.speed - left)
    labels, amounts = lacks(slot.worker, bag.need)
    gang = slot.gang is not None or (short > 0.0 and slot.closes < slot.worker.ends_at)
    return SlotReason(
        slot.worker.name,
        slot.position,
        left,
        short,
        silent,
        ready=ready,
        lacks=labels,
        short=amounts,
        gang=gang,
        speed=slot.speed,
    )


def _next_window(
    name: str, windows: Iterable[PlannedWindow], needs: float, worker: Worker | None, *, bag: ScheduledBag, now: float
) -> list[ComingWindow]:
    """The first window of a worker that fits a task, else its first: at most one."""
    speed, (labels, short) = 1.0 if worker is None else worker.speed, lacks(worker, bag.need)
    has = not (labels or short)
    coming = [
        ComingWindow(name, w.opens - now, w.lasts, has and w.lasts > needs / speed, speed, labels, short)
        for w in windows
        if w.opens > now
    ]
    return _soonest(coming)[:1]


def _nearest(slots: list[SlotReason]) -> list[SlotReason]:
    return sorted(slots, key=_distance)[:ROWS]


def _distance(reason: SlotReason) -> tuple[bool, bool, float, float]:
    unsuitable = bool(reason.lacks or reason.short) or reason.shut == "drained"
    ready = reason.ready and reason.rest is None
    return unsuitable, not ready, reason.short_s, reason.left_s


def _soonest(coming: list[ComingWindow]) -> list[ComingWindow]:
    return sorted(coming, key=lambda window: (not window.fits, window.starts_in_s))[:ROWS]


@dataclass(frozen=True, slots=True)
class WaitingCounts:
    """How many tasks of a bag wait, how many pause, how many are barred, and the first of the longest waiting ones."""

    waiting: int
    paused: int
    barred: int
    longest: int | None


def waiting_of(grid: SchedulerState, bag: int) -> Generator[int, None, WaitingCounts]:
    """The waiting tasks of a bag. Made in pieces, as in `explain`."""
    waiting, paused, barred, longest, found, rows = 0, 0, 0, -1.0, None, 0
    for batch in list(grid.tasks.bags[bag].batches):
        paused += batch.states.count(State.PAUSED)
        barred += batch.states.count(State.BARRED)
        if many := batch.states.count(State.WAITING):
            waiting += many
            seconds, task = batch.longest()
            if seconds > longest:
                longest, found = seconds, task
        rows += 1 + batch.count // TASKS_A_ROW
        if rows >= TASKS_PIECE:
            yield rows
            rows = 0
    yield rows
    return WaitingCounts(waiting, paused, barred, found)


# --- how long windows are --------------------------------------------------------------------------------------------


def best_window(
    grid: SchedulerState, now: float, need: Need = SINGLE, without: Container[str] = ()
) -> tuple[float, float]:
    """The longest window of a PC that has what tasks ``need``, and the speed of the PC; (0.0, 1.0) if there is none.

    ``without``: the names of PCs that do not count.
    """
    return max(_lengths(grid, now, need, without), default=(0.0, 1.0))


def longest_window(grid: SchedulerState, now: float, need: Need = SINGLE, without: Container[str] = ()) -> float:
    """The length of `best_window`."""
    return best_window(grid, now, need, without)[0]


def has_longer_window(
    grid: SchedulerState, than: float, now: float, need: Need = SINGLE, without: Container[str] = ()
) -> bool:
    """Whether `longest_window` is more than ``than`` seconds: usually one of the first windows is."""
    return any(fits(than, length) for length, _ in _lengths(grid, now, need, without))


def lacks(worker: Worker | None, need: Need) -> tuple[tuple[str, ...], tuple[tuple[str, float], ...]]:
    """What a PC lacks of what tasks need: labels; and of what it has too little. Of an unknown PC nothing."""
    if worker is None:
        return (), ()
    traits = worker.traits
    return tuple(sorted(need.labels - traits.labels)), need.amounts.lacking(traits.amounts)


def _lengths(grid: SchedulerState, now: float, need: Need, without: Container[str]) -> Iterator[tuple[float, float]]:
    for worker in grid.slots.workers.values():
        if worker.name not in without and _has(worker, need):
            yield max(worker.uptime(now), worker.windows.longest_s) * worker.speed, worker.speed
    for name, away in grid.away.items():
        if name not in without and _has(away.was, need):
            yield away.windows.longest_s * away.speed, away.speed


def _has(worker: Worker | None, need: Need) -> bool:
    return not (need.labels or need.amounts) or lacks(worker, need) == ((), ())
