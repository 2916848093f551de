"""The simulation by which turnarounds are predicted (Algorithm 1): the jobs that are known, played to their ends.

The same policy decides in it that decides in reality. How long jobs take beside each other is up to a model.

Rule: of the future, nothing is known but what waits and runs now, and what users do now.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from deskgrid.papers.cisne.jobs import LabJob
from deskgrid.papers.cisne.lab import SITE, Use
from deskgrid.scheduler.parallel.base import Host, ParallelJob, ParallelPolicy, RunningJob, Site, Start


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job that runs: ``ranks``: (number of the PC, how many processes); ``left``: the part of it that is left."""

    job: LabJob
    task: int
    ranks: Sequence[tuple[int, int]]
    started: float
    left: float


@dataclass(frozen=True, slots=True)
class Moment:
    """The laboratory when a job arrives, which is the last of those that wait. ``waiting``: (task, job).

    ``uses``: of the user of each PC, as measured. ``mpl``: how many processes a PC may have.
    """

    now: float
    mpl: int
    uses: Sequence[Use]
    running: Sequence[SeenJob]
    waiting: Sequence[tuple[int, LabJob]]


@dataclass(slots=True, eq=False)
class Going:
    """A job that runs in the simulation. ``held``: what the policy sees of it."""

    job: LabJob
    task: int
    ranks: Sequence[tuple[int, int]]
    started: float
    left: float
    held: RunningJob = field(repr=False)

    @property
    def size(self) -> int:
        """How many processes it has."""
        return sum([count for _, count in self.ranks])


class Model(Protocol):
    """How long jobs take."""

    def begin(self, moment: Moment) -> None:
        """Predictions for this moment follow."""

    def left(self, seen: SeenJob, now: float) -> float:
        """What part of a job that runs already is left."""

    def seconds(self, going: Sequence[Going]) -> list[float]:
        """How long each of these would take in all, if everything stayed as it is."""


class LookAhead:
    """One simulation; it is a `ParallelView` of its own laboratory, in which there are no single tasks."""

    def __init__(self, moment: Moment, policy: ParallelPolicy, model: Model) -> None:
        self.now = moment.now
        self._policy = policy
        self._model = model
        self._jobs = dict(moment.waiting)
        self.singles = False
        self._site = Site(SITE, slots=len(moment.uses) * moment.mpl, idle=len(moment.uses) * moment.mpl)
        self.sites = [self._site]
        self._site.hosts = [
            Host(f"pc{number:02d}", self._site, moment.mpl, 1, load=use.cpu, idle=moment.mpl)
            for number, use in enumerate(moment.uses, start=1)
        ]
        self._number = {host: number for number, host in enumerate(self._site.hosts)}
        self._going: list[Going] = []
        model.begin(moment)
        for seen in moment.running:
            job = ParallelJob(seen.task, seen.job.need, seen.job.seconds, seen.job.arrives)
            ranks = tuple((self._site.hosts[number], count) for number, count in seen.ranks)
            held = RunningJob(job, self._site, ranks, seen.started, seen.started + seen.job.seconds)
            self._put(Going(seen.job, seen.task, seen.ranks, seen.started, model.left(seen, self.now), held))
        self.waiting = [ParallelJob(task, job.need, job.seconds, job.arrives) for task, job in moment.waiting]

    @property
    def turns(self) -> Sequence[Sequence[ParallelJob]]:
        """All belong to one owner."""
        return (self.waiting,)

    def coming(self, site: Site) -> Sequence[tuple[float, float, Host]]:
        """No windows: the PCs stay."""
        return ()

    def play(self, task: int) -> tuple[float, float]:
        """For how long a job of those that wait will wait, and for how long it will run."""
        arrived, started = self.now, inf
        while True:
            self._start()
            if started == inf and any(going.task == task for going in self._going):
                started = self.now
            ended = self._next_end()
            if ended.task == task:
                return started - arrived, self.now - started

    def _start(self) -> None:
        """Lines 9 to 13."""
        if not self.waiting or not self._site.idle:
            return
        for start in self._policy.decide(self):
            if isinstance(start, Start):
                held = RunningJob(start.job, self._site, start.ranks, self.now, self.now + start.seconds)
                ranks = [(self._number[host], count) for host, count in start.ranks]
                self._put(Going(self._jobs[start.job.task], start.job.task, ranks, self.now, 1.0, held))
                self.waiting.remove(start.job)

    def _put(self, going: Going) -> None:
        self._going.append(going)
        insort(self._site.running, going.held, key=_ends)
        for host, count in going.held.ranks:
            host.idle -= count
            insort(host.frees, (going.held.ends, count))
        self._site.idle -= going.size

    def _next_end(self) -> Going:
        """Lines 4 to 7, and 14: go on until the next job ends (Eq. 5 and 6), which is no longer there then."""
        whole = self._model.seconds(self._going)
        left = [going.left * seconds for going, seconds in zip(self._going, whole, strict=True)]
        step = min(left)
        self.now += step
        for going, seconds in zip(self._going, whole, strict=True):
            going.left = max(0.0, going.left - step / seconds)
        ended = self._going.pop(left.index(step))
        self._site.running.remove(ended.held)
        for host, count in ended.held.ranks:
            host.idle += count
            host.frees.remove((ended.held.ends, count))
        self._site.idle += ended.size
        return ended


def _ends(running: RunningJob) -> float:
    return running.ends
