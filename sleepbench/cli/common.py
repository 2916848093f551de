"""Shared parts of the subcommands: options, writing of rows, a progress bar, and live runs one after the other."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from deskgrid.option_types import Whole
from deskgrid.sleepbench.scenarios import Row, rows_as_json

R = TypeVar("R")


class Factor(click.FloatRange):
    """A finite number in a range; click alone would accept NaN in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number in ``value``; a usage error if it is not a finite number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


# Below this, a PC's window is shorter than the start-up of a task, and the benchmark would measure nothing else.
SCALE_LEAST = 0.002

SCALE_OPTION = click.option(
    "--scale",
    type=Factor(min=SCALE_LEAST, max=1.0),
    default=0.02,
    show_default=True,
    help="Multiply every time by this: at 0.02 the paper's hour takes 72 seconds.",
)
SEED_OPTION = click.option(
    "--seed",
    type=Whole(min=0),
    default=0,
    show_default=True,
    help="Seed of the first run. Each further run takes the next number.",
)


def json_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option that names the file to which rows go, too; ``text`` is its help."""
    return click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=text)


def check_writable(file: Path | None) -> None:
    """Refuse a file that cannot be written now, rather than after the run."""
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {file.absolute().parent}", param_hint="--json")


def write_rows(file: Path | None, rows: list[Row]) -> None:
    """Write all rows so far. Called after each run, so that an interrupted series keeps its rows."""
    write_json(file, rows_as_json(rows))


def write_json(file: Path | None, values: Sequence[Mapping[str, object]]) -> None:
    """Write plain values, if there is a file to write them to: all of them, or what was there before stays."""
    if file is None:
        return
    text = json.dumps(values, indent=2) + "\n"
    try:
        if file.exists() and not file.is_file():  # a pipe, or /dev/stdout
            file.write_text(text, encoding="utf-8")
            return
        target = file.resolve()  # a link stays one
        part = target.with_name(f"{target.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror or error}") from error


@contextmanager
def progress_bar(title: str, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, if that is a terminal. Yields a function to call with how many of ``what`` are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(what),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def live_runs(
    title: str, seeds: range, total: int, what: str, run: Callable[[int, Callable[[int], None]], R]
) -> Iterator[tuple[int, int, R]]:
    """The number, the seed and the result of each; ``run`` takes a seed, and reports how many of ``what`` are done."""
    from deskgrid import DeskgridError
    from deskgrid.sleepbench.processes import ProcessError, ended_by_signals

    for number, seed in enumerate(seeds, start=1):
        try:
            with ended_by_signals(), progress_bar(f"{title}, run {number} of {len(seeds)}", total, what) as progress:
                result = run(seed, progress)
        except (ProcessError, DeskgridError) as error:
            raise click.ClickException(str(error)) from error
        yield number, seed, result
