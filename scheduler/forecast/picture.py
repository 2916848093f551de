"""What a forecast starts from: the grid at one moment, as plain values. Seconds; instants count from that moment on.

These are values that anybody can change with `dataclasses.replace` and `_replace`: a grid without a laboratory, with a
window that lasts longer, or with another bag.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.model import WEEK_S
from deskgrid.scheduler.need import SINGLE, UNBOUNDED, Amounts, Need


class Durations(NamedTuple):
    """How long tasks of one kind take. ``points``: equally likely seconds, ascending, at least one.

    ``known``: how many ended tasks of this bag they stand on; with few, their mean may be far off. ``wide``: the points
    if the longest tasks have not been seen yet (`deskgrid.scheduler.prediction.runtimes.RuntimeSpread`); empty: enough
    have.
    """

    points: tuple[float, ...]
    known: float = 0.0
    wide: tuple[float, ...] = ()

    def each(self, change: Callable[[float], float]) -> "Durations":
        """With all seconds changed."""
        return self._replace(points=tuple(map(change, self.points)), wide=tuple(map(change, self.wide)))


class PictureWindow(NamedTuple):
    """A window of a PC. It is open if ``opens`` is not after 0. ``closes``: as planned, perhaps infinity.

    ``ends``: when it may really close, equally likely; empty: as planned.
    """

    opens: float
    closes: float
    ends: tuple[float, ...] = ()


class PictureTask(NamedTuple):
    """A task that runs on a slot. ``group``: the place of its kind in ``PictureBag.groups`` of its bag.

    ``gang``: of a parallel task, what all of its slots have in common, and no other slot; else 0.
    """

    bag: int
    group: int
    elapsed: float
    gang: int = 0


class Preparing(NamedTuple):
    """An environment and a PC. ``takes_s``: how long the PC takes to prepare it, infinity if it never can.

    ``ready``: whether it has done that.
    """

    environment: str
    takes_s: float
    ready: bool = False


@dataclass(frozen=True, slots=True)
class PicturePC:
    """A PC, its spans in order, and what its slots run. ``speed``: tasks take half as long at 2.0.

    ``reachable``: whether other PCs of its ``site`` can reach it. ``prepares``: the environments of
    bags, but for those that it need not prepare. ``again_s``: after how long announced windows come again.
    """

    name: str
    spans: tuple[PictureWindow, ...]
    slots: int = 1
    running: tuple[PictureTask, ...] = ()
    site: str = ""
    speed: float = 1.0
    amounts: Amounts = UNBOUNDED
    reachable: bool = True
    labels: frozenset[str] = frozenset()
    prepares: tuple[Preparing, ...] = ()
    again_s: float = WEEK_S

    @property
    def period_s(self) -> float:
        """After how long its spans come again (`deskgrid.scheduler.prediction.beyond`); 0.0: none was announced."""
        return self.again_s if self.spans and self.spans[-1].opens > 0.0 and self.spans[-1].closes < inf else 0.0

    @property
    def stays_s(self) -> float:
        """When its first window closes."""
        return self.spans[0].closes if self.spans else 0.0

    def prepares_s(self, environment: str) -> float:
        """How long it takes to prepare an environment; 0 if it need not."""
        each = next((each for each in self.prepares if each.environment == environment), None)
        return 0.0 if each is None or each.ready else each.takes_s

    def room_at(self, seconds: float, after: float = 0.0) -> float:
        """When, from ``after`` on, a window first has more than so many seconds left; infinity: never."""
        begins = [(max(after, span.opens), span.closes) for span in self.spans]
        return min([opens for opens, closes in begins if fits(seconds, closes - opens)], default=inf)


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks of a bag that are alike. ``count``: how many wait, 0 or more.

    ``runtime``: as predicted, for policies that begin the longest first. ``needs_s``: what a window must have left for
    the policy to begin one. Seconds of parallel tasks are as `Need.seconds` takes them. ``turn``: of these, the least
    begin first. ``patient``: until when others may overtake them (`deskgrid.scheduler.parallel.patience`).
    """

    count: int
    durations: Durations
    runtime: float = 0.0
    needs_s: float = 0.0
    turn: int = 0
    patient: float = inf


@dataclass(frozen=True, slots=True)
class PictureBag:
    """A bag with tasks that have not ended, in groups.

    ``ended`` of its ``total`` tasks have ended. ``share``: whose it is; shares take turns, those that have used least
    first. ``priority``: bags of higher ones come first among those of a share. ``limit``: the most tasks that it may
    have running at a time, 0 for any. ``barred``: none of its tasks may begin.
    ``keeps``: its tasks are checkpointable, and an interrupted one goes on where it stopped. ``begins``: none of them
    begins before that. ``need``: what each of its tasks needs beside its seconds. ``environment``: what has to be ready
    on a PC before one of them begins there; empty: nothing. ``licences``: what each of its tasks uses of them, by name.
    """

    number: int
    groups: tuple[Group, ...]
    total: int
    ended: int = 0
    share: str = ""
    priority: int = 0
    limit: int = 0
    barred: bool = False
    keeps: bool = False
    begins: float = 0.0
    need: Need = SINGLE
    environment: str = ""
    licences: tuple[tuple[str, int], ...] = ()

    def at_once_s(self, group: Group) -> float:
        """What a window must have left for one of its tasks, on as many PCs of speed 1 as it may have."""
        return self.need.seconds(group.needs_s, self.need.most)


class PictureShare(NamedTuple):
    """What a share has used so far, in seconds on slots, for its ``weight``."""

    name: str
    used_s: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Picture:
    """The grid. ``bags``: as they came. ``longest_first``: the policy's order, in which their tasks begin.

    ``shares``: those that are not named here have used nothing, and weigh 1. ``backfills``: whether parallel tasks may
    begin while one that came before them waits. ``licences``: how many the grid has of each, by name.
    """

    pcs: tuple[PicturePC, ...]
    bags: tuple[PictureBag, ...]
    longest_first: bool = False
    shares: tuple[PictureShare, ...] = ()
    backfills: bool = True
    licences: tuple[tuple[str, int], ...] = ()


def widened(picture: Picture) -> Picture | None:
    """The picture if the longest tasks of some bags have not been seen yet; None: all bags have shown enough."""
    if not any(group.durations.wide for bag in picture.bags for group in bag.groups):
        return None
    return replace(picture, bags=tuple([replace(bag, groups=tuple(map(_widened, bag.groups))) for bag in picture.bags]))


def _widened(group: Group) -> Group:
    durations = group.durations
    return replace(group, durations=Durations(durations.wide, durations.known)) if durations.wide else group


# Why a bag of single tasks has no end.
TOO_LONG = "some of its tasks may take longer than any window that is known"
TOO_FEW = "the windows that are open or announced are too few"
# Why a bag of parallel tasks has no end.
NOT_TOGETHER = "its tasks do not all end while the PCs that they need are there together"


def longest_window(pcs: Sequence[PicturePC]) -> tuple[float, float]:
    """The window, open or announced, in which most can be done: its seconds, and the speed of its PC; (0, 1): none."""
    windows = [(span.closes - max(0.0, span.opens), pc.speed) for pc in pcs for span in pc.spans]
    return max(windows, key=lambda window: window[0] * window[1], default=(0.0, 1.0))


def too_little(waiting: PictureBag, longest: tuple[float, float]) -> str:
    """Why a bag has no end, although its single tasks fit into the ``longest`` window as predicted."""
    seconds, speed = longest
    all_fit = 1.0
    for group in waiting.groups:
        points = group.durations.points
        all_fit *= (bisect_left(points, seconds * speed) / len(points)) ** group.count
    return TOO_LONG if all_fit < 0.5 and not waiting.keeps else TOO_FEW
