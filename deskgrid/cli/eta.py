"""``deskgrid eta``: when a bag will be done."""

import json
import sys

import click

from deskgrid.cli.bags import FAILED
from deskgrid.cli.base import attached, join_option, open_grid, say


@click.command()
@click.argument("bag_id", metavar="BAG")
@click.option("--json", "as_json", is_flag=True, help="Print the seconds from now: median_s, low_s, high_s, and why.")
@join_option
def eta(*, bag_id: str, as_json: bool, join: str | None) -> None:
    """Estimate when BAG will be done.

    The bag is as likely to end before the first time as after it. One bag in twenty takes longer than "at the latest".
    If there is no estimate, the answer is "unknown" and the reason, and the exit code is 1.
    """
    with open_grid(join) as grid:
        found = attached(grid, bag_id).eta()
    if as_json:
        values = {"median_s": found.median, "low_s": found.low, "high_s": found.high}
        say(json.dumps({**values, "confidence": found.confidence, "why": found.why}))
    else:
        say(str(found))
    if not found.known:
        sys.exit(FAILED)
