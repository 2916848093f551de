"""SCOJO-P (Barsanti, Sodan): a size with which the load of the grid is as it should be while the job runs.

Section 4.2 and Fig. 1: the target; Fig. 3: what a job does that cannot have it now; Fig. 4: sizes in backfilling. The
size that suits a job (N_opt) is its processor working set. All PCs count as equal, as in the paper.

The factor of Fig. 4 is printed upside down, as work by room; here it is room by work.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

from deskgrid.papers.scojo_p.policies.classes import Classes, optimum
from deskgrid.papers.scojo_p.policies.coming import ArrivalRates
from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import ParallelJob, Site
from deskgrid.scheduler.parallel.choices import DecisionView, HeadReservation, HowMany, Size, fraction
from deskgrid.scheduler.parallel.sizes import working_set

# The part of the slots that should be used (the paper's best, Section 5.2), and how far off it may be.
IDEAL = 0.9
NEAR = 0.01
# After so many factors in a row that come no closer, the search ends.
WORSE = 3
# So many promises are kept before those of jobs that no longer wait are dropped.
PROMISES = 64


class Scojo(HowMany):
    """``ideal``: the part of the slots that should be used. ``predicts``: jobs to come count, too (SCOJO-P)."""

    def __init__(self, ideal: float = IDEAL, predicts: bool = False) -> None:
        self.ideal = fraction("ideal", ideal)
        self.classes = Classes()
        self.coming = ArrivalRates(len(self.classes.limits) + 1) if predicts else None
        self._noted = -1  # the newest task that was noted
        self._promised: dict[int, int] = {}  # by task: the size that it was told to wait for (Fig. 3)

    def notice(self, look: DecisionView) -> None:
        """What has come since the last decision belongs to what is to be expected."""
        waiting = look.view.waiting
        if self.coming is not None:
            newest = self._noted
            for job in reversed(waiting):
                if job.task <= self._noted:
                    break
                newest = max(newest, job.task)
                self.learn(job)
            self._noted = newest
        if len(self._promised) > PROMISES:
            tasks = {job.task for job in waiting}
            self._promised = {task: size for task, size in self._promised.items() if task in tasks}

    def learn(self, job: ParallelJob) -> None:
        """Such jobs come, and at such times of the day. Only prediction needs that."""
        if self.coming is not None:
            self.coming.note(job, self.classes.class_of(optimum(job)))

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """The target, but not less than it was promised."""
        need = job.need
        target = need.most if need.least == need.most else self._target(look, job)
        return Size(max(target, self._promised.get(job.task, 0)))

    def _target(self, look: DecisionView, job: ParallelJob) -> int:
        """The size with which the load comes closest to what it should be (Fig. 1)."""
        need, load = job.need, _Load(look, job, self.coming)
        suits = size = working_set(need)
        best, found, factor, worse = inf, size, 1.0, 0
        while worse < WORSE:
            seconds = need.seconds(job.runtime, size)
            now = load.of(size, seconds, factor)
            off = abs(now - self.ideal)
            if off < best:
                best, found, worse = off, size, 0
            else:
                worse += 1
            factor *= self.ideal / now
            before, size = size, resized(need, suits, factor)
            if off <= NEAR or size == before:
                break
        return found

    def instead(self, look: DecisionView, job: ParallelJob, size: Size) -> Size:
        """Fewer ranks now, or more of them at the end of a running job: what lets it end first (Fig. 3)."""
        need = job.need
        best, at, ranks = inf, look.now, size.ranks
        for site in look.view.sites:
            for when, free in _gains(site, look.now, need, size.ranks):
                if free >= need.least:
                    fits = min(free, size.ranks)
                    ends = when + need.seconds(job.runtime, fits)
                    if ends < best - ROUNDING:
                        best, at, ranks = ends, when, fits
        if at > look.now:
            self._promised[job.task] = ranks
        return Size(ranks)

    def fill(
        self, look: DecisionView, jobs: Sequence[ParallelJob], reserved: HeadReservation
    ) -> Iterator[tuple[ParallelJob, Size]]:
        """All that would fit until the head starts are resized by one factor, so that they fill the gap (Fig. 4)."""
        factor = _gap_factor(look, jobs, reserved.at - look.now)
        for job in jobs:
            free = max([site.idle for site in look.view.sites])
            if not free:
                return
            need = job.need
            size = resized(need, working_set(need), factor)
            if size * need.slots <= free:
                yield job, Size(size)


def resized(need: Need, suits: int, factor: float) -> int:
    """A size by a factor, as far as the job can have it. It is rounded."""
    return min(need.most, max(need.least, round(factor * suits)))


class _Waits(NamedTuple):
    need: Need
    runtime: float
    suits: int


class _Load:
    """The mean load of all slots while one job runs, as others run with it: running, waiting, and to come."""

    def __init__(self, look: DecisionView, job: ParallelJob, coming: ArrivalRates | None) -> None:
        self._now = look.now
        self._coming = coming
        self._slots = sum([site.slots for site in look.view.sites])
        self._own = job.need.slots
        self._running = [(max(0.0, at - look.now), slots) for site in look.view.sites for at, slots in frees(site)]
        self._waiting = [
            _Waits(other.need, other.runtime, working_set(other.need)) for other in look.queue if other is not job
        ]

    def of(self, size: int, seconds: float, factor: float) -> float:
        """If the job has this size for so many seconds, and the others have ``factor`` of what suits them.

        Where there are no slots, or the job takes no time, it is 1.
        """
        work = seconds * size * self._own
        for left, slots in self._running:
            work += (left if left < seconds else seconds) * slots
        for need, runtime, suits in self._waiting:
            theirs = resized(need, suits, factor)
            lasts = need.seconds(runtime, theirs)
            work += (lasts if lasts < seconds else seconds) * theirs * need.slots
        if self._coming is not None:
            work += self._coming.work(self._now, seconds, factor)
        room = self._slots * seconds
        return work / room if work > 0.0 and room > 0.0 else 1.0


def _gains(site: Site, now: float, need: Need, enough: int) -> Iterator[tuple[float, int]]:
    """When a site has how many places for ranks, as its running jobs end, until it has enough."""
    free = site.idle
    yield now, free // need.slots
    for at, slots in frees(site):
        if free // need.slots >= enough:
            return
        free += slots
        yield max(now, at), free // need.slots


def frees(site: Site) -> list[tuple[float, int]]:
    """When how many slots of a site should be free, ascending."""
    if len(site.hosts) == 1:
        return site.hosts[0].frees
    return sorted([each for host in site.hosts for each in host.frees])


def _gap_factor(look: DecisionView, jobs: Sequence[ParallelJob], room_s: float) -> float:
    """By how much the jobs that would fit into the gap are resized."""
    free = max([site.idle for site in look.view.sites])
    work = 0.0
    for job in jobs:
        need = job.need
        suits = working_set(need)
        seconds = optimum(job)
        if suits * need.slots <= free and seconds < room_s:
            work += seconds * suits * need.slots
    return room_s * free / work if work else 1.0
