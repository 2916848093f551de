"""``deskgrid sleepbench``: the table of its commands, each imported when it is called."""

import click

from deskgrid.cli.front import Later, LaterGroup

# Name, import path, short help.
COMMANDS = (
    ("simulate", "deskgrid.sleepbench.cli.simulate:simulate", "Compute what any policy would do, in virtual time."),
    ("grids", "deskgrid.sleepbench.cli.grids:grids", "Compare policies on random grids, in virtual time."),
    ("gangs", "deskgrid.sleepbench.cli.gangs:gangs", "Compute what policies do with gangs, in virtual time."),
    ("live", "deskgrid.sleepbench.cli.live:live", "Run it on real processes of this machine."),
    ("compare", "deskgrid.sleepbench.cli.compare:compare", "Run it live and simulate the same: whether both agree."),
    ("paper", "deskgrid.sleepbench.cli.paper:paper", "Repeat a paper on parallel tasks, beside what it printed."),
    ("predict", "deskgrid.sleepbench.cli.predict:predict", "Measure on a log how well runtimes can be predicted."),
    ("sweeps", "deskgrid.sleepbench.cli.sweeps:sweeps", "Measure how soon a parameter sweep is known."),
    ("eta", "deskgrid.sleepbench.cli.eta:eta", "Measure how well it is told when bags will be done."),
    ("replay", "deskgrid.sleepbench.cli.replay:replay", "Play a stopped broker's own past under every policy."),
)


@click.group("sleepbench", cls=LaterGroup)
def sleepbench_group() -> None:
    """The paper's sleep benchmark (Section 4.2): PGS against first come, first served."""


for _entry in COMMANDS:
    sleepbench_group.add_command(Later(*_entry))
