"""What policies for parallel tasks read (`deskgrid.scheduler.parallel.base.ParallelView`)."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter

from deskgrid.scheduler.parallel.base import Host, ParallelJob, Site
from deskgrid.scheduler.parallel.hosts import expected_end
from deskgrid.scheduler.parallel.possible import Possible, PossibleHost
from deskgrid.scheduler.state.gangs import host_of
from deskgrid.scheduler.state.grid import SchedulerState

_Coming = tuple[float, float, Host]
_opens = itemgetter(0)


class ComingBySite:
    """Windows to come, by site: they are collected only when some have changed, because there may be many."""

    def __init__(self, grid: SchedulerState) -> None:
        self._grid = grid
        self._version = -1
        self._known: dict[Site, list[_Coming]] = {}

    def at(self, site: Site, now: float) -> Sequence[_Coming]:
        """Windows of the PCs of a site, up or away, as (opens, closes, host), by ``opens``."""
        if self._grid.gangs.windows_version != self._version:
            self._version = self._grid.gangs.windows_version
            self._known = {}
        rows = self._known.get(site)
        if rows is None:
            rows = self._known[site] = self._collect(site, now)
        start = bisect_right(rows, now, key=_opens)
        # The PCs of these are late.
        late = [
            (opens, closes, host)
            for planned, closes, host in rows[:start]
            if (opens := expected_end(planned, now)) < closes and self._is_away(host)
        ]
        return sorted(late + rows[start:], key=_opens) if late else rows[start:]

    def _is_away(self, host: Host) -> bool:
        return host.name not in self._grid.gangs.machines

    def _collect(self, site: Site, now: float) -> list[_Coming]:
        grid, table, found = self._grid, self._grid.gangs, list[_Coming]()
        for host in site.hosts:
            windows = grid.hours.really(host.name, table.machines[host.name].worker.expected(now))
            found += [(window.opens, window.closes, host) for window in windows if window.opens > now]
        for name, away in grid.away.items():
            if away.was is not None and table.site_of(away.was) is site:
                windows, host = grid.hours.really(name, away.expected(now)), host_of(away.was, site, away.slots)
                found += [(window.opens, window.closes, host) for window in windows if window.closes > now]
        return sorted(found, key=_opens)


class Bounds:
    """What is possible if nothing else runs: worked out again only when something has changed that may add to it."""

    def __init__(self, grid: SchedulerState, coming: ComingBySite) -> None:
        self._grid = grid
        self._coming = coming
        self._version = (-1, -1)
        self._at = 0.0
        self._known = Possible(())

    def now(self, *, tight: bool = False) -> Possible:
        """A bound of what can start. ``tight``: also of what no longer can, because windows have become shorter."""
        grid, table = self._grid, self._grid.gangs
        version = table.windows_version, table.gains_version
        if version != self._version or (tight and self._at < grid.now):
            self._version, self._at = version, grid.now
            self._known = Possible([list(self._offers(site)) for site in table.sites])
        return self._known

    def _offers(self, site: Site) -> Iterator[PossibleHost]:
        now, machines, away = self._grid.now, self._grid.gangs.machines, dict[Host, float]()
        for opens, closes, host in self._coming.at(site, now):
            away[host] = max(away.get(host, 0.0), closes - opens)
        for host in site.hosts:
            lasts = max(host.closes - now, away.pop(host, 0.0))
            whole = machines[host.name].worker.traits.amounts
            yield PossibleHost(lasts * host.speed, host.slots, whole, host.labels)
        for host, lasts in away.items():
            yield PossibleHost(lasts * host.speed, host.slots, host.amounts, host.labels)


class GangView:
    """The view of one decision. ``turns``: the waiting jobs, those first whose turn it is."""

    __slots__ = ("_coming", "_grid", "now", "turns")

    def __init__(self, grid: SchedulerState, turns: Sequence[list[ParallelJob]], coming: ComingBySite) -> None:
        self._grid = grid
        self._coming = coming
        self.now = grid.now
        self.turns = turns

    @property
    def waiting(self) -> Sequence[ParallelJob]:
        """The waiting jobs, one turn after the other."""
        return self.turns[0] if len(self.turns) == 1 else [job for jobs in self.turns for job in jobs]

    @property
    def sites(self) -> Sequence[Site]:
        """Every site with a PC that is up, by name."""
        return self._grid.gangs.sites

    @property
    def singles(self) -> bool:
        """Whether there are single tasks, waiting or running, from which slots have to be kept."""
        return bool(self._grid.bound) or any(map(len, self._grid.categories.waiting.values()))

    def coming(self, site: Site) -> Sequence[_Coming]:
        """Windows to come of the PCs of a site, up or away, as (opens, closes, host), by ``opens``."""
        return self._coming.at(site, self.now)
