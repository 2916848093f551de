"""How fast PCs really are, from how long tasks of a bag took there compared with others of the same bag. Pure.

Rule 1: only tasks of one bag are compared, and only what a PC's plain runtimes show against the middle of all PCs that
ran tasks of that bag. Each PC has one vote, so one that is absurd changes nothing but its own speed; from three PCs on.
Workers that one PC runs beside each other (``lab3``, ``lab3~2``) have one vote together.
Rule 2: the speeds that PCs state are what others are compared with, never corrected ones: corrections cannot feed
on each other.
Rule 3: little evidence corrects nothing. A correction is as large as nearly all comparisons say, not as their middle,
and none is made for less than a tenth. So where PCs are as fast as they state, predictions that are wrong at random
change nothing.
Rule 4: predictions of their own that are wrong by much teach nothing. Policies give tasks with long predictions to PCs
with long windows; if predictions are wrong at random, such tasks are shorter than predicted, and these PCs look fast.
Rule 5: an ended task costs the same, however many there were: PCs are compared again when, on average, each has run
one more task.
"""

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Collection, Sequence
from math import exp, inf, isfinite, log, sqrt
from statistics import fmean, median

# Comparisons of one PC, PCs, and bags that are remembered: those that were used last.
COMPARISONS, PCS, BAGS = 64, 5_000, 100
# A bag says something if so many PCs have run its tasks: of two, nobody knows which is odd.
OTHERS = 3
# What the broker puts between the name of a PC and the number of a further worker on it.
NAMESAKE = "~"
# Runs of a bag that count for where a PC stands in it: its latest ones.
LATEST = 16
# A PC's comparisons are believed from this many on.
ENOUGH = 10
# With n comparisons, n/2 - DOUBT * sqrt(n) of them may say the contrary: by chance, 1 PC in 500 is like that.
DOUBT = 1.55
# A correction is within a factor of FARTHEST; there is none for less than LEAST (logarithms), and a new one only if it
# is another by STEP.
FARTHEST, LEAST, STEP = log(4.0), log(1.1), log(1.05)
# Predictions teach if they are wrong by less than this on average, on most PCs (logarithm): by a quarter or so.
WRONG = 0.25
# Tasks of a bag that were killed, of which so many are known.
KILLED = 1_000
# Shorter runs say more about starting a task than about the PC. Seconds.
SHORTEST = 0.5


class _Stand:
    """Where a PC stands in a bag. ``voter``: its name without the number of the worker. ``count``: how many of its runs
    count. ``mean``: their mean logarithm at the speed that it states. ``wrong``: how far they are from it on average.
    ``stated``: the logarithm of that speed.

    ``fresh``: its runs since the last comparison; ``sum``: that of their plain logarithms.
    """

    __slots__ = ("count", "fresh", "mean", "stated", "sum", "voter", "wrong")

    def __init__(self, pc: str) -> None:
        self.voter = pc.partition(NAMESAKE)[0]
        self.count = self.fresh = 0
        self.mean = self.wrong = self.stated = self.sum = 0.0


class _BagSpeeds:
    """One bag. ``stands``: by PC. ``runs``: since the last comparison. ``middle``: of all PCs, at the last comparison.

    ``relative``: whether runs are multiples of their predictions. ``killed``: its tasks that were killed once.
    """

    __slots__ = ("bag", "killed", "middle", "relative", "runs", "stands")

    def __init__(self, bag: int, relative: bool) -> None:
        self.bag, self.relative = bag, relative
        self.stands: dict[str, _Stand] = {}
        self.runs = 0
        self.middle: float | None = None
        self.killed: dict[int, None] = {}

    def add(self, pc: str, stated: float, ran: float) -> bool:
        """Add the logarithm of what a task took on a PC. ``stated``: that of the PC's speed.

        Returns whether PCs are to be compared now.
        """
        stand = self.stands.get(pc)
        if stand is None:
            if len(self.stands) >= PCS:
                del self.stands[next(iter(self.stands))]
            stand = self.stands[pc] = _Stand(pc)
        stand.stated = stated
        stand.fresh += 1
        stand.sum += ran
        off, count = ran + stated - stand.mean, stand.count
        if count:
            stand.wrong += (abs(off) - stand.wrong) / (count if count < LATEST else LATEST - 1)
        if count < LATEST:
            count = stand.count = count + 1
        stand.mean += off / count
        self.runs += 1
        return self.runs >= len(self.stands) >= OTHERS

    @property
    def teaches(self) -> bool:
        """Whether what is predicted of its tasks, if anything, can be believed."""
        return not self.relative or median([stand.wrong for stand in self.stands.values()]) < WRONG


class _PcSpeed:
    """``shown``: logarithms of the speeds that comparisons have shown. ``low``, ``high``: where its speed is surely
    between, as far as that was made known.
    """

    __slots__ = ("_sorted", "high", "low", "shown")

    def __init__(self) -> None:
        self.shown: deque[float] = deque()
        self._sorted: list[float] = []
        self.low, self.high = -FARTHEST * COMPARISONS, FARTHEST * COMPARISONS

    def add(self, shown: float) -> tuple[float, float]:
        """Add a comparison, and forget the oldest one if there are too many. Returns what nearly all of them say."""
        count = len(self.shown) + 1
        if count > COMPARISONS:
            count = COMPARISONS
            del self._sorted[bisect_left(self._sorted, self.shown.popleft())]
        self.shown.append(shown)
        insort(self._sorted, shown)
        if count < ENOUGH:
            return self.low, self.high
        contrary = int(count / 2 - DOUBT * sqrt(count))
        return self._sorted[contrary], self._sorted[-1 - contrary]


def _correction(stated: float, low: float, high: float) -> float:
    """The logarithm of the factor for a PC that states a speed, and is as fast as said. All are logarithms."""
    if low - stated < LEAST and stated - high < LEAST:
        return 0.0
    return min(max((low if low > stated else high) - stated, -FARTHEST), FARTHEST)


class Speeds:
    """The records of all PCs. ``fresh``: those that have changed since somebody emptied this.

    ``moved``: PCs whose corrections have changed since somebody emptied this.
    """

    def __init__(self) -> None:
        self._records: dict[str, _PcSpeed] = {}
        # The bag that was used last is the last one.
        self._bags: dict[int, _BagSpeeds] = {}
        self._latest = _BagSpeeds(-1, False)
        self.fresh: dict[str, None] = {}
        self.moved: dict[str, None] = {}

    @property
    def names(self) -> Collection[str]:
        """The PCs that have a record."""
        return self._records.keys()

    def ran(self, bag: int, task: int, pc: str, stated: float, *, seconds: float, predicted: float | None) -> None:
        """A task of a bag took so many seconds on a PC that states a speed, 1 for the fastest.

        ``predicted``: its runtime; None: the tasks of this bag have no predictions of their own.
        """
        ratio = seconds / predicted if predicted else seconds
        comparison = self._latest
        if comparison.bag != bag or comparison.relative != (predicted is not None):
            comparison = self._of(bag, predicted is not None)
        counts = seconds >= SHORTEST and ratio < inf and task not in comparison.killed
        if counts and comparison.add(pc, log(stated), log(ratio)):
            self._compare(comparison)

    def killed(self, bag: int, task: int, pc: str, speed: float, *, seconds: float, predicted: float | None) -> None:
        """A task was killed after so many seconds: it takes longer. That counts if most tasks take less.

        It counts as the PC's other tasks do on average, unless it has taken longer already.
        Otherwise, PCs with short windows, where only short tasks end, would look fast. But a task counts only once:
        long ones are killed again and again, mostly on such PCs, which would look slow.
        """
        comparison = self._of(bag, predicted is not None)
        middle, killed = comparison.middle, comparison.killed
        before = task in killed
        if len(killed) >= KILLED and not before:
            del killed[next(iter(killed))]
        killed[task] = None
        ratio = seconds / predicted if predicted else seconds
        if before or middle is None or seconds < SHORTEST or ratio == inf:
            return
        ran, stated = log(ratio), log(speed)
        if ran + stated > middle:
            stand = comparison.stands.get(pc)
            usual = middle if stand is None else stand.mean
            if comparison.add(pc, stated, max(ran, usual - stated)):
                self._compare(comparison)

    def _of(self, bag: int, relative: bool) -> _BagSpeeds:
        known = self._bags.pop(bag, None)
        if known is None or known.relative != relative:
            known = _BagSpeeds(bag, relative)
            if len(self._bags) >= BAGS:
                del self._bags[next(iter(self._bags))]
        self._bags[bag] = self._latest = known
        return known

    def _compare(self, bag: _BagSpeeds) -> None:
        """Tell by the tasks of a bag how fast the PCs are that have run some since the last time."""
        votes = defaultdict[str, list[float]](list)
        for stand in bag.stands.values():
            votes[stand.voter].append(stand.mean)
        middle = bag.middle = median([means[0] if len(means) == 1 else fmean(means) for means in votes.values()])
        teaches = len(votes) >= OTHERS and bag.teaches
        for pc, stand in bag.stands.items():
            if stand.fresh:
                if teaches:
                    self._add(pc, middle - stand.sum / stand.fresh, stand.stated)
                stand.fresh, stand.sum = 0, 0.0
        bag.runs = 0

    def _add(self, pc: str, shown: float, stated: float | None) -> None:
        record = self._records.pop(pc, None) or _PcSpeed()
        if len(self._records) >= PCS:
            del self._records[next(iter(self._records))]
        self._records[pc] = record
        self.fresh[pc] = None
        low, high = record.add(shown)
        if stated is None or abs(_correction(stated, low, high) - _correction(stated, record.low, record.high)) > STEP:
            record.low, record.high = low, high
            self.moved[pc] = None

    def corrected(self, pc: str, stated: float) -> float:
        """How fast a PC is that states a speed."""
        record = self._records.get(pc)
        factor = 0.0 if record is None else _correction(log(stated), record.low, record.high)
        return stated * exp(factor) if factor else stated

    def kept(self, pc: str) -> list[float]:
        """Its record, to be kept for `restore`."""
        record = self._records.get(pc)
        return [] if record is None else list(record.shown)

    def restore(self, pc: str, kept: Sequence[float]) -> None:
        """Go on with what `kept` returned in an earlier life."""
        for shown in kept:
            if isfinite(shown):
                self._add(pc, shown, None)

    def forget(self) -> None:
        """Forget everything."""
        self.moved.update(dict.fromkeys(self._records))
        self._records.clear()
        self._bags.clear()
        self._latest = _BagSpeeds(-1, False)
        self.fresh.clear()
