"""One attempt of a parallel task, as the broker drives it: where its ranks are, and how far it has come."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from deskgrid import wire
from deskgrid.broker.gangs.meetings import Meetings
from deskgrid.broker.gangs.pmi import PmiServer
from deskgrid.broker.model.bags import OpenBag
from deskgrid.scheduler.model import Attempt


class GangStage(IntEnum):
    """How far an attempt has come."""

    PREPARING = 0  # its workers were asked to get its ranks ready
    RUNNING = 1
    GATHERING = 2  # the broker was started again, and waits for the workers that have its ranks
    ENDING = 3  # a rank has failed, and the others are being stopped


class RankAt(NamedTuple):
    """Where a rank is. ``session``: of the worker, which alone may report on it."""

    worker: str
    session: str
    slots: tuple[int, ...]


class RankFailure(NamedTuple):
    """How a rank failed. ``result``: with the account of that, as its worker or the broker gave it."""

    rank: int
    elapsed: float
    result: wire.RankResult


@dataclass(slots=True, eq=False)
class GangAttempt:
    """``began``: by the broker's clock. ``until``: when the broker does not wait any longer in this stage.

    ``ready``: workers that are ready, have come back, or have stopped what they had, depending on the stage.
    ``ended``: the seconds that each rank took that has succeeded. ``size``: bytes of their results. ``failed``: ranks.
    ``printed``: ranks that have failed or were stopped, and have said what they printed. A rank that MPI's process
    manager has failed says so later.
    ``over``: workers all of whose ranks have succeeded while others went on: nothing is awaited of them any more.
    ``first``: the failure that came first, of those that are known.
    """

    attempt: Attempt
    bag: OpenBag
    item: int
    ranks: Sequence[RankAt]
    runtime: float
    stage: GangStage
    meetings: Meetings
    began: float = 0.0
    until: float = 0.0
    port: int = 0
    ready: set[str] = field(default_factory=set)
    ended: dict[int, float] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    printed: set[int] = field(default_factory=set)
    size: int = 0
    first: RankFailure | None = None
    pmi: PmiServer | None = None

    @property
    def workers(self) -> list[str]:
        """Its workers, each once, in the order of the ranks."""
        return list(dict.fromkeys([rank.worker for rank in self.ranks]))

    @property
    def awaited(self) -> list[str]:
        """The workers that are still needed."""
        return [name for name in self.workers if name not in self.over]

    def at(self, worker: str) -> list[int]:
        """Its ranks at a worker."""
        return [number for number, rank in enumerate(self.ranks) if rank.worker == worker]

    @property
    def ref(self) -> wire.Ref:
        """Its attempt, as workers know it."""
        return wire.Ref(*self.attempt)

    def place(self, rank: int) -> str:
        """``rank 3 of 8 on lab2-04``."""
        return f"rank {rank} of {len(self.ranks)} on {self.ranks[rank].worker}"


def places(workers: Iterable[str]) -> list[str]:
    """What each rank is called where all are of one gang, by the worker of each."""
    return [f"rank {number} on {worker}" for number, worker in enumerate(workers)]
