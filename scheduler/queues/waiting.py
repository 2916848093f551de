"""Waiting tasks, indexed so that a pass touches only those that can be placed.

A queue answers one question: "the next task in your order, after this one, whose runtime is below a limit", in
O(log n). So tasks that are too long for every slot are never looked at one by one.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, Protocol

from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges


class Entry(NamedTuple):
    """One waiting task, and where its queue keeps it; valid as long as a pass lasts."""

    cursor: tuple[float, int]
    task: int
    runtime: float
    alike: int = 1  # so many, this one first, have one runtime, consecutive numbers, and come next; perhaps more


# The runtime that a task takes.
NewRuntime = Callable[[int], float]


class WaitingQueue(Protocol):
    """What policies read, and the core changes."""

    def __len__(self) -> int: ...

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        """The first task after ``after`` (None: from the front) with ``runtime < limit``."""

    def shortest(self) -> float:
        """The smallest runtime here, or infinity. May be that of a discarded task not yet met: a lower bound."""

    def tasks(self) -> Iterator[tuple[int, float]]:
        """Every (task, runtime), in the order they were added."""

    def ascending(self, limit: int) -> list[float]:
        """The shortest runtimes, ascending, ``limit`` of them: those of all tasks, where no more wait."""

    def add(self, rows: TaskRanges) -> None: ...

    def predict(self, spans: Spans, old: Collection[float], new: NewRuntime) -> None:
        """Tasks in ``spans`` that wait here with a runtime of ``old`` take a new one, and keep their turn.

        All of a span take the one that ``new`` says of its first.
        """

    def take(self, entry: Entry, count: int = 1) -> None:
        """Take out the task of ``entry``, or ``count`` of those that are alike."""

    def discard(self, task: int, count: int = 1) -> None:
        """Forget tasks that are known to be here; their entries are dropped when they are next met."""

    def tidy(self) -> None:
        """Drop what is kept of tasks that are gone, when that pays. Not during a pass: entries are not valid then."""

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
