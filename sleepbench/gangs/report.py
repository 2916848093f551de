"""The rows of gangs as tables."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from statistics import fmean

from rich.table import Table

from deskgrid.sleepbench.gangs.scenario import GangRow
from deskgrid.sleepbench.report import table

COLUMNS = ("gang", "site", "slots", "start", "end", "turnaround", "considered")
CAPTION = "seconds; considered: how the policy rated each site that was possible, if it rates sites"


def gang_tables(title: str, rows: Iterable[GangRow]) -> Iterator[Table]:
    """A table for each policy, whose rows have to be adjacent."""
    for policy, found in groupby(rows, key=lambda row: row.policy):
        gangs = list(found)
        lines = [_line(row) for row in gangs]
        mean = ("mean", "", "", "", "", f"{fmean(row.turnaround_s for row in gangs):.2f}", "")
        yield table(f"{title} under {policy}", COLUMNS, CAPTION, [*lines, mean])


def _line(row: GangRow) -> tuple[str, ...]:
    considered = ", ".join(f"{site} {score:g}" for site, score in (row.considered or {}).items())
    times = (row.start_s, row.end_s, row.turnaround_s)
    return row.gang, row.site, f"{row.slots}", *(f"{seconds:.2f}" for seconds in times), considered
