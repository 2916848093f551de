"""FCFS: first come, first served, the paper's baseline (Section 3.1). The next task goes to any slot with room."""

import random
from collections.abc import Iterator
from typing import ClassVar

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.policies.base import Place, Postpone, View
from deskgrid.scheduler.queues.waiting import Entry

CHOICES = ("random", "in-turn", "first")


class FCFS:
    """It knows neither runtimes nor uptimes; lost tasks go to the front.

    ``queue_length``: tasks held for a slot beside the running one. ``queue_s``: a queue may hold more tasks than that,
    up to this many seconds of work. ``choice``: which slot with room gets a task: ``random``, drawn by ``seed``;
    ``in-turn``, the next one by the names of the PCs; ``first``, the first one by name, which can send a long task to
    the same short window for ever.
    """

    name: ClassVar[str] = "fcfs"
    order = "newest-first"
    timed = False
    requirement = Requirement()

    def __init__(self, queue_length: int = 0, queue_s: float = 1.0, seed: int = 0, choice: str = "random") -> None:
        if choice not in CHOICES:
            raise ValueError(f"choice is one of {', '.join(CHOICES)}, not {choice!r}")
        self.choice = choice
        self.queue_length = queue_length
        self.queue_s = queue_s
        self._random = random.Random(seed)
        self._last = ("", 0)  # the PC and slot that got the last task

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        while (count := view.slots_with_room()) and (found := self._next(view)) is not None:
            entry, priority = found
            yield Place(entry, self._choose(view, count), priority, self.requirement)

    def _choose(self, view: View, count: int) -> int:
        if self.choice == "random":
            return view.slot_with_room(self._random.randrange(count))
        slots = {view.open_slot(slot)[:2]: slot for slot in map(view.slot_with_room, range(count))}
        later = [place for place in slots if place > self._last] if self.choice == "in-turn" else []
        self._last = min(later or slots)
        return slots[self._last]

    def _next(self, view: View) -> tuple[Entry, bool] | None:
        no_limit = float("inf")
        if (entry := view.priority.next_fit(no_limit)) is not None:
            return entry, True
        if (entry := view.regular.next_fit(no_limit)) is not None:
            return entry, False
        return None
