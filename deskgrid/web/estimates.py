"""How often bags end when their estimates said: each bag's first estimate counts. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from deskgrid.wire.status import BagState

# Bags whose estimate is remembered.
BAGS = 10_000


class _Interval(NamedTuple):
    low: float
    high: float


class Estimates:
    """Compares estimates with what came. ``counts``: of bags that ended "within" their interval, "early" or "late"."""

    def __init__(self) -> None:
        self._said: dict[str, _Interval] = {}
        self.counts = Counter[str]()

    def add(self, bags: Iterable[BagState], now: float) -> None:
        """Look at the bags of a status document."""
        for bag in bags:
            ended = bag["closed"] and bag["done"] + bag["failed"] + bag["cancelled"] == bag["total"]
            if ended:
                self._end(bag, now)
            elif bag["bag"] not in self._said and bag["eta_low_s"] is not None and bag["eta_high_s"] is not None:
                if len(self._said) >= BAGS:
                    del self._said[next(iter(self._said))]
                self._said[bag["bag"]] = _Interval(now + bag["eta_low_s"], now + bag["eta_high_s"])

    def _end(self, bag: BagState, now: float) -> None:
        said = self._said.pop(bag["bag"], None)
        if said is not None and not bag["cancelled"]:
            self.counts["early" if now < said.low else "late" if now > said.high else "within"] += 1
