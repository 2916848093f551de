"""How many tasks run at once where there is a most: of a bag with a limit, and of all that need the same licence.

A cap is known by its number. Rule: what a task uses is free at the moment when it ends, and not before.
"""

from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf

from deskgrid.scheduler.forecast.picture import Picture


class Caps:
    """``totals``: by cap. ``of``: by place of a bag, the caps that count for it, and how much a task of it uses.

    ``at_once``: by place of such a bag, how many of its tasks can run at once at most.
    """

    def __init__(self, picture: Picture) -> None:
        self.totals: list[int] = []
        of, known, numbers = defaultdict[int, list[tuple[int, int]]](list), dict(picture.licences), dict[str, int]()
        for place, bag in enumerate(picture.bags):
            if bag.limit:
                of[place].append((self._new(bag.limit), 1))
            for name, many in bag.licences:
                if name not in numbers:
                    numbers[name] = self._new(known.get(name, 0))
                of[place].append((numbers[name], many))
        self.of = dict(of)
        self.at_once = {place: min([self.totals[cap] // many for cap, many in its]) for place, its in of.items()}

    def _new(self, total: int) -> int:
        self.totals.append(total)
        return len(self.totals) - 1


class InUse:
    """What is used of the caps in one run. Instants never run backwards."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._used = [0] * len(caps.totals)
        # By cap: when what is used of it is free, and how much that is; a heap.
        self._ends: list[list[tuple[float, int]]] = [[] for _ in caps.totals]

    def _renew(self, cap: int, now: float) -> None:
        """What was used until now is free."""
        ends = self._ends[cap]
        while ends and ends[0][0] <= now:
            self._used[cap] -= heappop(ends)[1]

    def room(self, bag: int, now: float) -> bool:
        """Whether one more task of a bag may begin."""
        caps = self._caps
        for cap, many in caps.of.get(bag, ()):
            self._renew(cap, now)
            if self._used[cap] + many > caps.totals[cap]:
                return False
        return True

    def any_room(self, bags: Iterable[int], now: float) -> bool:
        """Whether one more task may begin of any of these bags for which caps count."""
        return any(bag in self._caps.of and self.room(bag, now) for bag in bags)

    def take(self, bag: int, end: float) -> None:
        """A task of a bag, or several one after the other, run until then."""
        for cap, many in self._caps.of.get(bag, ()):
            heappush(self._ends[cap], (end, many))
            self._used[cap] += many

    def next_end(self, now: float) -> float:
        """When something that is used is free next; infinity: nothing is used."""
        for cap in range(len(self._ends)):
            self._renew(cap, now)
        return min([ends[0][0] for ends in self._ends if ends], default=inf)
