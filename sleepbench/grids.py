"""Random grids: compare the default policy with others on grids that it was not tuned for. In virtual time, seeded.

A grid has 5 to 20 PCs of one slot each. A PC is up for a time drawn log-uniformly from 1 minute to 2 hours, then away
for 1.2, 30 or 300 seconds, again and again. A grid has 10 to 40 tasks per slot. Their mean runtime is a fraction of the
mean uptime, by default a fifth. The runtimes are uniform from 0, log-normal (sigma 1), or hyper-exponential (four of
five with 0.4 of the mean, one of five with 3.4 times the mean). A task that would not fit into 95 % of the longest
window is drawn again.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from deskgrid.scheduler.simulation.simulator import Arrival, SimulatedPC, cycle
from deskgrid.sleepbench.parameters import Parameters
from deskgrid.sleepbench.scenarios import MINUTE_S, Row
from deskgrid.sleepbench.simulated import Problem, Trial, Unfinished, rows_of
from deskgrid.sleepbench.workloads.combine import lower_bound_s
from deskgrid.sleepbench.workloads.source import Jobs, Lab

SLOTS = (5, 20)
UPTIME_S = (60.0, 7200.0)
AWAY_S = (1.2, 30.0, 300.0)
TASKS_PER_SLOT = (10, 40)
# The default mean runtime, as a fraction of the mean uptime.
MEAN = 0.2
# No task is longer than this part of the longest window.
LONGEST = 0.95
SIGMA = 1.0
SHORT, LONG, SHORT_SHARE = 0.4, 3.4, 0.8

# The queue lengths with which PGS is tried.
QUEUES = (0, 1, 2, 4, 10)
# The best result of PGS on a grid, with any queue length, and with those from 1 on. With 0, the paper's phase 2 has
# nothing to do.
BEST = "pgs, best queue"
BEST_QUEUED = "pgs, best queue from 1"


def _uniform(chance: Random, mean: float) -> float:
    return chance.uniform(0.0, 2.0 * mean)


def _lognormal(chance: Random, mean: float) -> float:
    return chance.lognormvariate(math.log(mean) - SIGMA**2 / 2, SIGMA)


def _hyperexponential(chance: Random, mean: float) -> float:
    return chance.expovariate(1.0 / (mean * (SHORT if chance.random() < SHORT_SHARE else LONG)))


KINDS: dict[str, Callable[[Random, float], float]] = {
    "uniform": _uniform,
    "log-normal": _lognormal,
    "hyper-exponential": _hyperexponential,
}


def random_grid(seed: int, mean: float = MEAN) -> Problem:
    """The grid with this seed; the three kinds of runtimes take turns. ``mean``: of runtimes, in mean uptimes."""
    chance = Random(f"grid {seed}")
    least, most = UPTIME_S
    uptimes = [least * (most / least) ** chance.random() for _ in range(chance.randint(*SLOTS))]
    away = chance.choice(AWAY_S)
    pcs = tuple(SimulatedPC(f"pc{place}", cycle(up, away)) for place, up in enumerate(uptimes, start=1))
    kind = list(KINDS)[seed % len(KINDS)]
    count = len(uptimes) * chance.randint(*TASKS_PER_SLOT)
    runtimes = list(_runtimes(KINDS[kind], chance, mean * fmean(uptimes), LONGEST * max(uptimes), count))
    jobs, lab = Jobs(kind, (Arrival(runtimes),)), Lab("random", pcs)
    return Problem(kind, jobs.arrivals, lab.pcs, lower_bound_s(jobs, lab))


def _runtimes(
    kind: Callable[[Random, float], float], chance: Random, mean: float, most: float, count: int
) -> Iterator[float]:
    while count:
        runtime = kind(chance, mean)
        if 0.0 < runtime < most:
            count -= 1
            yield runtime


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy with its options. ``name``: in the table. ``announces``: whether PCs announce their coming windows."""

    name: str
    policy: str
    options: Mapping[str, object]
    announces: bool = True


def queued(queue: int) -> str:
    """The name of PGS with queues of this length."""
    return f"pgs, queue {queue}"


PACKING: Mapping[str, object] = {"queue_s": 0, "margin": 0}
CONTENDERS = (
    *(
        Contender(queued(queue), "pgs", {"order": "newest-first", "queue_length": queue, "queue_s": 0, "margin": 0})
        for queue in QUEUES
    ),
    Contender("longest", "longest", {"margin": 0}),
    Contender("packing", "packing", PACKING),
    Contender("packing, told the current windows only", "packing", PACKING, announces=False),
)
# With wrong predictions, the policy that does not look at them takes part, too.
WITH_ERRORS = (*CONTENDERS, Contender("fcfs", "fcfs", {}))


@dataclass(frozen=True, slots=True)
class ContenderResult:
    """The results of one grid: makespans by contender and of `BEST`, a lower bound, and packing's planned kills."""

    seed: int
    kind: str
    tasks: int
    lower_bound_min: float
    makespan_min: Mapping[str, float]
    planned_kills: int

    def ratio(self, name: str, to: str) -> float:
        """The makespan of one contender to that of another."""
        return self.makespan_min[name] / self.makespan_min[to]


def contenders(runtime_error: float) -> Sequence[Contender]:
    """Who takes part if predictions are wrong by up to this factor (`deskgrid.sleepbench.perturbation`)."""
    return CONTENDERS if runtime_error == 1.0 else WITH_ERRORS


def outcomes(
    seeds: Sequence[int], processes: int, mean: float = MEAN, runtime_error: float = 1.0
) -> Iterator[ContenderResult]:
    """The results of the grids with these seeds, in order. ``runtime_error``: as in `contenders`."""
    problems = [(seed, random_grid(seed, mean)) for seed in seeds]
    taking_part = contenders(runtime_error)
    trials = [
        _trial(problem, contender, seed, runtime_error) for seed, problem in problems for contender in taking_part
    ]
    rows = rows_of(trials, processes)
    for seed, problem in problems:
        yield _outcome(seed, problem, [(contender, next(rows)) for contender in taking_part])


def _trial(problem: Problem, contender: Contender, seed: int, runtime_error: float) -> Trial:
    parameters = Parameters(announces=contender.announces, options={contender.policy: contender.options})
    return Trial(problem, contender.policy, seed=seed, parameters=parameters, runtime_error=runtime_error)


def _outcome(seed: int, problem: Problem, rows: Sequence[tuple[Contender, Row | Unfinished]]) -> ContenderResult:
    minutes: dict[str, float] = {}
    kills = 0
    for contender, row in rows:
        minutes[contender.name] = row.makespan_min if isinstance(row, Row) else math.inf
        if isinstance(row, Row) and contender.policy == "packing":
            kills += row.planned_kills
    minutes[BEST] = min(minutes[queued(queue)] for queue in QUEUES)
    minutes[BEST_QUEUED] = min(minutes[queued(queue)] for queue in QUEUES if queue)
    return ContenderResult(seed, str(problem.name), problem.tasks, problem.lower_bound_s / MINUTE_S, minutes, kills)
