"""How the predictions of one bag compare with what its tasks took. Pure.

Rule 1: a task that was killed, or that still runs, has shown that it takes longer than its elapsed time. It counts as a
censored observation (the estimator of Kaplan and Meier). Without that, the tasks that fit into their windows would make
the bag look short.
Rule 2: the prediction that was given at first is what counts, not what it was changed to after an attempt in vain.
Rule 3: a result costs next to nothing; the distribution is made when somebody asks for it, if enough has changed.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import inf

from deskgrid.scheduler.prediction.spread import EXACT, POINTS, Spread

# Ratios that are remembered.
REMEMBERED = 200
# Killed tasks that are remembered: very many may wait.
SHOWN = 1000
# With fewer results, predictions are trusted.
ENOUGH = 4
# Once so many tasks have ended, no other is expected to take more than this many times the longest run.
EXPERIENCED = 16
BEYOND = 1.1
# The distribution is made again when this fraction of what it was made from has come since.
RENEWED = 1 / 16
# Predictions are taken at their word while the quantile 0.9 is less than this many times the quantile 0.1.
NARROW = 1.3

# What is still running takes this many times as long as all that is known.
LONGER = 1.3

# What a task has shown: seconds, and the prediction at which it had begun.
Shown = tuple[float, float]


class Ratios:
    """``shown``: tasks that were killed and have not ended since, by number."""

    __slots__ = ("_changes", "_count", "_least", "_longest", "_most", "_ratios", "_renew_at", "_spread", "shown")

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=REMEMBERED)
        self.shown: dict[int, Shown] = {}
        self._longest, self._least, self._most = 0.0, inf, 0.0
        self._count = self._changes = 0
        self._renew_at = 0.0
        self._spread = EXACT

    def add(self, told: Sequence[float], longest: float) -> None:
        """Add ratios of tasks that were done, the longest of which took ``longest`` seconds."""
        self._ratios.extend(told)
        for ratio in told:
            if not self._least <= ratio <= self._most:
                self._least, self._most = min(self._least, ratio), max(self._most, ratio)
        self._longest = max(self._longest, longest)
        self._count += len(told)
        self._changes += len(told)

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
        return self._most < NARROW * self._least

    @property
    def stale(self) -> bool:
        """Whether `spread` would look at new observations."""
        return self._changes > self._renew_at

    def spread(self, running: Iterable[Shown] = ()) -> Spread:
        """What predictions are worth now. ``running``: the elapsed seconds of running tasks, and their predictions."""
        if self._count < ENOUGH:
            return EXACT
        if self.stale:
            self._renew_at = self._changes + RENEWED * min(self._changes, REMEMBERED)
            self._spread = self._made([*self.shown.values(), *running])
        return self._spread

    def _made(self, open_ended: Sequence[Shown]) -> Spread:
        longest = max([self._longest, *(elapsed for elapsed, _ in open_ended)])
        vain = [elapsed / predicted for elapsed, predicted in open_ended if predicted > 0.0]
        values, masses = _kaplan_meier(self._ratios, vain)
        whole = masses[-1] - 1e-9
        ratios = [values[bisect_left(masses, (place + 0.5) / POINTS * whole)] for place in range(POINTS)]
        return Spread(tuple(ratios), BEYOND * longest if self._count >= EXPERIENCED else inf)


def _kaplan_meier(done: Iterable[float], vain: Iterable[float]) -> tuple[list[float], list[float]]:
    """Ratios of tasks that were done, ascending, and the mass up to each. ``vain``: ratios of those that went on."""
    values, shown, masses, left, passed = sorted(done), sorted(vain), list[float](), 1.0, 0
    known, most = len(values) + len(shown), max(values[-1:] + shown[-1:])
    for place, ratio in enumerate(values):
        while passed < len(shown) and shown[passed] < ratio:
            passed += 1
        mass = left / (known - place - passed)
        masses.append(mass)
        left -= mass
    if left > 1e-9:
        values.append(LONGER * most)
        masses.append(left)
    return values, list(accumulate(masses))


def narrow(spread: Spread) -> bool:
    """Whether predictions can be taken at their word, but for a common factor."""
    ratios = spread.ratios
    least, most = ratios[len(ratios) // 10], ratios[len(ratios) - 1 - len(ratios) // 10]
    return most < NARROW * least
