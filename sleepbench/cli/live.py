"""``deskgrid sleepbench live``: the paper's benchmark on real processes."""

from pathlib import Path

import click

from scheduler.policies import policy_names
from sleepbench.cli.common import check_writable, progress_bar, write_rows
from sleepbench.scenarios import Row, ScenarioError, paper_row, paper_scenario

# Below this a PC's window is shorter than starting a task takes, and nothing is measured but that.
SCALE_LEAST = 0.002


@click.command("live")
@click.option(
    "--scenario",
    type=click.IntRange(0, 3),
    default=3,
    show_default=True,
    help="The paper's job list; 0 is list 1 on PCs that stay.",
)
@click.option(
    "--policy",
    type=click.Choice(policy_names()),
    default="pgs",
    show_default=True,
    help="The scheduler.",
)
@click.option(
    "--scale",
    type=click.FloatRange(min=SCALE_LEAST, max=1.0),
    default=0.02,
    show_default=True,
    help="What every time is multiplied by: at 0.02 the paper's hour takes 72 seconds.",
)
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="How often.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the first run; then one more."
)
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the rows there, in the paper's minutes and seconds.",
)
def live(*, scenario: int, policy: str, scale: float, runs: int, seed: int, file: Path | None) -> None:
    """Run it on a real grid: a broker and eight workers of this machine, which come and go as in the paper."""
    from rich.console import Console

    from deskgrid import DeskgridError
    from sleepbench.live import run_live
    from sleepbench.processes import ProcessError, ended_by_signals
    from sleepbench.report import tables

    check_writable(file)
    paper = paper_scenario(scenario)
    try:
        paper.scaled(scale)
    except ScenarioError as error:  # click lets NaN pass as within any range
        raise click.BadParameter(str(error), param_hint="--scale") from error
    rows: list[Row] = []
    try:
        for run in range(1, runs + 1):
            title = f"scenario {scenario}, {policy}, run {run} of {runs}"
            with ended_by_signals(), progress_bar(title, len(paper.tasks), "tasks") as progress:
                measured = run_live(paper, scale, policy, seed + run - 1, progress).measured
            rows.append(paper_row(paper, policy, measured, scale=scale, run=run, seed=seed + run - 1))
            write_rows(file, rows)
    except (ProcessError, DeskgridError) as error:
        raise click.ClickException(str(error)) from error
    console = Console()
    for table in tables(rows, scale):
        console.print(table)
