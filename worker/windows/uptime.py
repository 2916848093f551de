"""Planned uptime: how long this PC stays, and when it comes back. Four plans behind one protocol.

Rules:

1. No clock is read here. The driver reads both clocks into an ``Instant`` and passes it as the last argument.
2. A window is half-open: open at its first instant, closed at its last. Every duration is in seconds and none
   is negative or rounded up; whoever announces one owns the margin.
3. A plan in calendar time (``HH:MM``, weekly windows) follows the wall clock, even when somebody sets it. A plan
   in seconds (``--until 90``, cycles) follows the monotonic clock, and does not notice.
4. Threads share plans. Plans do not change, except for one cache that is replaced as a whole.
5. ``UptimePlan`` documents each method once; an implementation documents only what it adds.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import Protocol

from deskgrid.durations import precise, read_duration
from deskgrid.windows.weekly import (
    DAY_MIN,
    Calendar,
    PlanError,
    Timeline,
    calendar_from_table,
    first_instant,
    minute_of_day,
    read_text,
    reading,
    toml_table,
)
from deskgrid.windows.windows_file import calendar_of
from deskgrid.wire import WINDOWS_LIMIT

__all__ = [
    "COMING_S",
    "HORIZON_S",
    "Cycle",
    "Drained",
    "Instant",
    "OpenEnded",
    "PlanError",
    "Until",
    "UptimePlan",
    "Weekly",
    "parse_until",
    "read_cycle",
    "read_windows",
    "weekly_from_json",
    "weekly_from_table",
]

DAY_S = 86_400.0

# A worker announces the windows that start within the coming week, at most as many as a message may have.
COMING_S = 7 * DAY_S

# How far a weekly calendar vouches for a window: beyond a week, so that it does not end where the announced
# windows do. A PC that is always up has this much uptime left, for ever.
HORIZON_S = 8 * DAY_S

# Days that a weekly calendar computes at a time: a day of validity, the coming week, the horizon, and a day for
# the hours that clocks gain and lose.
_TIMELINE_DAYS = 17

# Cycles are counted in whole nanoseconds, so that float errors neither accumulate nor leave a tiny remainder.
_NS = 1_000_000_000
# 31 years: far longer than any plan, and short enough to be counted in nanoseconds.
_LONGEST_S = 1e9

_PAIRS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Instant:
    """One reading of both clocks, taken by the driver."""

    wall: float  # POSIX seconds, UTC
    mono: float  # monotonic seconds


class UptimePlan(Protocol):
    """When this PC is available. Every method is a pure function of ``now``."""

    kind: str  # "open-ended", "windows", "until" or "cycle"
    grace_s: float  # for how long tasks that run when a window closes may go on

    def uptime(self, now: Instant) -> float:
        """Return the seconds left of the current window: infinite when open-ended, 0.0 when none is open."""

    def coming(self, now: Instant) -> tuple[tuple[float, float], ...]:
        """Return the windows that start within seven days as (starts in, lasts), in seconds.

        Sorted, at most 64, without the current one.
        """

    def boundary(self, now: Instant) -> float | None:
        """Return the seconds, more than 0, until the next opening or closing; None if there will be none."""

    def over(self, now: Instant) -> bool:
        """Return whether no window is open and none will ever open, so that the worker may end."""

    def describe(self) -> str:
        """Return one line for people."""


class OpenEnded:
    """No plan: available until further notice."""

    kind = "open-ended"
    grace_s = 0.0

    def uptime(self, now: Instant) -> float:
        return math.inf

    def coming(self, now: Instant) -> tuple[tuple[float, float], ...]:
        return ()

    def boundary(self, now: Instant) -> float | None:
        return None

    def over(self, now: Instant) -> bool:
        return False

    def describe(self) -> str:
        return "open-ended"


class Until:
    """One window, from now to ``end``, on the wall clock or on the monotonic one."""

    kind = "until"
    grace_s = 0.0

    def __init__(self, end: float, *, on_wall: bool, text: str) -> None:
        self._end = end
        self._on_wall = on_wall
        self._text = text

    def uptime(self, now: Instant) -> float:
        return max(0.0, self._end - (now.wall if self._on_wall else now.mono))

    def coming(self, now: Instant) -> tuple[tuple[float, float], ...]:
        return ()

    def boundary(self, now: Instant) -> float | None:
        return self.uptime(now) or None

    def over(self, now: Instant) -> bool:
        return self.uptime(now) == 0.0

    def describe(self) -> str:
        return self._text


class Drained:
    """A plan whose windows are closed from ``start`` to ``end``, both on the wall clock. ``end`` may be infinite."""

    def __init__(self, plan: UptimePlan, start: float, end: float) -> None:
        self._plan = plan
        self._start = start
        self._end = end
        self.kind = plan.kind
        self.grace_s = plan.grace_s

    def uptime(self, now: Instant) -> float:
        if now.wall >= self._end:
            return self._plan.uptime(now)
        return max(0.0, min(self._plan.uptime(now), self._start - now.wall))

    def coming(self, now: Instant) -> tuple[tuple[float, float], ...]:
        """Return the windows of the plan after the drain, or what is left of them then, at most ``HORIZON_S``."""
        left = self._end - now.wall
        if left <= 0.0:
            return self._plan.coming(now)
        planned = [(0.0, min(self._plan.uptime(now), left + HORIZON_S)), *self._plan.coming(now)]
        cut = [(max(opens, left), opens + lasts) for opens, lasts in planned if opens + lasts > left]
        found = [(opens, closes - opens) for opens, closes in cut if opens <= COMING_S]
        return tuple(found[:WINDOWS_LIMIT])

    def boundary(self, now: Instant) -> float | None:
        edges = [edge - now.wall for edge in (self._start, self._end) if now.wall < edge < math.inf]
        planned = self._plan.boundary(now)
        return min([*edges, *([] if planned is None else [planned])], default=None)

    def over(self, now: Instant) -> bool:
        return self._plan.over(now)

    def describe(self) -> str:
        when = "until undone" if self._end == math.inf else f"until {reading(self._end, None):%a %H:%M}"
        return f"drained {when}; {self._plan.describe()}"


def parse_until(text: str, now: Instant) -> Until:
    """Return the plan that ``HH:MM`` or a duration stands for.

    ``HH:MM`` is the next time that clocks in the machine's zone show this: later than now and at most a day
    ahead, by the wall clock. If clocks show it twice in a night, this may be the second time; if clocks skip it,
    this is the moment of the change. A duration (``90``, ``1h30min``) counts from now. Raises PlanError for anything
    else.
    """
    wanted = text.strip()
    if ":" in wanted:
        try:
            minutes = minute_of_day(wanted)
        except PlanError as error:
            raise PlanError(f"until {text!r}: {error}") from error
        end = _next_time(minutes % DAY_MIN, now.wall)
        return Until(end, on_wall=True, text=f"until {wanted} (local time)")
    try:
        seconds = _seconds(wanted)
    except ValueError as error:
        raise PlanError(f"until {text!r}: expected HH:MM or a duration: {error}") from error
    if seconds <= 0:
        raise PlanError(f"until {text!r}: must be more than 0 seconds")
    return Until(now.mono + seconds, on_wall=False, text=f"for {precise(seconds)} from its start")


def _next_time(minutes: int, wall: float) -> float:
    """Return the first POSIX second after ``wall`` at which local clocks show ``minutes`` into a day."""
    today = reading(wall, None).date()
    instants: list[float] = []
    for day in (today, today + timedelta(1)):
        instants.append(first_instant(day, minutes, None))
        local = datetime.combine(day, time()) + timedelta(minutes=minutes)
        second = local.replace(fold=1).timestamp()
        if reading(second, None) == local:  # not so when the time is skipped
            instants.append(second)
    return min(instant for instant in instants if instant > wall)


def _seconds(text: str) -> float:
    """Return ``text`` as seconds, 0 to 1e9; a ValueError says what is wrong with it."""
    try:
        seconds = read_duration(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number of seconds, nor a duration like 1h30min") from error
    if not 0 <= seconds <= _LONGEST_S:  # also refuses NaN
        raise ValueError(f"{text!r} is not from 0 to {_LONGEST_S:g} seconds")
    return seconds


class Cycle:
    """The paper's wrapper (Section 4.1): seconds up, seconds down, pair after pair, repeated.

    Each pair is one life of the worker, so windows that touch (a pair with 0 seconds down) are not merged.
    """

    kind = "cycle"
    grace_s = 0.0

    def __init__(self, pairs: Sequence[tuple[float, float]], start: Instant) -> None:
        """Take ``pairs`` of (seconds up, seconds down), repeated from ``start``.

        Raises PlanError when there is none, or one is not 0 < up, 0 <= down, both at most 1e9.
        """
        if not pairs:
            raise PlanError("a cycle needs at least one pair of seconds up and seconds down")
        for number, (up, down) in enumerate(pairs, start=1):
            _check_pair(up, down, f"cycle: pair {number}")
        self._pairs = tuple(pairs)
        self._start = start.mono
        self._ups = [round(up * _NS) for up, _ in pairs]
        ends = list(accumulate(round(up * _NS) + round(down * _NS) for up, down in pairs))
        self._period = ends[-1]
        self._openings = [0, *ends[:-1]]  # in one period, in ns

    def uptime(self, now: Instant) -> float:
        pair, phase = self._position(now)
        return max(0, self._openings[pair] + self._ups[pair] - phase) / _NS

    def coming(self, now: Instant) -> tuple[tuple[float, float], ...]:
        pair, phase = self._position(now)
        found: list[tuple[float, float]] = []
        rounds = 0
        while len(found) < WINDOWS_LIMIT:
            pair += 1
            if pair == len(self._ups):
                pair, rounds = 0, rounds + 1
            starts_in = (rounds * self._period + self._openings[pair] - phase) / _NS
            if starts_in > COMING_S:
                break
            found.append((starts_in, self._ups[pair] / _NS))
        return tuple(found)

    def boundary(self, now: Instant) -> float | None:
        """Return the seconds until this pair's time up ends, or until the next pair's begins."""
        pair, phase = self._position(now)
        closing = self._openings[pair] + self._ups[pair]
        following = self._openings[pair + 1] if pair + 1 < len(self._ups) else self._period
        return ((closing if phase < closing else following) - phase) / _NS

    def over(self, now: Instant) -> bool:
        """Return False: a cycle never ends."""
        return False

    def describe(self) -> str:
        """Return ``1 min 24 s up, 1 s down, repeated``; for a long cycle, show only the first pairs."""
        shown = [f"{precise(up)} up, {precise(down)} down" for up, down in self._pairs[:_PAIRS_SHOWN]]
        hidden = len(self._pairs) - len(shown)
        return ", ".join(shown + [f"{hidden} more pairs"] * (hidden > 0) + ["repeated"])

    def _position(self, now: Instant) -> tuple[int, int]:
        """Return the current pair and the ns since its period began; before ``start`` it is at the start."""
        phase = max(0, round((now.mono - self._start) * _NS)) % self._period
        return bisect_right(self._openings, phase) - 1, phase


def read_cycle(path: Path, start: Instant) -> Cycle:
    """Return the cycle in the file at ``path``, from ``start``: a line for each pair, ``UP DOWN`` in seconds.

    ``#`` begins a comment, blank lines are skipped. Raises PlanError naming file and line.
    """
    pairs: list[tuple[float, float]] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        words = line.partition("#")[0].split()
        if words:
            pairs.append(_pair(words, f"{path}:{number}"))
    if not pairs:
        raise PlanError(f"{path}: no pairs of seconds up and seconds down")
    return Cycle(pairs, start)


def _pair(words: list[str], where: str) -> tuple[float, float]:
    if len(words) != 2:
        raise PlanError(f"{where}: expected two numbers, seconds up and seconds down, got {len(words)}")
    try:
        up, down = (_seconds(word) for word in words)
    except ValueError as error:
        raise PlanError(f"{where}: {error}") from error
    _check_pair(up, down, where)
    return up, down


def _check_pair(up: float, down: float, where: str) -> None:
    if not 1 / _NS <= up <= _LONGEST_S:
        raise PlanError(f"{where}: seconds up must be more than 0 and at most {_LONGEST_S:g}, not {up:g}")
    if not 0 <= down <= _LONGEST_S:
        raise PlanError(f"{where}: seconds down must be from 0 to {_LONGEST_S:g}, not {down:g}")


class Weekly:
    """Weekly windows in local wall time with dated exceptions. See ``deskgrid.windows.weekly`` for their rules.

    A window counts for at most ``HORIZON_S``: a longer one, or one without end, has this much uptime, rolling
    forward.
    """

    kind = "windows"

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self.grace_s = calendar.grace_s
        self._cache: Timeline | None = None

    def uptime(self, now: Instant) -> float:
        """Return the seconds left of the current window, at most ``HORIZON_S``."""
        line, index = self._locate(now.wall)
        if index == len(line.windows):
            return 0.0
        opening, closing = line.windows[index]
        return min(closing - now.wall, HORIZON_S) if opening <= now.wall else 0.0

    def coming(self, now: Instant) -> tuple[tuple[float, float], ...]:
        """Return the coming windows, each lasting at most ``HORIZON_S``."""
        line, index = self._locate(now.wall)
        if index < len(line.windows) and line.windows[index][0] <= now.wall:
            index += 1
        week = takewhile(lambda window: window[0] - now.wall <= COMING_S, line.windows[index:])
        found = islice(week, WINDOWS_LIMIT)
        return tuple((opening - now.wall, min(closing - opening, HORIZON_S)) for opening, closing in found)

    def boundary(self, now: Instant) -> float | None:
        """Return the seconds until the next opening or closing, however far; None if none is left."""
        line, index = self._locate(now.wall)
        edge = line.change
        if index < len(line.windows):
            opening, closing = line.windows[index]
            if opening > now.wall:
                edge = opening
            elif closing < line.finish:
                edge = closing
        return None if edge is None else edge - now.wall

    def over(self, now: Instant) -> bool:
        """Return whether all windows were on dates that are past."""
        return self.uptime(now) == 0.0 and self.boundary(now) is None

    def describe(self) -> str:
        """Return the windows as they were written, how many dates are exceptions, and the zone."""
        return self._calendar.describe()

    def _locate(self, wall: float) -> tuple[Timeline, int]:
        """Return a timeline around ``wall`` and the index in it of the first window that is not over."""
        line = self._cache
        if line is None or not line.begin <= wall < line.until:
            line = self._cache = self._calendar.timeline(wall, _TIMELINE_DAYS)
        return line, bisect_right(line.closings, wall)


def read_windows(path: Path) -> Weekly:
    """Return the weekly windows in the TOML file at ``path``; PlanError naming file and entry or line."""
    return weekly_from_table(toml_table(read_text(path), str(path)), str(path))


def weekly_from_table(table: Mapping[str, object], where: str) -> Weekly:
    """Return the weekly windows that ``table`` describes; PlanError naming ``where`` and the entry."""
    return Weekly(calendar_from_table(table, where))


def weekly_from_json(text: str) -> Weekly:
    """Return the weekly windows in JSON from ``PlannedWindows.table_for``; PlanError if it is malformed."""
    return Weekly(calendar_of(text, "windows from the broker"))
