"""`concurrent.futures`: a pool of processes on this machine, which the standard library has; no broker, no network."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children
from typing import Any

from benchmarks.environments.base import Environment, Function, outcome


class Futures(Environment):
    """A `ProcessPoolExecutor`."""

    LABEL = "ProcessPoolExecutor"
    CHUNK = 100  # the documentation advises "a large value" for long iterables
    NOTE = f"submit; map with chunksize={CHUNK}. One machine only, nothing is kept"

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def start(self, workers: int) -> None:
        """A pool; its processes start with the first calls."""
        self._pool = ProcessPoolExecutor(workers)

    @property
    def pool(self) -> ProcessPoolExecutor:
        """The one that was started."""
        assert self._pool is not None
        return self._pool

    def one(self, function: Function, item: Any) -> Any:
        """Submit and wait."""
        return self.pool.submit(function, item).result()

    def submit(self, function: Function, items: Sequence[Any]) -> list[Future[Any]]:
        """A future each."""
        return [self.pool.submit(function, item) for item in items]

    def gather(self, submitted: list[Future[Any]]) -> list[Any]:
        """One after the other."""
        return [outcome(future) for future in submitted]

    def submit_bag(self, function: Function, items: Sequence[Any]) -> Iterator[Any]:
        """`map` in chunks."""
        return self.pool.map(function, items, chunksize=self.CHUNK)

    def gather_bag(self, submitted: Iterator[Any]) -> list[Any]:
        """The rest of it."""
        return list(submitted)

    def workers(self) -> list[int]:
        """The processes of the pool, however they are started: since Python 3.14, a server forks them."""
        return [process.pid for process in active_children() if process.pid is not None]

    def stop(self) -> None:
        """End the processes; calls that wait are dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
