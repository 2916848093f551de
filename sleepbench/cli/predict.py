"""``deskgrid sleepbench predict``: how well runtimes can be predicted, measured on a log."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskgrid.option_types import Refusal, Whole
from deskgrid.sleepbench.cli.common import check_writable, json_option, write_json
from deskgrid.sleepbench.cli.pictures import picture_option, write_picture
from deskgrid.sleepbench.predictors import BASELINE
from deskgrid.sleepbench.prequential import LEAST, PredictionRow, life, measure
from deskgrid.sleepbench.workloads.source import WorkloadError
from deskgrid.sleepbench.workloads.task_log import read_csv, read_job_log

if TYPE_CHECKING:
    from rich.table import Table

CAPTION = (
    f"of bags of {LEAST} tasks or more; poor: bags with fewer than 80 % at .9; loss: pinball loss at .9 to that of "
    f"{BASELINE}, geometric mean over bags, and arithmetic; costs: medians"
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("predict")
@click.option(
    "--csv",
    "tasks",
    type=_FILE,
    metavar="FILE",
    help="Tasks with the columns bag, function and seconds, in the order of submission; may be gzipped. A column "
    "requested says what the user predicted. Other columns are ignored.",
)
@click.option(
    "--swf",
    type=_FILE,
    metavar="FILE",
    help="Jobs of a log in the Standard Workload Format. A bag is a user's jobs with the same processors and request.",
)
@click.option(
    "--in-flight",
    type=Whole(min=1, max=100_000),
    default=16,
    show_default=True,
    metavar="N",
    help="How many tasks run at a time: of each bag of the CSV file, or of the whole job log.",
)
@json_option("Also write the rows there.")
@picture_option("--plot", "Draw what deskgrid predicts of the tasks of the largest bag.")
def predict(*, tasks: Path | None, swf: Path | None, in_flight: int, file: Path | None, plot: Path | None) -> None:
    """Measure how well runtimes can be predicted, on a log of what tasks took.

    Every task is predicted when it starts, from those that have ended by then. The predictors are what was requested,
    the mean of the bag so far, the mean of its last two tasks, the mean stretched by past errors, and deskgrid's own.
    """
    from rich.console import Console

    check_writable(file)
    if (tasks is None) == (swf is None):
        raise click.UsageError("give either --csv FILE or --swf FILE")
    try:
        log = read_csv(tasks) if tasks is not None else read_job_log(swf or Path())
        rows = list(measure(log, in_flight))
    except WorkloadError as error:
        raise Refusal(str(error)) from error
    write_json(file, [asdict(row) for row in rows])
    console = Console()
    console.print(table(f"{log.title}, {in_flight} in flight", rows))
    for note in log.notes:
        console.print(f"- {note}", style="dim", highlight=False, soft_wrap=True)
    if plot is not None:
        from deskgrid.sleepbench.pictures.predictions import life as drawn

        write_picture(drawn(life(log, in_flight)), plot)


def table(title: str, rows: Sequence[PredictionRow]) -> "Table":
    """A row for each predictor."""
    from deskgrid.sleepbench.tables import new_table

    headings = ("", "at .9", "at .95", ".05-.95", "poor", "loss", "arith", "predict", "learn")
    return new_table(title, headings, CAPTION, [(row.predictor, *_cells(row)) for row in rows])


def _cells(row: PredictionRow) -> tuple[str, ...]:
    shares = (row.coverage90, row.coverage95, row.coverage_5_95, row.bags_below_80)
    losses = (row.pinball90_to_mean, row.pinball90_to_mean_arithmetic)
    costs = (row.predict_us, row.observe_us)
    return (
        *(f"{each:.1%}" for each in shares),
        *("" if each is None else f"{each:.2f}" for each in losses),
        *(f"{us:.0f} µs" for us in costs),
    )
