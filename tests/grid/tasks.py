"""Tasks of virtual grids: their payloads say what they do, and their answers name the attempt."""

from typing import NamedTuple

import msgpack

from deskgrid.wire import Outcome
from deskgrid.worker.run.child import error_payload

# What everybody runs.
PYTHON = "3.11"
# What a task's process takes to start. Measured ones are shorter.
SPAWN_S = 0.15


class Task(NamedTuple):
    """One item of a bag as its payload says it. ``fate``: ok, raise, or crash (the first ``times`` executions)."""

    bag: str
    item: int
    seconds: float
    fate: str = "ok"
    times: int = 0

    def pack(self) -> bytes:
        """The payload."""
        packed: bytes = msgpack.packb(list(self))
        return packed


def task_of(payload: bytes) -> Task:
    """The task that a payload stands for."""
    return Task(*msgpack.unpackb(payload))


def answer_of(task: Task, number: int, outcome: Outcome) -> bytes:
    """What attempt ``number`` of ``task`` answers when it ends by ``outcome``."""
    if outcome == Outcome.DONE:
        packed: bytes = msgpack.packb([task.bag, task.item, number])
        return packed
    return error_payload(outcome.name, f"{task.bag}/{task.item}/{number}", "")
