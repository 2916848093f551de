"""How PCs keep the hours that they announce: what each window was planned to last, and how long it lasted. Pure.

Rule 1: a PC is judged by its own latest windows. Either its plans say more, with an error of their own, or its habits
do: it goes when it always goes, whatever it announces. What had the smaller error so far is believed.
Rule 2: a PC with a single window or none is judged by what holds for most other PCs. Each PC has one vote, so one that
is absurd changes nothing.
Rule 3: who does as announced is taken at its word, to the second.
Rule 4: a window of less than a minute says nothing about the next one, whatever was planned.
"""

from collections import deque
from collections.abc import Collection, Sequence
from math import inf, isfinite, log
from statistics import fmean, median
from typing import NamedTuple

from deskgrid.scheduler.model import Window, Windows

# Windows of one PC, and PCs, that are remembered: those that were used last.
WINDOWS, PCS = 16, 5_000
# A PC is judged by its own windows from this many on, and by those of others if so many have been.
OWN, OTHERS = 2, 3
# Plans hold if they are wrong by less than this on average (of the logarithm).
HOLD = 0.02
# Windows that last less say nothing: somebody started a worker and stopped it again. Seconds.
SHORTEST = 60.0


class Kept(NamedTuple):
    """A window that has closed. Seconds; ``planned`` is infinite if it was open-ended."""

    planned: float
    lasted: float


class Habit(NamedTuple):
    """What the windows of a PC say of its next ones. ``seen``: how many of them are remembered.

    ``lasts``: how many seconds they usually last, at least and at most; None: it goes by its plans, not by habit.
    ``early_s``: how long before its plans say it usually closes; negative: after; None: as planned, or nobody can say.
    """

    seen: int
    lasts: tuple[float, float] | None = None
    early_s: float | None = None


def usual(ascending: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest of some values without the tenth that is lowest, and the tenth that is highest."""
    beside = len(ascending) // 10
    return ascending[beside], ascending[-1 - beside]


class _Record:
    """The latest windows of a PC. ``plans``, ``habits``: how wrong each would have been on average."""

    __slots__ = ("habits", "plans", "windows")

    def __init__(self) -> None:
        self.windows: deque[Kept] = deque(maxlen=WINDOWS)
        self.plans = self.habits = 0.0

    def add(self, window: Kept) -> None:
        self.windows.append(window)
        lasted = [each.lasted for each in self.windows]
        usual = median(lasted)
        self.plans = fmean(_error(each.lasted, each.planned) for each in self.windows)
        self.habits = fmean(_error(seconds, usual) for seconds in lasted)

    @property
    def regular(self) -> bool:
        """Whether its habits say more than its plans."""
        return len(self.windows) >= OWN and self.habits < self.plans

    @property
    def holds(self) -> bool:
        """Whether its plans hold."""
        return self.plans < HOLD


def _error(lasted: float, expected: float) -> float:
    return abs(log(lasted / expected)) if isfinite(expected) else inf


class Hours:
    """The records of all PCs. ``fresh``: those that have changed since somebody emptied this."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self.fresh: dict[str, None] = {}
        # What holds for others: made anew when a window has closed.
        self._ratios: list[float] | None = None
        self._regular = False

    @property
    def pcs(self) -> Collection[str]:
        """The PCs that have a record."""
        return self._records.keys()

    def add(self, pc: str, planned: float, lasted: float) -> None:
        """A window of ``pc`` has closed."""
        if not (planned > 0.0 and SHORTEST <= lasted < inf):
            return
        record = self._records.pop(pc, None) or _Record()
        if len(self._records) >= PCS:
            del self._records[next(iter(self._records))]
        self._records[pc] = record
        record.add(Kept(planned, lasted))
        self.fresh[pc] = None
        self._ratios = None

    def lengths(self, pc: str, planned: float) -> list[float]:
        """How long a window of ``pc`` that is planned to last ``planned`` seconds may last, ascending.

        Empty: as long as planned.
        """
        record = self._records.get(pc)
        if record is not None and (len(record.windows) >= OWN or self._others_regular()):
            if record.holds:
                return []
            if record.regular or (len(record.windows) < OWN and self._regular):
                return sorted(each.lasted for each in record.windows)
            ratios = [each.lasted / each.planned for each in record.windows]
        else:
            ratios = self._others()
        return sorted(planned * ratio for ratio in ratios) if isfinite(planned) else []

    def really(self, pc: str, windows: Windows) -> Windows:
        """Windows that ``pc`` has announced, as long as they are expected to be."""
        found: list[Window] = []
        for opens, closes in windows:
            lengths = self.lengths(pc, closes - opens)
            if not lengths:
                return windows
            found.append(Window(opens, opens + lengths[len(lengths) // 2]))
        return Windows(found)

    def _others_regular(self) -> bool:
        self._others()
        return self._regular

    def _others(self) -> list[float]:
        """What holds for most PCs: the ratios of their latest windows, if their plans do not hold."""
        if self._ratios is None:
            known = list(self._records.values())[-OTHERS * WINDOWS :]
            own = [record for record in known if len(record.windows) >= OWN]
            self._regular = len(own) >= OTHERS and 2 * sum(record.regular for record in own) > len(own)
            lie = len(known) >= OTHERS and 2 * sum(not record.holds for record in known) > len(known)
            last = [record.windows[-1] for record in known]
            self._ratios = [each.lasted / each.planned for each in last if isfinite(each.planned)] if lie else []
        return self._ratios

    def early(self, pc: str) -> float | None:
        """By how many seconds ``pc`` leaves before it said, on average (negative: after); None if plans hold."""
        record = self._records.get(pc)
        if record is None or len(record.windows) < OWN or record.holds:
            return None
        planned = [each for each in record.windows if isfinite(each.planned)]
        return fmean(each.planned - each.lasted for each in planned) if planned else None

    def habit(self, pc: str) -> Habit:
        """How ``pc`` has kept its hours, as far as it is judged by that."""
        record = self._records.get(pc)
        if record is None:
            return Habit(0)
        seen = len(record.windows)
        if record.regular and not record.holds:
            return Habit(seen, lasts=usual(sorted(each.lasted for each in record.windows)))
        planned = [each.planned - each.lasted for each in record.windows if isfinite(each.planned)]
        if seen < OWN or record.holds or not planned:
            return Habit(seen)
        return Habit(seen, early_s=median(planned))

    def kept(self, pc: str) -> list[float]:
        """Its record, to be kept for `restore`."""
        record = self._records.get(pc)
        return [] if record is None else [seconds for window in record.windows for seconds in window]

    def restore(self, pc: str, kept: Sequence[float]) -> None:
        """Go on with what `kept` returned in an earlier life."""
        for planned, lasted in zip(kept[::2], kept[1::2], strict=False):
            self.add(pc, planned, lasted)

    def forget(self) -> None:
        """Forget everything."""
        self._records.clear()
        self.fresh.clear()
        self._ratios = None
