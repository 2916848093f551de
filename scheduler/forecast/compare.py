"""Answers to "what if": the same forward run from one picture of the grid, as it is and with something changed.

Rule: all runs have the same chance, so that the answers differ only by what was changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, inf
from random import Random
from typing import Any, NamedTuple

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.forecast.ahead import RUNS, forecast
from deskgrid.scheduler.forecast.changes import ImaginedChange, Unchangeable, changed, stays_longer
from deskgrid.scheduler.forecast.correction import Estimate, estimate
from deskgrid.scheduler.forecast.picture import NOT_TOGETHER, Picture, PictureBag, PicturePC, longest_window, too_little
from deskgrid.scheduler.forecast.under_policy import Untried, stretch
from deskgrid.scheduler.model import UnknownPolicy
from deskgrid.scheduler.parallel.choices import PLAIN
from deskgrid.scheduler.parallel.hosts import seats
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.policies.base import Policy

# Advice: an hour more of each of so many groups of PCs, the largest; and so many more of the one that helps most.
HOUR_S = 3600.0
GROUPS = 8
HOURS = (2, 4)
NEVER = Estimate(inf, inf, inf)
# No task is said to need more pieces: somebody may imagine a window of next to no length.
PIECES = 10_000_000


class PolicyUsed(NamedTuple):
    """The policy in force, by its name and options."""

    name: str
    options: Mapping[str, Any]

    def make(self) -> Policy:
        """A new one like it."""
        return make_policy(self.name, **self.options)


class Dice(NamedTuple):
    """The chance of all runs, and how many there are for each answer."""

    seed: int
    runs: int = RUNS


class ImaginedEnd(NamedTuple):
    """When the bag ends; None: nobody can tell, and ``note`` says why."""

    when: Estimate | None
    note: str = ""


class LongerWindows(NamedTuple):
    """The answer if a group of PCs stayed longer: ``closes_s`` is when they go home as planned, the last of them."""

    group: str
    pcs: int
    closes_s: float
    hours: int
    answer: ImaginedEnd


class UnfitTasks(NamedTuple):
    """Tasks that fit no window that is known. ``pieces``: into how many each has to be split so that it fits.

    ``longest_s``: of the window in which most can be done; ``needs_s``: of the longest task, on that PC. ``keeps``: the
    tasks are checkpointable, and that is what a piece needs.
    """

    tasks: int
    needs_s: float
    longest_s: float
    pieces: int
    keeps: bool = False


class ForecastAdvice(NamedTuple):
    """``longer``: what helps most comes first. ``misfits``: None if every task fits some window."""

    now: ImaginedEnd
    longer: list[LongerWindows]
    misfits: UnfitTasks | None


def compare(
    picture: Picture, bag: int, changes: Sequence[ImaginedChange], policy: PolicyUsed, dice: Dice
) -> Iterator[ImaginedEnd]:
    """Yield when a bag ends: first as things are, then with each change."""
    return (_answer(picture, bag, change, policy, dice) for change in (ImaginedChange(), *changes))


def _answer(picture: Picture, bag: int, change: ImaginedChange, policy: PolicyUsed, dice: Dice) -> ImaginedEnd:
    try:
        imagined = changed(picture, bag, change)
        factor = 1.0
        if change.policy:
            factor = stretch(imagined, bag, policy.make, partial(make_policy, change.policy), dice.seed)
    except (UnknownPolicy, Unchangeable, Untried) as error:
        return ImaginedEnd(None, str(error))
    return _ends(imagined, bag, dice, factor)


def obstacle(picture: Picture, bag: int) -> str:
    """Why a bag has no end, in a few words."""
    waiting = _bag(picture, bag)
    if waiting.barred:
        return "the bag is paused, or comes after another one"
    if not any(pc.spans for pc in picture.pcs):
        return "no PC is up or announced"
    if not any(pc.spans and _suits(pc, waiting) for pc in picture.pcs):
        return "no PC that is up or announced has what its tasks need"
    if found := misfits(picture, waiting):
        return (
            f"{found.tasks:,} tasks fit no window that is known"
            if found.tasks > 1
            else "1 task fits no window that is known"
        )
    if waiting.need.parallel:
        return NOT_TOGETHER
    return too_little(waiting, longest_window([pc for pc in picture.pcs if _suits(pc, waiting)]))


def misfits(picture: Picture, waiting: PictureBag) -> UnfitTasks | None:
    """The waiting tasks of a bag that need more time at once than any window has; None if all fit."""
    longest, speed = longest_window([pc for pc in picture.pcs if _suits(pc, waiting)])
    found = [group for group in waiting.groups if group.count and not fits(waiting.at_once_s(group), longest * speed)]
    if not found or not longest:
        return None
    needs = max(map(waiting.at_once_s, found)) / speed
    # A window has to be longer than what is needed.
    pieces = ceil(min((needs + 1.0) / longest, PIECES))
    return UnfitTasks(sum([group.count for group in found]), needs, longest, pieces, waiting.keeps)


def _suits(pc: PicturePC, waiting: PictureBag) -> bool:
    """Whether a PC can have the environment of a task, and room for one rank of it."""
    need = waiting.need
    if pc.prepares_s(waiting.environment) == inf:
        return False
    return pc.labels >= need.labels and seats(pc.slots, pc.amounts, need, PLAIN) > 0


def advise(picture: Picture, bag: int, dice: Dice) -> ForecastAdvice:
    """What would help a bag: an hour more of each group of PCs; and what to do about tasks that fit no window."""
    waiting = _bag(picture, bag)
    found = misfits(picture, waiting)
    if found is not None:
        picture = _without_misfits(picture, waiting)
        if not _has_work(picture, bag):
            return ForecastAdvice(ImaginedEnd(None, obstacle(replace(picture, bags=(waiting,)), bag)), [], found)
    now = _ends(picture, bag, dice)
    largest = dict(sorted(groups(picture.pcs).items(), key=lambda each: -len(each[1]))[:GROUPS])
    longer = [_longer(picture, bag, dice, group, 1) for group in largest]
    longer.sort(key=lambda each: each.answer.when or NEVER)
    longer += [_longer(picture, bag, dice, longer[0].group, hours) for hours in HOURS if longer]
    return ForecastAdvice(now, longer, found)


def groups(pcs: Sequence[PicturePC]) -> dict[str, list[PicturePC]]:
    """The PCs that close as planned, by site; those of no site by their names without the number at the end."""
    found: dict[str, list[PicturePC]] = {}
    for pc in pcs:
        if pc.spans and pc.spans[0].closes < inf:
            found.setdefault(pc.site or f"{pc.name.rstrip('0123456789')}*", []).append(pc)
    return found


def _longer(picture: Picture, bag: int, dice: Dice, group: str, hours: int) -> LongerWindows:
    pcs = groups(picture.pcs)[group]
    names, closes = {pc.name for pc in pcs}, max([pc.spans[0].closes for pc in pcs])
    after = [stays_longer(pc, hours * HOUR_S) if pc.name in names else pc for pc in picture.pcs]
    return LongerWindows(group, len(pcs), closes, hours, _ends(replace(picture, pcs=tuple(after)), bag, dice))


def _ends(picture: Picture, bag: int, dice: Dice, factor: float = 1.0) -> ImaginedEnd:
    """When a bag ends in a picture, if everything took ``factor`` times as long."""
    found = estimate([factor * end if end else 0.0 for end in forecast(picture, Random(dice.seed), dice.runs)[bag]])
    return ImaginedEnd(found) if found.median < inf else ImaginedEnd(None, obstacle(picture, bag))


def _bag(picture: Picture, number: int) -> PictureBag:
    return next(waiting for waiting in picture.bags if waiting.number == number)


def _has_work(picture: Picture, bag: int) -> bool:
    """Whether a task of a bag runs, or waits."""
    waits = any(group.count for group in _bag(picture, bag).groups)
    return waits or any(running.bag == bag for pc in picture.pcs for running in pc.running)


def _without_misfits(picture: Picture, waiting: PictureBag) -> Picture:
    """The picture without the tasks of a bag that fit no window."""
    longest, speed = longest_window([pc for pc in picture.pcs if _suits(pc, waiting)])
    most = longest * speed
    groups = [replace(group, count=0) if waiting.at_once_s(group) >= most else group for group in waiting.groups]
    fits = replace(waiting, groups=tuple(groups))
    return replace(picture, bags=tuple([fits if bag is waiting else bag for bag in picture.bags]))
