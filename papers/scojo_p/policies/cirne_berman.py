"""Cirne and Berman (2000): at its arrival, a job chooses the size with which it would end first. Then it is rigid.

W. Cirne, F. Berman, Adaptive Selection of Partition Size for Supercomputer Requests; SCOJO-P's Section 3. For each size
the schedule is simulated, with the jobs that run and wait now, and EASY backfilling in the order in which they have
their turns. Nothing else arrives in this simulation, all PCs count as equal, and as if they were at one site.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.choices import DecisionView, HowMany, Size
from deskgrid.scheduler.parallel.sizes import working_set


class CirneBerman(HowMany):
    """``shrinks``: jobs choose among the sizes up to the one that suits them, and never a larger one."""

    def __init__(self, shrinks: bool = False) -> None:
        self.shrinks = shrinks
        self._chosen: dict[int, int] = {}  # by task, of those that wait

    def notice(self, look: DecisionView) -> None:
        """Those that are new choose, in the order of their arrival."""
        known = self._chosen
        self._chosen = {job.task: known[job.task] for job in look.queue if job.task in known}
        for job in sorted([job for job in look.queue if job.task not in known], key=lambda job: job.task):
            self._chosen[job.task] = self._choose(look, job)

    def size(self, look: DecisionView, job: ParallelJob) -> Size:
        """What it has chosen."""
        return Size(self._chosen[job.task])

    def _choose(self, look: DecisionView, job: ParallelJob) -> int:
        best, found = inf, job.need.least
        schedule = _Schedule(look, job, self._chosen)
        for size in self._candidates(look, job.need):
            seconds = job.need.seconds(job.runtime, size)
            ends = schedule.end(size * job.need.slots, seconds, best)
            if ends < best - ROUNDING:
                best, found = ends, size
        return found

    def _candidates(self, look: DecisionView, need: Need) -> Iterator[int]:
        """HowMany that some site has, the largest first: it takes the least time once it has started."""
        largest = max([site.slots // need.slots for site in look.view.sites], default=0)
        most = working_set(need) if self.shrinks else need.most
        yield from range(max(need.least, min(most, largest)), need.least - 1, -1)


class _QueuedJob(NamedTuple):
    slots: int
    seconds: float
    own: bool = False


class _Schedule:
    """What would be, if a job had one size or another."""

    def __init__(self, look: DecisionView, job: ParallelJob, chosen: dict[int, int]) -> None:
        self._now = look.now
        self._free = sum([site.idle for site in look.view.sites])
        self._ends = [each for site in look.view.sites for host in site.hosts for each in host.frees]
        heapify(self._ends)
        self._before: list[_QueuedJob] = []
        self._after: list[_QueuedJob] = []
        some = self._before
        for other in look.queue:
            if other is job:
                some = self._after
            elif (size := chosen.get(other.task)) is not None:
                some.append(_QueuedJob(size * other.need.slots, other.need.seconds(other.runtime, size)))

    def end(self, slots: int, seconds: float, until: float) -> float:
        """When the job would end with so many slots; infinity if that is not before ``until``."""
        now, free, ends = self._now, self._free, self._ends.copy()
        queue = [*self._before, _QueuedJob(slots, seconds, True), *self._after]
        while now + seconds < until - ROUNDING:
            started = _starting(queue, now, free, ends)
            for turn in started:
                if turn.own:
                    return now + seconds
                free -= turn.slots
                heappush(ends, (now + turn.seconds, turn.slots))
            if not ends:
                return inf
            now = max(now, ends[0][0])
            while ends and ends[0][0] <= now + ROUNDING:
                free += heappop(ends)[1]
        return inf


def _starting(queue: list[_QueuedJob], now: float, free: int, ends: list[tuple[float, int]]) -> list[_QueuedJob]:
    """Those of the queue that start now. They leave it."""
    started = []
    for turn in queue:
        if turn.slots > free:
            break
        free -= turn.slots
        started.append(turn)
    del queue[: len(started)]
    if not queue or not free:
        return started
    shadow, spare = _shadow(queue[0].slots, free, [*ends, *[(now + turn.seconds, turn.slots) for turn in started]])
    left = queue[:1]
    for turn in queue[1:]:
        in_time = now + turn.seconds <= shadow + ROUNDING
        if turn.slots <= free and (in_time or turn.slots <= spare):
            free -= turn.slots
            spare -= 0 if in_time else turn.slots
            started.append(turn)
        else:
            left.append(turn)
    queue[:] = left
    return started


def _shadow(slots: int, free: int, ends: list[tuple[float, int]]) -> tuple[float, int]:
    """When the head can start, and how many slots are then left for others."""
    shadow = inf
    for at, freed in sorted(ends):
        if at > shadow + ROUNDING:
            break
        free += freed
        if shadow == inf and free >= slots:
            shadow = at
    return shadow, free - (slots if shadow < inf else 0)
