"""``deskgrid doctor``: what is wrong with this PC, and what to do."""

from pathlib import Path
from typing import Any

import click

from deskgrid.cli.base import default_home, expanded, say
from deskgrid.option_types import Folder


@click.command()
@click.option(
    "--home",
    type=Folder(),
    default=default_home,
    help="The folder with this PC's keys [default: $DESKGRID_HOME, else ~/.deskgrid].",
)
@click.option("--name", help="The name of this PC, if it has several identities.")
@click.option("--broker", "address", metavar="HOST:PORT", help="The broker, if this PC has joined several.")
def doctor(*, home: Path, name: str | None, address: str | None) -> Any:
    """Check this PC: Python, clock, home, disk, key, the broker's address and port, control groups, virtual machines,
    and what tells whether somebody uses this PC.

    Each line says "well", or "note" if you may want to know it, or "do" with what to do. Exit code 1: there is
    something to do.
    """
    from deskgrid.worker.pc.checks import findings

    bad = 0
    for finding in findings(expanded(home), name, address):
        say(f"{finding.state:5} {finding.what:9}{finding.said}")
        bad += finding.state == "do"
    return 1 if bad else 0
