"""``deskgrid sleepbench compare``: the same scenarios live and simulated, and whether they agree."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskgrid.option_types import Refusal, Whole
from deskgrid.scheduler.policies import DEFAULT
from deskgrid.sleepbench.cli.common import (
    SCALE_OPTION,
    SEED_OPTION,
    check_writable,
    json_option,
    live_runs,
    write_json,
)
from deskgrid.sleepbench.cli.gang_runs import GangRuns, gang_options
from deskgrid.sleepbench.cli.values import chosen_policies, scenario_numbers
from deskgrid.sleepbench.scenarios import Row, Scenario, paper_row, paper_scenario

if TYPE_CHECKING:
    from deskgrid.sleepbench.compare import Comparison
    from deskgrid.sleepbench.simulated import Trial


@click.command("compare")
@click.option(
    "--scenario",
    callback=scenario_numbers,
    default="1,2,3",
    show_default=True,
    metavar="0..3|all",
    help="Which scenarios.",
)
@click.option(
    "--policy",
    callback=chosen_policies,
    metavar="NAME,...|all",
    help=f"Which policies.  [default: packing,pgs,fcfs; with --gangs {DEFAULT}]",
)
@gang_options
@SCALE_OPTION
@click.option("--runs", type=Whole(min=1), default=3, show_default=True, help="How many live runs of each.")
@SEED_OPTION
@click.option("--check", is_flag=True, help="Exit with code 1 if any of them does not agree.")
@json_option("Also write there what each comparison came to, with all rows and what was measured.")
def compare(
    *,
    scenario: tuple[int, ...],
    policy: tuple[str, ...] | None,
    gangs: bool,
    scenario_file: Path | None,
    scale: float,
    runs: int,
    seed: int,
    check: bool,
    file: Path | None,
) -> None:
    """Run scenarios on real processes, measure the grid's overhead, and simulate them with and without that overhead.

    Live and simulated runs agree if their median makespans differ by at most 3 % and equally many tasks are killed. For
    a policy that decides at random, it is enough if the live medians lie in the range of simulations with other seeds,
    and its kills may also differ by 3 %.

    With --gangs: parallel tasks instead. Both agree if the median of the mean turnarounds differs by at most 3 %.
    """
    check_writable(file)
    seeds = range(seed, seed + runs)
    if gangs:
        GangRuns.asked(scenario_file, policy or (DEFAULT,), scale, seeds).compare(file, check=check)
    elif scenario_file is not None:
        raise click.UsageError("--scenario-file goes with --gangs only")
    else:
        _paper(scenario, policy or ("packing", "pgs", "fcfs"), scale, seeds, file, check=check)


def _paper(
    numbers: Sequence[int], policies: Sequence[str], scale: float, seeds: range, file: Path | None, *, check: bool
) -> None:
    from rich.console import Console

    from deskgrid.sleepbench.report import compared

    scenarios = [paper_scenario(number) for number in numbers]
    found: list[Comparison] = []
    for one in scenarios:
        for name in policies:
            found.append(_comparison(one, name, scale, seeds))
            write_json(file, [comparison.as_json() for comparison in found])
    console = Console()
    for table in compared(found):
        console.print(table)
    if check and not all(comparison.agrees for comparison in found):
        raise click.ClickException("live and simulated do not agree")


def _comparison(scenario: Scenario, policy: str, scale: float, seeds: range) -> "Comparison":
    from deskgrid.sleepbench import live
    from deskgrid.sleepbench.compare import Comparison, RunSetting, trials

    setting = RunSetting(scenario, scale, policy, live.policy_options(policy))
    title, run_live = f"scenario {scenario.number}, {policy}", partial(live.run_live, scenario, scale, policy)
    made = list(live_runs(title, seeds, len(scenario.tasks), "tasks", run_live))
    rows = [paper_row(scenario, policy, one.measured, scale=scale, run=run, seed=seed) for run, seed, one in made]
    return Comparison(
        scale=scale,
        by_lot=setting.by_lot,
        live=rows,
        ideal=_simulated(trials(setting, None)),
        simulated=_simulated([trial for *_, one in made for trial in trials(setting, one.costs)]),
        costs=[one.costs for *_, one in made],
    )


def _simulated(trials: "Sequence[Trial]") -> list[Row]:
    from deskgrid.sleepbench.simulated import Unfinished, rows_of

    rows: list[Row] = []
    for row in rows_of(trials):
        if isinstance(row, Unfinished):
            raise Refusal(f"a simulated run would never end: {row.reason}")
        rows.append(row)
    return rows
