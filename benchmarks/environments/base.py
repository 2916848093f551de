"""What a measured system has to offer: it is started, given calls in one of three ways, and stopped.

Rule 1: an environment runs in the Python of its own virtual environment, where nothing of ours is installed. So this
file, and all in this folder but `deskgrid`, import the standard library and the one system they are about.
Rule 2: it measures nothing: workloads do, in the same process, around these methods.
Rule 3: each system is used as its own documentation says to be fast with tiny tasks; ``NOTE`` says how.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

Function = Callable[[Any], Any]


class Missing(Exception):
    """The system, or a program that it needs, is not installed."""


class Environment(ABC):
    """A system with one-slot workers on this machine. Functions are those of `benchmarks.tasks`.

    What a system cannot do at all gives None instead of results.
    """

    LABEL: ClassVar[str]
    NOTE: ClassVar[str]
    # Packages whose versions belong to the result.
    PACKAGES: ClassVar[Sequence[str]] = ()
    # Whether what a function returns comes back.
    RETURNS: ClassVar[bool] = True

    @abstractmethod
    def start(self, workers: int) -> None:
        """Bring everything up; it need not be ready for work. Raises `Missing`."""

    @abstractmethod
    def one(self, function: Function, item: Any) -> Any:
        """One call: submitted, done, its result here."""

    def submit_each(self, function: Function, items: Sequence[Any]) -> list[Any] | None:
        """A call for each item, submitted one by one, then all gathered in order."""
        return None

    def map_all(self, function: Function, items: Sequence[Any]) -> list[Any] | None:
        """The same by the system's own form for many calls at once."""
        return None

    @abstractmethod
    def stop(self) -> None:
        """End everything; also after a start that failed half way."""
