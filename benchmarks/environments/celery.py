"""Celery with Redis as its broker and its store of results, which keeps nothing on the disk."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import celery

from benchmarks import tasks
from benchmarks.environments.base import Environment, Function, Missing
from benchmarks.environments.processes import end, free_port, start
from benchmarks.proc import children, command_line

# Where Redis is, for the processes that import this file; and whether workers will be killed.
URL = "DESKGRID_BENCHMARK_REDIS"
FAULTS = "DESKGRID_BENCHMARK_FAULTS"


def call(name: str, item: Any) -> Any:
    """The task: one of our functions, by its name."""
    return getattr(tasks, name)(item)


def _application() -> Any:
    """What the worker's command line and the client share."""
    made = celery.Celery("benchmark", broker=os.environ.get(URL), backend=os.environ.get(URL))
    made.conf.update(task_serializer="pickle", result_serializer="pickle", accept_content=["pickle"])
    if FAULTS in os.environ:
        made.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1)
    return made


app = _application() if URL in os.environ else None
_call = app.task(call, name="call") if app is not None else None


class Celery(Environment):
    """A prefork worker."""

    LABEL = "Celery + Redis"
    NOTE = "prefork; delay; group. Redis in memory only"
    PACKAGES = ("celery", "redis")
    SCHEDULERS = ("redis-server",)

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="deskgrid-celery-", ignore_cleanup_errors=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._task: Any = None

    def start(self, workers: int) -> None:
        """Redis and a worker with so many processes."""
        redis = shutil.which("redis-server")
        if redis is None:
            raise Missing("redis-server is not installed on this machine")
        port = free_port()
        os.environ[URL] = f"redis://127.0.0.1:{port}/0"
        if self.faults:
            os.environ[FAULTS] = "1"
        where = ["--bind", "127.0.0.1", "--port", str(port), "--dir", self._folder.name]
        worker = [sys.executable, "-m", "celery", "-A", "benchmarks.environments.celery", "worker", "-c", str(workers)]
        self._processes += [
            start([redis, *where, "--save", "", "--appendonly", "no", "--loglevel", "warning"]),
            start([*worker, "--loglevel", "ERROR", "--without-gossip", "--without-mingle"], {"C_FORCE_ROOT": "1"}),
        ]
        self._task = _application().task(call, name="call")

    def one(self, function: Function, item: Any) -> Any:
        """Submit and wait."""
        return self._task.delay(function.__name__, item).get()

    def submit(self, function: Function, items: Sequence[Any]) -> Any:
        """A result each."""
        return [self._task.delay(function.__name__, item) for item in items]

    def gather(self, submitted: Any) -> list[Any]:
        """One after the other."""
        return [result.get(propagate=False) for result in submitted]

    def submit_bag(self, function: Function, items: Sequence[Any]) -> Any:
        """A group."""
        return celery.group(self._task.s(function.__name__, item) for item in items).apply_async()

    def gather_bag(self, submitted: Any) -> list[Any]:
        """In order."""
        return list(submitted.get(propagate=False))

    def workers(self) -> list[int]:
        """The processes that the worker has forked."""
        return [pid for pid in children(self._processes[1].pid) if "celery" in command_line(pid)]

    def stop(self) -> None:
        """The worker, then Redis."""
        end(self._processes[:0:-1])
        end(self._processes[:1])
        self._folder.cleanup()
