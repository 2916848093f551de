"""The same scaled scenario live and simulated, side by side: whether what the simulator says holds for a grid. Pure.

Rule 1: both have the same policy with the same options, and the same seconds: a scaled scenario's.
Rule 2: what differs is explained by what was measured in the live run itself, and by nothing else: that is simulated
too, once for each live run with the costs of that run. The ideal grid without any costs stands beside it.
Rule 3: where a policy draws lots, a live run is one of many that might have been. So it is simulated with many seeds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

from deskgrid.scheduler.simulation.simulator import SimulatedPC, Span
from deskgrid.sleepbench.costs import Cost, Costs
from deskgrid.sleepbench.parameters import Options, Parameters
from deskgrid.sleepbench.scenarios import Row, Scenario
from deskgrid.sleepbench.simulated import Problem, Trial, scenario_problem, takes_option

# How far the medians may be apart.
TOLERANCE = 0.03
# How many times each live run is simulated with lots of their own. A median of three live runs of FCFS in scenario 3 is
# off by 2 % for this alone; that of the simulated ones must not add to it.
LOTS = 10


@dataclass(frozen=True, slots=True)
class Underway:
    """A PC that comes and goes, and whose window that is open at the start closes at ``closes``."""

    up: float
    down: float
    closes: float

    def __call__(self) -> Iterator[Span]:
        closes = self.closes
        while True:
            yield Span(max(0.0, closes - self.up), closes, closes)
            closes += self.up + self.down


@dataclass(frozen=True, slots=True)
class Setting:
    """What live and simulated runs have in common. ``scenario``: unscaled. ``options``: of the policy."""

    scenario: Scenario
    scale: float
    policy: str
    options: Options

    @property
    def by_lot(self) -> bool:
        """Whether chance has a part in what the policy decides."""
        return takes_option(self.policy, seed=0)


def trials(setting: Setting, costs: Costs | None) -> list[Trial]:
    """What is to be simulated in place of a live run that had these costs; None: an ideal grid.

    Windows are where they really were in that run, and predictions do not include what an attempt costs beside them.
    """
    scenario, scale, policy = setting.scenario, setting.scale, setting.policy
    problem = scenario_problem(scenario, 0, scale)
    parameters = Parameters(overhead_known=False, options={policy: setting.options})
    if costs is not None:
        pcs = _underway(problem, scenario.scaled(scale), costs.first_closings)
        # Nothing starts before the first start of all: the simulator adds the gap to when it has the bag.
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
    """Live runs of one scenario and policy, and what was simulated in their place.

    ``ideal``: on a grid without any costs. ``simulated``: with those of each live run, a row for each; or, ``by_lot``,
    `LOTS` of them.
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
        """The live median beside the simulated one: by which part of it they differ."""
        return off(self.live, self.simulated)

    @property
    def off_ideal(self) -> float:
        """The same beside the simulation without costs."""
        return off(self.live, self.ideal)

    @property
    def close(self) -> bool:
        """Whether the medians are within `TOLERANCE` of each other."""
        return abs(self.off) <= TOLERANCE

    @property
    def makespans_agree(self) -> bool:
        """Whether they are that close; by lot, whether the live median is one of those that might have been."""
        return self.close or (self.by_lot and _within(middle(self.live), [row.makespan_min for row in self.simulated]))

    @property
    def kills_agree(self) -> bool:
        """Whether there were as many kills; by lot, whether the median count is about that, or might have been."""
        live, simulated = [row.kills for row in self.live], [row.kills for row in self.simulated]
        if not self.by_lot:
            return sum(live) == sum(simulated)
        expected = median(simulated)
        return abs(median(live) - expected) <= TOLERANCE * expected or _within(median(live), simulated)

    @property
    def agrees(self) -> bool:
        return self.makespans_agree and self.kills_agree

    def overall(self, kind: Callable[[Costs], Cost]) -> Cost:
        """One kind of cost in all the live runs."""
        found = [kind(costs) for costs in self.costs]
        count = sum(cost.count for cost in found)
        mean = sum(cost.mean * cost.count for cost in found) / count if count else 0.0
        return Cost(mean, max(cost.most for cost in found), count)

    def as_json(self) -> dict[str, object]:
        """Plain values: makespans in the scenario's minutes, costs in the seconds that passed."""
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
    """By which part of the simulated median the live one is longer."""
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
