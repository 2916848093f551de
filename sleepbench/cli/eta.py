"""``deskgrid sleepbench eta``: how well it is told when bags will be done."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskgrid.option_types import Refusal, Whole
from deskgrid.sleepbench.cli.common import SEED_OPTION, check_writable, json_option, progress_bar, write_json
from deskgrid.sleepbench.cli.pictures import picture_option, write_picture
from deskgrid.sleepbench.etas import SMALL, EtaRow, measure, rows
from deskgrid.sleepbench.workloads.drawn_bags import drawn_bags
from deskgrid.sleepbench.workloads.source import WorkloadError
from deskgrid.sleepbench.workloads.task_log import read_csv

if TYPE_CHECKING:
    from rich.table import Table

CAPTION = (
    f"stage: tasks that had ended; small: bags below {SMALL} tasks, at all stages; covers: bags that ended within the "
    "90 % interval; width: of the interval, and error: of the point, to the time that was left; medians"
)


@click.command("eta")
@click.option(
    "--csv",
    "tasks",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Tasks with the columns bag, function and seconds, as for predict.  [default: bags that are drawn]",
)
@click.option(
    "--bags",
    "count",
    type=Whole(1, 100_000),
    default=100,
    show_default=True,
    metavar="N",
    help="How many bags are played. If the log has fewer, they are played again, with nothing learned.",
)
@SEED_OPTION
@json_option("Also write the rows there.")
@picture_option("--plot", "Draw how often the intervals hold, and how wide they are.")
def eta(*, tasks: Path | None, count: int, seed: int, file: Path | None, plot: Path | None) -> None:
    """Measure how good estimates of the ends of bags are.

    Bags of 20 to 2,000 tasks run one after the other, each on a grid of its own of 4 to 64 slots, whose PCs are
    there at nights and on weekends. When 5, 25, 50 and 75 % of its tasks have ended, two methods say when it will be
    done: list scheduling with tasks as long as those that have ended, and deskgrid's own.
    """
    from rich.console import Console

    check_writable(file)
    try:
        log = read_csv(tasks) if tasks is not None else drawn_bags(seed, count)
        with progress_bar("eta", count, "bags") as progress:
            found = list(rows(measure(log, count, seed, progress)))
    except WorkloadError as error:
        raise Refusal(str(error)) from error
    write_json(file, [asdict(row) for row in found])
    Console().print(table(f"{log.title}: {count} bags, seed {seed}", found))
    if plot is not None:
        from deskgrid.sleepbench.pictures.predictions import coverage

        write_picture(coverage(found), plot)


def table(title: str, found: Sequence[EtaRow]) -> "Table":
    """A row for each method and stage."""
    from deskgrid.sleepbench.tables import new_table

    drawn = new_table(title, ("", "stage", "bags", "covers", "width", "error", "cost"), CAPTION)
    for row in found:
        drawn.add_row(
            row.method,
            row.stage,
            f"{row.bags:,}",
            f"{row.coverage90:.1%}",
            f"{row.width_median:.2f}",
            f"{row.point_error_median:.2f}",
            f"{row.cost_ms:.1f} ms",
        )
    return drawn
