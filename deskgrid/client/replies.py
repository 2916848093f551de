"""Waiting for the broker's answers, on the thread that asks."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from deskgrid import wire
from deskgrid.client.conversation import Handler, Reply
from deskgrid.errors import DeskgridError, GridUnreachable, RequestFailed

# How long a question may stay unanswered. A busy broker answers within milliseconds, one that is restarted within
# seconds; whoever waits for results or for a bag to be accepted waits as long as it takes.
ANSWER_S = 30.0
# An order that changes a bag of any size takes as long as that takes; meanwhile the broker shows that it is there.
ORDER_S = 3600.0
# Waits are cut into pieces of this length, because on Windows Ctrl-C does not interrupt a wait.
SLICE_S = 0.5


class Asked(Protocol):
    """What this file needs of a link."""

    @property
    def address(self) -> str: ...
    def number(self) -> int: ...
    def send(self, message: wire.Ask, answered: Handler, /) -> None: ...
    def withdraw(self, number: int, /) -> None: ...


class Waiter:
    """One answer, for the thread that waits for it."""

    __slots__ = ("_event", "_reply")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reply: Reply | DeskgridError | None = None

    def __call__(self, reply: Reply | DeskgridError) -> None:
        self._reply = reply
        self._event.set()

    def get(self, seconds: float | None = None) -> Reply | None:
        """The answer, or None when it is not there within ``seconds``. Raises the error that came in its place."""
        if not wait_for(self._event, seconds):
            return None
        if isinstance(self._reply, DeskgridError):
            # A new one each time: many may wait for the same link, and a traceback belongs to one of them.
            raise type(self._reply)(*self._reply.args)
        return self._reply


def wait_for(event: threading.Event, seconds: float | None = None) -> bool:
    """Whether ``event`` is set within ``seconds`` (None: wait for ever). Ctrl-C ends it on every system."""
    end = None if seconds is None else time.monotonic() + seconds
    while not event.wait(SLICE_S if end is None else max(0.0, min(SLICE_S, end - time.monotonic()))):
        if end is not None and time.monotonic() >= end:
            return False
    return True


def ask(link: Asked, what: str, args: dict[str, Any], seconds: float = ANSWER_S) -> dict[str, Any]:
    """The broker's answer to one question. Raises `RequestFailed`, or `GridUnreachable` after ``seconds``."""
    said = json.dumps(args)
    if len(said) > wire.QUESTION_BYTES:
        raise RequestFailed(
            f"{what!r} is asked with {len(said):,} bytes of arguments; the limit is {wire.QUESTION_BYTES:,}"
        )
    number, waiter = link.number(), Waiter()
    link.send(wire.Ask(number, what, said), waiter)
    reply = waiter.get(seconds)
    if reply is None:
        link.withdraw(number)
        raise GridUnreachable(f"the broker at {link.address} has not answered for {seconds:g} s")
    if isinstance(reply, wire.Failed):
        raise RequestFailed(reply.reason)
    try:
        answer = json.loads(reply.body) if isinstance(reply, wire.Answer) else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise RequestFailed(f"the broker's answer to {what!r} cannot be read")
    return answer


def pages(ask_after: Callable[[Any], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The pages of a list; ``ask_after(after)`` asks for the one behind that of which ``after`` came (None: the first).

    Raises `RequestFailed` when the broker goes round in circles.
    """
    after, seen = None, set[object]()
    while True:
        page = ask_after(after)
        yield page
        after = page.get("after")
        if after is None:
            return
        if after in seen:
            raise RequestFailed("the broker's answer cannot be read: it repeats itself")
        seen.add(after)


def results_of(outcomes: wire.Outcomes) -> tuple[wire.BagResult, ...]:
    """The results that the broker tells. Raises `RequestFailed`."""
    try:
        return wire.results_in(outcomes)
    except wire.ProtocolError as error:
        raise RequestFailed(f"the broker's answer cannot be read: {error}") from error
