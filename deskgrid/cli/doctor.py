"""``deskgrid doctor``: what is wrong with this PC, or with any of the grid, and what to do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from deskgrid.cli.base import default_home, expanded, join_option, open_link, say, table
from deskgrid.durations import duration
from deskgrid.option_types import Folder, Refusal
from deskgrid.wire import clean


@click.command()
@click.option(
    "--home",
    type=Folder(),
    help="The folder with this PC's keys [default: $DESKGRID_HOME, else ~/.deskgrid].",
)
@click.option("--name", help="The name of this PC, if it has several identities.")
@click.option("--broker", "address", metavar="HOST:PORT", help="The broker, if this PC has joined several.")
@click.option("--all", "of_all", is_flag=True, help="Show what the workers of all PCs have found. For admins.")
@click.option("--notes", is_flag=True, help="With --all: also show what is only good to know.")
@click.argument("patterns", metavar="[PC|PATTERN]...", nargs=-1)
@join_option
def doctor(
    *,
    home: Path | None,
    name: str | None,
    address: str | None,
    of_all: bool,
    notes: bool,
    patterns: tuple[str, ...],
    join: str | None,
) -> Any:
    """Check this PC: Python, clock, home, disk, key, the broker's address and port, control groups, virtual machines,
    and what tells whether somebody uses this PC.

    Each line says "well", or "note" if you may want to know it, or "do" with what to do. Exit code 1: there is
    something to do.

    With --all, the broker tells what the PCs of the grid have found: each worker checks its PC when it joins, and once
    an hour. PATTERN is as in windows.toml, such as 'lab3-*'. PCs that the broker did not let in because of their
    version are there, too. Who uses a PC is not told.
    """
    if of_all:
        if home or name or address:
            raise click.UsageError("--all takes no --home, --name or --broker", click.get_current_context())
        return _of_all(patterns, notes=notes, join=join)
    if patterns or notes or join is not None:
        raise click.UsageError("PCs, --notes and --join need --all", click.get_current_context())
    from deskgrid.worker.pc.checks import findings

    bad = 0
    for finding in findings(expanded(home or default_home()), name, address):
        say(f"{finding.state:5} {finding.what:9}{finding.said}")
        bad += finding.state == "do"
    return 1 if bad else 0


def _of_all(patterns: tuple[str, ...], *, notes: bool, join: str | None) -> int:
    from deskgrid.client.replies import ask, pages
    from deskgrid.windows.windows_file import pattern_matches

    with open_link(join) as link:
        every = [row for page in pages(lambda after: ask(link, "pc checks", {"after": after})) for row in page["pcs"]]
    chosen = [row for row in every if not patterns or any(pattern_matches(pattern, row["pc"]) for pattern in patterns)]
    if patterns and not chosen:
        raise Refusal(f"no PC that has joined has a name like {' or '.join(patterns)}")
    rows = [cells for row in chosen for cells in _cells(row, notes=notes)]
    if rows:
        for line in table([("PC", "", "WHAT", "CHECKED", "SAID"), *rows]):
            say(line)
    bad = sum(any(each["to_do"] for each in row["findings"]) for row in chosen)
    unknown = sum(row["state"] == "unknown" for row in chosen)
    pcs = "1 PC" if len(chosen) == 1 else f"{len(chosen)} PCs"
    said = f"something to do on {bad} of {pcs}" if bad else f"nothing to do on {pcs}"
    more = f"; {unknown} not checked yet" if unknown else ""
    say(f"deskgrid: {said}{more}", err=True)
    return 1 if bad else 0


def _cells(row: Mapping[str, Any], *, notes: bool) -> list[tuple[str, ...]]:
    when = "" if row["age_s"] is None else f"{duration(row['age_s'])} ago"
    return [
        (clean(row["pc"]), "do" if each["to_do"] else "note", clean(each["what"]), when, clean(each["said"]))
        for each in row["findings"]
        if notes or each["to_do"]
    ]
