"""What is raised while we wait, or when we refuse: its traceback ends at the line of the program, and not in our code.

After Ctrl-C, a sentence says what becomes of the work.
"""

from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from types import TracebackType
from typing import ParamSpec, TypeVar

from deskgrid.errors import DeskgridError

Params = ParamSpec("Params")
Result = TypeVar("Result")


class Interruptible:
    """The body of a public method. ``note``: what whoever presses Ctrl-C should know.

    A class: the frames of a generator would be in the traceback again.
    """

    __slots__ = ("_note",)

    def __init__(self, note: str = "") -> None:
        self._note = note

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            if self._note:
                error.add_note(self._note)
        elif not isinstance(error, DeskgridError) or not _is_ours(trace):
            return
        # Our frames: the callers' are added while the exception passes them.
        error.__traceback__ = None


def _is_ours(trace: TracebackType | None) -> bool:
    """Whether all frames are ours: a generator of items, for example, is the program's."""
    return all(frame.f_globals.get("__name__", "").startswith("deskgrid.") for frame, _ in walk_tb(trace))


def interruptible(method: Callable[Params, Result]) -> Callable[Params, Result]:
    """Make the whole of a public method `Interruptible`."""

    @wraps(method)
    def run(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        with Interruptible():
            return method(*args, **kwargs)

    return run
