"""Dask: a scheduler, a worker process for each slot with its nanny, and the client, each in a process of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks.environments.base import Environment, Function
from benchmarks.environments.processes import end, start
from benchmarks.proc import children

# Until all are there. Seconds.
START_S = 60


class Dask(Environment):
    """Dask.distributed, with work sent to the workers ahead of need, as its documentation advises for short tasks."""

    LABEL = "Dask"
    NOTE = "worker-saturation=inf; client.submit; client.map"
    PACKAGES = ("dask", "distributed")
    SCHEDULERS = ("dask_scheduler",)

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deskgrid-dask-", ignore_cleanup_errors=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.client: Any = None

    def start(self, workers: int) -> None:
        """A scheduler on any port, and workers of one thread each."""
        file = Path(self._folder.name, "scheduler.json")
        more = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "inf", "DASK_TEMPORARY_DIRECTORY": self._folder.name}
        where = ["--scheduler-file", str(file)]
        cli = [sys.executable, "-m"]
        scheduler = [*cli, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        worker = [*cli, "distributed.cli.dask_worker", "--host", "127.0.0.1", "--no-dashboard", "--nthreads", "1"]
        self._processes += [
            start([*scheduler, *where], more),
            start([*worker, *where, "--nworkers", str(workers)], more),
        ]
        self.client = Client(scheduler_file=str(file), timeout=START_S)
        self.client.wait_for_workers(workers, timeout=START_S)

    def one(self, function: Function, item: Any) -> Any:
        """Submit and wait."""
        return self.client.submit(function, item, pure=False).result()

    def submit(self, function: Function, items: Sequence[Any]) -> Any:
        """A future each."""
        return [self.client.submit(function, item, pure=False) for item in items]

    def gather(self, submitted: Any) -> list[Any]:
        """All at once; those that failed, after that."""
        try:
            return list(self.client.gather(submitted))
        except Exception:
            return [future.exception() or future.result() for future in submitted]

    def submit_bag(self, function: Function, items: Sequence[Any]) -> Any:
        """`Client.map`."""
        return self.client.map(function, items, pure=False)

    def workers(self) -> list[int]:
        """The processes that the nannies keep."""
        return [pid for pid in children(self._processes[1].pid) if not children(pid)]

    def stop(self) -> None:
        """The client, then the others."""
        if self.client is not None:
            self.client.close()
        end(self._processes)
        self._folder.cleanup()
