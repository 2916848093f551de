"""The lock of the client, and what may be done in the middle of its calls.

Python runs signal handlers and finalizers between any two lines of ours, on a thread that may hold a lock just then.

Rule 1: `LOCK` is one for all Grids, and held for moments. Under it, nobody waits, asks anybody, or runs the program's
code.
Rule 2: under it, first do, and then note that it is done: a handler may raise in between.
Rule 3: what a handler does while its thread holds a lock cannot wait: others wait for that lock. `check_free` says so
at once. The end of a Grid waits until the lock is given back: `when_free`.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

LOCK = threading.RLock()
# The lock of all events on which threads of the program wait. Who holds it takes no other.
_WAITING = threading.RLock()
# How often who waits for the lock looks whether the main thread has ended. Seconds.
_LOOK_S = 0.5
# Threads of ours that bring the answers: nobody may wait for answers on them. Only finalizers try.
answering: set[int] = set()


def is_free(*others: "threading.RLock") -> bool:
    """Whether this thread may wait: it holds no lock of ours, none of ``others``, and does not bring answers."""
    # `_is_owned` is what `threading.Condition` asks, too.
    if any(lock._is_owned() for lock in (LOCK, _WAITING, *others)):  # type: ignore[attr-defined]
        return False
    return threading.get_ident() not in answering


def check_free(*others: "threading.RLock") -> None:
    """Raise RuntimeError unless this thread `is_free`."""
    if not is_free(*others):
        raise RuntimeError(
            "reentrant call: a signal handler or a finalizer used the grid in the middle of another use of it; set a "
            "flag there and look at it later, or raise an exception"
        )


def when_free(action: Callable[[], object], *others: "threading.RLock") -> None:
    """Do ``action`` now if this thread `is_free`, and otherwise in a thread of its own, which can wait."""
    if is_free(*others):
        action()
    else:
        threading.Thread(target=lambda: _later(action), name="deskgrid-end").start()


def _later(action: Callable[[], object]) -> None:
    while not LOCK.acquire(timeout=_LOOK_S):
        # An exception from a handler can end `concurrent.futures.wait` before that gives back what it holds.
        if not threading.main_thread().is_alive():
            return
    LOCK.release()
    action()


class LockCondition(threading.Condition):
    """A condition of `LOCK`, which is taken and given back in a single step: no handler can raise in its middle."""

    __enter__ = LOCK.__enter__
    __exit__ = LOCK.__exit__


class _WaitingCondition(threading.Condition):
    """The same of `_WAITING`."""

    __enter__ = _WAITING.__enter__
    __exit__ = _WAITING.__exit__


class PlainEvent:
    """A `threading.Event` that a handler may set in the middle of the same; one that would wait there is told."""

    def __init__(self) -> None:
        self._condition = _WaitingCondition(_WAITING)
        self._is_set = False

    def set(self) -> None:
        """Set it, and wake who waits."""
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def clear(self) -> None:
        """Have threads wait for it again."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds; return whether it is."""
        check_free()
        with self._condition:
            return self._is_set or self._condition.wait(timeout)


class Waiters(list[Any]):
    """Who waits for a future in `concurrent.futures`: `wait` and `as_completed` add a waiter for all their futures.

    The locks of a waiter become one that `check_free` knows, while nobody can use it yet.
    """

    def append(self, waiter: Any) -> None:
        """Add a waiter."""
        if type(waiter.event) is not PlainEvent:
            waiter.event, waiter.lock = PlainEvent(), _WAITING
        super().append(waiter)


def _before_fork() -> None:
    LOCK.acquire()
    _WAITING.acquire()


def _in_parent() -> None:
    _WAITING.release()
    LOCK.release()


def _in_child() -> None:
    answering.clear()
    _in_parent()


# A fork waits until nobody is in the middle of anything.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
