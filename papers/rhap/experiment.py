"""RHAP: sizes of moldable jobs on unequal PCs that others use, too (A. Chhabra, G. Singh).

Experiments: ``load`` (Fig. 1), ``arrival-cv`` (Fig. 2), ``service-cv`` (Fig. 3). The value is the mean response time of
all jobs: from their arrival to their end.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from deskgrid.papers.base import OURS, AskedExperiments, Experiment, Paper, PaperTrial, TrialRow
from deskgrid.papers.printed import table_of
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, SimulatedPC, Simulator
from deskgrid.sleepbench.simulated import policy_of

POLICIES = ("ap2", "map", "hap", "rhap", "max", *OURS)

_FACTS, _ASSUMED = table_of("rhap")["facts"], table_of("rhap")["assumed"]
# How many loads a PC may have: 0 %, 1 % and so on.
LOADS = _FACTS["most_load_percent"] + 1
# The cases that are made if none are asked for: all of them take three times as long.
USUAL = ("0.5", "0.7", "0.9")


def _experiment(title: str, by: str, cases: Sequence[float], optional: bool = False) -> Experiment:
    return Experiment(title, by, "mean response time", "s", [f"{case:g}" for case in cases], POLICIES, optional)


EXPERIMENTS = {
    "load": _experiment("Load", "utilization", _FACTS["utilizations"]),
    "arrival-cv": _experiment("Bursts of arrivals", "CV of arrivals", _ASSUMED["arrival_cvs"], optional=True),
    "service-cv": _experiment("Unequal jobs", "CV of demands", _ASSUMED["service_cvs"], optional=True),
}


@dataclass(frozen=True, slots=True)
class RhapTrial:
    """One run. ``jobs``: how many."""

    experiment: str
    case: str
    policy: str
    seed: int
    jobs: int = _FACTS["jobs"]

    def rows(self) -> Sequence[TrialRow]:
        """Its mean response time."""
        policy = policy_of(self.policy, {}, self.seed)
        conditions = Conditions(seed=self.seed, redrawn=load_of_others)
        run = Simulator(policy, pcs(), self.arrivals(), conditions).run()
        mean = fmean(gang.end - gang.submitted for gang in run.gangs if gang.done)
        return [TrialRow("rhap", self.experiment, self.case, self.policy, self.seed, mean, "s")]

    def arrivals(self) -> list[Arrival]:
        """The jobs: the same for all policies and, but for what the case is about, for all cases."""
        case = float(self.case)
        utilization = case if self.experiment == "load" else _FACTS["sensitivity_utilization"]
        arrival_cv = case if self.experiment == "arrival-cv" else _FACTS["arrival_cv"]
        service_cv = case if self.experiment == "service-cv" else _FACTS["service_cv"]
        gap = _FACTS["mean_demand"] / (utilization * _FACTS["pcs"])  # Eq. 9
        fastest = max(_FACTS["bpus"])
        need = Need(1, _FACTS["pcs"], speedup=Amdahl(0.0), gang=True)
        gaps = drawn(Random(f"rhap arrivals {self.seed}"), gap, arrival_cv)
        demands = drawn(Random(f"rhap demands {self.seed}"), _FACTS["mean_demand"], service_cv)
        predicted = [_FACTS["mean_demand"] / fastest]
        found, at = [], 0.0
        for _ in range(self.jobs):
            at += next(gaps)
            found.append(Arrival(predicted, [next(demands) / fastest], at, need=need))
        return found


def drawn(chance: Random, mean: float, cv: float) -> Iterator[float]:
    """Times of a two-stage hyper-exponential distribution with balanced means; exponential if the CV is 1.

    Each is drawn from two numbers, so that other CVs change how long a job is, but not which are the long ones.
    """
    short = 0.5 * (1.0 + math.sqrt((cv * cv - 1.0) / (cv * cv + 1.0)))
    while True:
        part = short if chance.random() < short else 1.0 - short
        yield chance.expovariate(2.0 * part / mean)


def pcs() -> list[SimulatedPC]:
    """The slow ones first, as the paper lists them."""
    kinds, fastest = _FACTS["bpus"], max(_FACTS["bpus"])
    each = _FACTS["pcs"] // len(kinds)
    return [
        SimulatedPC(f"pc{place:02}", speed=kinds[(place - 1) // each] / fastest, site="lab")
        for place in range(1, _FACTS["pcs"] + 1)
    ]


def load_of_others(chance: Random) -> float:
    """In whole percent: the distribution is discrete."""
    return int(LOADS * chance.random()) / 100.0


def trials(asked: AskedExperiments) -> Sequence[PaperTrial]:
    """One for each row."""
    if not asked.cases and list(asked.experiments) == ["load"]:
        asked = replace(asked, cases=USUAL)
    return [
        RhapTrial(name, case, policy, seed)
        for name, experiment in EXPERIMENTS.items()
        for case in experiment.cases
        for policy in experiment.policies
        if asked.wants(name, case, policy)
        for seed in asked.seeds
    ]


PAPER = Paper("rhap", "RHAP (Chhabra, Singh)", EXPERIMENTS, trials, runs=_ASSUMED["seeds"])
