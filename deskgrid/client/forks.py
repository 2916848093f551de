"""Grids in a forked child: copies without their threads, which belong to the process that opened them.

There, each is closed at once, and says why. Nothing here takes a lock: another thread may have held it at the fork, and
would hold it in the child for ever.
"""

import os
from typing import Protocol
from weakref import WeakSet

from deskgrid.errors import GridClosed


class OpenedHere(Protocol):
    """What belongs to the process that opened it."""

    def forked(self, error: GridClosed, /) -> None:
        """Become useless: this is the child. ``error``: what whoever uses it gets."""


class _ThisProcess:
    """This process. ``error``: in a child, why nothing comes any more for those who waited before the fork."""

    pid = os.getpid()
    error: GridClosed | None = None


_opened: WeakSet[OpenedHere] = WeakSet()


def belongs_here(opened: OpenedHere) -> None:
    """Remember that this process opened it."""
    _opened.add(opened)


def this_process() -> int:
    """Return what tells this process from the one that it was forked from."""
    return _ThisProcess.pid


def check_process(began: int) -> None:
    """Raise `GridClosed` if what began in process ``began`` goes on in a child."""
    if began != _ThisProcess.pid and _ThisProcess.error is not None:
        raise GridClosed(*_ThisProcess.error.args)


def _in_child() -> None:
    parent, _ThisProcess.pid = _ThisProcess.pid, os.getpid()
    error = _ThisProcess.error = GridClosed(
        f"this Grid was opened in process {parent}, and this is process {_ThisProcess.pid}, which was forked from it: "
        "open a Grid of its own here"
    )
    before = [*_opened]
    _opened.clear()
    for each in before:
        each.forked(error)


if hasattr(os, "register_at_fork"):  # there are no forks on Windows
    os.register_at_fork(after_in_child=_in_child)
