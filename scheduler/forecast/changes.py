"""Changes that are only imagined, and what the picture of the grid is with each of them. Nothing touches the grid.

A change that does not apply raises `Unchangeable`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import partial
from itertools import cycle, islice, pairwise
from re import compile

from deskgrid.scheduler.forecast.picture import Group, Picture, PictureBag, PicturePC, PictureWindow
from deskgrid.scheduler.model import WEEK_S, SchedulerError

# Slots that may be imagined beside those that are there: far more than a large lab has.
SLOTS_LIMIT = 20_000


class Unchangeable(SchedulerError):
    """The change does not apply to this grid; one line that says why."""


@dataclass(frozen=True, slots=True)
class ImaginedChange:
    """What is imagined otherwise. The defaults change nothing, and all that is given holds together. Seconds.

    A pattern stands for PCs by their names, or is the name of a site. ``without``: PCs that are not there. ``windows``:
    the windows that PCs have instead of their own, in order, each (starts in, lasts). ``more``: by pattern, how many
    more PCs there are like those that it stands for, in turn. ``split``: how many tasks there are in place of each that
    waits. ``begins_s``: the bag begins only then. ``policy``: the one that places tasks; empty: the one in force.
    """

    without: tuple[str, ...] = ()
    windows: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()
    more: tuple[tuple[str, int], ...] = ()
    split: int = 1
    begins_s: float = 0.0
    policy: str = ""


def changed(picture: Picture, bag: int, change: ImaginedChange) -> Picture:
    """The picture with a change, for the bag of that number. More PCs come first: they may be like those that go."""
    pcs = picture.pcs + more_pcs(picture.pcs, change.more)
    for pattern, windows in change.windows:
        pcs = _each(pcs, pattern, partial(replace, spans=_spans(windows), again_s=WEEK_S))
    for pattern in change.without:
        gone = {pc.name for pc in matching(pcs, pattern)}
        pcs = tuple([pc for pc in pcs if pc.name not in gone])
    lost = _lost(picture.pcs, pcs)
    bags = [_with_lost(waiting, lost) for waiting in picture.bags] if lost else picture.bags
    bags = [_changed_bag(waiting, change) if waiting.number == bag else waiting for waiting in bags]
    return replace(picture, pcs=_without_gangs(picture.pcs, pcs), bags=tuple(bags))


def matching(pcs: Sequence[PicturePC], pattern: str) -> list[PicturePC]:
    """The PCs that a pattern stands for. Raises `Unchangeable` if there are none."""
    fits = compile(translate(pattern)).match
    found = [pc for pc in pcs if pc.site == pattern or fits(pc.name)]
    if not pcs:
        raise Unchangeable("no PC is known")
    if not found:
        raise Unchangeable(f"no PC and no site is called {pattern}")
    return found


def more_pcs(pcs: Sequence[PicturePC], more: Sequence[tuple[str, int]]) -> tuple[PicturePC, ...]:
    """By pattern, so many PCs that have the windows of those that it stands for, in turn, and run nothing yet.

    Raises `Unchangeable` if they have too many slots.
    """
    chosen = [pc for like, many in more for pc in islice(cycle(matching(pcs, like)), many)]
    if sum([pc.slots for pc in chosen]) > SLOTS_LIMIT:
        raise Unchangeable(f"{len(chosen):,} more PCs like these have more than {SLOTS_LIMIT:,} slots")
    return tuple([_new(pc, f"{pc.name}+{number}") for number, pc in enumerate(chosen, 1)])


def _new(pc: PicturePC, name: str) -> PicturePC:
    """A PC like another one, on which nothing runs or is ready yet."""
    prepares = tuple([each._replace(ready=False) for each in pc.prepares])
    return replace(pc, name=name, running=(), prepares=prepares)


def stays_longer(pc: PicturePC, seconds: float) -> PicturePC:
    """The PC, if its first window closed so much later. A window that would open before that is part of it."""
    if not pc.spans:
        return pc
    first, *others = pc.spans
    closes = first.closes + seconds
    while others and others[0].opens <= closes:
        closes = max(closes, others.pop(0).closes)
    return replace(
        pc, spans=(PictureWindow(first.opens, closes, tuple([end + seconds for end in first.ends])), *others)
    )


def _spans(windows: Sequence[tuple[float, float]]) -> tuple[PictureWindow, ...]:
    """Windows as spans. Raises `Unchangeable` unless they come in order."""
    spans = tuple([PictureWindow(starts_in, starts_in + lasts) for starts_in, lasts in windows])
    if any(before.closes > after.opens for before, after in pairwise(spans)):
        raise Unchangeable("windows overlap, or are not in order")
    return spans


def _each(pcs: Sequence[PicturePC], pattern: str, new: Callable[[PicturePC], PicturePC]) -> tuple[PicturePC, ...]:
    """The PCs, with new ones in place of those that a pattern stands for."""
    chosen = {pc.name for pc in matching(pcs, pattern)}
    return tuple([new(pc) if pc.name in chosen else pc for pc in pcs])


def _is_up(pc: PicturePC) -> bool:
    return bool(pc.spans) and pc.spans[0].opens <= 0.0


def _idle_if_away(pc: PicturePC) -> PicturePC:
    return replace(pc, running=()) if pc.running and not _is_up(pc) else pc


def _lost(before: Sequence[PicturePC], after: Sequence[PicturePC]) -> Counter[tuple[int, int]]:
    """How many tasks, by bag and group, run on PCs that are not up any more: they begin again elsewhere."""
    up = {pc.name for pc in after if _is_up(pc)}
    lost = [task for pc in before if pc.name not in up for task in pc.running]
    # Each gang counts once.
    return Counter([task[:2] for task in {task.gang or -place: task for place, task in enumerate(lost, 1)}.values()])


def _without_gangs(before: Sequence[PicturePC], after: Sequence[PicturePC]) -> tuple[PicturePC, ...]:
    """The PCs: idle if they are not up, and without what is left of gangs that others of them have lost."""
    up = {pc.name for pc in after if _is_up(pc)}
    gone = {task.gang for pc in before if pc.name not in up for task in pc.running if task.gang}
    return tuple([_idle_if_away(_without(pc, gone)) for pc in after])


def _without(pc: PicturePC, gangs: set[int]) -> PicturePC:
    """The PC without these gangs."""
    if not any(task.gang in gangs for task in pc.running):
        return pc
    return replace(pc, running=tuple([task for task in pc.running if task.gang not in gangs]))


def _with_lost(waiting: PictureBag, lost: Counter[tuple[int, int]]) -> PictureBag:
    counts = [group.count + lost[waiting.number, place] for place, group in enumerate(waiting.groups)]
    groups = [replace(group, count=count) for group, count in zip(waiting.groups, counts, strict=True)]
    return replace(waiting, groups=tuple(groups))


def _changed_bag(waiting: PictureBag, change: ImaginedChange) -> PictureBag:
    if change.split > 1:
        waiting = split(waiting, change.split)
    return replace(waiting, begins=max(waiting.begins, change.begins_s))


def split(waiting: PictureBag, many: int) -> PictureBag:
    """The bag with ``many`` tasks, that much shorter, in place of each one that waits. Those that run are as before."""
    parts = [_part(group, many) for group in waiting.groups if group.count]
    whole = [replace(group, count=0) for group in waiting.groups]
    added = sum([group.count for group in parts]) - sum([group.count for group in waiting.groups])
    return replace(waiting, groups=(*whole, *parts), total=waiting.total + added)


def _part(group: Group, many: int) -> Group:
    durations = group.durations.each(lambda seconds: seconds / many)
    return Group(group.count * many, durations, group.runtime / many, group.needs_s / many)
