"""``deskgrid sleepbench live``: the paper's benchmark on real processes."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from deskgrid.option_types import Whole
from deskgrid.scheduler.policies import DEFAULT
from deskgrid.sleepbench.cli.common import (
    SCALE_OPTION,
    SEED_OPTION,
    check_writable,
    json_option,
    live_runs,
    write_rows,
)
from deskgrid.sleepbench.cli.gang_runs import GangRuns, gang_options
from deskgrid.sleepbench.cli.values import chosen_policies
from deskgrid.sleepbench.scenarios import Row, paper_row, paper_scenario


@click.command("live")
@click.option(
    "--scenario",
    type=Whole(0, 3),
    default=3,
    show_default=True,
    help="The paper's job list; 0 is list 1 on PCs that stay.",
)
@click.option(
    "--policy",
    callback=chosen_policies,
    metavar="NAME,...|all",
    help=f"Which policies.  [default: pgs; with --gangs {DEFAULT}]",
)
@gang_options
@SCALE_OPTION
@click.option("--runs", type=Whole(min=1), default=1, show_default=True, help="How many runs.")
@SEED_OPTION
@json_option("Also write the rows there, in the paper's minutes and seconds.")
def live(
    *,
    scenario: int,
    policy: tuple[str, ...] | None,
    gangs: bool,
    scenario_file: Path | None,
    scale: float,
    runs: int,
    seed: int,
    file: Path | None,
) -> None:
    """Run it on a real grid: a broker and eight workers on this machine, which come and go as in the paper.

    With --gangs: parallel tasks on the PCs of two sites instead; each rank sleeps.
    """
    check_writable(file)
    seeds = range(seed, seed + runs)
    if gangs:
        GangRuns.asked(scenario_file, policy or (DEFAULT,), scale, seeds).live(file)
    elif scenario_file is not None:
        raise click.UsageError("--scenario-file goes with --gangs only")
    else:
        _paper(scenario, policy or ("pgs",), scale, seeds, file)


def _paper(scenario: int, policies: Sequence[str], scale: float, seeds: range, file: Path | None) -> None:
    from rich.console import Console

    from deskgrid.sleepbench import live
    from deskgrid.sleepbench.report import tables

    paper = paper_scenario(scenario)
    rows: list[Row] = []
    for policy in policies:
        title = f"scenario {scenario}, {policy}"
        made = live_runs(title, seeds, len(paper.tasks), "tasks", partial(live.run_live, paper, scale, policy))
        for run, seed, one in made:
            rows.append(paper_row(paper, policy, one.measured, scale=scale, run=run, seed=seed))
            write_rows(file, rows)
    console = Console()
    for table in tables(rows, scale):
        console.print(table)
