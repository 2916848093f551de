"""``deskgrid sleepbench grids``: the default policy against the others on random grids."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import click

from sleepbench.cli.common import check_writable, progress_bar, write_json
from sleepbench.grids import CONTENDERS, KINDS, Outcome, outcomes

if TYPE_CHECKING:
    from rich.table import Table

# Everything is measured against this one: with the best queue length for each grid.
AGAINST = "pgs"
CAPTION = (
    "mean of makespan / makespan under pgs with the queue length that is best for the grid; "
    "worst: packing, largest of all grids"
)


@click.command("grids")
@click.option("--grids", "count", type=click.IntRange(min=1), default=200, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the first; then one more.")
@click.option("--processes", "-j", type=click.IntRange(min=1), help="How many at once.  [default: one for each core]")
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a row for each grid there.",
)
def grids(*, count: int, seed: int, processes: int | None, file: Path | None) -> None:
    """Compare policies on random grids, in virtual time: what is told of the paper's grid might hold there only."""
    from rich.console import Console

    check_writable(file)
    found: list[Outcome] = []
    with progress_bar("simulating", count, "grids") as progress:
        for outcome in outcomes(range(seed, seed + count), processes or os.cpu_count() or 1):
            found.append(outcome)
            progress(len(found))
    write_json(file, [asdict(outcome) for outcome in found])
    Console().print(table(found))


def table(found: Sequence[Outcome]) -> "Table":
    """Mean ratios by kind of runtimes, and the worst."""
    from rich import box
    from rich.table import Table

    drawn = Table(title=f"{len(found)} random grids", caption=CAPTION, box=box.SIMPLE_HEAD, pad_edge=False)
    drawn.add_column("")
    groups = [(kind, [each for each in found if each.kind == kind]) for kind in KINDS]
    groups = [(kind, some) for kind, some in groups if some]
    for kind, some in groups:
        drawn.add_column(f"{kind} ({len(some)})", justify="right")
    drawn.add_column("all", justify="right")
    for line in lines([*(some for _, some in groups), found]):
        drawn.add_row(*line)
    return drawn


def lines(groups: Sequence[Sequence[Outcome]]) -> Iterator[tuple[str, ...]]:
    """The rows of the table, a cell for each group."""
    for name in dict.fromkeys(contender.name for contender in CONTENDERS):
        yield name, *(f"{fmean(each.ratio(name, AGAINST) for each in some):.3f}" for some in groups)
    yield (
        "lower bound",
        *(f"{fmean(each.lower_bound_min / each.makespan_min[AGAINST] for each in some):.3f}" for some in groups),
    )
    for name in (AGAINST, "longest"):
        yield f"worst, to {name}", *(f"{max(each.ratio('packing', name) for each in some):.3f}" for some in groups)
    yield "planned kills", *(str(sum(each.planned_kills for each in some)) for some in groups)
