"""How long the windows are that are open or announced, in seconds of speed 1: whether a task can ever run."""

from collections.abc import Container, Iterator

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.need import SINGLE, Need
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Worker


def best_window(
    grid: SchedulerState, now: float, need: Need = SINGLE, without: Container[str] = ()
) -> tuple[float, float]:
    """The longest window of a PC that has what tasks ``need``, and the speed of the PC; (0.0, 1.0) if there is none.

    ``without``: the names of PCs that do not count.
    """
    return max(_lengths(grid, now, need, without), default=(0.0, 1.0))


def longest_window(grid: SchedulerState, now: float, need: Need = SINGLE, without: Container[str] = ()) -> float:
    """The length of `best_window`."""
    return best_window(grid, now, need, without)[0]


def has_longer_window(
    grid: SchedulerState, than: float, now: float, need: Need = SINGLE, without: Container[str] = ()
) -> bool:
    """Whether `longest_window` is more than ``than`` seconds: usually one of the first windows is."""
    return any(fits(than, length) for length, _ in _lengths(grid, now, need, without))


def lacks(worker: Worker | None, need: Need) -> tuple[tuple[str, ...], tuple[tuple[str, float], ...]]:
    """What a PC lacks of what tasks need: labels; and of what it has too little. Of an unknown PC nothing."""
    if worker is None:
        return (), ()
    traits = worker.traits
    return tuple(sorted(need.labels - traits.labels)), need.amounts.lacking(traits.amounts)


def _lengths(grid: SchedulerState, now: float, need: Need, without: Container[str]) -> Iterator[tuple[float, float]]:
    for worker in grid.slots.workers.values():
        if worker.name not in without and _has(worker, need):
            yield max(worker.uptime(now), worker.windows.longest_s) * worker.speed, worker.speed
    for name, away in grid.away.items():
        if name not in without and _has(away.was, need):
            yield away.windows.longest_s * away.speed, away.speed


def _has(worker: Worker | None, need: Need) -> bool:
    return not (need.labels or need.amounts) or lacks(worker, need) == ((), ())
