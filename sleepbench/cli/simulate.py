"""``deskgrid sleepbench simulate``: any jobs on any PCs under any policies, in virtual time."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from deskgrid.option_types import Refusal, Whole
from deskgrid.sleepbench.cli.chosen import Chosen, ErrorSweep, new_policies
from deskgrid.sleepbench.cli.common import SEED_OPTION, Factor, check_writable, json_option, progress_bar, write_json
from deskgrid.sleepbench.cli.pictures import Pictures, picture_options
from deskgrid.sleepbench.cli.problems import AskedProblem, Grids, Problems, problems
from deskgrid.sleepbench.cli.values import (
    chosen_policies,
    error_factors,
    policy_options,
    scenario_numbers,
    seconds_option,
)
from deskgrid.sleepbench.parameters import Parameters
from deskgrid.sleepbench.report import RunGroup, summaries
from deskgrid.sleepbench.scenarios import Row
from deskgrid.sleepbench.simulated import Trial, Unfinished, rows_of
from deskgrid.sleepbench.workloads.options import Sources, source_options


@click.command("simulate")
@click.option(
    "--scenario",
    callback=scenario_numbers,
    metavar="0..3|all",
    help="Which of the paper's job lists. In 0 the PCs stay.  [default: all]",
)
@click.option(
    "--scenario-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.toml",
    help="Another scenario, with its own uptimes, restart, jobs and order.",
)
@source_options
@click.option(
    "--policy",
    callback=chosen_policies,
    default="all",
    show_default=True,
    metavar="NAME,...|all",
    help="Which policies.",
)
@click.option(
    "--policy-option",
    callback=policy_options,
    multiple=True,
    metavar="[POLICY.]KEY=VALUE",
    help="An option of one policy, or of all that have it; may be repeated.",
)
@click.option(
    "--queue", type=Whole(min=0), metavar="N", help="The most tasks that a slot queues beside the running one."
)
@click.option("--paper", is_flag=True, help="Use the parameters that reproduce the paper's figures (paper.toml).")
@seconds_option("--restart", "How long PCs of a scenario are away.  [default: 1.2, or the file's]")
@seconds_option("--overhead", "What each attempt costs beside the task.  [default: 0]")
@click.option(
    "--overhead-known/--overhead-unknown",
    default=None,
    help="Whether predictions include the overhead.  [default: they do]",
)
@seconds_option("--opening", "From the opening of a window until its first task can start.  [default: 0]")
@click.option(
    "--jitter",
    type=Factor(0, 10),
    metavar="X",
    help="How late attempts end on average, as a fraction of the time they take.  [default: 0]",
)
@click.option("--slow", type=Factor(0, 1), metavar="X", help="The fraction of attempts that take five times as long.")
@click.option("--copies", is_flag=True, help="Let idle slots run a task that takes long a second time.")
@click.option(
    "--announce",
    type=click.Choice(["all", "current"]),
    default="all",
    show_default=True,
    help="Whether PCs announce their coming windows too, or only the current one.",
)
@click.option(
    "--runtime-error", callback=error_factors, metavar="F[,F...]", help="Predict runtimes wrongly, by up to F times."
)
@click.option(
    "--uptime-error", callback=error_factors, metavar="F[,F...]", help="Announce windows wrongly, by up to F times."
)
@click.option("--checkpoint", is_flag=True, help="All tasks are checkpointable: they are done in pieces.")
@seconds_option("--saving", "How long before a window closes a checkpointable task saves, and ends.  [default: 0]")
@click.option(
    "--scale",
    type=Factor(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Multiply every time of a scenario by this, as `live` does, but not what a grid costs.",
)
@click.option("--runs", type=Whole(min=1), default=10, show_default=True, help="How many runs of each.")
@SEED_OPTION
@click.option("--processes", "-j", type=Whole(min=1), help="How many runs at once.  [default: one for each core]")
@json_option("Also write the rows there, in the scenario's minutes and seconds.")
@picture_options
def simulate(
    *,
    scenario: tuple[int, ...] | None,
    scenario_file: Path | None,
    sources: Sources,
    policy: tuple[str, ...],
    scale: float,
    runs: int,
    seed: int,
    runtime_error: tuple[float, ...],
    uptime_error: tuple[float, ...],
    checkpoint: bool,
    processes: int | None,
    file: Path | None,
    pictures: Pictures,
    **chosen: Any,
) -> None:
    """Simulate it in virtual time, with the scheduler that the broker runs: the paper's table takes seconds."""
    from rich.console import Console

    check_writable(file)
    parameters = Chosen(**chosen).parameters(policy)
    asked = AskedProblem(scenario, scenario_file, chosen["restart"], scale, sources)
    notes = Console(stderr=True, soft_wrap=True)
    grids = Grids(parameters.restart_s, new_policies(policy, parameters), parameters.conditions(seed), notes.print)
    sweep = ErrorSweep(runtime_error, uptime_error)
    seeds = range(seed, seed + runs)
    trials = list(_trials(problems(asked, grids), policy, sweep, parameters, seeds))
    trials = [replace(trial, checkpoint=checkpoint) for trial in trials]
    pictures.check(trials)
    results = list(_run(trials, processes or os.cpu_count() or 1))
    made = [(trial, row) for trial, row in zip(trials, results, strict=True) if isinstance(row, Row)]
    write_json(file, [_as_json(trial, row, sweep) for trial, row in made])
    console = Console()
    for table in summaries(_groups(made, sweep)):
        console.print(table)
    pictures.draw(made, console)
    if unfinished := [row for row in results if isinstance(row, Unfinished)]:
        raise Refusal(_complaint(unfinished))


def _trials(
    found: Sequence[Problems], policies: Sequence[str], sweep: ErrorSweep, parameters: Parameters, seeds: range
) -> Iterator[Trial]:
    for problem in found:
        for policy in policies:
            for errors in sweep.pairs():
                for run, seed in enumerate(seeds, start=1):
                    yield Trial(problem(seed), policy, run, seed, parameters, *errors)


def _run(trials: Sequence[Trial], processes: int) -> Iterator[Row | Unfinished]:
    with progress_bar("simulating", len(trials), "runs") as progress:
        for count, result in enumerate(rows_of(trials, processes), start=1):
            progress(count)
            yield result


def _as_json(trial: Trial, row: Row, sweep: ErrorSweep) -> dict[str, object]:
    """A row as `live` writes it, plus the error factors if any were given."""
    errors = {"runtime_error": trial.runtime_error, "uptime_error": trial.uptime_error}
    return asdict(row) | (errors if sweep.asked else {})


def _groups(made: Sequence[tuple[Trial, Row]], sweep: ErrorSweep) -> Iterator[RunGroup]:
    for (_, name), pairs in groupby(made, key=lambda pair: (pair[0].problem.name, sweep.name(pair[0]))):
        runs = list(pairs)
        yield RunGroup(_title(runs[0][0]) + sweep.title(), name, [row for _, row in runs])


def _title(trial: Trial) -> str:
    name = trial.problem.name
    scale = f", every time multiplied by {trial.problem.scale:g}" if trial.problem.scale != 1.0 else ""
    return f"{f'Scenario {name}' if isinstance(name, int) else name}, {trial.problem.tasks:,} tasks{scale}"


def _complaint(unfinished: Sequence[Unfinished]) -> str:
    first = unfinished[0]
    where = f"{_title(first.trial)}, {first.trial.policy}, run {first.trial.run}"
    more = f" (and {len(unfinished) - 1} more runs)" if len(unfinished) > 1 else ""
    return f"a run would never end: {where}: {first.reason}{more}"
