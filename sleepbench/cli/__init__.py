"""``deskgrid sleepbench``: the table of its commands, each imported when it is called."""

import click

from deskgrid.lazy_commands import LazyCommand, LazyGroup

# Name, import path, short help.
COMMANDS = (
    ("simulate", "deskgrid.sleepbench.cli.simulate:simulate", "Simulate what any policy would do."),
    ("grids", "deskgrid.sleepbench.cli.grids:grids", "Compare policies on random grids, in the simulator."),
    ("gangs", "deskgrid.sleepbench.cli.gangs:gangs", "Simulate what policies do with gangs."),
    ("live", "deskgrid.sleepbench.cli.live:live", "Run the benchmark on real processes of this machine."),
    ("compare", "deskgrid.sleepbench.cli.compare:compare", "Check whether live and simulated runs agree."),
    ("paper", "deskgrid.papers.command:paper", "Repeat the experiments of a paper on parallel tasks."),
    ("predict", "deskgrid.sleepbench.cli.predict:predict", "Measure on a log how well runtimes can be predicted."),
    ("sweeps", "deskgrid.sleepbench.cli.sweeps:sweeps", "Measure how early a parameter sweep can be predicted."),
    ("eta", "deskgrid.sleepbench.cli.eta:eta", "Measure how good estimates of the ends of bags are."),
    ("replay", "deskgrid.sleepbench.cli.replay:replay", "Replay a stopped broker's past under every policy."),
)


@click.group("sleepbench", cls=LazyGroup)
def sleepbench_group() -> None:
    """The paper's sleep benchmark (Section 4.2): PGS against first come, first served."""


for _entry in COMMANDS:
    sleepbench_group.add_command(LazyCommand(*_entry))
