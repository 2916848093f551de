"""Waiting tasks that are checkpointable. They need not fit into a window: a slot is asked for a piece of them.

There is one queue, the longest first, for each shortest piece. Shortest pieces are rounded up to 60 s times a power of
two, so the queues are few, and a submitter who asks for very long pieces only keeps its own tasks waiting.
"""

import math
from collections.abc import Collection, Iterator

from deskgrid.scheduler.queues.longest_first import LongestFirst
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges
from deskgrid.scheduler.queues.waiting import NewRuntime

PIECE_S = 60.0
_LEAST, _MOST = -6, 14


def rounded_piece(seconds: float) -> float:
    """The shortest piece that is asked for when ``seconds`` were wished: from about a second to eleven days."""
    power = math.ceil(math.log2(seconds / PIECE_S)) if seconds > 0.0 else _LEAST
    return PIECE_S * 2.0 ** min(max(power, _LEAST), _MOST)


class ByPiece:
    """The waiting checkpointable tasks, by shortest piece."""

    def __init__(self) -> None:
        self.queues: dict[float, LongestFirst] = {}

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def tasks(self) -> Iterator[tuple[int, float]]:
        """Every (task, seconds left)."""
        for queue in self.queues.values():
            yield from queue.tasks()

    def add(self, piece: float, rows: TaskRanges) -> None:
        """Tasks wait whose shortest piece has ``piece`` seconds, rounded."""
        self.queues.setdefault(piece, LongestFirst()).add(rows)

    def discard(self, piece: float, task: int, count: int = 1) -> None:
        """Forget tasks that are known to be here."""
        self.queues[piece].discard(task, count)

    def predict(self, spans: Spans, old: Collection[float], new: NewRuntime) -> None:
        """As `WaitingQueue.predict`."""
        for queue in self.queues.values():
            queue.predict(spans, old, new)

    @property
    def predicting(self) -> bool:
        """As `WaitingQueue.predicting`."""
        return any(queue.predicting for queue in self.queues.values())

    def tidy(self) -> bool:
        """As `WaitingQueue.tidy`."""
        tidied = [queue.tidy() for queue in self.queues.values()]  # every one of them
        return all(tidied)

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        for queue in self.queues.values():
            queue.check()
