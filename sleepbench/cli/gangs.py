"""``deskgrid sleepbench gangs``: a scenario of one's own with parallel tasks, in virtual time."""

from dataclasses import asdict
from pathlib import Path

import click

from deskgrid.option_types import Refusal
from deskgrid.scheduler.policies import DEFAULT
from deskgrid.sleepbench.cli.common import SEED_OPTION, check_writable, json_option, write_json
from deskgrid.sleepbench.cli.values import gang_policies
from deskgrid.sleepbench.gangs.scenario import GangRunRow
from deskgrid.sleepbench.scenarios import ScenarioError


@click.command("gangs")
@click.option(
    "--scenario-file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.toml",
    help="Sites, what runs on them at time 0, and gangs that are submitted.",
)
@click.option(
    "--policy",
    callback=gang_policies,
    default=DEFAULT,
    show_default=True,
    metavar="NAME,...|all",
    help="Which policies.",
)
@SEED_OPTION
@json_option("Also write the rows there.")
def gangs(*, scenario_file: Path, policy: tuple[str, ...], seed: int, file: Path | None) -> None:
    """Simulate gangs on sites of PCs: when and where each runs, and what its policy considered.

    The page Benchmarks in docs/ describes all that a scenario file can have. A small one:

    \b
    [[site]]
    name = "A"
    slots = 9
    [[gang]]
    slots = 3
    runtime = 10.0

    Everything that happens at one instant is known before anything is decided at it. Times that differ by no more than
    a microsecond are one instant, because times are rounded.
    """
    from rich.console import Console

    from deskgrid.scheduler.simulation.simulator import Stalled
    from deskgrid.sleepbench.gangs.file import read_gangs
    from deskgrid.sleepbench.gangs.report import gang_tables
    from deskgrid.sleepbench.gangs.simulated import simulate_gangs
    from deskgrid.sleepbench.simulated import policy_of

    check_writable(file)
    try:
        scenario = read_gangs(scenario_file)
    except ScenarioError as error:
        raise click.BadParameter(str(error), param_hint="--scenario-file") from error
    found: list[GangRunRow] = []
    for name in policy:
        try:
            found += simulate_gangs(scenario, name, policy_of(name, {}, seed))
        except Stalled as error:
            raise Refusal(f"{scenario.name} under {name} would never end: {error}") from error
        write_json(file, [asdict(row) for row in found])
    console = Console()
    for table in gang_tables(scenario.name, found):
        console.print(table)
