"""The options of a command that takes jobs or PCs from elsewhere than the paper, and the jobs and PCs they select.

Rule: any jobs go with any PCs. An option without effect, because its source was not selected, is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from deskgrid.option_types import Whole
from deskgrid.sleepbench.workloads.fits import DEFAULT_DISTRIBUTION, find_fit, fit_names, fitted_lab
from deskgrid.sleepbench.workloads.fta import read_fta
from deskgrid.sleepbench.workloads.source import Jobs, Lab, WorkloadError
from deskgrid.sleepbench.workloads.swf import JobSelection, read_swf

# As many as the paper has.
FITTED_PCS = 8


@dataclass(frozen=True, slots=True)
class Sources:
    """The values of the options; each field has the name of its option."""

    swf: Path | None = None
    jobs: int | None = None
    per_processor: bool = False
    requested: bool = False
    arrivals: bool = False
    fta: Path | None = None
    fit: str | None = None
    pcs: int | None = None
    slots: int | None = None
    day_cycle: float | None = None
    lenient: bool = False

    def __post_init__(self) -> None:
        if self.fta is not None and self.fit is not None:
            raise click.UsageError("--fta and --fit are two sources of PCs; there can be one")
        self._needs(self.swf is not None, "--swf", ("jobs", "per_processor", "requested", "arrivals"))
        self._needs(self.other_pcs, "--fta or --fit", ("pcs", "slots"))
        self._needs(self.fit is not None, "--fit", ("day_cycle",))
        self._needs(self.swf is not None or self.fta is not None, "--swf or --fta", ("lenient",))

    @property
    def other_jobs(self) -> bool:
        """Whether the jobs come from elsewhere than a scenario."""
        return self.swf is not None

    @property
    def other_pcs(self) -> bool:
        """Whether the PCs come from elsewhere than a scenario."""
        return self.fta is not None or self.fit is not None

    def read_jobs(self) -> Jobs | None:
        """The jobs, if they come from elsewhere; raises `click.BadParameter`."""
        if self.swf is None:
            return None
        taken = JobSelection(self.jobs, "processor" if self.per_processor else "job", self.requested, self.arrivals)
        try:
            return read_swf(self.swf, taken, self.lenient)
        except WorkloadError as error:
            raise click.BadParameter(str(error), param_hint="--swf") from error

    def read_lab(self, seed: int) -> Lab | None:
        """The PCs, if they come from elsewhere; raises `click.BadParameter`. ``seed``: for drawing PCs of a fit."""
        try:
            if self.fta is not None:
                return read_fta(self.fta, self.pcs, self.slots, self.lenient)
            if self.fit is not None:
                return fitted_lab(find_fit(self.fit, self.day_cycle), self.pcs or FITTED_PCS, self.slots or 1, seed)
        except WorkloadError as error:
            raise click.BadParameter(str(error), param_hint="--fta" if self.fta is not None else "--fit") from error
        return None

    def _needs(self, there: bool, source: str, names: tuple[str, ...]) -> None:
        for name in names:
            asked = getattr(self, name)
            if not there and asked is not None and asked is not False:
                raise click.UsageError(f"--{name.replace('_', '-')} goes with {source}")


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add all of these options to a command, which gets them as one argument, ``sources``."""

    @wraps(command)
    def collecting(**options: Any) -> None:
        chosen = {field.name: options.pop(field.name) for field in fields(Sources)}
        command(**options, sources=Sources(**chosen))

    for option in reversed(_OPTIONS):
        option(collecting)
    return collecting


_OPTIONS = (
    click.option(
        "--swf",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Take jobs from a log in the Standard Workload Format (.swf, .swf.gz), instead of the scenario's.",
    ),
    click.option("--jobs", type=Whole(min=1), help="Take only the first jobs of the log.  [default: all]"),
    click.option(
        "--per-processor",
        is_flag=True,
        help="Take parallel jobs too: a task for each processor they had. Without this, only jobs of one processor.",
    ),
    click.option(
        "--requested", is_flag=True, help="Predict the time that was requested instead of the time that the job took."
    ),
    click.option("--arrivals", is_flag=True, help="Submit jobs at the times of the log instead of all at the start."),
    click.option(
        "--fta",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Take PCs from a data set of the Failure Trace Archive, a folder of tab files, instead of the scenario's.",
    ),
    click.option(
        "--fit",
        metavar="NAME[:DISTRIBUTION]",
        help="Draw PCs from distributions fitted to a real system, instead of the scenario's: "
        f"{', '.join(fit_names())}; exponential, weibull, lognormal or gamma.  [default: {DEFAULT_DISTRIBUTION}]",
    ),
    click.option("--pcs", type=Whole(min=1), help=f"How many PCs.  [default: all of --fta, {FITTED_PCS} of --fit]"),
    click.option("--slots", type=Whole(min=1), help="Slots of each PC.  [default: its cores in --fta, 1 of --fit]"),
    click.option(
        "--day-cycle",
        type=click.FloatRange(-1, 1, min_open=True, max_open=True),
        help="How many fewer PCs of --fit are up in office hours, as a fraction; below 0, more.  [default: the fit's]",
    ),
    click.option("--lenient", is_flag=True, help="Skip malformed lines and count them instead of refusing the file."),
)
