"""Runs beside each other: what does not depend on each other is computed by several processes."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def computed(function: Callable[[T], R], items: Sequence[T], processes: int) -> Iterator[Iterator[R]]:
    """What ``function`` returns for each of ``items``, in order, computed by up to ``processes`` processes."""
    count = min(processes, len(items))
    if count <= 1:
        yield map(function, items)
        return
    # "spawn" is the only start method that every system has and that threads of ours cannot disturb.
    with get_context("spawn").Pool(count, _leave_interrupts_to_the_parent) as pool:
        yield pool.imap(function, items)


def _leave_interrupts_to_the_parent() -> None:
    """Go on at Ctrl-C: the process that started this one ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
