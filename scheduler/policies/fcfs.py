"""FCFS: first come, first served, the paper's baseline (Section 3.1). The next task goes to any slot with room."""

import random
from collections.abc import Iterator
from typing import ClassVar

from deskgrid.scheduler.policies.base import Place, Postpone, Requirement, View
from deskgrid.scheduler.queues.waiting import Entry

CHOICES = ("random", "in-turn", "first")


class FCFS:
    """It knows neither runtimes nor uptimes; lost tasks go to the front.

    ``queue_length``: tasks held for a slot beside the running one. ``queue_s``: a queue may hold more than that up to
    so many seconds of work. ``choice``: which of the slots with room: ``random``, drawn by ``seed``; ``in-turn``, the
    one after the last, by the names of the PCs; ``first`` of these, which can send a long task to the same short window
    for ever.
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
        self._last = ("", 0)  # the PC and slot that had the last task

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        while (rooms := view.slots_with_room()) and (entry := self._next(view)) is not None:
            first, priority = entry
            yield Place(first, self._choose(view, rooms), priority, self.requirement)

    def _choose(self, view: View, rooms: int) -> int:
        if self.choice == "random":
            return view.slot_with_room(self._random.randrange(rooms))
        slots = {view.open_slot(slot)[:2]: slot for slot in map(view.slot_with_room, range(rooms))}
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
