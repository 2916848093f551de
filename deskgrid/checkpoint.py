"""Checkpoints: a task saves its state, and its next attempt continues from there, on any PC.

::

    from deskgrid import checkpoint

    def search(seed):
        state = checkpoint.load(State(seed))
        for step in range(state.step, STEPS):
            ...
            checkpoint.save(state, progress=step / STEPS)
        return state.best

Submit such a function with ``grid.bag(search, seeds, runtime=36_000, checkpoint=True)``. Outside such a bag, `load`
returns its default and `save` does nothing, so you can run and test the function anywhere.

This file stands alone: the process that runs a task loads it by its path if deskgrid is not installed there.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, overload

__all__ = ["due", "load", "save", "seconds_left"]

StateT = TypeVar("StateT")

_NEVER = float("inf")


class _Piece(Protocol):
    """What the process that runs tasks knows of the present attempt of a checkpointable task."""

    def load(self, default: StateT) -> StateT: ...
    def save(self, state: object, progress: float | None) -> bool: ...
    def is_due(self) -> bool: ...


# Set by the process that runs tasks: the present piece; and, on the clock of `time.monotonic`, when a checkpoint is due
# and when the window closes. The worker changes these times while the task runs.
_piece: _Piece | None = None
_times: Sequence[float] = (_NEVER, _NEVER)
_now = time.monotonic


@overload
def load(default: None = None) -> Any: ...
@overload
def load(default: StateT) -> StateT: ...
def load(default: object = None) -> object:
    """Return the state that the task saved last, or ``default`` if it has saved none."""
    return default if _piece is None else _piece.load(default)


def save(state: object, progress: float | None = None) -> bool:
    """Save ``state`` if a checkpoint is due, and return whether it was saved. Call it often: it costs next to nothing.

    ``state``: anything that can be pickled. ``progress``: how much of the task is done, from 0 to 1. It tells the grid
    how long the rest will take. Without it, the rest is the runtime of the task minus the time that it has run.

    At the end of the PC's window, this function does not return. It ends the attempt with an exception that is not an
    `Exception`, and the task continues elsewhere. Call it from the thread that runs the task.
    """
    if _now() < _times[0]:
        return False
    return _piece is not None and _piece.save(state, progress)


def due() -> bool:
    """Return whether `save` would save now. Call this first if it takes long to collect the state."""
    return _now() >= _times[0] and _piece is not None and _piece.is_due()


def seconds_left() -> float:
    """Return the seconds until the PC's window closes; infinity if nobody knows, and outside a checkpointable task."""
    return max(0.0, _times[1] - _now())
