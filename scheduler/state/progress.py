"""How far checkpointable tasks are: what their newest checkpoints say, and pieces that brought nothing.

A checkpointable task may end an attempt with progress: it is neither done nor failed, and waits again with less left.
What one attempt does of such a task is a piece.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from deskgrid.scheduler.model import agree

# After this many pieces in a row without progress a task has failed, because the next piece would bring nothing either.
IDLE_LIMIT = 3
# No more is believed to be left of a task: a tiny fraction can mean anything, and a longer time could not be sent to a
# worker. Seconds.
LEFT_MOST_S = 1e10


@dataclass(slots=True)
class TaskProgress:
    """How far one task is. Fractions are from 0 to 1, or None if the task does not say how far it is.

    ``whole_s``: the prediction for the whole task. ``fraction``, ``left_s``: what was done, and the predicted seconds
    that were left, at its newest checkpoint. ``begun_at``, ``begun_s``: the same when its current piece began.
    ``saved``: whether this piece has progressed. ``idle``: how many pieces in a row, until now, have not.
    """

    whole_s: float
    fraction: float | None
    left_s: float
    begun_at: float | None
    begun_s: float
    saved: bool = False
    idle: int = 0

    def save(self, fraction: float | None, elapsed: float) -> None:
        """A checkpoint of the current piece was kept, ``elapsed`` seconds after the piece began."""
        gained = (fraction or 0.0) - (self.begun_at or 0.0)
        if fraction is not None and gained <= 0.0:
            return
        self.saved, self.fraction = True, fraction
        if fraction is not None:
            self.left_s = min(elapsed * (1.0 - fraction) / gained, LEFT_MOST_S)
        else:
            # Where the prediction was too short, about as much may be left as this piece has done.
            self.left_s = self.begun_s - elapsed if elapsed < self.begun_s else elapsed

    def end_piece(self, counts: bool) -> None:
        """The current piece has ended. ``counts``: it had its time, so it should have brought some progress."""
        self.idle = 0 if self.saved else self.idle + counts
        self.begun_at, self.begun_s, self.saved = self.fraction, self.left_s, False


class ProgressTable:
    """``of``: the progress of each task that is checkpointable and has begun a piece that ended or saved."""

    def __init__(self) -> None:
        self.of: dict[int, TaskProgress] = {}

    def __len__(self) -> int:
        return len(self.of)

    def __iter__(self) -> Iterator[int]:
        return iter(self.of)

    def find(self, task: int) -> TaskProgress | None:
        """The progress of ``task``, if any is known."""
        return self.of.get(task)

    def begun(self, task: int, whole_s: float) -> TaskProgress:
        """The progress of ``task``; a new one, of which nothing is done, if none is known."""
        return self.of.setdefault(task, TaskProgress(whole_s, None, whole_s, None, whole_s))

    def restore(self, task: int, whole_s: float, fraction: float | None, left_s: float) -> None:
        """``task`` waits with this checkpoint."""
        before = self.of.get(task)
        idle = 0 if before is None else before.idle
        self.of[task] = TaskProgress(whole_s, fraction, left_s, fraction, left_s, idle=idle)

    def left_of(self, task: int, whole_s: float) -> float:
        """What is left of ``task`` if all of it takes ``whole_s``."""
        if (progress := self.of.get(task)) is None:
            return whole_s
        progress.whole_s = whole_s
        progress.left_s = progress.begun_s = whole_s * (1.0 - (progress.fraction or 0.0))
        return progress.left_s

    def drop(self, task: int) -> None:
        """``task`` has ended."""
        self.of.pop(task, None)

    def check(self) -> None:
        """Raise `InvariantBroken` if the stored state contradicts itself."""
        for task, progress in self.of.items():
            agree(f"pieces of task {task} without progress", progress.idle < IDLE_LIMIT, True)
            agree(f"work left of task {task}", progress.left_s >= 0.0, True)
