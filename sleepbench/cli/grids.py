"""``deskgrid sleepbench grids``: the default policy against the others on random grids."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import click

from deskgrid.option_types import Whole
from deskgrid.sleepbench.cli.common import Factor, check_writable, json_option, progress_bar, write_json
from deskgrid.sleepbench.grids import (
    BEST,
    BEST_QUEUED,
    KINDS,
    MEAN,
    QUEUES,
    ContenderResult,
    outcomes,
    queued,
)

if TYPE_CHECKING:
    from rich.table import Table

# All makespans are compared with this one.
AGAINST = BEST
CAPTION = (
    f"mean of makespan / makespan under pgs with the queue length, {', '.join(map(str, QUEUES))}, that is best for the "
    "grid; worst: packing, largest of all grids"
)


@click.command("grids")
@click.option("--grids", "count", type=Whole(min=1), default=200, show_default=True, help="How many grids.")
@click.option(
    "--seed",
    type=Whole(min=0),
    default=0,
    show_default=True,
    help="Seed of the first grid. Each further grid takes the next number.",
)
@click.option(
    "--mean",
    type=Factor(0.001, 0.5),
    default=MEAN,
    show_default=True,
    help="The mean runtime of a grid's tasks, as a fraction of its mean uptime.",
)
@click.option(
    "--runtime-error",
    type=Factor(1.0, 1000.0),
    default=1.0,
    metavar="F",
    help="Predict runtimes wrongly, by up to F times.  [default: 1, all are right]",
)
@click.option("--processes", "-j", type=Whole(min=1), help="How many grids at once.  [default: one for each core]")
@json_option("Also write a row for each grid there.")
def grids(
    *, count: int, seed: int, mean: float, runtime_error: float, processes: int | None, file: Path | None
) -> None:
    """Compare policies on random grids, in virtual time: results for the paper's grid might hold only there."""
    from rich.console import Console

    check_writable(file)
    found: list[ContenderResult] = []
    with progress_bar("simulating", count, "grids") as progress:
        for outcome in outcomes(range(seed, seed + count), processes or os.cpu_count() or 1, mean, runtime_error):
            found.append(outcome)
            progress(len(found))
            write_json(file, [asdict(outcome) for outcome in found])
    Console().print(table(found, mean, runtime_error))


def table(found: Sequence[ContenderResult], mean: float, runtime_error: float = 1.0) -> "Table":
    """Mean ratios by kind of runtimes, and the worst."""
    from deskgrid.sleepbench.tables import new_table

    title = f"{len(found)} random grids, mean runtime {mean:g} of the mean uptime"
    title += f", predictions wrong by up to {runtime_error:g} times" if runtime_error != 1.0 else ""
    groups = [(kind, [each for each in found if each.kind == kind]) for kind in KINDS]
    groups = [(kind, some) for kind, some in groups if some]
    headings = ("", *(f"{kind} ({len(some)})" for kind, some in groups), "all")
    return new_table(title, headings, CAPTION, lines([*(some for _, some in groups), found]))


def lines(groups: Sequence[Sequence[ContenderResult]]) -> Iterator[tuple[str, ...]]:
    """The rows of the table, with a cell for each group; the last group has all grids."""
    names = [name for name in groups[-1][0].makespan_min if name not in (BEST, BEST_QUEUED)]
    for name in (*names, BEST_QUEUED):
        yield name, *(f"{fmean(each.ratio(name, AGAINST) for each in some):.3f}" for some in groups)
    yield (
        "lower bound",
        *(f"{fmean(each.lower_bound_min / each.makespan_min[AGAINST] for each in some):.3f}" for some in groups),
    )
    yield (
        f"packing, to {BEST_QUEUED}",
        *(f"{fmean(each.ratio('packing', BEST_QUEUED) for each in some):.3f}" for some in groups),
    )
    single = best_length(groups[-1])
    yield (
        f"mean of packing, to mean of {single}",
        *(f"{_mean_min(some, 'packing') / _mean_min(some, single):.3f}" for some in groups),
    )
    for name in (AGAINST, "longest"):
        yield f"worst, to {name}", *(f"{max(each.ratio('packing', name) for each in some):.3f}" for some in groups)
    yield "planned kills", *(str(sum(each.planned_kills for each in some)) for some in groups)


def best_length(found: Sequence[ContenderResult]) -> str:
    """The single queue length, from 1 on, that is best for all these grids together."""
    return min((queued(length) for length in QUEUES if length), key=lambda name: _mean_min(found, name))


def _mean_min(found: Sequence[ContenderResult], name: str) -> float:
    return fmean(each.makespan_min[name] for each in found)
