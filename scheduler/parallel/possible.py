"""How long a parallel task may be at most: a longer one can start in no known window, whatever else ends.

It is worked out as if nothing ran and all windows opened at once, so it is only a bound: a shorter task may have to
wait for ever, too, because the windows of its PCs never overlap for long enough. Only a policy finds that out.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from deskgrid.scheduler.need import Amounts, Need
from deskgrid.scheduler.parallel.choices import PLAIN
from deskgrid.scheduler.parallel.hosts import seats

# More than rounding may take from a product.
ROUNDED = 1.0 + 1e-9


class PossibleHost(NamedTuple):
    """What a PC has if nothing else runs there. ``lasts``: its longest window, in seconds of speed 1."""

    lasts: float
    slots: int
    amounts: Amounts
    labels: frozenset[str]

    def seats(self, need: Need) -> int:
        """How many ranks it can have at once."""
        return seats(self.slots, self.amounts, need, PLAIN) if self.labels >= need.labels else 0


class Possible:
    """``sites``: what the PCs of each site have."""

    def __init__(self, sites: Iterable[Iterable[PossibleHost]]) -> None:
        self._sites = [sorted(offers, reverse=True, key=_lasts) for offers in sites]
        self._known: dict[Need, float] = {}

    def longest(self, need: Need) -> float:
        """The longest runtime with which a task can start; below 0 if none can. Of no site, nothing is known."""
        found = self._known.get(need)
        if found is None:
            found = self._known[need] = ROUNDED * max([_longest(need, offers) for offers in self._sites], default=inf)
        return found


def _longest(need: Need, offers: Sequence[PossibleHost]) -> float:
    """The same at one site, whose PCs with the longest windows are first."""
    best, ranks = -inf, need.least
    counts = [offer.seats(need) for offer in offers]
    for offer, together in zip(offers, accumulate(counts), strict=True):
        if together >= ranks and need.speedup is None:
            return offer.lasts
        for size in range(ranks, min(together, need.most) + 1):
            # The seconds that it takes are less than those of the shortest of these windows.
            best = max(best, offer.lasts / need.seconds(1.0, size))
        ranks = max(ranks, together + 1)
    return best


def _lasts(offer: PossibleHost) -> float:
    return offer.lasts
