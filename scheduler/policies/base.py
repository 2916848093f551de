"""The interface of a policy: it reads a view of the grid and yields placements, one at a time.

Each placement is carried out before the policy is resumed, so its view is always up to date. A policy never changes
anything itself. A new policy is one file and one row in the table of `deskgrid.scheduler.policies`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.model import UpcomingWindows
from deskgrid.scheduler.policies.planning.turn import Turn
from deskgrid.scheduler.prediction.prediction_error import PredictionError
from deskgrid.scheduler.prediction.ratios import Shown
from deskgrid.scheduler.prediction.spread import RatioSpread
from deskgrid.scheduler.queues.waiting import Entry, ReadableQueue, RegularQueue


class Place(NamedTuple):
    """Bind the waiting task of ``entry`` to the slot numbered ``slot``.

    ``priority``: the task waits in the priority queue; None: in either queue. ``requirement``: tests the fit again if
    the task is sent now. ``many``: how many tasks to place, this one and those alike behind it (``entry.alike`` at
    most), as far as they fit.
    """

    entry: Entry
    slot: int
    priority: bool | None
    requirement: Requirement
    many: int = 1


@dataclass(frozen=True, slots=True)
class Postpone:
    """Move all regular tasks before ``entry`` (None: all of them), which fit nowhere, to the priority queue."""

    entry: Entry | None


class OpenSlot(NamedTuple):
    """One slot of a worker that is up: when its tasks should be done, and when its window closes.

    ``speed``: of its worker; a task takes its runtime divided by that.
    """

    worker: str
    slot: int
    free: float
    closes: float
    number: int = -1
    speed: float = 1.0


class View(Protocol):
    """What a policy may read. Slots are numbers, times seconds; only slots with room are seen by their numbers.

    The queues are those of the people whose turn it is, and of bags that may run. In one pass a policy may be asked
    several times, for the tasks of other people.
    """

    @property
    def now(self) -> float: ...

    @property
    def changes(self) -> int:
        """A number that grows with each change that no plan could foresee: of workers, windows, tasks, predictions."""

    @property
    def turn(self) -> Turn | None:
        """Whose tasks a plan may choose; None if tasks of a single person wait."""

    @property
    def prediction_error(self) -> PredictionError:
        """How well runtimes have been predicted so far."""

    def spread(self, task: int) -> RatioSpread:
        """What the predictions of this task's bag are worth, if each task had a prediction of its own."""

    def certain(self, task: int) -> bool:
        """Whether predictions of this task's bag can be taken at their word, but for a common factor."""

    def runtimes(self, task: int) -> list[float]:
        """How long a task may take, by all that is known, in seconds: ascending values of equal weight."""

    def longest(self, task: int) -> float:
        """A bound that `runtimes` do not exceed, found without making them."""

    def runtime(self, task: int) -> float:
        """The predicted runtime of a task."""

    def tried(self, task: int) -> dict[int, Shown]:
        """The tasks of this task's bag that were killed and have not ended since, the latest last."""

    def expected_free(self, slot: int) -> float:
        """When a slot is free, as its running task is expected to take."""

    @property
    def priority(self) -> ReadableQueue: ...

    @property
    def regular(self) -> RegularQueue: ...

    def tightest(self, runtime: float, requirement: Requirement) -> int | None:
        """The slot with the smallest tl strictly greater than what ``runtime`` needs."""

    def tightest_empty(self, runtime: float, requirement: Requirement) -> tuple[int, float] | None:
        """`tightest` among slots with an empty queue, idle ones first, and the limit on runtimes that fit there."""

    def longest_fit(self, requirement: Requirement) -> float:
        """The limit on runtimes that fit on some slot, or minus infinity when no slot has room."""

    def slots_with_room(self) -> int:
        """How many slots have room."""

    def slot_with_room(self, place: int) -> int:
        """The slot at ``place`` of ``slots_with_room()``, whatever its tl."""

    def waiting(self, limit: int) -> list[float] | None:
        """The runtimes of all waiting tasks, ascending; None when there are more than ``limit``."""

    def idle_s(self, slot: int) -> float | None:
        """The seconds that a slot has left, counted as those of a PC of speed 1; None if it has work."""

    def kept(self, slot: int) -> bool:
        """Whether a slot closes early because it is kept for a gang."""

    def open_slot(self, slot: int) -> OpenSlot:
        """The slot of that number."""

    def open_slots(self) -> Iterator[OpenSlot]:
        """Every slot, with room or without: for plans, not for each pass."""

    def upcoming(self) -> Iterator[UpcomingWindows]:
        """Every worker's windows to come: for plans, not for each pass."""


class Policy(Protocol):
    """Options are keyword arguments of the constructor; ``name`` is the policy's row in the table."""

    name: ClassVar[str]
    # The order of the priority queue: a key of `deskgrid.scheduler.queues.categories.ORDERS`.
    order: str
    # How many tasks a slot's queue holds beside the running one. It may hold more, up to ``queue_s`` seconds of work.
    queue_length: int
    queue_s: float
    # Whether remaining time matters. If so, a task is placed where it fits, and fit is tested again when it is sent.
    timed: bool
    # What a task needs by default; a placement may require something else. Queued tasks are tested by the default.
    requirement: Requirement

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        """Placements for this pass. Asked only when a task waits and a slot has room."""


@runtime_checkable
class HasFallback(Protocol):
    """Optional: a weaker requirement for slots that would otherwise stay idle."""

    @property
    def least(self) -> Requirement:
        """What a task needs there."""


def least_required(policy: Policy) -> Requirement:
    """What a slot must have left for a task, if it finds no better one."""
    return policy.least if isinstance(policy, HasFallback) else policy.requirement


class PlannedWork(NamedTuple):
    """Work that a policy intends for a slot of a worker. ``start``: by the driver's clock."""

    worker: str
    start: float
    seconds: float


@runtime_checkable
class ReportsPlan(Protocol):
    """Optional: shows its plan for the windows to come, for people who watch."""

    def planned(self) -> Iterator[PlannedWork]:
        """What is intended now; it may be something else at the next look."""
