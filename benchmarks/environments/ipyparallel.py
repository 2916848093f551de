"""ipyparallel: a controller and an engine for each slot."""

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import ipyparallel

from benchmarks.environments.base import Environment, Function
from benchmarks.proc import command_line, started

# How often a task is tried again where engines are killed.
RETRIES = 3


class IPyParallel(Environment):
    """A load-balanced view."""

    LABEL = "ipyparallel"
    CHUNK = 100
    NOTE = f"apply_async; map_async with chunksize={CHUNK}"
    PACKAGES = ("ipyparallel",)
    SCHEDULERS = ("ipyparallel.controller",)
    THREADS = False

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deskgrid-ipython-", ignore_cleanup_errors=True)
        os.environ["IPYTHONDIR"] = self._folder.name
        self._cluster: Any = None
        self.view: Any = None

    def start(self, workers: int) -> None:
        """Controller and engines; returns when all are there."""
        self._cluster = ipyparallel.Cluster(n=workers, log_level=40)
        self.view = self._cluster.start_and_connect_sync().load_balanced_view()
        self.view.retries = RETRIES if self.faults else 0

    def one(self, function: Function, item: Any) -> Any:
        """Submit and wait."""
        return self.view.apply_sync(function, item)

    def submit(self, function: Function, items: Sequence[Any]) -> Any:
        """An asynchronous result each."""
        return [self.view.apply_async(function, item) for item in items]

    def gather(self, submitted: Any) -> list[Any]:
        """One after the other."""
        return [result.exception() or result.get() for result in submitted]

    def submit_bag(self, function: Function, items: Sequence[Any]) -> Any:
        """`map_async` in chunks."""
        return self.view.map_async(function, items, chunksize=self.CHUNK)

    def gather_bag(self, submitted: Any) -> list[Any]:
        """In order."""
        return list(submitted.get())

    def workers(self) -> list[int]:
        """The engines."""
        return [pid for pid in started() if command_line(pid).rstrip().endswith("ipyparallel.engine")]

    def stop(self) -> None:
        """The engines and the controller."""
        if self._cluster is not None:
            self._cluster.stop_cluster_sync()
        self._folder.cleanup()
