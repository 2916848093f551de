"""The paper's Section 4.2 as values: its job lists, its PCs, and its measurements. Pure.

Rule 1: all times here are the paper's own seconds and minutes; only `Scenario.scaled` converts them to others.
Rule 2: tasks are in the paper's order, ascending. The order is part of the benchmark: long tasks come last.

Scenario 0 is scenario 1 on PCs that stay for the whole run.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import NamedTuple

MINUTE_S = 60.0

# Table 1: how long each of the eight PCs stays up, in seconds. Then it restarts, and is away meanwhile.
UPTIMES_S = (84.0, 117.0, 163.0, 228.0, 318.0, 443.0, 619.0, 864.0)
RESTART_S = 1.0

# Table 2, minutes: mean of ten runs, scenarios 0 to 3.
PAPER_MIN: Mapping[str, tuple[float, ...]] = {
    "pgs": (63.54, 65.54, 68.46, 87.88),
    "fcfs": (63.21, 74.26, 87.30, 121.83),
}
# Its standard deviations, over the same ten runs.
PAPER_STDEV_MIN: Mapping[str, tuple[float, ...]] = {
    "pgs": (0.19, 0.39, 0.73, 2.03),
    "fcfs": (0.12, 0.63, 1.68, 2.25),
}


class ScenarioError(ValueError):
    """The requested scenario is not in the paper, or is impossible; one line that says why."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Some sleep tasks, on some PCs of one slot each. Seconds.

    ``number``: the number of a paper scenario, or the name of another one. ``uptimes``: how long each PC stays;
    infinite for a PC that is always there. ``restart``: how long it is away after that. ``shuffled``: each run has its
    tasks in an order of its own.
    """

    number: int | str
    tasks: tuple[float, ...]
    uptimes: tuple[float, ...]
    restart: float
    shuffled: bool = False

    def __post_init__(self) -> None:
        if not self.tasks or not self.uptimes:
            raise ScenarioError("a scenario has at least one task and one PC")
        if not all(0.0 < seconds < math.inf for seconds in self.tasks):
            raise ScenarioError("a task lasts more than 0 seconds, and not for ever")
        if not all(seconds > 0.0 for seconds in self.uptimes) or not 0.0 <= self.restart < math.inf:
            raise ScenarioError("a PC is up for more than 0 seconds and away for 0 or more")

    @property
    def stays(self) -> bool:
        """Whether no PC ever goes away."""
        return all(seconds == math.inf for seconds in self.uptimes)

    @property
    def work_s(self) -> float:
        """All tasks together, in seconds of one slot."""
        return math.fsum(self.tasks)

    @property
    def lower_bound_s(self) -> float:
        """The makespan if no slot were ever idle (Section 4.2): total work over the number of slots."""
        return self.work_s / len(self.uptimes)

    def scaled(self, scale: float) -> "Scenario":
        """A copy with every time multiplied by ``scale``; `ScenarioError` unless that is finite and above 0."""
        if not 0.0 < scale < math.inf:
            raise ScenarioError(f"a scale is a finite number above 0, not {scale:g}")
        return Scenario(
            self.number,
            tuple(seconds * scale for seconds in self.tasks),
            tuple(seconds * scale for seconds in self.uptimes),
            self.restart * scale,
            self.shuffled,
        )

    def in_order(self, seed: int) -> tuple[float, ...]:
        """The tasks in the order in which the run with this seed submits them."""
        return tuple(Random(f"order {seed}").sample(self.tasks, len(self.tasks))) if self.shuffled else self.tasks


def paper_scenario(number: int) -> Scenario:
    """The paper's scenario 0, 1, 2 or 3; raises `ScenarioError` for another."""
    if number not in _JOBS:
        raise ScenarioError(f"the paper has scenarios 0 to 3, not {number}")
    step, copies = _JOBS[number]
    tasks = tuple(step * place for place in range(1, 241) for _ in range(copies))
    uptimes = UPTIMES_S if number else (math.inf,) * len(UPTIMES_S)
    return Scenario(number, tasks, uptimes, RESTART_S if number else 0.0)


# Each list has 240 lengths: (seconds between two lengths, tasks of each length). All lists add up to 482 minutes.
_JOBS = {0: (0.25, 4), 1: (0.25, 4), 2: (0.5, 2), 3: (1.0, 1)}


@dataclass(frozen=True, slots=True)
class Row:
    """One run, in the paper's minutes and seconds, whatever its scale. The JSON has exactly these fields.

    ``paper_min``: the paper's figure for this scenario and policy; None if it has none. ``kills``: attempts that were
    running when their PC left; ``planned_kills``: those whose PC left as planned. ``wasted_s``: the time that the
    killed attempts had used. ``idle_s``: window time in which no task ran.
    """

    scenario: int | str
    policy: str
    run: int
    seed: int
    makespan_min: float
    lower_bound_min: float
    paper_min: float | None
    tasks: int
    kills: int
    planned_kills: int
    wasted_s: float
    idle_s: float


class Figures(NamedTuple):
    """What a run came to, on its own clock. Seconds; sums are slot seconds. As in `Row`."""

    makespan_s: float
    kills: int
    planned_kills: int
    wasted_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of a run, on its own clock. Seconds; sums are slot seconds.

    ``window_s``: open windows between the start and the end of the run. ``slept_s``: tasks that succeeded.
    """

    makespan_s: float
    window_s: float
    slept_s: float
    wasted_s: float
    kills: int
    planned_kills: int

    @property
    def figures(self) -> Figures:
        """Whatever no task used of open windows was idle."""
        idle_s = self.window_s - self.slept_s - self.wasted_s
        return Figures(self.makespan_s, self.kills, self.planned_kills, self.wasted_s, idle_s)


def paper_row(scenario: Scenario, policy: str, measured: Measurements, *, scale: float, run: int, seed: int) -> Row:
    """The row for a run of ``scenario`` (unscaled) that was measured at ``scale``."""
    tasks, bound_s = len(scenario.tasks), scenario.lower_bound_s
    return new_row(scenario.number, policy, measured.figures, tasks, bound_s, scale=scale, run=run, seed=seed)


def new_row(
    scenario: int | str,
    policy: str,
    figures: Figures,
    tasks: int,
    lower_bound_s: float,
    *,
    scale: float = 1.0,
    run: int = 1,
    seed: int = 0,
) -> Row:
    """The row for a run, of which ``figures`` are at ``scale``, and ``lower_bound_s`` is not."""
    return Row(
        scenario=scenario,
        policy=policy,
        run=run,
        seed=seed,
        makespan_min=figures.makespan_s / scale / MINUTE_S,
        lower_bound_min=lower_bound_s / MINUTE_S,
        paper_min=paper_min(scenario, policy),
        tasks=tasks,
        kills=figures.kills,
        planned_kills=figures.planned_kills,
        wasted_s=figures.wasted_s / scale,
        idle_s=figures.idle_s / scale,
    )


def paper_min(scenario: int | str, policy: str) -> float | None:
    """The paper's figure; None for other scenarios and policies than the paper's."""
    known = policy in PAPER_MIN and scenario in range(len(PAPER_MIN[policy]))
    return PAPER_MIN[policy][int(scenario)] if known else None


def rows_as_json(rows: Iterable[Row]) -> list[dict[str, object]]:
    """The rows as plain values, ready for `json.dump`."""
    return [asdict(row) for row in rows]
