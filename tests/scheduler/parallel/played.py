"""Plays events against a policy for parallel tasks, without the core: arrivals, ends, windows that open and close.

It checks each start: on free slots of PCs that are up, of one site, that have what the job needs.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, NamedTuple

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, Keep, ParallelJob, ParallelPolicy, RunningJob, Site, Start

START_S = 1e-9  # two times that differ by less are the same


class Done(NamedTuple):
    """A job that has run. ``killed``: a window closed first."""

    job: ParallelJob
    start: Start
    began: float
    ended: float
    killed: bool

    @property
    def turnaround(self) -> float:
        return self.ended - self.job.arrived


@dataclass(eq=False)
class Grid:
    """What the policy sees, and what makes time go on. Windows: of each PC by name, as (opens, closes), ascending."""

    hosts: Sequence[Host]
    windows: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    singles: bool = False
    now: float = 0.0
    waiting: list[ParallelJob] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    keeps: list[Keep] = field(default_factory=list)
    on_decision: Callable[["Grid"], None] = lambda _: None

    def __post_init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._up: set[Host] = set()
        self._coming: dict[Site, list[tuple[float, float, Host]]] = {}
        self._began: dict[RunningJob, Start] = {}
        for host in self.hosts:
            for opens, closes in self.windows.get(host.name, [(0.0, inf)]):
                self.at(opens, lambda host=host, closes=closes: self._open(host, closes))  # type: ignore[misc]

    def at(self, time: float, happens: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._serial), happens))

    def submit(self, jobs: Iterable[ParallelJob]) -> "Grid":
        for job in jobs:
            self.at(job.arrived, lambda job=job: self.waiting.append(job))  # type: ignore[misc]
        return self

    @property
    def turns(self) -> Sequence[Sequence[ParallelJob]]:
        return (self.waiting,)

    def coming(self, site: Site) -> Sequence[tuple[float, float, Host]]:
        known = self._coming.get(site)
        if known is None:
            windows = [
                (*each, host) for host in self.hosts if host.site is site for each in self.windows.get(host.name, [])
            ]
            known = self._coming[site] = sorted(windows, key=lambda window: window[0])
        return known[bisect_right(known, self.now, key=lambda window: window[0]) :]

    def play(
        self, policy: ParallelPolicy, until: float = inf, actual: Callable[[ParallelJob], float] = lambda job: 1.0
    ) -> None:
        """``actual``: how many times its prediction a job takes."""
        while self._events and self._events[0][0] <= until:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                heappop(self._events)[2]()
            if self.waiting:
                self.on_decision(self)
                for decided in policy.decide(self):
                    if isinstance(decided, Start):
                        self.start(decided, actual(decided.job))
                    elif isinstance(decided, Keep):
                        self.keeps.append(decided)

    def start(self, start: Start, actual: float = 1.0) -> RunningJob:
        """It occupies its slots at once, and they are free after ``actual`` times its prediction."""
        job, need, site = start.job, start.job.need, start.ranks[0][0].site
        total = 0
        for host, ranks in start.ranks:
            assert host.site is site
            assert host in self._up
            assert ranks > 0
            assert host.idle >= ranks * need.slots
            assert host.labels >= need.labels
            assert (need.amounts * ranks).within(host.amounts)
            total += ranks
        assert need.least <= total <= need.most
        self.waiting.remove(job)
        running = RunningJob(job, site, start.ranks, self.now, self.now + start.seconds)
        self._began[running] = start
        insort(site.running, running, key=_ends)
        for host, ranks in start.ranks:
            host.idle -= ranks * need.slots
            site.idle -= ranks * need.slots
            host.amounts -= need.amounts * ranks
            insort(host.frees, (running.ends, ranks * need.slots))
        self.at(self.now + start.seconds * actual, lambda: self._end(running, False))
        return running

    def _end(self, running: RunningJob, killed: bool) -> None:
        start = self._began.pop(running, None)
        if start is None:
            return
        site, need = running.site, running.job.need
        site.running.remove(running)
        for host, ranks in running.ranks:
            host.amounts += need.amounts * ranks
            del host.frees[bisect_left(host.frees, (running.ends, ranks * need.slots))]
            if host in self._up:
                host.idle += ranks * need.slots
                site.idle += ranks * need.slots
        self.done.append(Done(running.job, start, running.started, self.now, killed))
        if killed:
            self.waiting.append(running.job)

    def _open(self, host: Host, closes: float) -> None:
        site = host.site
        if site not in self.sites:
            self.sites.append(site)
            self.sites.sort(key=lambda each: each.name)
        self._up.add(host)
        host.closes, host.idle = closes, host.slots
        site.hosts.append(host)
        site.hosts.sort(key=lambda each: each.name)
        site.slots += host.slots
        site.idle += host.slots
        if closes < inf:
            self.at(closes, lambda: self._close(host))

    def _close(self, host: Host) -> None:
        site = host.site
        self._up.discard(host)
        for running in [each for each in site.running if any(host is mine for mine, _ in each.ranks)]:
            self._end(running, True)
        site.hosts.remove(host)
        site.slots -= host.slots
        site.idle -= host.idle
        host.idle = 0
        if not site.hosts:
            self.sites.remove(site)


def _ends(running: RunningJob) -> float:
    return running.ends


def hosts_of(site: str, names: Iterable[str] | int, slots: int = 1, **rest: Any) -> list[Host]:
    """PCs of one site that are alike."""
    where = Site(site)
    named = [f"{site}{number}" for number in range(names)] if isinstance(names, int) else names
    return [Host(name, where, slots, slots, **rest) for name in named]


def gang(task: int, ranks: int, seconds: float, arrived: float = 0.0) -> ParallelJob:
    """A rigid job."""
    return ParallelJob(task, Need(ranks, ranks, gang=True), seconds, arrived)
