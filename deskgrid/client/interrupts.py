"""Ctrl-C while we wait: the traceback ends at the line of the program, and a sentence says what becomes of the work."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

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

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            if self._note:
                error.add_note(self._note)
            # Our frames: the callers' are added while the exception passes them.
            error.__traceback__ = None


def interruptible(method: Callable[Params, Result]) -> Callable[Params, Result]:
    """Make the whole of a public method `Interruptible`."""

    @wraps(method)
    def run(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        with Interruptible():
            return method(*args, **kwargs)

    return run
