"""Longest first: each free slot gets the longest waiting task that fits. Planning has to beat this."""

from collections.abc import Iterator
from typing import ClassVar

from deskgrid.scheduler.fitting import Requirement
from deskgrid.scheduler.policies.base import Place, Postpone, View
from deskgrid.scheduler.policies.placement import task_for_each_slot


class Longest:
    """No queues, so that every choice is made as late as possible. ``margin``: seconds kept free for starting up."""

    name: ClassVar[str] = "longest"
    order = "longest-first"
    queue_length = 0
    queue_s = 0.0
    timed = True

    def __init__(self, margin: float = 1.0) -> None:
        self.margin = margin
        self.requirement = Requirement(margin)

    def plan(self, view: View) -> Iterator[Place | Postpone]:
        if len(view.regular):
            yield Postpone(None)
        yield from task_for_each_slot(view, self.requirement)
