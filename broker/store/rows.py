"""The rows of the journal, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from deskgrid.wire import Payload, TaskOptions

# How a window closed: as planned; the worker said so before that; it fell silent; the broker was not there to see it.
How = Literal["departure", "stop", "loss", "broker"]


class ResultRow(NamedTuple):
    """One ended task, in the order of the table's columns (``seq`` is given by the table)."""

    task: int
    bag: int
    item: int
    outcome: int
    elapsed: float
    worker: str
    number: int
    payload: Payload
    stdout: bytes
    stderr: bytes
    ended: float | None  # POSIX seconds; None when it was recorded in format 1


@dataclass(frozen=True, slots=True)
class BagRow:
    """What is stored of a bag. ``created``: POSIX seconds. ``predicted``: somebody said how long its tasks take.

    ``session``: of the client that submitted it; empty when that was not recorded.
    """

    number: int
    id: str
    name: str
    kind: str
    owner: str
    template: str
    options: TaskOptions
    predicted: bool
    closed: bool
    created: float
    session: str = ""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Consecutive tasks ``first`` .. of bag ``bag``, whose items begin at ``start``; one runtime, or one for each.

    ``size``: bytes of their arguments.
    """

    first: int
    bag: int
    start: int
    count: int
    runtimes: Sequence[float]
    size: int = 0


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One window of a worker, as it opened. POSIX seconds; ``planned``: the closing it announced, None for none."""

    number: int
    worker: str
    session: str
    site: str
    slots: int
    opened: float
    planned: float | None


class WindowEnd(NamedTuple):
    """How a window ended. ``kills``: attempts that ran then, and ``wasted_s`` the seconds they had run."""

    closed: float
    how: How
    kills: int
    wasted_s: float
    number: int


class FileRow(NamedTuple):
    """A file of a large value. ``batch``: the first task of the batch that it is an argument of; None: a result.

    ``bag`` is None for a template.
    """

    name: str
    bag: int | None
    batch: int | None
    size: int
    checksum: int
