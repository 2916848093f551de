"""Live runs, one after the other."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import click

from deskgrid.sleepbench.cli.common import progress_bar

R = TypeVar("R")


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
