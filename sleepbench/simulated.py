"""Runs in virtual time: the problem, the policy, and the resulting rows.

Rule 1: a run depends only on its `Trial`. All randomness comes from the trial's seed, with a separate generator for
each use. So the rows do not depend on the number of processes.
Rule 2: a run without randomness is computed once, however often it is asked for.
Rule 3: nobody predicts that a task takes longer than the longest window, because the grid would say that such a task
waits for ever. So wrong predictions stay below `LONGEST_PREDICTED` times the longest window.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random

from deskgrid.scheduler.model import UnknownPolicy
from deskgrid.scheduler.policies import Policy, make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, Run, SimulatedPC, Simulator, Stalled, cycle
from deskgrid.sleepbench.parameters import Options, Parameters
from deskgrid.sleepbench.perturbation import predictions, wrongly_announced
from deskgrid.sleepbench.pool import computed
from deskgrid.sleepbench.scenarios import MINUTE_S, Row, Scenario, paper_min

# Leaves room for the margins of the policies.
LONGEST_PREDICTED = 0.9
# The options that a real grid needs because messages and starting a task take time, set to zero.
IDEAL: Options = {"margin": 0.0, "queue_s": 0.0}
# The shortest piece of a checkpointable task, in seconds before they are scaled. The paper's windows are short.
PIECE_S = 1.0
# How many windows of a PC are searched for the longest.
LOOKED_AT = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """Bags of tasks on some PCs, as they really are. ``scale``: the factor by which its times were multiplied."""

    name: int | str
    arrivals: tuple[Arrival, ...]
    pcs: tuple[SimulatedPC, ...]
    lower_bound_s: float
    scale: float = 1.0

    @property
    def tasks(self) -> int:
        return sum(len(arrival.runtimes) for arrival in self.arrivals)

    def longest_window_s(self) -> float:
        """The longest window, among the first `LOOKED_AT` of each PC."""
        spans = (span for pc in self.pcs for span in islice(pc.timetable(), LOOKED_AT))
        return max(span.closes - span.opens for span in spans)


def scenario_problem(scenario: Scenario, seed: int, scale: float = 1.0) -> Problem:
    """The problem of ``scenario`` (unscaled) in the run with ``seed``, with every time multiplied by ``scale``."""
    scaled = scenario.scaled(scale)
    pcs = [SimulatedPC(f"pc{place}", cycle(up, scaled.restart)) for place, up in enumerate(scaled.uptimes, start=1)]
    return Problem(scenario.number, (Arrival(scaled.in_order(seed)),), tuple(pcs), scaled.lower_bound_s, scale)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run to make. ``runtime_error``, ``uptime_error``: F of `deskgrid.sleepbench.perturbation`; 1: no error.

    ``checkpoint``: all tasks are checkpointable, in pieces of `PIECE_S` or more.
    """

    problem: Problem
    policy: str
    run: int = 1
    seed: int = 0
    parameters: Parameters = field(default_factory=Parameters)
    runtime_error: float = 1.0
    uptime_error: float = 1.0
    checkpoint: bool = False

    def by_chance(self) -> bool:
        """Whether the result depends on the seed, given the problem."""
        errors = self.runtime_error != 1.0 or self.uptime_error != 1.0
        return (
            errors
            or self.parameters.jitter > 0.0
            or self.parameters.slow > 0.0
            or takes_option(self.policy, seed=self.seed)
        )

    def twin_of(self, other: "Trial") -> bool:
        """Whether the two differ only in number and seed, and the result does not depend on these."""
        same = self.problem is other.problem and replace(other, run=self.run, seed=self.seed) == self
        return same and not self.by_chance()


# The kinds of prediction errors, and how to get a trial's factor for each.
ERRORS: Mapping[str, Callable[[Trial], float]] = {
    "the runtimes": lambda trial: trial.runtime_error,
    "the uptimes": lambda trial: trial.uptime_error,
}


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that would never end, and why."""

    trial: Trial
    reason: str


def takes_option(policy: str, **option: object) -> bool:
    """Whether the policy has this option, and accepts this value."""
    try:
        make_policy(policy, **option)
    except UnknownPolicy:
        return False
    return True


def policy_of(name: str, options: Options, seed: int) -> Policy:
    """A new policy, whose random choices follow ``seed`` unless its options say otherwise.

    In virtual time nothing needs time to start up, and no slot waits for a message with its next task. So there is no
    margin, and no queue that is measured in seconds, unless the options ask for them.
    """
    ideal = {option: value for option, value in IDEAL.items() if takes_option(name, **{option: value})}
    return make_policy(name, **{**ideal, **with_seed(name, options, seed)})


def with_seed(policy: str, options: Options, seed: int) -> dict[str, object]:
    """The options, with ``seed`` added if the policy takes one and the options have none."""
    lots = {"seed": seed} if takes_option(policy, seed=seed) else {}
    return {**lots, **options}


def simulate(trial: Trial, trace: bool = False) -> Run:
    """Simulate the run, on the clock of the problem; raises `Stalled`."""
    parameters = trial.parameters
    policy = policy_of(trial.policy, parameters.options.get(trial.policy, {}), trial.seed)
    pcs, arrivals = trial.problem.pcs, trial.problem.arrivals
    if trial.uptime_error != 1.0:
        pcs = tuple(wrongly_announced(pc, trial.uptime_error, trial.seed) for pc in pcs)
    return Simulator(policy, pcs, _predicted(trial, arrivals), parameters.conditions(trial.seed), trace).run()


def _predicted(trial: Trial, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The bags with the predictions that the scheduler is given."""
    known_s = trial.parameters.overhead_s if trial.parameters.overhead_known else 0.0
    if trial.runtime_error != 1.0:
        chance = Random(f"runtimes {trial.seed}")
        most = LONGEST_PREDICTED * trial.problem.longest_window_s()
        wrong = [predictions(arrival.really(), trial.runtime_error, chance, most) for arrival in arrivals]
    else:
        wrong = [list(arrival.runtimes) for arrival in arrivals]
    return [
        Arrival(
            [seconds + known_s for seconds in told],
            arrival.really(),
            arrival.at,
            copies=trial.parameters.copies,
            min_piece=PIECE_S * trial.problem.scale if trial.checkpoint else None,
        )
        for told, arrival in zip(wrong, arrivals, strict=True)
    ]


def row_of(trial: Trial, run: Run) -> Row:
    """The row for a simulated run, in unscaled minutes and seconds."""
    problem, counters = trial.problem, run.counters
    return Row(
        scenario=problem.name,
        policy=trial.policy,
        run=trial.run,
        seed=trial.seed,
        makespan_min=run.makespan_s / problem.scale / MINUTE_S,
        lower_bound_min=problem.lower_bound_s / problem.scale / MINUTE_S,
        paper_min=paper_min(problem.name, trial.policy),
        tasks=problem.tasks,
        kills=counters.kills,
        planned_kills=counters.planned_kills,
        wasted_s=counters.wasted_s / problem.scale,
        idle_s=run.idle_s / problem.scale,
    )


def rows_of(trials: Sequence[Trial], processes: int = 1) -> Iterator[Row | Unfinished]:
    """A row for each trial, in order, computed by up to ``processes`` processes."""
    first = [not place or not trial.twin_of(trials[place - 1]) for place, trial in enumerate(trials)]
    to_make = [trial for trial, new in zip(trials, first, strict=True) if new]
    with computed(_row, to_make, processes) as results:
        result: Row | Unfinished | None = None
        for trial, new in zip(trials, first, strict=True):
            result = next(results) if new or result is None else result
            yield replace(result, run=trial.run, seed=trial.seed) if isinstance(result, Row) else result


def _row(trial: Trial) -> Row | Unfinished:
    try:
        return row_of(trial, simulate(trial))
    except Stalled as error:
        return Unfinished(trial, str(error))
