"""Bags that fail wherever they are tried: their failures say nothing about the workers."""

from collections.abc import Container

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.bags import Bag

# On how many workers a bag has to fail before it is to blame. Two may be broken PCs, which are always free.
BAG_WORKERS = 3


class BrokenBags:
    """A bag is broken if it has failed on `BAG_WORKERS` workers, and no task of it is done in between."""

    def __init__(self) -> None:
        # For each bag that failed: how many of its tasks were done then, and the workers on which it has failed since,
        # BAG_WORKERS at most.
        self._bags: dict[int, tuple[int, set[str]]] = {}

    def is_broken(self, bag: Bag, worker: str) -> bool:
        """Note that ``bag`` failed on ``worker``; return whether the bag is to blame."""
        done, where = self._bags.get(bag.number, (bag.done, set[str]()))
        if done != bag.done:
            where = set()
        if len(where) < BAG_WORKERS:
            where.add(worker)
        self._bags[bag.number] = bag.done, where
        return len(where) == BAG_WORKERS

    def forget(self, bag: int) -> None:
        """The bag is forgotten."""
        self._bags.pop(bag, None)

    def check(self, bags: Container[int]) -> None:
        """Raise `InvariantBroken` unless all ``bags`` that failed are known."""
        agree("bags that failed and are not known", [bag for bag in self._bags if bag not in bags], [])
