"""`concurrent.futures`: a pool of processes on this machine, which the standard library has; no broker, no network."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.environments.base import Environment, Function

# Calls in one message of `map`; the documentation advises "a large value" for long iterables.
CHUNK = 100


class Futures(Environment):
    """A `ProcessPoolExecutor`."""

    LABEL = "ProcessPoolExecutor"
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

    def submit_each(self, function: Function, items: Sequence[Any]) -> list[Any]:
        """A future each."""
        return [future.result() for future in [self.pool.submit(function, item) for item in items]]

    def map_all(self, function: Function, items: Sequence[Any]) -> list[Any]:
        """`map` in chunks."""
        return list(self.pool.map(function, items, chunksize=CHUNK))

    def stop(self) -> None:
        """End the processes; calls that wait are dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
