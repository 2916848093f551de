"""Waiting for the broker's answers on the thread that asks."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from deskgrid import wire
from deskgrid.client.conversation import Handler, Reply
from deskgrid.client.forks import check_process, this_process
from deskgrid.client.lock import PlainEvent, check_free
from deskgrid.durations import precise
from deskgrid.errors import DeskgridError, GridUnreachable, RequestFailed
from deskgrid.wire.details import EventRow

# How long a question may stay unanswered. A busy broker answers within milliseconds, a restarting broker within
# seconds. Waiting for results, or for a bag to be accepted, has no such limit. Seconds.
ANSWER_S = 30.0
# The same for an order that changes a bag, which may be huge; meanwhile the broker answers pings. Seconds.
ORDER_S = 3600.0
# Waits are cut into pieces of this length, because on Windows Ctrl-C does not interrupt a wait. Seconds.
SLICE_S = 0.5


class AskingLink(Protocol):
    """The part of a link that this file uses."""

    @property
    def address(self) -> str: ...
    def number(self) -> int: ...
    def send(self, message: wire.Ask, answered: Handler, /) -> None: ...
    def withdraw(self, number: int, /) -> None: ...


class Waiter:
    """One answer, for the thread that waits for it."""

    __slots__ = ("_event", "_process", "_reply")

    def __init__(self) -> None:
        self._process = this_process()
        self._event = PlainEvent()
        self._reply: Reply | DeskgridError | None = None

    def __call__(self, reply: Reply | DeskgridError) -> None:
        self._reply = reply
        self._event.set()

    def get(self, seconds: float | None = None) -> Reply | None:
        """Wait for the answer; return None if it does not come within ``seconds``.

        Raises the error that came instead of an answer.
        """
        check_process(self._process)
        if not wait_for(self._event, seconds):
            return None
        if isinstance(self._reply, DeskgridError):
            # A new exception each time: many threads may get the same error, and each needs its own traceback.
            raise type(self._reply)(*self._reply.args)
        return self._reply


def wait_for(event: PlainEvent, seconds: float | None = None) -> bool:
    """Wait until ``event`` is set, at most ``seconds`` (None: forever); return whether it is. Ctrl-C interrupts it."""
    end = None if seconds is None else time.monotonic() + seconds
    while not event.wait(SLICE_S if end is None else max(0.0, min(SLICE_S, end - time.monotonic()))):
        if end is not None and time.monotonic() >= end:
            return False
    return True


def ask(link: AskingLink, what: str, args: dict[str, Any], seconds: float = ANSWER_S) -> dict[str, Any]:
    """Return the broker's answer to one question. Raises `RequestFailed`, or `GridUnreachable` after ``seconds``."""
    check_free()
    number, waiter = link.number(), Waiter()
    try:
        asked = wire.Ask(number, what, wire.pack_record(args))
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestFailed(f"{what!r} cannot be asked like that: {error}") from error
    if len(asked.args) > wire.QUESTION_BYTES:
        raise RequestFailed(
            f"{what!r} is asked with {len(asked.args):,} bytes of arguments; the limit is {wire.QUESTION_BYTES:,}"
        )
    link.send(asked, waiter)
    reply = waiter.get(seconds)
    if reply is None:
        link.withdraw(number)
        raise GridUnreachable(f"the broker at {link.address} has not answered for {precise(seconds)}")
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
    """Yield the pages of a list. ``ask_after(after)`` asks for a page; ``after`` is from the page before, or None.

    Raises `RequestFailed` if the broker's pages go round in circles.
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


class NewEvents:
    """Asks for events; if not all may be seen, only for those that everybody may see.

    ``after``: the number of the last one, once there are any.
    """

    def __init__(self, ask: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        self._ask = ask
        self._question = "events all"
        self.after: int | None = None

    def pages(self) -> Iterator[list[EventRow]]:
        """Yield the events since the last time, the oldest first. Raises `RequestFailed`, and what ``ask`` raises."""
        while True:
            try:
                page = self._ask(self._question, {"after": self.after})
            except RequestFailed:
                if self._question == "events":
                    raise
                self._question = "events"
                continue
            self.after = page["after"]
            if not page["events"]:
                return
            yield page["events"]


def results_of(outcomes: wire.Outcomes) -> tuple[wire.BagResult, ...]:
    """Return the results in the broker's answer. Raises `RequestFailed`."""
    try:
        return wire.results_in(outcomes)
    except wire.ProtocolError as error:
        raise RequestFailed(f"the broker's answer cannot be read: {error}") from error
