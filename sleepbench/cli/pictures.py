"""The options for pictures, and the chart on the terminal that is drawn without them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deskgrid.sleepbench.pictures.files import picture_file
from deskgrid.sleepbench.scenarios import Row
from deskgrid.sleepbench.simulated import ERRORS, Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures to draw."""

    plot: Path | None
    gantt: Path | None

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse trials that cannot be drawn as one picture, before they are run."""
        several = [len({factor_of(trial) for trial in trials}) > 1 for factor_of in ERRORS.values()]
        if self.plot is not None and all(several):
            raise click.UsageError("--plot draws against one error: the other can have one factor only")
        different = {(trial.problem.name, trial.policy, *_errors(trial)) for trial in trials}
        if self.gantt is not None and len(different) > 1:
            raise click.UsageError("--gantt draws one run, the first: of one scenario, under one policy and error")

    def draw(self, made: Sequence[tuple[Trial, Row]], console: "Console") -> None:
        """Draw the requested pictures. If there are none, draw the chart, unless several errors are compared."""
        from deskgrid.sleepbench.pictures.chart import Chart

        if not made:
            return
        if self.plot is not None or self.gantt is not None:
            self._draw_files(made)
        elif len({_errors(trial) for trial, _ in made}) == 1:
            console.print(Chart([row for _, row in made]))

    def _draw_files(self, made: Sequence[tuple[Trial, Row]]) -> None:
        from deskgrid.sleepbench.pictures.trials import gantt_of, plot_of

        if self.plot is not None:
            write_picture(plot_of(made), self.plot)
        if self.gantt is not None:
            write_picture(gantt_of(made[0][0]), self.gantt)


def _errors(trial: Trial) -> tuple[float, ...]:
    return tuple(factor_of(trial) for factor_of in ERRORS.values())


def write_picture(figure: "Figure", file: Path) -> None:
    """Write a figure; raises `click.ClickException` if that fails."""
    from deskgrid.sleepbench.pictures.style import save

    try:
        save(figure, file)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror or error}") from error


def picture_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add these options to a command, which gets them as one argument, ``pictures``."""

    @wraps(command)
    def collecting(plot: Path | None, gantt: Path | None, **options: Any) -> None:
        command(pictures=Pictures(plot, gantt), **options)

    for option in reversed(_OPTIONS):
        option(collecting)
    return collecting


def picture_option(name: str, text: str) -> Callable[[CommandT], CommandT]:
    """An option that names a picture; one that cannot be written there is refused before anything is run."""
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option(name, type=path, callback=picture_file, metavar="FILE.svg|png|pdf", help=text)


_OPTIONS = (
    picture_option("--plot", "Draw makespans by scenario beside the paper's, or all against the factors of an error."),
    picture_option("--gantt", "Draw the first run: slots, windows, and what ran in them."),
)
