"""How the predictions of one bag compare with what its tasks took. Pure.

Rule 1: a task that was killed, or that still runs, has shown that it takes longer than its elapsed time. It counts as a
censored observation (the estimator of Kaplan and Meier). Without that, the tasks that fit into their windows would make
the bag look short.
Rule 2: the prediction that was given at first is what counts, not what it was changed to after an attempt in vain.
Rule 3: a result costs next to nothing; the distribution is made when somebody asks for it, if enough has changed.
Rule 4: earlier bags whose ratios were far apart count as much as a few tasks of this one
(`deskgrid.scheduler.prediction.earlier`). Later bags are told after 16, 64, 256 ... results, and at the end.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from math import inf

from deskgrid.scheduler.prediction.earlier import NO_PAST, Past
from deskgrid.scheduler.prediction.speeds import NAMESAKE
from deskgrid.scheduler.prediction.spread import ENOUGH, EXACT, NARROW, POINTS, RatioSpread

# Ratios that are remembered.
REMEMBERED = 200
# Killed tasks that are remembered: very many may wait.
SHOWN = 1000
# Once so many tasks have ended, no other is expected to take more than this many times the longest run.
EXPERIENCED = 16
BEYOND = 1.1
# The distribution is made again when this fraction of what it was made from has come since.
RENEWED = 1 / 16
# Earlier bags count as much as so many tasks of this one.
PRIOR = 4.0
# One PC has at most the part of one in so many of what later bags are told, or as much as another PC.
PARTS = 4
# A bag tells later ones again when it has this many times as many results: that takes 0.15 ms.
AGAIN = 4
# What is still running takes this many times as long as all that is known.
LONGER = 1.3

# What a task has shown: seconds, and the prediction at which it had begun.
Shown = tuple[float, float]


class Ratios:
    """``shown``: tasks that were killed and have not ended since, by number."""

    __slots__ = (
        "_changes",
        "_count",
        "_earlier",
        "_least",
        "_longest",
        "_made_with",
        "_most",
        "_past",
        "_pcs",
        "_ratios",
        "_renew_at",
        "_seen",
        "_spread",
        "_taught",
        "_teaches_at",
        "shown",
    )

    def __init__(self, past: Past = NO_PAST) -> None:
        """``past``: what is known of earlier bags."""
        self._past = past
        self._ratios: deque[float] = deque(maxlen=REMEMBERED)
        # Where these tasks ran.
        self._pcs: deque[str] = deque(maxlen=REMEMBERED)
        self.shown: dict[int, Shown] = {}
        self._longest, self._least, self._most = 0.0, inf, 0.0
        self._count = self._changes = self._taught = 0
        self._renew_at = 0.0
        # The number of results after which the bag teaches next.
        self._teaches_at: float = EXPERIENCED if past.names else inf
        # Ratios of earlier bags: those that count, and those that the distribution was made with. The change of earlier
        # bags that was looked at last.
        self._seen = -1
        self._earlier: tuple[float, ...] = ()
        self._made_with: tuple[float, ...] = ()
        self._spread = EXACT

    def add(self, told: Sequence[float], longest: float, pc: str = "") -> None:
        """Add ratios of tasks that were done on a PC, the longest of which took ``longest`` seconds."""
        self._ratios.extend(told)
        for ratio in told:
            if not self._least <= ratio <= self._most:
                self._least, self._most = min(self._least, ratio), max(self._most, ratio)
        self._longest = max(self._longest, longest)
        self._count += len(told)
        self._changes += len(told)
        if self._teaches_at < inf:
            self._pcs.extend(repeat(pc, len(told)))
            if self._count >= self._teaches_at:
                self.teach()

    def show(self, task: int, elapsed: float, predicted: float) -> None:
        """An attempt was killed after ``elapsed`` seconds."""
        before = self.shown.pop(task, (0.0, predicted))
        if len(self.shown) >= SHOWN:
            del self.shown[next(iter(self.shown))]
        self.shown[task] = max(elapsed, before[0]), before[1]
        self._longest = max(self._longest, elapsed)
        self._changes += 1

    def known(self) -> list[float]:
        """The remembered ratios, ascending."""
        return sorted(self._ratios)

    @property
    def alike(self) -> bool:
        """Whether all ratios ever seen are close to each other: then nobody has to ask for the distribution."""
        return self._most < NARROW * self._least and not self._before()

    def _stale(self) -> bool:
        """Whether there are new observations enough."""
        return self._changes > self._renew_at or self._before() is not self._made_with

    def _before(self) -> tuple[float, ...]:
        """Ratios of earlier bags. Once this bag is one of those that teach, they stay, unless they are forgotten."""
        if self._seen != self._past.earlier.changes:
            self._seen, wide = self._past.earlier.changes, self._past.wide
            if self._count < EXPERIENCED or not wide:
                self._earlier = wide
        return self._earlier

    def spread(self, running: Callable[[], Iterable[Shown]] = tuple) -> RatioSpread:
        """What predictions are worth now. ``running``: gives the elapsed seconds of running tasks, and their
        predictions; it is asked if there are new observations.
        """
        if self._count < ENOUGH and not self._before():
            return EXACT
        if self._stale():
            self._renew_at = self._changes + RENEWED * min(self._changes, REMEMBERED)
            self._made_with = self._before()
            self._spread = self._made([*self.shown.values(), *running()])
        return self._spread

    def _made(self, open_ended: Sequence[Shown]) -> RatioSpread:
        longest = max([self._longest, *(elapsed for elapsed, _ in open_ended)])
        ratios = _quantiles(self._ratios, open_ended, self._made_with)
        return RatioSpread(ratios, BEYOND * longest if self._count >= EXPERIENCED else inf)

    def teach(self) -> None:
        """Tell later bags how this one compares so far, if that is new."""
        if self._past.names and self._count - self._taught > RENEWED * self._taught:
            self._taught, self._teaches_at = self._count, max(EXPERIENCED, AGAIN * self._count)
            self._past.teach(self._count, _quantiles(self._of_all_pcs(), list(self.shown.values())))

    def _of_all_pcs(self) -> list[float]:
        """The remembered ratios, but of the PC that has most of them at most its part, or as many as of the next."""
        by_pc = defaultdict[str, list[float]](list)
        for ratio, pc in zip(self._ratios, self._pcs, strict=True):
            by_pc[pc.partition(NAMESAKE)[0]].append(ratio)
        counts = sorted(map(len, by_pc.values()))
        others = sum(counts[:-1])
        most = max(ENOUGH, *counts[-2:-1], others // (PARTS - 1)) if others else counts[-1]
        return [ratio for its in by_pc.values() for ratio in its[-most:]]


def _quantiles(done: Iterable[float], open_ended: Sequence[Shown], earlier: Sequence[float] = ()) -> tuple[float, ...]:
    """`POINTS` ratios of equal weight, ascending. ``earlier``: those of earlier bags."""
    vain = [elapsed / predicted for elapsed, predicted in open_ended if predicted > 0.0]
    values, masses = _kaplan_meier(done, vain, earlier)
    whole = masses[-1] - 1e-9
    return tuple([values[bisect_left(masses, (place + 0.5) / POINTS * whole)] for place in range(POINTS)])


def _kaplan_meier(
    done: Iterable[float], vain: Iterable[float], earlier: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Ratios of tasks that were done, ascending, and the mass up to each. ``vain``: ratios of those that went on.

    ``earlier``: ratios of earlier bags, ascending.
    """
    values, shown, masses = sorted([*done, *earlier]), sorted(vain), list[float]()
    most, light = max(values[-1:] + shown[-1:]), PRIOR / POINTS
    left, at_risk = 1.0, len(values) - len(earlier) + len(shown) + light * len(earlier)
    passed = known = 0
    for ratio in values:
        while passed < len(shown) and shown[passed] < ratio:
            passed += 1
            at_risk -= 1.0
        weight = 1.0
        if known < len(earlier) and earlier[known] == ratio:
            weight, known = light, known + 1
        mass = left * weight / at_risk
        masses.append(mass)
        left -= mass
        at_risk -= weight
    if left > 1e-9:
        values.append(LONGER * most)
        masses.append(left)
    return values, list(accumulate(masses))
