"""How PCs keep the hours that they announce: what each window was planned to last, and how long it lasted. Pure.

Rule 1: a PC is judged by its own latest windows. Either its plans say more, with an error of their own, or its habits
do: it goes when it always goes, whatever it announces. What had the smaller error so far is believed.
Rule 2: of its windows, those count that opened at about the same hour of the week, or else at that time of such a day
(a working day, or one of the weekend), if they are enough and much more alike than all of them are.
Rule 3: a PC with a single window or none is judged by what holds for most other PCs, as far as they are known better;
what it announces itself counts as much as all of that. Each PC has one vote, so one that is absurd changes nothing.
Rule 4: who does as announced is taken at its word, to the second.
Rule 5: a window of less than a minute says nothing about the next one, whatever was planned.
"""

from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice
from math import inf, isfinite, log
from statistics import fmean, median
from typing import NamedTuple

from deskgrid.scheduler.model import PlannedWindow, Windows

HOUR, DAY = 3_600.0, 86_400.0
WEEK = 7 * DAY
# Windows of one PC, and PCs, that are remembered: those that were used last.
WINDOWS, PCS = 64, 5_000
# Of the windows that count, so many are looked at: the latest.
LATEST = 16
# A PC is judged by its own windows from this many on, and by those of others if so many have been.
OWN, OTHERS = 2, 3
# Windows that opened at one hour, give or take so many seconds, count alone if they are so many, and their error is at
# most this part of that of all.
NEAR_S, ENOUGH, ALIKE = 2 * HOUR, 3, 0.5
# Plans hold if they are wrong by less than this on average (of the logarithm).
HOLD = 0.02
# Windows that last less say nothing: somebody started a worker and stopped it again. Seconds.
SHORTEST = 60.0


class ClosedWindow(NamedTuple):
    """A window that has closed. Seconds; ``planned`` is infinite if it was open-ended; ``opened``: into the week."""

    planned: float
    lasted: float
    opened: float


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


class _Judged:
    """What some windows of a PC say. ``plans``, ``habits``: how wrong each would have been on average."""

    __slots__ = ("habits", "plans", "windows")

    def __init__(self, windows: Sequence[ClosedWindow]) -> None:
        self.windows = windows
        lasted = [each.lasted for each in windows]
        usual = median(lasted)
        self.plans = fmean(_error(each.lasted, each.planned) for each in windows)
        self.habits = fmean(_error(seconds, usual) for seconds in lasted)

    @property
    def regular(self) -> bool:
        """Whether its habits say more than its plans."""
        return len(self.windows) >= OWN and self.habits < self.plans

    @property
    def holds(self) -> bool:
        """Whether its plans hold."""
        return self.plans < HOLD

    @property
    def error(self) -> float:
        """How wrong the better of both will be: a habit is worse for a window that it has not been taken from."""
        count = len(self.windows)
        return min(self.plans, self.habits * count / (count - 1) if count > 1 else inf)


class _PcWindows:
    """The latest windows of a PC. ``all``: what they say whenever they opened."""

    __slots__ = ("_at", "all", "windows")

    def __init__(self, window: ClosedWindow) -> None:
        self.windows: deque[ClosedWindow] = deque([window], maxlen=WINDOWS)
        self.all = _Judged([window])
        self._at: dict[int, _Judged] = {}

    def add(self, window: ClosedWindow) -> None:
        self.windows.append(window)
        self._at.clear()
        self.all = self._latest(self.windows)

    def at(self, opens: float) -> _Judged:
        """What counts for a window that opens so many seconds into the week."""
        if self.all.holds:
            return self.all
        hour = int(opens // HOUR)
        found = self._at.get(hour)
        if found is None:
            found = self._at[hour] = self._judge((hour + 0.5) * HOUR)
        return found

    def _judge(self, opens: float) -> _Judged:
        at_weekend = opens >= 5 * DAY
        for alike in (
            [each for each in self.windows if _apart(each.opened, opens, WEEK) <= NEAR_S],
            [
                each
                for each in self.windows
                if _apart(each.opened, opens, DAY) <= NEAR_S and (each.opened >= 5 * DAY) == at_weekend
            ],
        ):
            if len(alike) >= ENOUGH:
                judged = self._latest(alike)
                if judged.error <= ALIKE * self.all.error:
                    return judged
        return self.all

    def _latest(self, windows: Collection[ClosedWindow]) -> _Judged:
        return _Judged([*islice(windows, max(0, len(windows) - LATEST), None)])


def _apart(one: float, other: float, every: float) -> float:
    """How far two times are apart that come back every so many seconds."""
    apart = abs(one - other) % every
    return min(apart, every - apart)


def _error(lasted: float, expected: float) -> float:
    return abs(log(lasted / expected)) if isfinite(expected) else inf


class Week:
    """How far into the week it is, by a driver's clock that showed 0 at the beginning of a Monday."""

    def into(self, now: float) -> float:
        """Seconds since Monday 0:00."""
        return now % WEEK


class Hours:
    """The records of all PCs. ``fresh``: those that have changed since somebody emptied this."""

    def __init__(self, week: Week | None = None) -> None:
        """``week``: what the driver's clock says of the week; None: as `Week`."""
        self._week = Week() if week is None else week
        self._records: dict[str, _PcWindows] = {}
        self.fresh: dict[str, None] = {}
        # What holds for others: made anew when a window has closed.
        self._ratios: list[float] | None = None
        self._regular = False

    @property
    def names(self) -> Collection[str]:
        """The PCs that have a record."""
        return self._records.keys()

    def add(self, pc: str, planned: float, lasted: float, opened: float) -> None:
        """A window of ``pc`` has closed that opened at ``opened``, on the driver's clock."""
        self._add(pc, ClosedWindow(planned, lasted, self._week.into(opened)))

    def _add(self, pc: str, window: ClosedWindow) -> None:
        planned, lasted, opened = window
        if not (planned > 0.0 and SHORTEST <= lasted < inf and 0.0 <= opened < WEEK):
            return
        record = self._records.pop(pc, None)
        if len(self._records) >= PCS:
            del self._records[next(iter(self._records))]
        if record is None:
            record = _PcWindows(window)
        else:
            record.add(window)
        self._records[pc] = record
        self.fresh[pc] = None
        self._ratios = None

    def lengths(self, pc: str, planned: float, opens: float) -> list[float]:
        """How long a window of ``pc`` that is planned to last ``planned`` seconds may last, ascending.

        Empty: as long as planned. ``opens``: when it opens or has opened, on the driver's clock.
        """
        record = self._own(pc)
        if record is None:
            ratios = self._others()
        else:
            judged = record.at(self._week.into(opens))
            if judged.holds:
                return []
            if judged.regular or (len(record.windows) < OWN and self._regular):
                return sorted(each.lasted for each in judged.windows)
            ratios = [each.lasted / each.planned for each in judged.windows]
        # What others did is half of the evidence; what the PC says itself is the other half.
        said = [1.0] * len(ratios) if record is None else []
        return sorted(planned * ratio for ratio in (*ratios, *said)) if isfinite(planned) else []

    def _own(self, pc: str) -> _PcWindows | None:
        """The record by which ``pc`` is judged; None: it is judged by others."""
        record = self._records.get(pc)
        return record if record is not None and (len(record.windows) >= OWN or self._others_regular()) else None

    def really(self, pc: str, windows: Windows) -> Windows:
        """Windows that ``pc`` has announced, as long as they are expected to be."""
        record = self._own(pc)
        if record.all.holds if record is not None else not self._others():
            return windows
        found: list[PlannedWindow] = []
        for window in windows:
            lengths = self.lengths(pc, window.lasts, window.opens)
            found.append(PlannedWindow(window.opens, window.opens + lengths[len(lengths) // 2]) if lengths else window)
        return type(windows)(found)

    def _others_regular(self) -> bool:
        self._others()
        return self._regular

    def _others(self) -> list[float]:
        """What holds for most PCs: the ratios of their latest windows, if their plans do not hold."""
        if self._ratios is None:
            known = list(self._records.values())[-OTHERS * WINDOWS :]
            own = [record for record in known if len(record.windows) >= OWN]
            self._regular = len(own) >= OTHERS and 2 * sum(record.all.regular for record in own) > len(own)
            lie = len(own) >= OTHERS and 2 * sum(not record.all.holds for record in own) > len(own)
            last = [record.windows[-1] for record in own]
            self._ratios = [each.lasted / each.planned for each in last if isfinite(each.planned)] if lie else []
        return self._ratios

    def early(self, pc: str, opened: float) -> float | None:
        """By how many seconds ``pc`` leaves before it said, on average (negative: after); None if plans hold.

        ``opened``: as in `habit`.
        """
        record = self._records.get(pc)
        if record is None or len(record.windows) < OWN or (judged := record.at(self._week.into(opened))).holds:
            return None
        planned = [each for each in judged.windows if isfinite(each.planned)]
        return fmean(each.planned - each.lasted for each in planned) if planned else None

    def habit(self, pc: str, opened: float) -> Habit:
        """How ``pc`` has kept its hours, as far as it is judged by that.

        ``opened``: when the window opened, or opens, for which this is to be known, on the driver's clock.
        """
        record = self._records.get(pc)
        if record is None:
            return Habit(0)
        judged = record.at(self._week.into(opened))
        seen = len(judged.windows)
        if judged.regular and not judged.holds:
            return Habit(seen, lasts=usual(sorted(each.lasted for each in judged.windows)))
        planned = [each.planned - each.lasted for each in judged.windows if isfinite(each.planned)]
        if seen < OWN or judged.holds or not planned:
            return Habit(seen)
        return Habit(seen, early_s=median(planned))

    def kept(self, pc: str) -> list[float]:
        """Its record, to be kept for `restore`."""
        record = self._records.get(pc)
        return [] if record is None else [seconds for window in record.windows for seconds in window]

    def restore(self, pc: str, kept: Sequence[float]) -> None:
        """Go on with what `kept` returned in an earlier life."""
        for window in zip(kept[::3], kept[1::3], kept[2::3], strict=False):
            self._add(pc, ClosedWindow(*window))

    def forget(self) -> None:
        """Forget everything."""
        self._records.clear()
        self.fresh.clear()
        self._ratios = None
