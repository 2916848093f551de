"""The interface of a policy for parallel tasks: it reads sites and waiting jobs, and yields what starts where.

Each `Start` is carried out before the policy is resumed, so what it reads is always up to date. It never changes
anything itself. What it reads is kept up to date by the scheduler, not made anew for each decision.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

from deskgrid.scheduler.need import UNBOUNDED, Amounts, Need


@dataclass(slots=True, eq=False)
class ParallelJob:
    """A parallel task that waits, or runs. ``runtime``: predicted, at speed 1, as `Need.seconds` takes it.

    ``arrived``: when it was submitted, and later by the time in which its bag was paused or waited for other bags.
    ``aside``: grows with each time at which it turned out that it can start in no known window
    (`deskgrid.scheduler.parallel.aside`); 0: it can, or nobody has asked.
    """

    task: int
    need: Need
    runtime: float
    arrived: float
    aside: int = 0


@dataclass(slots=True, eq=False)
class Host:
    """A PC that is up. ``closes``: when its window is expected to close. ``idle``: how many slots nothing occupies.

    ``speed``: 1 for the fastest; ``load``: how much of its processors others use, 0 to 1. ``slots`` may be more than
    ``processors``. ``amounts``: what no task occupies. ``frees``: when slots that are occupied should be
    free, ascending, as (time, slots).
    """

    name: str
    site: "Site"
    slots: int
    processors: int
    closes: float = inf
    speed: float = 1.0
    load: float = 0.0
    amounts: Amounts = UNBOUNDED
    labels: frozenset[str] = frozenset()
    idle: int = 0
    frees: list[tuple[float, int]] = field(default_factory=list)

    @property
    def power(self) -> float:
        """Effective power: relative power times idleness (CISNE, Eq. 2)."""
        return self.speed * (1.0 - self.load)

    def suits(self, need: Need) -> bool:
        """Whether it has the labels and, now, the amounts that one rank needs."""
        return need.amounts.within(self.amounts) and self.labels >= need.labels


@dataclass(slots=True, eq=False)
class RunningJob:
    """A parallel task that runs, or is being prepared. ``ends``: as predicted, on the hosts that it has."""

    job: ParallelJob
    site: "Site"
    ranks: tuple[tuple[Host, int], ...]
    started: float
    ends: float

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return sum([ranks for _, ranks in self.ranks])


@dataclass(slots=True, eq=False)
class Site:
    """PCs that can reach each other. ``idle``: slots of them that nothing occupies. ``running``: by ``ends``."""

    name: str
    hosts: list[Host] = field(default_factory=list)
    slots: int = 0
    idle: int = 0
    running: list[RunningJob] = field(default_factory=list)


class Start(NamedTuple):
    """Start ``job`` now, with these numbers of ranks on these hosts of one site.

    ``seconds``: predicted there. ``considered``: the policy's score of each site that was possible, by name, if it has
    any: for people who watch.
    """

    job: ParallelJob
    ranks: tuple[tuple[Host, int], ...]
    seconds: float
    considered: Mapping[str, float] | None = None


class Keep(NamedTuple):
    """Keep slots of these hosts for so many ranks of ``job`` from ``at`` on: other tasks on them have to end before.

    It holds until the policy is asked again.
    """

    job: ParallelJob
    ranks: tuple[tuple[Host, int], ...]
    at: float


class Aside(NamedTuple):
    """These jobs can start in no known window. It took time to find that out for the first of them."""

    jobs: Sequence[ParallelJob]


class ParallelView(Protocol):
    """What a policy for parallel tasks may read."""

    @property
    def now(self) -> float: ...

    @property
    def turns(self) -> Sequence[Sequence[ParallelJob]]:
        """The waiting jobs: first those whose turn it is, because their owners have used least of the grid, and so on.

        Jobs with the same turn are in the order of their arrival. A job that is started leaves at once.
        """

    @property
    def waiting(self) -> Sequence[ParallelJob]:
        """All of these, one turn after the other."""

    @property
    def sites(self) -> Sequence[Site]:
        """Every site with a PC that is up, by name."""

    @property
    def singles(self) -> bool:
        """Whether there are single tasks, waiting or running, from which slots have to be kept."""

    def coming(self, site: Site) -> Sequence[tuple[float, float, Host]]:
        """Windows to come of the PCs of a site, up or away, as (opens, closes, host), by ``opens``.

        They are announced, or known by habit.
        """


class ParallelPolicy(Protocol):
    """``name``: in the table of policies."""

    name: str

    def decide(self, view: ParallelView) -> Iterator[Start | Keep | Aside]:
        """What starts now. Asked only when a job waits, and something has changed that may matter to it."""
