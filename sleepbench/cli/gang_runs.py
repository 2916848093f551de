"""What ``deskgrid sleepbench live --gangs`` and ``compare --gangs`` do: a scenario of gangs on real processes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deskgrid.option_types import Refusal
from deskgrid.sleepbench.cli.common import live_runs, write_json

if TYPE_CHECKING:
    from deskgrid.sleepbench.gangs.compare import GangComparison
    from deskgrid.sleepbench.gangs.live import LiveGangs
    from deskgrid.sleepbench.gangs.scenario import GangScenario

F = TypeVar("F", bound=Callable[..., Any])


def gang_options(command: F) -> F:
    """The two options by which a command runs gangs."""
    file = click.option(
        "--scenario-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE.toml",
        help="With --gangs: another scenario, as `gangs` takes it.  [default: two sites of 8 slots, 40 gangs]",
    )
    gangs = click.option(
        "--gangs",
        is_flag=True,
        is_eager=True,  # --policy all means other policies with it
        help="Run gangs on sites instead. Without --scale, times are multiplied so that it takes half a minute.",
    )
    return gangs(file(command))


def given(option: str) -> bool:
    """Whether an option of the command that runs was given on the command line."""
    source = click.get_current_context().get_parameter_source(option)
    return source not in (click.core.ParameterSource.DEFAULT, None)


@dataclass(frozen=True, slots=True)
class GangRuns:
    """Live runs of gangs that are asked for; ``scale`` None: whatever fits."""

    file: Path | None
    policies: Sequence[str]
    scale: float | None
    seeds: range

    @classmethod
    def asked(cls, file: Path | None, policies: Sequence[str], scale: float, seeds: range) -> "GangRuns":
        """By the options of the command that runs; raises `click.UsageError`."""
        if given("scenario"):
            raise click.UsageError("--scenario is one of the paper's; with --gangs, give --scenario-file, or none")
        return cls(file, policies, scale if given("scale") else None, seeds)

    def live(self, json_file: Path | None) -> None:
        """Run them, and show when and where each gang ran."""
        from rich.console import Console

        from deskgrid.sleepbench.gangs.report import gang_tables

        scenario, scale = self._scenario()
        rows: list[dict[str, object]] = []
        for policy in self.policies:
            for run, seed, made in self._made(scenario, scale, policy):
                rows += [asdict(row) | {"run": run, "seed": seed} for row in made.rows]
                write_json(json_file, rows)
                title = f"{scenario.name}, run {run}, every time multiplied by {scale:g},"
                for table in gang_tables(title, made.rows):
                    Console().print(table)

    def compare(self, json_file: Path | None, *, check: bool) -> None:
        """Run and simulate them, and show whether both agree."""
        from rich.console import Console

        from deskgrid.sleepbench.gangs.report import compared_gangs

        scenario, scale = self._scenario()
        found: list[GangComparison] = []
        for policy in self.policies:
            found.append(self._comparison(scenario, scale, policy))
            write_json(json_file, [one.as_json() for one in found])
        Console().print(compared_gangs(found))
        if check and not all(one.agrees for one in found):
            raise click.ClickException("live and simulated do not agree")

    def _scenario(self) -> "tuple[GangScenario, float]":
        from deskgrid.scheduler.simulation.simulator import Stalled
        from deskgrid.sleepbench.gangs.compare import fitting_scale
        from deskgrid.sleepbench.gangs.file import read_gangs
        from deskgrid.sleepbench.gangs.live import checked
        from deskgrid.sleepbench.gangs.scenario import default_scenario
        from deskgrid.sleepbench.scenarios import ScenarioError

        try:
            scenario = checked(default_scenario() if self.file is None else read_gangs(self.file))
            return scenario, self.scale or fitting_scale(scenario, self.policies[0])
        except ScenarioError as error:
            raise click.BadParameter(str(error), param_hint="--scenario-file") from error
        except Stalled as error:
            raise Refusal(f"a run under {self.policies[0]} would never end: {error}") from error

    def _made(self, scenario: "GangScenario", scale: float, policy: str) -> "Iterator[tuple[int, int, LiveGangs]]":
        from deskgrid.sleepbench.gangs import live

        run = partial(live.run_gangs, scenario, scale, policy)
        return live_runs(f"{scenario.name}, {policy}", self.seeds, len(scenario.gangs), "gangs", run)

    def _comparison(self, scenario: "GangScenario", scale: float, policy: str) -> "GangComparison":
        from deskgrid.scheduler.simulation.simulator import Stalled
        from deskgrid.sleepbench.gangs.compare import GangComparison, GangSetting
        from deskgrid.sleepbench.live import policy_options

        setting = GangSetting(scenario, scale, policy, policy_options(policy))
        made = list(self._made(scenario, scale, policy))
        try:
            simulated = [setting.simulated(seed, run.costs) for _, seed, run in made]
            return GangComparison(setting, [run for *_, run in made], simulated, setting.simulated(0, None))
        except Stalled as error:
            raise Refusal(f"a simulated run under {policy} would never end: {error}") from error
