"""Commands, in the imperative: what the driver is to carry out. They carry batches, as events do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deskgrid.scheduler.model import Attempt


class Assignment(NamedTuple):
    """One attempt to make on ``slot`` of a worker, after what that slot already holds."""

    attempt: Attempt
    slot: int
    runtime: float


@dataclass(slots=True)
class Assign:
    """Hand these to a worker, in this order. Filled while a pass goes on; the driver gets it complete."""

    worker: str
    work: list[Assignment] = field(default_factory=list)


class RankPlace(NamedTuple):
    """Where one rank of a parallel task is to run: a worker, and the slots of it that the rank occupies."""

    worker: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartGang:
    """Begin one attempt of a parallel task: on all ranks, or on none. ``ranks``: by rank. ``runtime``: predicted there.

    The driver prepares all ranks, and answers with `GangBegan` or `GangRefused`. ``considered``: the policy's score of
    each site, as in `deskgrid.scheduler.parallel.base.Start`.
    """

    attempt: Attempt
    ranks: Sequence[RankPlace]
    runtime: float
    considered: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask for these back if they have not started."""

    worker: str
    attempts: Sequence[Attempt]


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill these; their end no longer matters."""

    worker: str
    attempts: Sequence[Attempt]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """These are overdue, and wait again; a late answer of this worker counts as long as no other worker has begun.

    ``stop``: the worker must kill them. Otherwise it must hand back those that have not started, and the others go on.
    """

    worker: str
    attempts: list[Attempt]
    stop: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """These attempts ended their tasks: record the results. Results of other attempts are dropped."""

    attempts: Sequence[Attempt]


@dataclass(frozen=True, slots=True)
class Stuck:
    """These attempts were the last of several pieces in a row without progress: record that their tasks have failed."""

    attempts: Sequence[Attempt]


@dataclass(frozen=True, slots=True)
class Hold:
    """Work in this environment does not start on ``workers``, nor as far as is known elsewhere: hold its bags.

    ``silent``: those workers did not even say so; they did not answer for its tasks.
    """

    environment: str
    workers: Sequence[str]
    silent: bool


Command = Assign | StartGang | Recall | Stop | GiveUp | Settle | Stuck | Hold
