"""Compare live and simulated runs of a scaled scenario, to check that the simulator's results hold for a grid. Pure.

Rule 1: both use the same policy with the same options, and the same seconds, those of the scaled scenario.
Rule 2: differences are explained only by costs that were measured in the live run itself. Each live run is simulated
with the costs of that run. An ideal grid without any costs is simulated for comparison.
Rule 3: if a policy decides at random, a live run is one of many possible runs. So it is simulated with many seeds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

from deskgrid.scheduler.simulation.simulator import RealWindow, SimulatedPC
from deskgrid.sleepbench.costs import Cost, Costs
from deskgrid.sleepbench.parameters import Options, Parameters
from deskgrid.sleepbench.scenarios import Row, Scenario
from deskgrid.sleepbench.simulated import Problem, Trial, scenario_problem, takes_option

# The medians may differ by this fraction.
TOLERANCE = 0.03
# How many times each live run is simulated, with a new seed each time. Chance alone puts the median of three live runs
# of FCFS in scenario 3 off by 2 %. The median of the simulated runs must not add to that.
LOTS = 10


@dataclass(frozen=True, slots=True)
class Underway:
    """A PC that comes and goes. Its first window is open at the start, and closes at ``closes``."""

    up: float
    down: float
    closes: float

    def __call__(self) -> Iterator[RealWindow]:
        closes = self.closes
        while True:
            yield RealWindow(max(0.0, closes - self.up), closes, closes)
            closes += self.up + self.down


@dataclass(frozen=True, slots=True)
class RunSetting:
    """The settings that live and simulated runs share. ``scenario``: unscaled. ``options``: of the policy."""

    scenario: Scenario
    scale: float
    policy: str
    options: Options

    @property
    def by_lot(self) -> bool:
        """Whether the policy decides at random."""
        return takes_option(self.policy, seed=0)


def trials(setting: RunSetting, costs: Costs | None) -> list[Trial]:
    """The simulations that stand for a live run with these ``costs``; None: an ideal grid.

    The windows are those of the live run. Predictions do not include the costs of an attempt.
    """
    scenario, scale, policy = setting.scenario, setting.scale, setting.policy
    problem = scenario_problem(scenario, 0, scale)
    parameters = Parameters(overhead_known=False, options={policy: setting.options})
    if costs is not None:
        pcs = _underway(problem, scenario.scaled(scale), costs.first_closings)
        # The first task must start when it did live. The simulator adds the gap to the time at which it gets the bag.
        at = max(0.0, costs.submission_s - costs.gap.mean)
        arrivals = (replace(bag, at=at) for bag in problem.arrivals)
        problem = replace(problem, pcs=tuple(pcs), arrivals=tuple(arrivals))
        overhead_s, gap_s, opening_s = costs.oversleep.mean, costs.gap.mean, costs.opening.mean
        parameters = replace(parameters, overhead_s=overhead_s, gap_s=gap_s, opening_s=opening_s)
    seeds = range(LOTS if setting.by_lot else 1)
    return [Trial(problem, policy, run, seed, parameters) for run, seed in enumerate(seeds, start=1)]


def _underway(problem: Problem, scaled: Scenario, first_closings: Mapping[str, float]) -> Iterator[SimulatedPC]:
    for pc, uptime in zip(problem.pcs, scaled.uptimes, strict=True):
        closes = first_closings.get(pc.name)
        yield pc if closes is None else replace(pc, timetable=Underway(uptime, scaled.restart, closes))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Live runs of one scenario and policy, and their simulations.

    ``ideal``: simulated on a grid without any costs. ``simulated``: simulated with the costs of each live run, one row
    per live run; with ``by_lot``, `LOTS` rows per live run.
    """

    scale: float
    by_lot: bool
    live: Sequence[Row]
    ideal: Sequence[Row]
    simulated: Sequence[Row]
    costs: Sequence[Costs]

    @property
    def scenario(self) -> int | str:
        return self.live[0].scenario

    @property
    def policy(self) -> str:
        return self.live[0].policy

    @property
    def off(self) -> float:
        """The difference of the live median from the simulated one, as a fraction of the latter."""
        return off(self.live, self.simulated)

    @property
    def off_ideal(self) -> float:
        """The difference of the live median from the simulation without costs, as a fraction of the latter."""
        return off(self.live, self.ideal)

    @property
    def close(self) -> bool:
        """Whether the medians are within `TOLERANCE` of each other."""
        return abs(self.off) <= TOLERANCE

    @property
    def makespans_agree(self) -> bool:
        """Whether the medians are close; by lot, whether the live median is in the range of the simulated runs."""
        return self.close or (self.by_lot and _within(middle(self.live), [row.makespan_min for row in self.simulated]))

    @property
    def kills_agree(self) -> bool:
        """Whether the kill counts are equal; by lot, whether their medians are close or the live one is in range."""
        live, simulated = [row.kills for row in self.live], [row.kills for row in self.simulated]
        if not self.by_lot:
            return sum(live) == sum(simulated)
        expected = median(simulated)
        return abs(median(live) - expected) <= TOLERANCE * expected or _within(median(live), simulated)

    @property
    def agrees(self) -> bool:
        return self.makespans_agree and self.kills_agree

    def overall(self, kind: Callable[[Costs], Cost]) -> Cost:
        """One kind of cost over all live runs."""
        found = [kind(costs) for costs in self.costs]
        count = sum(cost.count for cost in found)
        mean = sum(cost.mean * cost.count for cost in found) / count if count else 0.0
        return Cost(mean, max(cost.most for cost in found), count)

    def as_json(self) -> dict[str, object]:
        """Plain values: makespans in the scenario's minutes, costs in real seconds."""
        return {
            "scenario": self.scenario,
            "policy": self.policy,
            "scale": self.scale,
            "live_min": middle(self.live),
            "ideal_min": middle(self.ideal),
            "simulated_min": middle(self.simulated),
            "off": self.off,
            "off_ideal": self.off_ideal,
            "close": self.close,
            "makespans_agree": self.makespans_agree,
            "kills_agree": self.kills_agree,
            "by_lot": self.by_lot,
            "live": [asdict(row) for row in self.live],
            "ideal": [asdict(row) for row in self.ideal],
            "simulated": [asdict(row) for row in self.simulated],
            "costs": [_costs_as_json(costs) for costs in self.costs],
        }


def middle(rows: Sequence[Row]) -> float:
    """The median makespan, in minutes."""
    return median(row.makespan_min for row in rows)


def off(live: Sequence[Row], simulated: Sequence[Row]) -> float:
    """How much longer the live median is, as a fraction of the simulated one."""
    return middle(live) / middle(simulated) - 1.0


def _within(value: float, found: Sequence[float]) -> bool:
    return min(found) <= value <= max(found)


KINDS: Mapping[str, Callable[[Costs], Cost]] = {
    "oversleep": lambda costs: costs.oversleep,
    "gap": lambda costs: costs.gap,
    "opening": lambda costs: costs.opening,
    "late": lambda costs: costs.late,
}


def _costs_as_json(costs: Costs) -> dict[str, object]:
    found: dict[str, object] = {name: asdict(kind(costs)) for name, kind in KINDS.items()}
    rest = {"submission_s": costs.submission_s, "first_closings": dict(costs.first_closings)}
    return found | rest
