"""What a policy is: it reads a view of the grid and yields placements, one at a time.

Each placement is carried out before the policy is resumed, so the view it goes on reading is true. A policy never
changes anything itself; a new one is one file and one row in the table of `scheduler.policies`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from scheduler.waiting import Entry, OldestFirst, WaitingQueue


@dataclass(frozen=True, slots=True)
class Place:
    """Bind the waiting task of ``entry`` to the slot numbered ``slot``."""

    entry: Entry
    slot: int
    priority: bool


@dataclass(frozen=True, slots=True)
class Postpone:
    """Everything in the regular queue before ``entry`` (None: everything) fits nowhere: to the priority queue."""

    entry: Entry | None


class View(Protocol):
    """What a policy may read. Slots are numbers, times seconds; only slots with room are to be seen."""

    @property
    def priority(self) -> WaitingQueue: ...

    @property
    def regular(self) -> OldestFirst: ...

    def tightest(self, runtime: float) -> int | None:
        """The slot with the smallest tl strictly greater than ``runtime`` and the margin."""

    def tightest_empty(self, runtime: float) -> tuple[int, float] | None:
        """The same among slots with an empty queue, idle ones first; and the limit on runtimes that fit there."""

    def longest_fit(self) -> float:
        """The limit on runtimes that fit on some slot, or minus infinity when no slot has room."""

    def rooms(self) -> int:
        """How many slots have room."""

    def room(self, place: int) -> int:
        """The slot at ``place`` of ``rooms()``, whatever its tl."""


class Policy(Protocol):
    """Options are keyword arguments of the constructor; ``name`` is the policy's row in the table."""

    name: ClassVar[str]
    # The order of the priority queue: a key of `scheduler.waiting.ORDERS`.
    order: str
    # How many tasks a slot's queue holds beside the running one, and the seconds of work up to which it may hold more.
    queue_length: int
    queue_s: float
    # Whether remaining time matters: then fit is tested again at dispatch, with ``margin`` seconds for starting up.
    timed: bool
    margin: float

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        """Placements for this pass. Asked only when a task waits and a slot has room."""
