"""The earliest time when a job can start: its ranks are together at one site for long enough before a window closes.

What is known: when running tasks should end, when windows close, and which windows are to come. Between two of these
nothing changes, so time goes from one to the next.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge
from math import inf
from typing import NamedTuple

from deskgrid.scheduler.fitting import ROUNDING, fits
from deskgrid.scheduler.need import NOTHING, Amounts, Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob, Site
from deskgrid.scheduler.parallel.capacity import seats_alone, seats_by_site
from deskgrid.scheduler.parallel.choices import DecisionView, HeadReservation, Size
from deskgrid.scheduler.parallel.hosts import expected_end, first, frees, kept_idle, seats, strongest
from deskgrid.scheduler.parallel.patience import tolerance

# PCs of a site can all have different speeds. At most so many are tried as that of the slowest rank.
LEVELS = 4
# So many windows to come are looked at: those of a day if 50 PCs have a new one every two hours.
AHEAD = 600
# Of PCs that are away, the speeds of those count that are back soonest: of so many windows.
NEXT = 200


def earliest(look: DecisionView, job: ParallelJob, size: Size) -> HeadReservation | None:
    """What to keep free for a job; None: it can start in no known window.

    Of sites where it can start at the same time, the one where it takes the least time; then the first by name.
    """
    best: HeadReservation | None = None
    for site in look.view.sites:
        horizon = _Horizon(look, site, look.view.coming(site)[:AHEAD])
        for found in _at_site(horizon, job, size, best.at if best is not None else inf):
            if best is None or _sooner(found, best):
                best = found
    return best


def _sooner(found: HeadReservation, best: HeadReservation) -> bool:
    """Whether a job can start sooner, or takes less time if it can start at the same time."""
    if abs(found.at - best.at) > ROUNDING:
        return found.at < best.at
    return found.seconds < best.seconds - ROUNDING


class _Horizon(NamedTuple):
    """A site, and the windows to come of its PCs."""

    look: DecisionView
    site: Site
    coming: Sequence[tuple[float, float, Host]]


# Of a PC: when it opens, when it closes, how fast the PC is, and how many ranks it could have.
_Window = tuple[float, float, float, int]


def _at_site(horizon: _Horizon, job: ParallelJob, size: Size, until: float) -> Iterator[HeadReservation]:
    look, site, coming = horizon
    if len(site.hosts) == 1 and not (coming or size.power or job.need.amounts or look.sharing.apart):
        found = _on_one(look, site.hosts[0], job, size.ranks)
        if found is not None:
            yield found
        return
    ranks = size.ranks if not size.power else job.need.least
    base = job.need.seconds(job.runtime, ranks)
    for speed in _levels({*site.hosts, *[host for *_, host in coming[:NEXT]]}, job.need):
        if not coming or _may_be_together(horizon, job.need, ranks, look.needs(base / speed), speed):
            found = _SiteSweep(horizon, job, base / speed, speed).first(size, until)
            if found is not None:
                yield found


def _windows(horizon: _Horizon, need: Need) -> list[_Window]:
    """The windows of a site, by when they open, and the ranks that each PC could have if nothing else ran."""
    look, site, coming = horizon
    what = site, need.slots, need.amounts, need.labels
    found = look.windows.get(what)
    if found is None:
        up = dict(_seats(horizon, need))
        found = [(look.now, host.closes, host.speed, count) for host, count in up.items()]
        found += [
            (opens, closes, host.speed, up[host] if host in up else seats_alone(look, need, host, host.amounts))
            for opens, closes, host in coming
            if host.labels >= need.labels
        ]
        look.windows[what] = found
    return found


def _seats(horizon: _Horizon, need: Need) -> Sequence[tuple[Host, int]]:
    return seats_by_site(horizon.look, need)[horizon.look.view.sites.index(horizon.site)]


def _may_be_together(horizon: _Horizon, need: Need, ranks: int, lasts: float, speed: float) -> bool:
    """Whether so many ranks could be together for so long, on PCs of this speed or more. A sweep costs far more."""
    latest = horizon.look.now + lasts
    up = [count for host, count in _seats(horizon, need) if host.closes > latest and host.speed >= speed]
    if sum(up) >= ranks:
        return True  # as with most jobs: windows to come need not be looked at
    long = [
        (opens, closes - lasts, count)
        for opens, closes, power, count in _windows(horizon, need)
        if closes - lasts > opens and power >= speed
    ]
    ends = sorted([each[1:] for each in long])
    together = over = 0
    for opens, _, count in long:
        while ends[over][0] <= opens:
            together -= ends[over][1]
            over += 1
        together += count
        if together >= ranks:
            return True
    return False


def _on_one(look: DecisionView, host: Host, job: ParallelJob, ranks: int) -> HeadReservation | None:
    need = job.need
    lacks = ranks * need.slots - host.idle + kept_idle(host, look.sharing)
    at = look.now
    for free, slots in frees(host, job, look.now):
        if lacks <= 0:
            break
        lacks -= slots
        at = free
    seconds = need.seconds(job.runtime, ranks) / host.speed
    if lacks > 0 or not host.labels >= need.labels or not look.fits(seconds, host.closes - at):
        return None
    return HeadReservation(job, ((host, ranks),), at, seconds)


def _levels(hosts: Iterable[Host], need: Need) -> list[float]:
    """The speeds that the slowest rank may have, the greatest first."""
    speeds = sorted({host.speed for host in hosts if host.labels >= need.labels}, reverse=True)
    if len(speeds) <= LEVELS:
        return speeds
    step = len(speeds) / LEVELS
    return [speeds[int((level + 1) * step) - 1] for level in range(LEVELS)]


class _HostChange(NamedTuple):
    """At ``at``, a PC has ``slots`` and ``amounts`` more; or, if ``closes`` is given, a window of it opens."""

    at: float
    order: int
    host: Host
    slots: int
    amounts: Amounts
    closes: float = 0.0


class _SiteSweep:
    """Goes through the time of one site, and knows how many ranks each PC could have, for ``seconds``."""

    def __init__(self, horizon: _Horizon, job: ParallelJob, seconds: float, speed: float) -> None:
        look, site, coming = horizon
        self.job = job
        self.now = look.now
        self.sharing = look.sharing
        self.seconds = seconds
        self.lasts = look.needs(seconds)
        self.speed = speed
        self.free: dict[Host, int] = {}
        self.amounts: dict[Host, Amounts] = {}
        self.closes: dict[Host, float] = {}
        self.since: dict[Host, float] = {}
        self.places: dict[Host, int] = {}
        self.total = 0
        self.deadlines: list[tuple[float, int, Host]] = []
        self._opened = 0
        self._held: dict[Host, Amounts] = {}  # what parallel tasks occupy now
        up = [host for host in site.hosts if self._suits(host)]
        self.changes = merge(self._ends(site, up), self._openings(coming), key=_when)
        for host in up:
            self.free[host], self.amounts[host] = host.idle - kept_idle(host, self.sharing), host.amounts
            self._open(host, host.closes, self.now)

    def first(self, size: Size, until: float) -> HeadReservation | None:
        """The first time, not after ``until``, at which the job can have its size."""
        at = self.now
        following = next(self.changes, None)
        while at <= until + ROUNDING:
            while following is not None and following.at <= at + ROUNDING:
                self._apply(following, at)
                following = next(self.changes, None)
            while self.deadlines and self.deadlines[0][0] <= at:
                self._close(heappop(self.deadlines)[2], at)
            if self.total >= (size.ranks if not size.power else self.job.need.least):
                found = self._choose(size, at)
                if found is not None:
                    return found
            if following is None:
                return None
            at = following.at
        return None

    def _suits(self, host: Host) -> bool:
        return host.speed >= self.speed and host.labels >= self.job.need.labels

    def _ends(self, site: Site, up: list[Host]) -> list[_HostChange]:
        """When slots and amounts of the PCs that are up should be free."""
        known = set(up)
        all_ends = [(at, host, slots) for host in up for at, slots in frees(host, self.job, self.now)]
        ends = [_HostChange(at, 0, host, slots, NOTHING) for at, host, slots in all_ends if at < host.closes]
        if self.job.need.amounts:
            late = tolerance(self.job, self.now)
            for running in site.running:
                for host, ranks in running.ranks:
                    amounts = running.job.need.amounts * ranks
                    self._held[host] = self._held.get(host, NOTHING) + amounts
                    at = expected_end(running.ends, self.now, late)
                    if host in known and at < host.closes:
                        ends.append(_HostChange(at, 0, host, 0, amounts))
        ends.sort(key=_when)
        return ends

    def _openings(self, coming: Sequence[tuple[float, float, Host]]) -> Iterator[_HostChange]:
        for opens, closes, host in coming:
            if self._suits(host) and fits(self.lasts, closes - opens):
                yield _HostChange(opens, 1, host, host.slots, NOTHING, closes)

    def _apply(self, change: _HostChange, at: float) -> None:
        host = change.host
        if change.closes:
            self.free[host] = host.slots - kept_idle(host, self.sharing)
            self.amounts[host] = host.amounts + self._held.get(host, NOTHING)
            self._open(host, change.closes, at)
        else:
            self.free[host] += change.slots
            self.amounts[host] += change.amounts
            self._count(host, at)

    def _open(self, host: Host, closes: float, at: float) -> None:
        self.closes[host] = closes
        if closes < inf:
            self._opened += 1
            heappush(self.deadlines, (closes - self.lasts, self._opened, host))
        self._count(host, at)

    def _close(self, host: Host, at: float) -> None:
        if not fits(self.lasts, self.closes[host] - at):  # else another window has opened since
            self.closes[host] = 0.0
            self._count(host, at)

    def _count(self, host: Host, at: float) -> None:
        """How many ranks the PC can have from ``at`` on."""
        before = self.places.get(host, 0)
        count = seats(self.free[host], self.amounts[host], self.job.need, self.sharing) if self.closes[host] else 0
        if count > before:
            self.since[host] = at
        self.places[host] = count
        self.total += count - before

    def _choose(self, size: Size, at: float) -> HeadReservation | None:
        """The PCs that become free last, so that others can use those that are free before; or the strongest."""
        hosts = [(host, count) for host, count in self.places.items() if count > 0]
        if size.power:
            hosts.sort(key=lambda each: size.of(each[0]), reverse=True)
            _, chosen = strongest(hosts, self.job.need, size)
            return HeadReservation(self.job, tuple(chosen), at, self.seconds) if chosen else None
        hosts.sort(key=lambda each: (-self.since[each[0]], each[0].speed, self.closes[each[0]]))
        chosen = first(hosts, size.ranks)
        return HeadReservation(self.job, tuple(chosen), at, self.seconds)


def _when(change: _HostChange) -> tuple[float, int]:
    return change.at, change.order
