"""How many ranks of a parallel task can be together, and when, by the windows of the PCs. Pure.

It does not matter here what else runs on the PCs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deskgrid.scheduler.fitting import Requirement, fits
from deskgrid.scheduler.need import Amounts, Need

# Announced windows of a PC that are looked at: those of the next days.
WINDOWS = 8


@dataclass(frozen=True, slots=True)
class Pc:
    """A PC. ``site``: that of the PCs which reach it. ``windows``: (opens, closes) from now; one that is open first.

    ``apart``: by the policy in force, it has at most one rank of a task.
    """

    site: str
    slots: int
    speed: float
    amounts: Amounts
    labels: frozenset[str]
    windows: Sequence[tuple[float, float]]
    apart: bool = False

    def room(self, need: Need) -> int:
        """How many ranks it can have at once."""
        if not self.labels >= need.labels:
            return 0
        ranks = min(self.slots // need.slots, 1 if self.apart else self.slots)
        return need.amounts.times(self.amounts, ranks)


class Colocation(NamedTuple):
    """The most ranks that are together for long enough, from when on, and where. None: ``ranks`` is 0."""

    ranks: int
    starts_in_s: float
    site: str


def most_together(pcs: Iterable[Pc], need: Need, seconds: float, requirement: Requirement) -> Colocation:
    """Return the most ranks that are together, at the earliest time when there are so many.

    ``seconds``: that they need at speed 1. ``requirement``: what a window has to have left.
    """
    changes: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for pc in pcs:
        room = pc.room(need)
        lasts = requirement.needs(seconds / pc.speed)
        for opens, closes in pc.windows[:WINDOWS] if room else ():
            if fits(lasts, closes - opens):
                changes[pc.site] += [(max(0.0, opens), room), (closes - lasts, -room)]
    best = Colocation(0, 0.0, "")
    for site, its in changes.items():
        here = 0
        # Where one window can take no start any more when another opens, they are not together.
        for at, ranks in sorted(its):
            here += ranks
            if (here, -at) > (best.ranks, -best.starts_in_s):
                best = Colocation(here, at, site)
    return best


def most_pcs(pcs: Iterable[Pc], need: Need) -> int:
    """Return how many PCs of one site have room for a rank: the most that there are at a site."""
    return max(Counter(pc.site for pc in pcs if pc.room(need)).values(), default=0)
