"""A look at a grid as it is, for tests of one choice: so many jobs run, and these wait."""

from collections.abc import Iterator, Sequence

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, Keep, ParallelJob, ParallelView, Start
from deskgrid.scheduler.parallel.choices import DecisionView, HowMany
from deskgrid.scheduler.parallel.speedup import Amdahl, Measured
from tests.scheduler.parallel.played import Grid, gang


def grid_of(hosts: Sequence[Host], waiting: Sequence[ParallelJob], now: float = 0.0) -> Grid:
    """All PCs are up; the jobs wait already."""
    grid = Grid(hosts)
    grid.play(_Nobody())
    grid.now = now
    grid.waiting += waiting
    return grid


def look_at(grid: Grid, sizes: HowMany) -> DecisionView:
    """What a choice sees now."""
    return DecisionView(grid, grid.now, list(grid.waiting), sizes)


def running(grid: Grid, task: int, host: Host, seconds: float, ranks: int = 1) -> None:
    """A job runs on a PC for so many more seconds."""
    job = gang(task, ranks, seconds)
    grid.waiting.append(job)
    grid.start(Start(job, ((host, ranks),), seconds))


def moldable(task: int, least: int, most: int, seconds: float, arrived: float = 0.0) -> ParallelJob:
    """A job whose speed-up is linear. ``seconds``: on one rank."""
    return ParallelJob(task, Need(least, most, speedup=Amdahl(0.0), gang=True), seconds, arrived)


def of_paper(task: int, size: int, seconds: float, arrived: float = 0.0) -> ParallelJob:
    """A job as in Table 1 of SCOJO-P: ``seconds`` on ``size`` ranks, an even number above 2, which suits it."""
    speedup = Measured(((size // 2, 0.8 * size / 2), (size, 0.65 * size), (2 * size, 0.8 * size)))
    return ParallelJob(task, Need(size // 2, 2 * size, speedup=speedup, gang=True), seconds * 0.65 * size, arrived)


class _Nobody:
    name = "nobody"

    def decide(self, view: ParallelView) -> Iterator[Start | Keep]:
        return iter(())
