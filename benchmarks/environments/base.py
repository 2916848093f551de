"""What a measured system has to offer: it is started, given calls in one of three ways, and stopped.

Rule 1: an environment runs in the Python of its own virtual environment, where nothing of ours is installed. So all
files in this folder, but `deskgrid`, import the standard library and the one system they are about.
Rule 2: it measures nothing: workloads do, in the same process, around these methods.
Rule 3: each system is used as its own documentation says to be fast with tiny tasks; ``NOTE`` says how.
"""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from benchmarks.proc import command_line, started

Function = Callable[[Any], Any]


class Missing(Exception):
    """The system, or a program that it needs, is not installed."""


class Environment(ABC):
    """A system with one-slot workers on this machine. Functions are those of `benchmarks.tasks`.

    Calls are submitted in two forms, and what that returns is given to the `gather` of the form, which returns the
    results in order, with an exception in the place of each that failed. None stands for what a system does not have.
    """

    LABEL: ClassVar[str]
    NOTE: ClassVar[str]
    # Packages whose versions belong to the result.
    PACKAGES: ClassVar[Sequence[str]] = ()
    # Whether what a function returns comes back.
    RETURNS: ClassVar[bool] = True
    # Calls that the form for many puts into one task.
    CHUNK: ClassVar[int] = 1
    # What the command lines of the processes that hold waiting tasks contain.
    SCHEDULERS: ClassVar[Sequence[str]] = ()
    # Whether several threads may use its client.
    THREADS: ClassVar[bool] = True

    # Set before the start: whether to use what the system has against the death of workers, at the cost of speed.
    faults = False

    @abstractmethod
    def start(self, workers: int) -> None:
        """Bring everything up; it need not be ready for work. Raises `Missing`."""

    @abstractmethod
    def one(self, function: Function, item: Any) -> Any:
        """One call: submitted, done, its result here."""

    @abstractmethod
    def submit(self, function: Function, items: Sequence[Any]) -> Any:
        """A call for each item, submitted one by one."""

    @abstractmethod
    def gather(self, submitted: Any) -> list[Any]:
        """Their results."""

    def submit_bag(self, function: Function, items: Sequence[Any]) -> Any | None:
        """The same by the system's own form for many calls at once."""
        return None

    def gather_bag(self, submitted: Any) -> list[Any]:
        """Their results, as of calls submitted one by one where a system does not say otherwise."""
        return self.gather(submitted)

    def schedulers(self) -> list[int]:
        """The processes, beside this one, that hold waiting tasks."""
        return [pid for pid in started() if any(part in command_line(pid) for part in self.SCHEDULERS)]

    def workers(self) -> list[int]:
        """The processes that run tasks, and may be killed."""
        return []

    def kill_worker(self) -> None:
        """End one of `workers` without a chance to do anything more; what the system does then is its own affair."""
        os.kill(self.workers()[0], signal.SIGKILL)

    @abstractmethod
    def stop(self) -> None:
        """End everything; also after a start that failed half way."""


def outcome(future: "Future[Any]") -> Any:
    """What a future of the standard kind came to: the result, or the exception."""
    return future.exception() or future.result()
