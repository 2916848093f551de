"""TLA: where rigid jobs start on several clusters of unequal speed (P.-C. Shih et al. 2013).

Experiments: ``table`` (Table 4); ``estimates`` (Section 5.1, wrong runtimes); ``simulation-depth`` and
``allocation-depth`` (Sections 5.2 and 5.4). The value is the mean turnaround time of all jobs.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

from deskgrid.papers.base import OURS, AskedExperiments, Experiment, Paper, PaperTrial, TrialRow
from deskgrid.papers.printed import table_of
from deskgrid.papers.tla.clusters import RigidJob, load_of, scaled, speeds, systems, workload
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, SimulatedPC, Simulator
from deskgrid.sleepbench.perturbation import predictions

BASELINES = ("bf", "ff", "ai2")
POLICIES = (*BASELINES, "tla", *OURS)
ALL = "all"
# What is made of the table if no cases are asked for: all of it takes hours.
USUAL = ("A1/0.75",)
# The depths that are tried (Fig. 10 and 13), and on which system.
SIMULATION_DEPTHS = ("1", "10", "20", "40", "80", "160", "320", "640", ALL)
ALLOCATION_DEPTHS = ("1", "2", "4", "8", "16")
SIMULATION_CASE, ALLOCATION_CASE = "A1/1/0.1", "A2/1/0.1"

_FACTS, _ASSUMED = table_of("tla")["facts"], table_of("tla")["assumed"]
_CASES = tuple(
    f"{system}/{load:g}/{heterogeneity:g}"
    for system in systems()
    for load in _FACTS["loads"]
    for heterogeneity in _FACTS["heterogeneities"]
)


def _experiment(
    title: str, by: str, cases: Sequence[str], policies: Sequence[str], optional: bool = True
) -> Experiment:
    return Experiment(title, by, "average turnaround time", "s", cases, policies, optional)


EXPERIMENTS = {
    "table": _experiment("Where jobs start", "system/load/heterogeneity", _CASES, POLICIES, optional=False),
    "estimates": _experiment(
        "Wrong estimates",
        "…/inaccuracy factor",
        [f"{_ASSUMED['estimated_case']}/{factor:g}" for factor in _FACTS["factors"]],
        POLICIES,
    ),
    "simulation-depth": _experiment(
        "Waiting jobs that TLA looks at",
        "…/depth",
        [f"{SIMULATION_CASE}/{depth}" for depth in SIMULATION_DEPTHS],
        ["tla"],
    ),
    "allocation-depth": _experiment(
        "Jobs that are placed by one look ahead",
        "…/depth",
        [f"{ALLOCATION_CASE}/{depth}" for depth in ALLOCATION_DEPTHS],
        ["tla"],
    ),
}


@contextmanager
def without_collector() -> Iterator[None]:
    """Collect no cycles inside: there are few, and the collector would go over all jobs again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class ClusterTrial:
    """One run. ``options``: of the policy; ``factor``: of wrong estimates."""

    experiment: str
    case: str
    policy: str
    seed: int
    swf: Path | None = None
    factor: float = 1.0
    options: Mapping[str, object] = field(default_factory=dict)

    def rows(self) -> Sequence[TrialRow]:
        """Simulate it. Raises `PaperError`."""
        system, load, heterogeneity = self.case.split("/")[:3]
        clusters = systems()[system]
        jobs = scaled(workload(system, self.swf), clusters, float(load))
        vector = speeds(clusters, float(heterogeneity), self.seed)
        pcs = [
            SimulatedPC(f"{name}0", slots=size, speed=speed, site=name)
            for name, size, speed in zip("ABCDEFGHIJ", clusters, vector, strict=False)
        ]
        conditions = Conditions(instant_s=_ASSUMED["one_instant_s"])
        with without_collector():
            run = Simulator(make_policy(self.policy, **self.options), pcs, self._arrivals(jobs), conditions).run()
        turnaround = fmean([gang.end - gang.submitted for gang in run.gangs])
        more = {"jobs": len(jobs), "load": load_of(jobs, sum(clusters)), "speeds": [round(each, 4) for each in vector]}
        return [TrialRow("tla", self.experiment, self.case, self.policy, self.seed, turnaround, "s", more)]

    def _arrivals(self, jobs: Sequence[RigidJob]) -> list[Arrival]:
        needs = {size: Need(size, size, gang=True) for size in {job.processors for job in jobs}}
        runtimes = [job.runtime for job in jobs]
        chance = Random(f"tla estimates {self.seed} {self.factor}")
        told = runtimes if self.factor == 1.0 else predictions(runtimes, self.factor, chance, inf)
        return [
            Arrival([estimate], [job.runtime], job.submitted, need=needs[job.processors])
            for job, estimate in zip(jobs, told, strict=True)
        ]


def trials(asked: AskedExperiments) -> list[PaperTrial]:
    """The runs that were asked for; of the table, only the cases `USUAL` unless others were. Raises `PaperError`."""
    made = [trial for each in asked.experiments for trial in _trials(each, asked)]
    for trial in made[:1]:
        workload(trial.case.split("/")[0], asked.swf)  # so that a log that cannot be read is refused at once
    return list(made)


def _trials(experiment: str, asked: AskedExperiments) -> Iterator[ClusterTrial]:
    usual = AskedExperiments(asked.experiments, USUAL, asked.policies, asked.seeds) if not asked.cases else asked
    narrowed = usual if experiment == "table" else asked
    for case in EXPERIMENTS[experiment].cases:
        for seed in asked.seeds if float(case.split("/")[2]) else asked.seeds[:1]:
            for policy in EXPERIMENTS[experiment].policies:
                if narrowed.wants(experiment, case, policy):
                    yield _trial(experiment, case, policy, seed, asked.swf)


def _trial(experiment: str, case: str, policy: str, seed: int, swf: Path | None) -> ClusterTrial:
    last = case.split("/")[-1]
    depth: int | None = _ASSUMED["simulation_depth"]
    if experiment == "simulation-depth":
        depth = None if last == ALL else int(last)
    options: dict[str, object] = {"simulation_depth": depth, "explain": False} if policy == "tla" else {}
    if experiment == "allocation-depth":
        options["allocation_depth"] = int(last)
    factor = float(last) if experiment == "estimates" else 1.0
    return ClusterTrial(experiment, case, policy, seed, swf, factor, options)


PAPER = Paper("tla", "TLA on several clusters", EXPERIMENTS, trials, _FACTS["vectors"], swf=True)
