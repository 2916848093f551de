"""SCOJO-P: sizes of moldable jobs on one parallel machine (L. Barsanti, A. C. Sodan).

Experiments: ``response`` (Figs. 5 and 10); ``by-class``, from the same runs; ``moldable-share`` (Section 5.3), where
some jobs are rigid; ``downey``, with another model of speed-ups. The value is the mean response time: from the arrival
of a job to its end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from deskgrid.papers.base import OURS, AskedExperiments, Experiment, Paper, PaperTrial, TrialRow
from deskgrid.papers.printed import table_of
from deskgrid.papers.scojo_p.policies.classes import Classes
from deskgrid.papers.scojo_p.policies.scojo import Scojo
from deskgrid.scheduler.need import Need, Speedup
from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.speedup import Downey, Measured
from deskgrid.scheduler.policies import Policy, parallel_policy
from deskgrid.scheduler.simulation.runs import GangExecution
from deskgrid.scheduler.simulation.simulator import Arrival, SimulatedPC, Simulator
from deskgrid.sleepbench.simulated import policy_of
from deskgrid.sleepbench.workloads.lublin import LublinJob, lublin_jobs

POLICIES = ("rigid", "easy", "cirne-berman", "cirne-berman-shrink", "scojo", "scojo-p", "nmin", *OURS)
CLASSES = ("short", "medium", "long")
HOUR_S = 3600.0

_FACTS, _ASSUMED = table_of("scojo-p")["facts"], table_of("scojo-p")["assumed"]
WORKLOADS: dict[str, float] = _FACTS["arrivals"]
# The first word of a case is its workload; of ``moldable-share``, the second is the share.
SHARES = [share for share in _FACTS["shares"] if share < 1.0]


def _experiment(title: str, by: str, ends: Sequence[str], optional: bool = False) -> Experiment:
    cases = [f"{workload}{end}" for workload in WORKLOADS for end in ends]
    return Experiment(title, by, "mean response time", "h", cases, POLICIES, optional)


EXPERIMENTS = {
    "response": _experiment("All jobs moldable", "workload", [""]),
    "by-class": _experiment("All jobs moldable, by class", "workload/class", [f"/{each}" for each in CLASSES]),
    "moldable-share": _experiment(
        "Some jobs moldable", "workload/moldable part", [f"/{share:g}" for share in SHARES], optional=True
    ),
    "downey": _experiment("Downey's speed-ups", "workload", [""], optional=True),
}


@dataclass(frozen=True, slots=True)
class ScojoTrial:
    """One run. ``asked``: which rows it yields. ``share``: the part of jobs that are moldable. ``jobs``: how many."""

    asked: AskedExperiments
    workload: str
    policy: str
    seed: int
    share: float = 1.0
    downey: bool = False
    jobs: int = _FACTS["jobs"]

    def rows(self) -> Sequence[TrialRow]:
        """Its mean response times, of all jobs but the first and the last, and beside them what else was measured."""
        policy = policy_of(self.policy, {}, self.seed)
        self._teach(policy)
        drawn = self._jobs(self.seed)
        arrivals = [Arrival([runtime], at=job.submitted_s, need=need) for job, need, runtime in drawn]
        machine = SimulatedPC("machine", slots=_FACTS["machine"], site="machine")
        run = Simulator(policy, [machine], arrivals).run()
        cut = round(self.jobs * _FACTS["cut"])
        ends = {gang.task: gang for gang in run.gangs if gang.done}
        counted = [(drawn[task][0], ends[task]) for task in range(cut, self.jobs - cut)]
        busy = sum([(gang.end - gang.start) * sum([ranks for _, ranks in gang.ranks]) for gang in ends.values()])
        utilization = busy / (_FACTS["machine"] * max(gang.end for gang in ends.values()))
        rows = self._rows(counted, utilization)
        return [row for row in rows if self.asked.wants(row.experiment, row.case, row.policy)]

    def _rows(self, counted: Sequence[tuple[LublinJob, GangExecution]], utilization: float) -> Iterator[TrialRow]:
        if self.downey:
            yield self._row("downey", self.workload, counted, utilization)
        elif self.share < 1.0:
            yield self._row("moldable-share", f"{self.workload}/{self.share:g}", counted, utilization)
        else:
            yield self._row("response", self.workload, counted, utilization)
            for number, name in enumerate(CLASSES):
                some = [pair for pair in counted if Classes().class_of(pair[0].runtime_s) == number]
                yield self._row("by-class", f"{self.workload}/{name}", some, utilization)

    def _row(
        self, experiment: str, case: str, some: Sequence[tuple[LublinJob, GangExecution]], utilization: float
    ) -> TrialRow:
        more = {
            "wait_h": fmean(gang.start - gang.submitted for _, gang in some) / HOUR_S,
            "bounded_slowdown": fmean(bounded_slowdown(job, gang) for job, gang in some),
            "utilization": utilization,
        }
        value = fmean(gang.end - gang.submitted for _, gang in some) / HOUR_S
        return TrialRow("scojo-p", experiment, case, self.policy, self.seed, value, "h", more)

    def _jobs(self, seed: int) -> list[tuple[LublinJob, Need, float]]:
        """What is drawn, what it needs, and its runtime of one rank. Which jobs are rigid is drawn for each seed."""
        chance = Random(f"scojo-p rigid {seed}")
        drawn = lublin_jobs(seed, self.jobs, _FACTS["machine"], aarr=WORKLOADS[self.workload], arar=_ASSUMED["arar"])
        found = []
        for job in drawn:
            speedup = downey(job.processors) if self.downey else table_1(job.processors)
            least, most = least_and_most(job.processors)
            if chance.random() >= self.share:
                least = most = job.processors
            need = Need(least, most, speedup=speedup, gang=True)
            found.append((job, need, job.runtime_s * speedup.of(job.processors)))
        return found

    def _teach(self, policy: Policy) -> None:
        """Show a policy that predicts arrivals those of another workload, drawn in the same way."""
        parallel = parallel_policy(policy)
        if isinstance(parallel, Composed) and isinstance(parallel.sizes, Scojo):
            for job, need, runtime in self._jobs(self.seed + _ASSUMED["training_seed"]):
                parallel.sizes.learn(ParallelJob(-1, need, runtime, job.submitted_s))


def least_and_most(size: int) -> tuple[int, int]:
    """N_min and N_max of a job whose N_opt is ``size`` (Table 1)."""
    return max(size // 2, 1), min(2 * size, _FACTS["machine"])


def table_1(size: int) -> Speedup:
    """The speed-ups that Table 1 says: efficiencies at N_min, N_opt and N_max, whatever the machine can hold.

    They are relative to one rank, as all speed-ups here are: a size of 1 has the speed-up 1, not its efficiency.
    """
    least, _ = least_and_most(size)
    known = _FACTS["efficiency"]
    points = {least: least * known["least"], size: size * known["opt"], 2 * size: 2 * size * known["most"]}
    first = points.get(1, 1.0)
    return Measured(tuple((ranks, speedup / first) for ranks, speedup in sorted(points.items())))


def downey(size: int) -> Speedup:
    """Downey's curve with Table 1's efficiencies at N_min and N_opt."""
    return Downey(max(1.0, _ASSUMED["downey_average"] * size), _ASSUMED["downey_sigma"])


def bounded_slowdown(job: LublinJob, gang: GangExecution) -> float:
    """Response time to the runtime on N_opt, or to 30 s if that is less (Section 5.1)."""
    bound_s: float = _FACTS["slowdown_bound_s"]
    return max(1.0, (gang.end - gang.submitted) / max(job.runtime_s, bound_s))


def trials(asked: AskedExperiments) -> Sequence[PaperTrial]:
    """One run for each workload, policy and seed; it may answer several experiments."""
    return [
        ScojoTrial(asked, workload, policy, seed, share, other)
        for workload in WORKLOADS
        for share, other in ((1.0, False), *((share, False) for share in SHARES), (1.0, True))
        for policy in POLICIES
        if any(asked.wants(*row, policy) for row in _answered(workload, share, other))
        for seed in asked.seeds
    ]


def _answered(workload: str, share: float, other: bool) -> list[tuple[str, str]]:
    """The experiments and cases that a run knows."""
    if other:
        return [("downey", workload)]
    if share < 1.0:
        return [("moldable-share", f"{workload}/{share:g}")]
    return [("response", workload), *[("by-class", f"{workload}/{name}") for name in CLASSES]]


PAPER = Paper("scojo-p", "SCOJO-P (Barsanti, Sodan)", EXPERIMENTS, trials, runs=_FACTS["seeds"])
