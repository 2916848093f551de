"""The rows of the journal, as values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from deskgrid.wire import Kind, Payload, TaskOptions

# How a window closed: as planned; the worker left early; the worker fell silent; the broker stopped first.
How = Literal["departure", "stop", "loss", "broker"]
# A batch that was joined to others has at most as many tasks as one message.
JOINED_TASKS = 10_000
# An order on a bag: cancel all tasks that have not ended, cancel only those that are at no worker, or forget the bag. A
# pause stays until somebody resumes the bag.
Order = Literal["cancel", "cancel waiting", "forget", "pause"]
# What the order to hold a bag begins with; the reason follows.
HOLD = "hold "


class ResultRow(NamedTuple):
    """One ended task."""

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
    ended: float | None  # POSIX seconds; None for rows from format 1


@dataclass(frozen=True, slots=True)
class BagRow:
    """A bag. ``created``: POSIX seconds. ``predicted``: its submitter said how long its tasks take.

    ``session``: of the client that submitted it; empty for rows from format 1.
    """

    number: int
    id: str
    name: str
    kind: Kind
    owner: str
    template: str
    options: TaskOptions
    predicted: bool
    closed: bool
    created: float
    session: str = ""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Consecutive tasks from ``first`` on, which are the items of bag ``bag`` from ``start`` on.

    ``runtimes``: one for all, or one for each. ``size``: bytes of their arguments. ``rows``: for small batches that are
    read as one, the first task of each; empty otherwise.
    """

    first: int
    bag: int
    start: int
    count: int
    runtimes: Sequence[float]
    size: int = 0
    rows: Sequence[int] = ()

    @property
    def own(self) -> bool:
        """Whether each task has a runtime of its own."""
        return len(self.runtimes) == self.count

    def continues(self, first: int, count: int) -> bool:
        """Whether it may join an earlier batch of its bag, of ``count`` tasks from ``first`` on, that is like it."""
        return self.own and self.first == first + count and count + self.count <= JOINED_TASKS


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One window of a worker, as it opened. POSIX seconds; ``planned``: when it was to close, None for open-ended."""

    number: int
    worker: str
    session: str
    site: str
    slots: int
    opened: float
    planned: float | None


class WindowEnd(NamedTuple):
    """How a window ended. ``kills``: attempts that were running; ``wasted_s``: the seconds they had run."""

    closed: float
    how: How
    kills: int
    wasted_s: float
    number: int


class UsageRow(NamedTuple):
    """What an owner had used, in slot-seconds that counted at ``at``, POSIX seconds."""

    owner: str
    used_s: float
    at: float


class LearnedRow(NamedTuple):
    """Runs of a function or a program, in seconds, or how these compared with predictions; windows of a PC, in seconds,
    or logarithms of its speeds; factors of quantiles, or scores; packed doubles. ``kind``: says which
    (`deskgrid.broker.model.learning`).
    """

    kind: str
    name: str
    values: bytes


class DrainRow(NamedTuple):
    """A PC that gets no work, by whose order, and until when: POSIX seconds; None: until somebody undoes it."""

    pc: str
    by: str
    until: float | None


class ToldEtaRow(NamedTuple):
    """An estimate of when a bag ends, as it was told at ``made``. POSIX seconds; ``high`` may be infinite.

    ``ended``: the fraction of its tasks that had ended.
    """

    bag: int
    made: float
    ended: float
    median: float
    low: float
    high: float


class FileRow(NamedTuple):
    """The file of a large value. ``bag``: None for a template, or a part of a stored file.

    ``batch``: for an argument, the first task of its batch; None for a result. ``checksum``: None for a part, which
    has a digest.
    """

    name: str
    bag: int | None
    batch: int | None
    size: int
    checksum: int | None
