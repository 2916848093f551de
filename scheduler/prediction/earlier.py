"""What a user's predictions were worth in earlier bags of the same function, or else of the same program. Pure.

Rule 1: each bag has one vote, however many tasks it has. From `OTHERS` bags on, the one that is least like the others
does not count. So neither one absurd bag nor one PC (`deskgrid.scheduler.prediction.ratios`) decides.
Rule 2: earlier bags matter to the scheduler only if their ratios are far apart. If not, a new bag is taken at its word.
Rule 3: memory is bounded: `deskgrid.scheduler.prediction.kept`, and the last bags of each name.
"""

from collections.abc import Collection, Sequence
from itertools import chain
from math import isfinite, log
from statistics import median
from typing import NamedTuple

from deskgrid.scheduler.prediction.kept import LeastRecentlyUsed
from deskgrid.scheduler.prediction.spread import ENOUGH, POINTS, RatioSpread, narrow

# Bags of a name that are remembered: those that ended last.
BAGS = 8
# From so many bags on, one does not count: of two, nobody knows which is odd.
OTHERS = 3
# No ratio counts as more than this, or as less than its inverse.
FARTHEST = 1e6


class Vote(NamedTuple):
    """How a bag compared with its predictions when ``done`` of its tasks were: `POINTS` ratios, ascending."""

    bag: int
    done: int
    ratios: tuple[float, ...]


class Votes:
    """The bags of one function or program, that which ended last at the end.

    ``known``: all ratios that count, ascending. ``wide``: `POINTS` of them, if they are far apart; else none.
    """

    __slots__ = ("known", "votes", "wide")

    def __init__(self) -> None:
        self.votes: dict[int, Vote] = {}
        self.known: tuple[float, ...] = ()
        self.wide: tuple[float, ...] = ()

    def add(self, vote: Vote) -> None:
        """Add the vote of a bag, in the place of an earlier one."""
        self.votes.pop(vote.bag, None)
        if len(self.votes) >= BAGS:
            del self.votes[next(iter(self.votes))]
        self.votes[vote.bag] = vote
        counted = _that_count(list(self.votes.values()))
        known = self.known = tuple(sorted(chain.from_iterable([each.ratios for each in counted])))
        spread = RatioSpread(tuple([known[len(known) * (2 * place + 1) // (2 * POINTS)] for place in range(POINTS)]))
        enough = sum([each.done for each in counted]) >= ENOUGH
        self.wide = spread.ratios if enough and not narrow(spread) else ()


def _that_count(votes: Sequence[Vote]) -> Sequence[Vote]:
    """All votes, or, if there are enough, all but the one that is least like the middle of all."""
    if len(votes) < OTHERS:
        return votes
    middle = [median(ratios) for ratios in zip(*[each.ratios for each in votes], strict=True)]
    odd = max(votes, key=lambda each: sum([abs(log(a / b)) for a, b in zip(each.ratios, middle, strict=True)]))
    return [each for each in votes if each is not odd]


class EarlierBags:
    """Records by name of a function or program. A name begins with its owner and a line break.

    ``fresh``: names whose records have changed since somebody emptied this. ``changes``: grows with each change.
    """

    def __init__(self) -> None:
        self._records = LeastRecentlyUsed[Votes]()
        self.fresh: dict[str, None] = {}
        self.changes = 0

    @property
    def names(self) -> Collection[str]:
        """The names that have a record."""
        return self._records.keys()

    def find(self, names: Sequence[str]) -> Votes | None:
        """The record of the first of these names that has one."""
        for name in names:
            if (found := self._records.get(name)) is not None:
                return found
        return None

    def teach(self, names: Sequence[str], vote: Vote) -> None:
        """A bag with these names has ended, or some more of its tasks have."""
        self.changes += 1
        bounded = tuple([min(max(ratio, 1.0 / FARTHEST), FARTHEST) for ratio in vote.ratios])
        for name in names:
            self._records.use(name, Votes).add(vote._replace(ratios=bounded))
            self.fresh[name] = None

    def kept(self, name: str) -> list[float]:
        """The record of a name, to be kept for `restore`."""
        record = self._records.get(name)
        votes = () if record is None else record.votes.values()
        return [value for bag, done, ratios in votes for value in (bag, done, *ratios)]

    def restore(self, name: str, kept: Sequence[float]) -> None:
        """Go on with what `kept` returned in an earlier life; anything else is ignored."""
        width = POINTS + 2
        for start in range(0, len(kept) - width + 1, width):
            bag, done, *ratios = kept[start : start + width]
            if isfinite(bag) and isfinite(done) and all(0.0 < ratio <= FARTHEST for ratio in ratios):
                self.teach([name], Vote(int(bag), int(done), tuple(sorted(ratios))))

    def forget(self) -> None:
        """Forget everything."""
        self._records = LeastRecentlyUsed()
        self.fresh.clear()
        self.changes += 1


class Past(NamedTuple):
    """What a bag knows of earlier ones. ``names``: of its function and its program, the one that counts first."""

    earlier: EarlierBags
    names: Sequence[str]
    bag: int

    @property
    def known(self) -> tuple[float, ...]:
        """All ratios of earlier bags that count, ascending."""
        record = self.earlier.find(self.names)
        return () if record is None else record.known

    @property
    def wide(self) -> tuple[float, ...]:
        """Those that matter to the scheduler: `POINTS` or none."""
        record = self.earlier.find(self.names)
        return () if record is None else record.wide

    def teach(self, done: int, ratios: tuple[float, ...]) -> None:
        """``done`` tasks of the bag are done, and this is how they compare."""
        self.earlier.teach(self.names, Vote(self.bag, done, ratios))


# Of a bag that has no names.
NO_PAST = Past(EarlierBags(), (), 0)
