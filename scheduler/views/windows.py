"""How long the windows are that are open or announced, in seconds of speed 1: whether a task can ever run."""

from collections.abc import Iterator

from deskgrid.scheduler.grid import GridState


def longest_window(grid: GridState, now: float) -> float:
    """The longest window; 0.0 when there is none."""
    return max(_lengths(grid, now), default=0.0)


def has_longer_window(grid: GridState, than: float, now: float) -> bool:
    """Whether `longest_window` is more than ``than`` seconds: usually one of the first windows is."""
    return any(length > than for length in _lengths(grid, now))


def _lengths(grid: GridState, now: float) -> Iterator[float]:
    workers = grid.slots.workers.values()
    yield from (worker.uptime(now) * worker.speed for worker in workers)
    for known in (workers, grid.away.values()):
        yield from (each.windows.longest_s * each.speed for each in known)
