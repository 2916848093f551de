"""HyperQueue: its server and workers run in the client's process, as threads, for that is what its package starts."""

import tempfile
from collections.abc import Sequence
from typing import Any

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

from benchmarks.environments.base import Environment, Function
from benchmarks.tasks import noop

# A program that does nothing: what HyperQueue is made for are programs.
NOOP = ["/bin/true"]


class HyperQueue(Environment):
    """Each Python function gets an interpreter of its own, and what it returns is not kept."""

    LABEL = "HyperQueue"
    NOTE = "a job of Python functions; as a bag: a job of programs (/bin/true). Waits by asking each second"
    PACKAGES = ("hyperqueue",)
    RETURNS = False
    THREADS = False

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deskgrid-hq-", ignore_cleanup_errors=True)
        self._cluster: Any = None
        self.client: Any = None

    def start(self, workers: int) -> None:
        """A server, and workers of one core each."""
        self._cluster = LocalCluster(self._folder.name)
        for _ in range(workers):
            self._cluster.start_worker(WorkerConfig(cores=1))
        self.client = self._cluster.client()

    def one(self, function: Function, item: Any) -> Any:
        """A job of one task."""
        return self.gather(self.submit(function, [item]))[0]

    def submit(self, function: Function, items: Sequence[Any]) -> tuple[Any, int]:
        """One job; its tasks are added one by one."""
        job = Job(default_workdir=self._folder.name)
        for item in items:
            job.function(function, args=(item,), stdout=None)
        return self.client.submit(job), len(items)

    def gather(self, submitted: tuple[Any, int]) -> list[Any]:
        """That all is done; there are no results."""
        job, count = submitted
        self.client.wait_for_jobs([job])
        return [None] * count

    def submit_bag(self, function: Function, items: Sequence[Any]) -> tuple[Any, int] | None:
        """A job of programs, where nothing is to be done."""
        if function is not noop:
            return None
        job = Job(default_workdir=self._folder.name)
        for _ in items:
            job.program(NOOP, stdout=None, stderr=None)
        return self.client.submit(job), len(items)

    def stop(self) -> None:
        """Server and workers."""
        if self._cluster is not None:
            self._cluster.stop()
        self._folder.cleanup()
