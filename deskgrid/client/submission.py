"""Submits a bag to the broker: turns items into payloads and runtimes, and sends these in batches.

Rule 1: items are taken one by one and never kept: a generator of a million items costs a few batches of memory.
Rule 2: a bag is accepted as a whole or not at all. If an item turns out to be invalid after others were sent, the bag
is cancelled before the error is raised.
"""

import math
import numbers
import queue
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from deskgrid import wire
from deskgrid.client.bag_files import BagFiles
from deskgrid.client.conversation import Reply
from deskgrid.client.given import check_iterable
from deskgrid.client.link import Link
from deskgrid.client.lock import check_free
from deskgrid.client.replies import SLICE_S, ask
from deskgrid.client.template import Template
from deskgrid.durations import precise, read_duration
from deskgrid.errors import BagRejected, DeskgridError, RequestFailed
from deskgrid.wire import TaskOptions

# Batches of one bag that may be on their way at once: enough to keep the broker busy, and a bound on memory.
WINDOW = 8
# Maximum bytes of these batches, though one batch may always be on its way: a broker limits how many unhandled bytes it
# keeps for each credential.
WINDOW_BYTES = wire.PAYLOAD_LIMIT
# How long cancelling an invalid bag may take. Seconds.
ABANDON_S = 5.0

# Seconds, or a text such as "1h30min".
Seconds = float | str
# Of all tasks, of each item, or a function of the item.
Runtime = Seconds | Iterable[Seconds] | Callable[[Any], Seconds] | None


class AcceptedBag(NamedTuple):
    """A bag that the broker has accepted as a whole. ``note``: a remark for its submitter, or empty."""

    bag: str
    total: int
    note: str


class SubmittedTask(NamedTuple):
    """One task: its payload, and its runtime if each task has its own."""

    payload: wire.Payload
    runtime: float | None


def submit_bag(
    link: Link,
    template: Callable[[Sequence[SubmittedTask]], Template],
    items: Iterable[Any],
    *,
    pack: Callable[[Any, str], wire.Payload],
    name: str,
    runtime: Runtime,
    options: TaskOptions,
    files: BagFiles,
) -> AcceptedBag:
    """Submit a bag with one task for each of ``items``; ``pack(item, what)`` makes a task's payload.

    ``template`` makes the template when the first rows are known. ``files``: of this bag; they are sent before the
    tasks that need them.

    Nothing is sent of a bag without items.

    Raises `BagRejected` (or `PicklingFailed`); then nothing of the bag is left on the grid.
    """
    check_free()
    if wire.is_longer(name, wire.NAME_BYTES):
        raise BagRejected(f"the name has more than {wire.NAME_BYTES} bytes: {name!r:.80}")
    count = len(items) if isinstance(items, Collection) else None
    _check_count(count)
    runtimes = BagRuntimes(runtime, count)
    sender = _Sender(link, template, name, options, runtimes.same, files=files)
    try:
        rows = SubmittedTasks(items, pack, runtimes)
        for batch in wire.in_batches(rows, payload_size):
            sender.send(batch, last=rows.ended)
        sender.wait()
    except BaseException as error:
        if told := sender.abandon():
            error.add_note(told)
        raise
    return AcceptedBag(sender.bag, sender.total, sender.note)


def _check_count(count: int | None) -> None:
    if count is not None and count > wire.BAG_LIMIT:
        raise BagRejected(f"the bag has more than {wire.BAG_LIMIT:,} items: make several bags of them")


class SubmittedTasks:
    """The rows of a bag, made one by one. ``ended``: all rows were made, and the bag is valid."""

    def __init__(self, items: Iterable[Any], pack: Callable[[Any, str], wire.Payload], runtimes: "BagRuntimes") -> None:
        self.ended = False
        self._items = items
        self._pack = pack
        self._runtimes = runtimes

    def __iter__(self) -> Iterator[SubmittedTask]:
        count = 0
        for index, item in enumerate(self._items):
            count = index + 1
            if count > wire.BAG_LIMIT:
                _check_count(count)
            yield SubmittedTask(self._pack(item, f"item {index}"), self._runtimes.of(index, item))
        _check_count(count)
        self._runtimes.check_length(count)
        self.ended = True


class _WithPayload(Protocol):
    @property
    def payload(self) -> wire.Payload: ...


def payload_size(row: _WithPayload) -> int:
    """Return the bytes of a task's payload."""
    return len(row.payload)


class _Sender:
    """Sends the batches of one bag, a few of them at a time."""

    def __init__(
        self,
        link: Link,
        make_template: Callable[[Sequence[SubmittedTask]], Template],
        name: str,
        options: TaskOptions,
        runtime: float | None,
        *,
        files: BagFiles,
    ) -> None:
        self.bag = files.bag
        self._files = files
        self.total = 0
        self.note = ""
        self._link = link
        self._make_template = make_template
        self._template: Template | None = None
        self._name = name
        self._options = options
        self._runtime = runtime
        self._replies: queue.SimpleQueue[Reply | DeskgridError] = queue.SimpleQueue()
        # The bytes of each batch that is on its way. The broker answers batches in order.
        self._flying: deque[int] = deque()
        # Whether a batch was sent, and whether one was accepted.
        self._sent = self._accepted = False

    def send(self, batch: list[SubmittedTask], *, last: bool) -> None:
        """Send ``batch`` as soon as WINDOW and WINDOW_BYTES allow it."""
        if self._template is None:
            self._template = self._make_template(batch)
        self._files.send()
        size = sum(map(payload_size, batch))
        while self._has_no_room(size) or not self._replies.empty():
            self._take()
        self._sent = True
        self._flying.append(size)
        message = self._message(self._template.digest, batch, last)
        self.total += len(batch)
        self._link.send(message, self._replies.put, self._template)

    def wait(self) -> None:
        """Wait until the broker has accepted all batches."""
        while self._flying:
            self._take()

    def _has_no_room(self, size: int) -> bool:
        return len(self._flying) >= WINDOW or bool(self._flying and sum(self._flying) + size > WINDOW_BYTES)

    def _message(self, template: str, rows: list[SubmittedTask], last: bool) -> wire.Submit:
        return wire.Submit(
            request=self._link.number(),
            bag=self.bag,
            name=self._name,
            template=template,
            first=self.total,
            payloads=tuple([row.payload for row in rows]),
            runtime=self._runtime,
            runtimes=tuple([row.runtime for row in rows if row.runtime is not None]),
            options=self._options,
            last=last,
        )

    def _take(self) -> None:
        """Wait for one answer, as long as it takes."""
        reply = self._next_reply()
        self._flying.popleft()
        if isinstance(reply, DeskgridError):
            raise reply
        if not isinstance(reply, wire.Accepted):
            raise BagRejected(getattr(reply, "reason", "the broker's answer is not one to a bag"))
        self._accepted = True
        self.note = reply.note or self.note

    def _next_reply(self) -> Reply | DeskgridError:
        while True:
            with suppress(queue.Empty):
                return self._replies.get(timeout=SLICE_S)

    def abandon(self) -> str:
        """Cancel the batches that were sent; return what becomes of their tasks, or nothing if none were sent."""
        if not self._sent:
            return ""
        try:
            ask(self._link, "cancel", {"bag": self.bag, "items": None}, ABANDON_S)
        except (DeskgridError, KeyboardInterrupt) as error:
            if isinstance(error, RequestFailed) and not self._accepted:
                return ""  # the broker knows no such bag: it rejected the first batch
            return f"the tasks that were already sent may run; cancel them with deskgrid cancel {self.bag}"
        return "the tasks that were already sent are cancelled"


# --- runtimes and items ---------------------------------------------------------------------------------------------


class BagRuntimes:
    """The predicted runtimes of a bag's tasks, in seconds.

    ``same``: the runtime of all tasks; None if it is unknown or differs between tasks.
    """

    def __init__(self, runtime: object, count: int | None) -> None:
        self.same: float | None = None
        self._function: Callable[[Any], Any] | None = None
        self._list: array[float] | None = None
        if isinstance(runtime, numbers.Real | str):
            self.same = checked_seconds(runtime, "the runtime")
        elif callable(runtime):
            self._function = runtime
        elif isinstance(runtime, Iterable) and not isinstance(runtime, bytes | Mapping):
            named = ((value, f"the runtime of item {index}") for index, value in enumerate(runtime))
            self._list = array("d", (checked_seconds(value, what) for value, what in named))
            if count is not None:
                self.check_length(count)
        elif runtime is not None:
            raise BagRejected(
                'runtime is seconds, a text such as "1h", a list of these or a function of the item, not '
                f"{runtime!r:.80}"
            )

    def of(self, index: int, item: Any) -> float | None:
        """Return the runtime of one item if each item has its own."""
        if self._function is not None:
            return self._predicted(self._function, index, item)
        if self._list is None:
            return None
        if index >= len(self._list):
            raise BagRejected(f"item {index} has no runtime: there are {len(self._list)}")
        return self._list[index]

    def check_length(self, count: int) -> None:
        """Refuse a list whose length differs from the bag's."""
        if self._list is not None and len(self._list) != count:
            raise BagRejected(f"{len(self._list)} runtimes came with {count} items")

    @staticmethod
    def _predicted(function: Callable[[Any], Any], index: int, item: Any) -> float:
        try:
            value = function(item)
        except Exception as error:
            raise BagRejected(f"the runtime of item {index} cannot be predicted: {error!r}") from error
        return checked_seconds(value, f"the runtime of item {index}")


def checked_seconds(value: object, what: str) -> float:
    """Return ``value``, a number or a text such as "1h", as finite seconds, not negative. Raises `BagRejected`."""
    if isinstance(value, str):
        value = _read_seconds(value)
    if type(value) is bool or not isinstance(value, numbers.Real):
        raise BagRejected(f'{what} is not a number of seconds or a text such as "90s" or "1h30min": {value!r:.80}')
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not 0.0 <= seconds < math.inf:
        raise BagRejected(f"{what} is {seconds} s; it has to be a finite number, and not negative")
    if seconds > wire.SECONDS_LIMIT:
        raise BagRejected(f"{what} is {seconds:g} s; it has to be {precise(wire.SECONDS_LIMIT)} at most")
    return seconds


def _read_seconds(text: str) -> float | str:
    """Return the seconds in a text; the text itself if it has none."""
    try:
        return read_duration(text)
    except ValueError:
        return text


def kept(items: Iterable[Any]) -> Sequence[Any] | None:
    """Return a snapshot of ``items`` for later lookups; None if they come one by one and are not kept.

    Raises `BagRejected` if they are no items at all.
    """
    check_iterable("items", items, "a list, or anything else that `for` goes through")
    if isinstance(items, tuple | range | str):
        return items
    return tuple(items) if isinstance(items, Collection) else None
