"""Grids in a forked child: copies without their threads, which belong to the process that opened them.

There, each is closed at once, and says why. Nothing here takes a lock: another thread may have held it at the fork, and
would hold it in the child for ever.
"""

import os
from typing import Protocol
from weakref import WeakSet

from deskgrid.errors import GridClosed


class Opened(Protocol):
    """What belongs to the process that opened it."""

    def forked(self, error: GridClosed, /) -> None:
        """Become useless: this is the child. ``error``: what whoever uses it gets."""


_opened: WeakSet[Opened] = WeakSet()
_pid = os.getpid()


def belongs_here(opened: Opened) -> None:
    """Remember that this process opened it."""
    _opened.add(opened)


def _in_child() -> None:
    global _pid
    parent, _pid = _pid, os.getpid()
    error = GridClosed(
        f"this Grid was opened in process {parent}, and this is process {_pid}, which was forked from it: "
        "open a Grid of its own here"
    )
    before = [*_opened]
    _opened.clear()
    for each in before:
        each.forked(error)


if hasattr(os, "register_at_fork"):  # there are no forks on Windows
    os.register_at_fork(after_in_child=_in_child)
