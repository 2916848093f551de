"""The three choices that a policy for parallel tasks is made of: which next, how many ranks, and where.

`deskgrid.scheduler.parallel.composed` puts them together. Each choice is a small file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

from deskgrid.scheduler.fitting import NO_MORE, ROUNDING, Requirement, fits
from deskgrid.scheduler.need import Amounts
from deskgrid.scheduler.parallel.base import Host, ParallelJob, ParallelView, Site, Start


class Size(NamedTuple):
    """How much a job gets: so many ``ranks``; or, if ``power`` is not 0, as few as have that effective power together.

    A job that cannot have all of it waits. Ranks by power are never fewer or more than the job's need allows.
    """

    ranks: int
    power: float = 0.0

    def of(self, host: Host) -> float:
        """The power of one rank on a host, as this size counts it."""
        return host.power


class Sharing(NamedTuple):
    """``mpl``: at most so many slots of a PC are occupied for each of its processors (CISNE's multiprogramming level).

    ``apart``: a PC has at most one rank of a job. ``shared``: a rank is slower if its processor has others, too.
    """

    mpl: float = inf
    apart: bool = False
    shared: bool = False

    def pace(self, host: Host, slots: int) -> float:
        """How fast a rank of so many slots is on a PC, relative to one that has its processors for itself."""
        return min(1.0, host.processors / (host.slots - host.idle + slots)) if self.shared else 1.0


PLAIN = Sharing()


@dataclass(slots=True, eq=False)
class DecisionView:
    """What the choices read in one decision.

    ``queue``: the jobs that may start now, in the order of their turns; its head is decided about. A job that is
    started leaves it. ``sizes``: how many ranks the others would get, for those who look ahead. ``requirement``:
    what a window must have left for a job.
    """

    view: ParallelView
    now: float
    queue: list[ParallelJob]
    sizes: "HowMany"
    requirement: Requirement = NO_MORE
    sharing: Sharing = PLAIN
    # What `hosts` has found, with the idle slots of the site at that time.
    free: dict[tuple[Site, int, Amounts, frozenset[str]], tuple[int, list[tuple[float, Host, int]]]] = field(
        default_factory=dict
    )
    # What `capacity` has found: by site, the ranks that each PC could have.
    seats_by_site: dict[tuple[int, Amounts, frozenset[str]], list[list[tuple[Host, int]]]] = field(default_factory=dict)
    # What `reservation` has found: windows, as (opens, closes, speed, ranks).
    windows: dict[tuple[Site, int, Amounts, frozenset[str]], list[tuple[float, float, float, int]]] = field(
        default_factory=dict
    )

    def fits(self, seconds: float, rest: float) -> bool:
        """Whether a job of so many seconds ends in time in a window with ``rest`` seconds left."""
        return fits(seconds, rest, self.requirement, ROUNDING)

    def needs(self, seconds: float) -> float:
        """The seconds that a window must exceed for that."""
        return self.requirement.needs(seconds) + ROUNDING


@dataclass(slots=True, eq=False)
class HeadReservation:
    """What waits for the head of the queue: ranks on hosts, from ``at`` on, for ``seconds``. Without ranks: it waits,
    and nobody needs to know for what.
    """

    job: ParallelJob
    ranks: tuple[tuple[Host, int], ...]
    at: float
    seconds: float
    by_host: dict[Host, int] = field(init=False)

    def __post_init__(self) -> None:
        self.by_host = dict(self.ranks)


class WhichNext(Protocol):
    """In which order jobs come. ``backfills``: whether others may start while the head waits. ``overtakes``: whether a
    job may come before one that has waited for longer; then one whose patience has ended comes first
    (`deskgrid.scheduler.parallel.patience`).
    """

    backfills: bool
    overtakes: bool

    def order(self, waiting: Sequence[ParallelJob], now: float) -> list[ParallelJob]:
        """The waiting jobs, the next one first."""


class HowMany(Protocol):
    """How many ranks a job gets."""

    def notice(self, look: DecisionView) -> None:
        """Called once at the beginning of each decision: for sizes that depend on what has been, or is only now."""
        return  # most depend on neither

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """The size of a job whose turn it is (it is ``look.queue[0]``, or a job behind it that is looked at ahead)."""

    def instead(self, look: DecisionView, job: ParallelJob, size: Size) -> Size:
        """The head cannot start now with ``size``: what it starts with now if that fits, or else waits for."""
        return size

    def fill(
        self, look: DecisionView, jobs: Sequence[ParallelJob], reserved: HeadReservation
    ) -> Iterator[tuple[ParallelJob, Size]]:
        """Jobs behind the head, and the size with which each is tried while the head waits for ``reserved``.

        Each that fits without delaying the head is started before the next one is asked for.
        """
        for job in jobs:
            yield job, self.size(look, job)


class Where(Protocol):
    """On which PCs of which site a job starts. Windows are respected: it ends before the first of them closes."""

    sharing: Sharing

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """Where it starts now, or None. It does not delay what is ``reserved`` for another job."""


def fraction(option: str, value: float) -> float:
    """Check the value of an option that is a part of something."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{option} is a number from 0 to 1, not {value!r:.40}")
    return value
