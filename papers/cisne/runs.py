"""Runs of the laboratory: what is seen of it when a job arrives, and what becomes of the job."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from deskgrid.papers.cisne.ahead import Moment, SeenJob
from deskgrid.papers.cisne.jobs import LabJob, drawn_jobs
from deskgrid.papers.cisne.lab import VirtualLab
from deskgrid.papers.cisne.predictors import EndedJob
from deskgrid.papers.printed import table_of
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.parallel.base import ParallelPolicy
from deskgrid.scheduler.policies import Policy, make_policy, parallel_policy
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, SimulatedWork, Simulator


@dataclass(frozen=True, slots=True)
class Setting:
    """``mpl``: how many processes a PC may have; ``selection``: fcfs or backfilling; ``placement``: normal or uniform.

    ``saturated``: whether users saturate the links of half of the PCs.
    """

    mpl: int
    selection: str
    placement: str
    saturated: bool = False

    def policy(self) -> Policy:
        """A new one."""
        easy = "-easy" if self.selection == "backfilling" else ""
        return make_policy(f"cisne-{self.placement}{easy}", mpl=self.mpl)

    def parallel(self) -> ParallelPolicy:
        """The part of it that is for parallel tasks."""
        return parallel_policy(self.policy())


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job."""

    job: LabJob
    waited: float
    ran: float


class LabRun:
    """One run. ``watch``: is told each arrival: the task, and the time."""

    def __init__(self, setting: Setting, seed: str, watch: Callable[["LabRun", int], None]) -> None:
        self.setting = setting
        self.jobs = drawn_jobs(seed)
        self.lab = VirtualLab(setting.mpl, setting.saturated, self.jobs, seed)
        self._watch = watch
        self._started: set[int] = set()
        self._submitted = 0
        arrivals = [Arrival([job.seconds], [sum(job.really)], job.arrives, need=job.need) for job in self.jobs]
        conditions = Conditions(loads=self.lab.users.changes, pace=self._pace)
        self._simulator = Simulator(setting.policy(), self.lab.pcs, arrivals, conditions)
        self._simulator.beside = self._beside

    def run(self) -> list[Ended]:
        """What became of each job, in the order of their arrival."""
        gangs = sorted(self._simulator.run().gangs, key=lambda gang: gang.task)
        return [
            Ended(job, gang.start - job.arrives, gang.end - gang.start)
            for job, gang in zip(self.jobs, gangs, strict=True)
        ]

    def busy(self) -> int:
        """How many processes run now."""
        return sum([count for work in self.lab.running for _, count in work.ranks])

    def moment(self, window: float) -> Moment:
        """What is known now. ``window``: for how many seconds what users do was measured."""
        now, numbers = self._simulator.now, {name: number for number, name in enumerate(self.lab.names)}
        uses = [self.lab.users.mean(name, now, window) for name in self.lab.names]
        running = []
        for work in self.lab.running:
            job, ranks = self.jobs[work.task], [(numbers[pc.name], count) for pc, count in work.ranks]
            left = max(0.0, work.left - (now - work.since) * work.rate) / sum(job.really)
            running.append(SeenJob(job, work.task, ranks, work.started, left))
        waiting = [(task, self.jobs[task]) for task in range(self._submitted) if task not in self._started]
        return Moment(now, self.setting.mpl, uses, running, waiting)

    def _pace(self, running: Sequence[SimulatedWork], now: float) -> Sequence[float]:
        self._started.update([work.task for work in running])
        return self.lab.pace(running, now)

    def _beside(self, event: ev.Event, now: float) -> Iterable[ev.Event]:
        if isinstance(event, ev.TasksSubmitted):
            self._submitted += event.count
            self._watch(self, event.first)
        return ()


@cache
def past(setting: Setting) -> Sequence[EndedJob]:
    """What is remembered of earlier days: so many runs of the same laboratory, with other jobs."""
    found: list[EndedJob] = []
    for day in range(table_of("sdpn")["assumed"]["days"]):
        busy: list[int] = []
        run = LabRun(setting, f"day {day}", partial(_note_busy, busy))
        found += [
            EndedJob(ended.job.kind, before, ended.waited, ended.ran)
            for ended, before in zip(run.run(), busy, strict=True)
        ]
    return found


def _note_busy(noted: list[int], run: LabRun, _task: int) -> None:
    noted.append(run.busy())
