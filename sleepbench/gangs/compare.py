"""Gangs live and simulated: whether the simulator's turnarounds hold for a grid. Pure.

Rule: as in `deskgrid.sleepbench.compare`: the same policy with the same options and the same seconds, and differences
are explained only by what gangs cost in the live run itself.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median

from deskgrid.scheduler.simulation.simulator import IDEAL, Conditions
from deskgrid.sleepbench.compare import TOLERANCE
from deskgrid.sleepbench.gangs.live import GangCosts, LiveGangs
from deskgrid.sleepbench.gangs.scenario import GangRunRow, GangScenario
from deskgrid.sleepbench.gangs.simulated import simulate_gangs
from deskgrid.sleepbench.parameters import Options
from deskgrid.sleepbench.simulated import policy_of

# How long a scenario takes live, if nobody says by which factor its times are multiplied. Seconds.
LIVE_S = 30.0


def fitting_scale(scenario: GangScenario, policy: str) -> float:
    """By what times are multiplied so that ``scenario`` takes `LIVE_S`, or less if it does anyway."""
    rows = simulate_gangs(scenario, policy, policy_of(policy, {}, 0))
    return float(f"{min(1.0, LIVE_S / max(row.end_s for row in rows)):.3g}")


@dataclass(frozen=True, slots=True)
class GangSetting:
    """What live and simulated runs share. ``options``: of the policy."""

    scenario: GangScenario
    scale: float
    policy: str
    options: Options

    def simulated(self, seed: int, costs: GangCosts | None) -> list[GangRunRow]:
        """The rows of a simulated run, unscaled; ``costs`` None: on an ideal grid. Raises `Stalled`."""
        conditions = IDEAL
        if costs is not None:
            conditions = Conditions(
                overhead_s=costs.oversleep_s, gang_start_s=costs.start_s, rank_start_s=costs.rank_s, seed=seed
            )
        policy = policy_of(self.policy, self.options, seed)
        rows = simulate_gangs(self.scenario.scaled(self.scale), self.policy, policy, conditions)
        return [_unscaled(row, self.scale) for row in rows]


def _unscaled(row: GangRunRow, scale: float) -> GangRunRow:
    start, end, turnaround = (seconds / scale for seconds in (row.start_s, row.end_s, row.turnaround_s))
    return replace(row, start_s=start, end_s=end, turnaround_s=turnaround)


@dataclass(frozen=True, slots=True)
class GangComparison:
    """Live runs under one policy, a simulation of each with its costs, and one without any."""

    setting: GangSetting
    live: Sequence[LiveGangs]
    simulated: Sequence[Sequence[GangRunRow]]
    ideal: Sequence[GangRunRow]

    @property
    def live_s(self) -> float:
        """The median of the live runs' mean turnarounds."""
        return median(turnaround(run.rows) for run in self.live)

    @property
    def simulated_s(self) -> float:
        """The median of the simulated runs' mean turnarounds."""
        return median(turnaround(rows) for rows in self.simulated)

    @property
    def off(self) -> float:
        """The difference of the live one from the simulated one, as a fraction of the latter."""
        return self.live_s / self.simulated_s - 1.0

    @property
    def agrees(self) -> bool:
        """Whether both are within `TOLERANCE` of each other."""
        return abs(self.off) <= TOLERANCE

    def as_json(self) -> dict[str, object]:
        """Plain values; seconds of the scenario, but costs in real ones."""
        return {
            "scenario": self.setting.scenario.name,
            "policy": self.setting.policy,
            "scale": self.setting.scale,
            "live_s": self.live_s,
            "simulated_s": self.simulated_s,
            "ideal_s": turnaround(self.ideal),
            "off": self.off,
            "agrees": self.agrees,
            "live": [[asdict(row) for row in run.rows] for run in self.live],
            "simulated": [[asdict(row) for row in rows] for rows in self.simulated],
            "costs": [asdict(run.costs) for run in self.live],
        }


def turnaround(rows: Sequence[GangRunRow]) -> float:
    """The mean turnaround of some gangs."""
    return fmean(row.turnaround_s for row in rows)
