"""``deskgrid sleepbench sweeps``: how soon a parameter sweep is known, by the order of its tasks."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskgrid.option_types import Whole
from deskgrid.sleepbench.cli.common import check_writable, json_option, write_json
from deskgrid.sleepbench.sweeps import GOALS, ORDERS, POINTS, PREDICTORS, SweepRow, measure, needed

if TYPE_CHECKING:
    from rich.table import Table


@click.command("sweeps")
@click.option("--sweeps", "count", type=Whole(1, 10_000), default=60, show_default=True, metavar="N")
@click.option("--seed", type=int, default=1, show_default=True, help="Draws the sweeps.")
@json_option("Also write the rows there.")
def sweeps(*, count: int, seed: int, file: Path | None) -> None:
    """Measure how soon a parameter sweep is known, by the order in which its tasks are run.

    The sweeps are drawn: grids of one to four parameters on which runtimes depend smoothly, with noise of up to 15 %.
    After some tasks, all others are predicted: by the quantiles of those that have ended, as the broker does it, and by
    a smooth surface over the parameters.
    """
    from rich.console import Console

    check_writable(file)
    rows = list(measure(count, seed))
    write_json(file, [asdict(row) for row in rows])
    Console().print(table(f"{count} sweeps: the error of the rest after so many tasks", rows))


def table(title: str, rows: Sequence[SweepRow]) -> "Table":
    """A row for each order and predictor."""
    from deskgrid.sleepbench.tables import new_table

    caption = (
        "Medians over sweeps; to 20 %, to 10 %: how many tasks it takes until the error is that small; "
        "total: the error of the sum after 8 tasks"
    )
    headings = ("", "", *map(str, POINTS), *(f"to {goal:.0%}" for goal in GOALS), "total")
    drawn = new_table(title, headings, caption, left=(0, 1))
    for order in ORDERS:
        for predictor in PREDICTORS:
            its = [row for row in rows if (row.order, row.predictor) == (order, predictor)]
            reached = [needed(rows, order, predictor, goal) or f"over {POINTS[-1]}" for goal in GOALS]
            total = next(row.total_error for row in its if row.points == 8)
            errors = [f"{row.rest_error:.0%}" for row in its]
            drawn.add_row(order, predictor, *errors, *map(str, reached), f"{total:.0%}")
    return drawn
