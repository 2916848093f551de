"""Parsl: its high-throughput executor (HTEX), with an interchange, a manager and a process for each slot."""

import contextlib
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

from benchmarks.environments.base import Environment, Function, outcome
from benchmarks.proc import children, command_line, started

# Tasks that a manager fetches ahead; more did not make it faster where that was measured.
PREFETCH = 100
# How often a task is tried again where workers are killed.
RETRIES = 3


class Parsl(Environment):
    """HTEX with prefetching, encrypted as it is by default."""

    LABEL = "Parsl"
    NOTE = f"HTEX, encrypted, prefetch_capacity={PREFETCH}; an app call each. No form for many calls"
    PACKAGES = ("parsl",)
    SCHEDULERS = ("interchange",)

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deskgrid-parsl-", ignore_cleanup_errors=True)
        self._apps: dict[Function, Any] = {}

    def start(self, workers: int) -> None:
        """One block of workers on this machine."""
        executor = HighThroughputExecutor(
            label="htex",
            address="127.0.0.1",
            encrypted=True,
            max_workers_per_node=workers,
            prefetch_capacity=PREFETCH,
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
        parsl.load(
            Config(
                executors=[executor],
                run_dir=self._folder.name,
                retries=RETRIES if self.faults else 0,
                initialize_logging=False,
                strategy="none",
            )
        )

    def _of(self, function: Function) -> Any:
        if function not in self._apps:
            self._apps[function] = parsl.python_app(function)
        return self._apps[function]

    def one(self, function: Function, item: Any) -> Any:
        """Submit and wait."""
        return self._of(function)(item).result()

    def submit(self, function: Function, items: Sequence[Any]) -> list[Future[Any]]:
        """A future each."""
        app = self._of(function)
        return [app(item) for item in items]

    def gather(self, submitted: list[Future[Any]]) -> list[Any]:
        """One after the other."""
        return [outcome(future) for future in submitted]

    def workers(self) -> list[int]:
        """The processes that the manager has spawned; the first is a helper of its own."""
        pool = next((pid for pid in started() if "bin/process_worker_pool" in command_line(pid).partition(" --")[0]), 0)
        return [pid for pid in children(pool) if "spawn_main" in command_line(pid)][1:]

    def stop(self) -> None:
        """Everything that was loaded."""
        with contextlib.suppress(parsl.errors.NoDataFlowKernelError):  # it may never have started
            parsl.dfk().cleanup()
        parsl.clear()
        self._folder.cleanup()
