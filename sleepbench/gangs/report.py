"""The rows of gangs as tables."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median

from rich.table import Table

from deskgrid.sleepbench.compare import TOLERANCE
from deskgrid.sleepbench.gangs.compare import GangComparison, turnaround
from deskgrid.sleepbench.gangs.scenario import GangRunRow
from deskgrid.sleepbench.tables import new_table

COLUMNS = ("gang", "site", "slots", "start", "end", "turnaround", "considered")
CAPTION = "seconds; considered: how the policy rated each site that was possible, if it rates sites"


def gang_tables(title: str, rows: Iterable[GangRunRow]) -> Iterator[Table]:
    """A table for each policy, whose rows have to be adjacent."""
    for policy, found in groupby(rows, key=lambda row: row.policy):
        gangs = list(found)
        lines = [_line(row) for row in gangs]
        mean = ("mean", "", "", "", "", f"{turnaround(gangs):.2f}", "")
        yield new_table(f"{title} under {policy}", COLUMNS, CAPTION, [*lines, mean])


def _line(row: GangRunRow) -> tuple[str, ...]:
    considered = ", ".join(f"{site} {score:g}" for site, score in (row.considered or {}).items())
    times = (row.start_s, row.end_s, row.turnaround_s)
    return row.gang, row.site, f"{row.slots}", *(f"{seconds:.2f}" for seconds in times), considered


COMPARED = ("", "live", "simul.", "ideal", "off", "agree", "1 rank", "6 ranks", "late")
COMPARED_CAPTION = (
    "mean turnaround in the scenario's seconds, medians of the runs; simul.: simulated with the costs measured live; "
    f"ideal: without any; off: live from simulated; agree: within {TOLERANCE:.0%}; ranks: ms from when a gang of so "
    "many could start until they had begun; late: by how many ms it took longer"
)


def compared_gangs(comparisons: Sequence[GangComparison]) -> Table:
    """A line for each policy."""
    setting = comparisons[0].setting
    title = f"{setting.scenario.name}, live and simulated, every time multiplied by {setting.scale:g}"
    return new_table(title, COMPARED, COMPARED_CAPTION, map(_compared, comparisons))


def _compared(one: GangComparison) -> tuple[str, ...]:
    return (
        one.setting.policy,
        f"{one.live_s:.2f}",
        f"{one.simulated_s:.2f}",
        f"{turnaround(one.ideal):.2f}",
        f"{100 * one.off:+.1f}%",
        "yes" if one.agrees else "no",
        *(f"{1000 * median(run.costs.start_of(ranks) for run in one.live):.1f}" for ranks in (1, 6)),
        f"{1000 * median(run.costs.oversleep_s for run in one.live):.1f}",
    )
