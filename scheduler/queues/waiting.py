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
    alike: int = 1  # this many, from this one on, come next with one runtime and consecutive numbers; perhaps more


# The runtime that a task takes.
NewRuntime = Callable[[int], float]


class ReadableQueue(Protocol):
    """What policies read: a queue, or several as one."""

    def __len__(self) -> int: ...

    def next_fit(self, limit: float, after: Entry | None = None) -> Entry | None:
        """The first task after ``after`` (None: from the front) with ``runtime < limit``."""

    def shortest(self) -> float:
        """The smallest runtime here, or infinity. A lower bound: it may be that of a discarded task not yet met."""


class RegularQueue(ReadableQueue, Protocol):
    """The regular queue, as policies read it."""

    def first_before(self, entry: Entry) -> bool:
        """Whether anything is in front of ``entry``, even if it is only a ghost."""


class WaitingQueue(ReadableQueue, Protocol):
    """A queue that the core changes, too."""

    def tasks(self) -> Iterator[tuple[int, float]]:
        """Every (task, runtime), in the order they were added."""

    def rows(self) -> TaskRanges:
        """All tasks, in the order they were added."""

    def ascending(self, limit: int) -> list[float]:
        """The ``limit`` shortest runtimes, ascending, or those of all tasks if fewer wait."""

    def add(self, rows: TaskRanges) -> None: ...

    def predict(self, spans: Spans, old: Collection[float], new: NewRuntime) -> None:
        """Tasks in ``spans`` that wait here with a runtime in ``old`` take a new one, and keep their turn.

        ``new`` must return the same for all tasks of a span: it is not called for each of them. If there are very many,
        `tidy` goes on with it.
        """

    @property
    def bare(self) -> bool:
        """Whether nothing is here, not even an entry of a discarded task."""

    @property
    def predicting(self) -> bool:
        """Whether some tasks have still to take their new runtimes."""

    def take(self, entry: Entry, count: int = 1) -> None:
        """Take out the task of ``entry``, or ``count`` tasks alike, from it on."""

    def discard(self, task: int, count: int = 1) -> None:
        """Forget tasks that are known to be here; their entries are dropped when they are next met."""

    def tidy(self) -> bool:
        """Do a part of what is left to do: new runtimes, and dropping entries of discarded tasks, if that pays.

        Not during a pass: it makes each `Entry` invalid. Returns False while so much is left that the queue should not
        be asked for tasks before the next call.
        """

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
