"""Where a simulation's jobs and PCs come from: the paper's scenarios, a file, or logs and models of real systems.

Rule: any jobs go with any PCs. Their source is asked once for each run, with the seed of the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import click

from deskgrid.scheduler.policies import Policy
from deskgrid.scheduler.simulation.simulator import Conditions
from deskgrid.sleepbench.scenario_file import read_scenario
from deskgrid.sleepbench.scenarios import Scenario, ScenarioError, paper_scenario
from deskgrid.sleepbench.simulated import Problem, scenario_problem
from deskgrid.sleepbench.workloads.combine import leave_out_too_long, lower_bound_s
from deskgrid.sleepbench.workloads.options import Sources
from deskgrid.sleepbench.workloads.source import Jobs, Lab, WorkloadError

# From the seed of a run to its problem. If the problem does not depend on the seed, it is always the same object.
Problems = Callable[[int], Problem]


@dataclass(frozen=True, slots=True)
class AskedProblem:
    """The command line's choice of jobs and PCs; None if an option was not given. ``scenarios``: the paper's."""

    scenarios: Sequence[int] | None
    file: Path | None
    restart_s: float | None
    scale: float
    sources: Sources

    @property
    def others(self) -> bool:
        """Whether jobs or PCs come from elsewhere than a scenario."""
        return self.sources.other_jobs or self.sources.other_pcs

    def __post_init__(self) -> None:
        if self.file is not None and self.scenarios is not None:
            raise click.UsageError("--scenario and --scenario-file are two sources of jobs; there can be one")
        if self.others and self.scale != 1.0:
            raise click.UsageError("--scale goes with scenarios only")


@dataclass(frozen=True, slots=True)
class Grids:
    """The grids that are compared. A task that does not fit in all of them is left out, and ``note`` reports it."""

    restart_s: float
    policies: Sequence[Policy]
    conditions: Conditions
    note: Callable[[str], None]


def problems(asked: AskedProblem, grids: Grids) -> list[Problems]:
    """The problems, one source for each table; raises `click.BadParameter`."""
    given = _scenarios(asked, grids.restart_s)
    if not asked.others:
        return [
            _drawing(partial(scenario_problem, scenario, scale=asked.scale), scenario.shuffled) for scenario in given
        ]
    jobs = asked.sources.read_jobs()
    if jobs is not None and asked.scenarios is None:
        given = given[-1:]  # only the PCs of a scenario are needed, and scenarios 1 to 3 have the same PCs
    by_chance = asked.sources.fit is not None
    grids = replace(grids, note=_once(grids.note))
    return [
        _drawing(partial(_combined, scenario, jobs, asked.sources, grids), by_chance or scenario.shuffled)
        for scenario in given
    ]


def _scenarios(asked: AskedProblem, restart_s: float) -> list[Scenario]:
    if asked.file is None:
        chosen = range(4) if asked.scenarios is None else asked.scenarios
        return [replace(paper_scenario(number), restart=restart_s) for number in chosen]
    try:
        found = read_scenario(asked.file)
    except ScenarioError as error:
        raise click.BadParameter(str(error), param_hint="--scenario-file") from error
    return [found if asked.restart_s is None else replace(found, restart=asked.restart_s)]


def _drawing(draw: Problems, by_chance: bool) -> Problems:
    """``draw``, called once for each seed; or only once, if its result does not depend on the seed."""
    drawn = cache(draw)
    return drawn if by_chance else lambda seed: drawn(0)


def _combined(scenario: Scenario, jobs: Jobs | None, sources: Sources, grids: Grids, seed: int) -> Problem:
    own = scenario_problem(scenario, seed)
    work = jobs or Jobs(f"jobs of scenario {scenario.number}", own.arrivals)
    lab = sources.read_lab(seed) or Lab(f"PCs of scenario {scenario.number}", own.pcs)
    try:
        work = leave_out_too_long(work, lab, grids.policies, grids.conditions)
        bound_s = lower_bound_s(work, lab)
    except WorkloadError as error:
        raise click.UsageError(str(error)) from error
    for note in (*work.notes, *lab.notes):
        grids.note(note)
    return Problem(f"{work.title} on {lab.title}", work.arrivals, lab.pcs, bound_s)


def _once(note: Callable[[str], None]) -> Callable[[str], None]:
    """``note``, but without repeating any message."""
    return cache(note)
