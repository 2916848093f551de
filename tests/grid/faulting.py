"""Unexpected exceptions, raised everywhere in the broker's sessions, one at a time.

The methods of all objects in the sessions are found by introspection, so new ones are covered automatically. Each
method is made to raise before or after it has done its work, while the broker handles a victim's message, or while it
settles. `tests.grid.test_faults` checks what others see of that.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.store.journal import Journal

# Where the broker is when it fails: at a message of somebody whose name begins with this, or settling.
VICTIM = "victim"
SETTLE = "settle"
# The journal says itself what its errors mean (`tests.broker.test_full_disk`); credentials are given in tests.
NOT_OURS = (Journal, Credential)


class Injected(Exception):
    """Raised by a test, whatever else it is."""


class _Runtime(Injected, RuntimeError):
    pass


class _Key(Injected, KeyError):
    pass


class _Recursion(Injected, RecursionError):
    pass


class _Memory(Injected, MemoryError):
    pass


class _Value(Injected, ValueError):
    pass


ERRORS: tuple[type[Injected], ...] = (_Runtime, _Key, _Recursion, _Memory, _Value)


@dataclass(frozen=True, slots=True)
class Fault:
    """``method``: of a class, as "Clients._submit". ``where``: `VICTIM` or `SETTLE`. ``number``: of the call."""

    method: str
    where: str
    after: bool
    error: type[Injected]
    number: int = 1

    def __str__(self) -> str:
        when = "after" if self.after else "before"
        return f"{self.error.__name__} {when} call {self.number} of {self.method} ({self.where})"


@dataclass(slots=True)
class Penalties:
    """What is to be raised, and what has been called. ``raised``: by whom of the victims."""

    armed: Fault | None = None
    raised: str | None = None
    called: Counter[tuple[str, str]] = field(default_factory=Counter)
    _where: str = ""
    _who: str = ""
    _seen: int = 0

    def arm(self, fault: Fault) -> None:
        self.armed, self.raised, self._seen = fault, None, 0

    def disarm(self) -> None:
        self.armed = None

    def entered(self, where: str, who: str) -> None:
        self._where, self._who = where, who

    def passed(self, method: str, after: bool) -> None:
        """A method is called, or has done its work."""
        if not self._where:
            return
        if not after:
            self.called[method, self._where] += 1
        fault = self.armed
        if fault is None or (fault.method, fault.where, fault.after) != (method, self._where, after):
            return
        self._seen += 1
        if self._seen == fault.number:
            self.armed, self.raised = None, self._who
            raise fault.error(str(fault))


def parts_of(sessions: Sessions) -> set[type]:
    """The classes of a broker's own objects that the sessions are made of."""
    ours = ("deskgrid.broker.", "deskgrid.wire.")
    found: set[type] = set()
    waiting: list[Any] = [sessions]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind in found or not kind.__module__.startswith(ours) or isinstance(each, NOT_OURS):
            continue
        found.add(kind)
        names = getattr(kind, "__slots__", ()) or vars(each)
        waiting += [getattr(each, name) for name in names if hasattr(each, name)]
    return found


def methods(kind: type) -> Iterator[tuple[str, FunctionType]]:
    """What is called on objects of ``kind``, but for what Python calls by itself."""
    for name, function in vars(kind).items():
        if isinstance(function, FunctionType) and not name.startswith("__"):
            yield name, function


def watched(faults: Penalties, name: str, function: FunctionType) -> Callable[..., Any]:
    """The function, which may raise before and after it has done its work."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        faults.passed(name, after=False)
        value = function(*args, **kwargs)
        faults.passed(name, after=True)
        return value

    return call


def placed(
    faults: Penalties, function: Callable[..., Any], where: Callable[..., tuple[str, str]]
) -> Callable[..., Any]:
    """The function; while it runs it is known where the broker is, and with whom."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        faults.entered(*where(*args, **kwargs))
        try:
            return function(*args, **kwargs)
        finally:
            faults.entered("", "")

    return call


def watch(faults: Penalties, sessions: Sessions, patch: Callable[[type, str, Any], None]) -> None:
    """Have every method of every part watched from now on. ``patch`` sets an attribute, and undoes that in time."""
    for kind in parts_of(sessions):
        for name, function in methods(kind):
            patch(kind, name, watched(faults, f"{kind.__name__}.{name}", function))

    def at_message(self: Sessions, peer: bytes, who: Credential, *rest: Any) -> tuple[str, str]:
        return (VICTIM, who.name) if who.name.startswith(VICTIM) else ("", "")

    patch(Sessions, "receive", placed(faults, Sessions.receive, at_message))
    patch(Sessions, "settle", placed(faults, Sessions.settle, lambda *args: (SETTLE, "")))
